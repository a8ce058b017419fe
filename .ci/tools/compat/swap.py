"""A pytest plugin that puts the drop-in in the place of a client's producer before tests.

    AIOPRODUCER_COMPAT=ours AIOPRODUCER_COMPAT_PROGRAM=kstreams pytest -p tools.compat.swap

It also gives FastStream the address of the brokers.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

import pytest

OURS = os.environ.get("AIOPRODUCER_COMPAT") == "ours"
BOOTSTRAP = os.environ.get("AIOPRODUCER_COMPAT_BOOTSTRAP", "")


PROGRAM = os.environ.get("AIOPRODUCER_COMPAT_PROGRAM", "aiokafka")
_PRODUCERS = {
    "kafka-python": (("kafka.producer", "KafkaProducer", "aioproducer.compat.kafka"),),
    "confluent-kafka": (
        ("confluent_kafka", "Producer", "aioproducer.compat.confluent"),
        ("confluent_kafka", "SerializingProducer", "aioproducer.compat.confluent"),
        ("confluent_kafka.aio", "AIOProducer", "aioproducer.compat.confluent"),
    ),
}
NAMES = _PRODUCERS.get(
    PROGRAM, (("aiokafka.producer", "AIOKafkaProducer", "aioproducer.compat.aiokafka"),)
)


def _replace_producer(client: str, name: str, here: str) -> None:
    original = getattr(importlib.import_module(client), name)
    producer = getattr(importlib.import_module(here), name)
    package = client.partition(".")[0]
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == package:
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, producer)


if OURS:
    for row in NAMES:
        _replace_producer(*row)


def pytest_report_header() -> str:
    """The first lines of the report say whose producer is tested."""
    client, name, _ = NAMES[0]
    return f"compat: {getattr(importlib.import_module(client), name).__module__}"


def _set_address(function: Any) -> None:
    """Let FastStream's brokers, which are made without an address, find ours."""
    function = inspect.unwrap(function)
    function.__defaults__ = function.__defaults__ and tuple(map(_address, function.__defaults__))
    for name, value in (function.__kwdefaults__ or {}).items():
        function.__kwdefaults__[name] = _address(value)


def _address(default: Any) -> Any:
    return BOOTSTRAP if default in ("localhost", "localhost:9092") else default


if PROGRAM == "faststream":
    from faststream.kafka import KafkaBroker
    from faststream.kafka.fastapi import KafkaRouter

    for name in ("AIOKafkaConsumer", "admin.AIOKafkaAdminClient"):
        module, _, class_name = f"aiokafka.{name}".rpartition(".")
        _set_address(getattr(importlib.import_module(module), class_name).__init__)
    _set_address(KafkaBroker.__init__)
    _set_address(KafkaRouter.__init__)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """FastStream's tests have the address as a default of theirs, too."""
    settings = sys.modules.get("tests.brokers.kafka.settings")
    if settings is not None:
        _set_address(settings.Settings.__init__)
