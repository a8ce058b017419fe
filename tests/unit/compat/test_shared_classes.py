"""Classes that are also those of another client, where it is loaded."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

import pytest

from aioproducer.compat.confluent import Message, errors


def test_a_mock_in_the_place_of_the_other_client_has_no_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", MagicMock())
    assert errors.shared_class(Message) is Message
