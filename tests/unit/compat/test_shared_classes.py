"""Classes that are also those of another client, where it is loaded."""

from __future__ import annotations

import pickle
import sys
from unittest.mock import MagicMock

import confluent_kafka
import pytest

from aioproducer.compat import confluent
from aioproducer.compat.confluent import Message
from aioproducer.compat.confluent import _errors as errors


def test_a_mock_in_the_place_of_the_other_client_has_no_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", MagicMock())
    assert Message().__class__ is Message


def test_class_of_a_drop_in_in_the_place_of_the_client_s_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confluent_kafka, "Message", Message)
    monkeypatch.setattr(confluent_kafka, "KafkaException", errors.KafkaException)
    assert Message().__class__ is Message
    assert isinstance(errors.exception(10), confluent_kafka.KafkaException)


def test_drop_in_in_the_place_of_the_client_in_sys_modules_has_its_own_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", confluent)
    assert Message().__class__ is Message
    assert isinstance(errors.exception(10), confluent.KafkaException)


def test_exception_of_the_drop_in_is_of_the_client_s_class_after_pickling_as_well() -> None:
    again = pickle.loads(pickle.dumps(errors.exception(10)))
    assert isinstance(again, confluent_kafka.KafkaException)
    assert again.args[0].code() == 10


def test_exceptions_that_the_client_s_consumers_raise_are_its_own() -> None:
    consumer = confluent.Consumer({"group.id": "g"})
    with pytest.raises(confluent.KafkaException):
        consumer.commit(asynchronous=False)
    for name in ("KeySerializationError", "ProduceError", "SerializationError"):
        assert getattr(confluent.errors, name) is getattr(confluent.serialization, name)
        assert not getattr(confluent.errors, name).__module__.startswith("aioproducer")
