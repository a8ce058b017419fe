"""The foreign reader, where brokers are slow to hear of a topic."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from support.confluent import _partitions


class LaggingConsumer:
    """Has the topic once it has been asked often enough."""

    def __init__(self, answers: int, code: int) -> None:
        self._answers, self._code = answers, code

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self._answers -= 1
        error = KafkaError(self._code) if self._answers >= 0 else None
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={0: None})})


def test_a_broker_that_has_not_heard_of_a_topic_yet_is_asked_again() -> None:
    lagging = LaggingConsumer(2, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert _partitions(lagging, "new", time.monotonic() + 60) == {0}


@pytest.mark.parametrize(
    ("code", "remaining_s"),
    [(KafkaError.UNKNOWN_TOPIC_OR_PART, -1), (KafkaError.TOPIC_AUTHORIZATION_FAILED, 60)],
)
def test_an_error_that_waiting_cannot_cure_is_raised(code: int, remaining_s: float) -> None:
    with pytest.raises(KafkaException):
        _partitions(LaggingConsumer(5, code), "new", time.monotonic() + remaining_s)
