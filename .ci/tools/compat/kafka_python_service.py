"""Stands for kafka-python's `test/service.py`, which its source distribution lacks.

The brokers run already (`KAFKA_URI`), so nothing is started.
"""


class ExternalService:
    """Brokers that are running already."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """Nothing."""

    def close(self):
        """Nothing."""


class SpawnedService:
    """Never made here."""

    def __init__(self, *arguments, **options):
        raise NotImplementedError("the brokers run already")
