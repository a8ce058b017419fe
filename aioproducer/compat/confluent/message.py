"""confluent-kafka's `Message`: a record with its outcome, as delivery callbacks get it."""

from __future__ import annotations

from typing import Any, Final

from aioproducer.compat._shared_classes import counterpart
from aioproducer.compat.confluent._errors import KafkaError

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2

Headers = list[tuple[str, bytes | None]]


class Message:
    """A record and what became of it; `len()` is the size of its value."""

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return counterpart("confluent_kafka", "Message") or Message

    def topic(self) -> str | None:
        """Return the topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition; None while none was chosen."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset; None where the broker gives none (`acks=0`), and of a failure."""
        return self._offset

    def key(self) -> bytes | None:
        """Return the key as it was sent."""
        return self._key

    def value(self) -> bytes | None:
        """Return the value as it was sent."""
        return self._value

    def deserialized_key(self) -> Any:
        """Return the key: what was produced is not deserialized."""
        return self._key

    def deserialized_value(self) -> Any:
        """Return the value: what was produced is not deserialized."""
        return self._value

    def headers(self) -> Headers | None:
        """Return the headers as pairs; None if there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return why the record failed; None if it did not."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the kind (`TIMESTAMP_CREATE_TIME`, ...) and milliseconds since the epoch."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from `produce()` to the outcome."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return None: the answer to a Produce request has no epoch."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return None: only consumers of share groups count deliveries."""
        return self._delivery_count

    def set_topic(self, value: str | None) -> None:
        """Replace the topic."""
        self._topic = value

    def set_error(self, value: KafkaError | None) -> None:
        """Replace the error."""
        self._error = value

    def set_headers(self, value: Headers | None) -> None:
        """Replace the headers."""
        self._headers = value

    def set_value(self, value: bytes | None) -> None:
        """Replace the value."""
        self._value = value

    def set_key(self, value: bytes | None) -> None:
        """Replace the key."""
        self._key = value

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (
            self._topic,
            self._partition,
            self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            self._timestamp,
            self._latency,
            self._leader_epoch,
            self._delivery_count,
        )
        return Message, parts

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)
