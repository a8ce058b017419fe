"""Classes that are also those of another client, where it is loaded."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

import confluent_kafka
import pytest

from aioproducer.compat import confluent
from aioproducer.compat.confluent import Message, errors


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
    assert type(errors.exception(10)) is errors.KafkaException
