"""Stands for aiokafka's `tests/conftest.py`: brokers that run already, in place of its container.

Its own one is imported from `their_conftest.py`, where the runner has put it. What needs the
container (access control, Kerberos, listeners with SASL, certificates) is skipped.
"""

import os
from types import SimpleNamespace

import pytest

from .their_conftest import *  # noqa: F403
from .their_conftest import pytest_addoption, pytest_configure  # noqa: F401

_VERSION = os.environ["AIOPRODUCER_COMPAT_KAFKA"]
_NO_CONTAINER = "needs the container of aiokafka's own test suite"


class _NoContainer:
    def __getattr__(self, name):
        pytest.skip(f"{_NO_CONTAINER} ({name})")

    def __truediv__(self, name):
        pytest.skip(f"{_NO_CONTAINER} ({name})")


@pytest.fixture(scope="session")
def docker():
    """No container."""
    return


@pytest.fixture(scope="session")
def kafka_image():
    """A name with the version of the brokers."""
    return f"kafka:{_VERSION}"


@pytest.fixture(scope="session")
def ssl_folder():
    """No certificates."""
    return _NoContainer()


@pytest.fixture(scope="class")
def acl_manager():
    """No access control."""
    return _NoContainer()


@pytest.fixture(scope="class")
def kafka_config():
    """No changes of brokers."""
    return _NoContainer()


@pytest.fixture(scope="class")
def kerberos_utils():
    """No Kerberos."""
    return _NoContainer()


@pytest.fixture(scope="session")
def kafka_server():
    """The brokers."""
    host, _, port = os.environ["AIOPRODUCER_COMPAT_BOOTSTRAP"].split(",")[0].rpartition(":")
    return SimpleNamespace(
        host=host,
        port=int(port),
        ssl_port=None,
        sasl_plain_port=None,
        sasl_ssl_port=None,
        container=_NoContainer(),
        hosts=[f"{host}:{port}"],
    )


@pytest.fixture(scope="class")
def setup_test_class(
    request, loop, kafka_server, ssl_folder, acl_manager, kerberos_utils, kafka_config
):
    """What classes of tests have as attributes."""
    cls = request.cls
    cls.loop, cls.kafka_version = loop, _VERSION
    cls.kafka_host, cls.kafka_port, cls.hosts = (
        kafka_server.host,
        kafka_server.port,
        kafka_server.hosts,
    )
    cls.kafka_ssl_port = cls.kafka_sasl_plain_port = cls.kafka_sasl_ssl_port = None
    cls.ssl_folder, cls.acl_manager = ssl_folder, acl_manager
    cls.kerberos_utils, cls.kafka_config = kerberos_utils, kafka_config
