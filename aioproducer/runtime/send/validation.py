"""The choice of a record's partition, checks of its size and timestamp: start with `RecordCheck`.

They need nothing but the topic's metadata.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aioproducer._util import log
from aioproducer._util.arguments import index_of
from aioproducer._util.printable import exception_without_data, repr_of
from aioproducer.core.batching.batch import OutgoingRecord
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.errors import (
    InvalidPartitionError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    UnsupportedVersionError,
)
from aioproducer.records import record_size_bound
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.types import TopicMetadata

_TIMESTAMPS = 2**63
LAST_PARTITION: Final = 2**31 - 1
"""The highest number of a partition that requests can have."""
SECONDS: Final = range(10**9, 10**10)
"""Timestamps that are probably in seconds (2001 to 2286); in milliseconds they are of early 1970.

The fast path leaves these records to `RecordCheck`, which writes a warning.
"""

_log = log.get("runtime")

ChoosePartition = Callable[[str, bytes | None, bytes | None, "TopicMetadata"], int | None]
"""Choose a record's partition; None leaves the choice to the sticky partitioner."""


class PartitionChoice:
    """The partitioner, which is asked once for each record.

    The fast path may refuse a record after it has asked (no open batch has room). It leaves the
    choice here, for the slow path that takes the same record next.
    """

    __slots__ = ("_choose", "_kept")

    def __init__(self, choose: ChoosePartition) -> None:
        self._choose = choose
        self._kept: tuple[bytes | None, bytes | None, TopicMetadata, object] | None = None

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, meta: TopicMetadata
    ) -> object:
        """Return what the partitioner chooses, or has chosen for this record; it may be no int."""
        if self._kept is not None:
            kept_key, kept_value, kept_meta, chosen = self._kept
            self._kept = None
            if kept_value is value and kept_key is key and kept_meta is meta:
                return chosen
        try:
            return self._choose(topic, key, value, meta)
        # Nothing cancels a plain call, see `HOOK_ERRORS`; no coroutine can raise StopIteration.
        except (CancelledError, StopIteration) as error:
            raise partitioner_error(error).with_context(topic=topic) from error

    def keep(
        self, key: bytes | None, value: bytes | None, meta: TopicMetadata, chosen: object
    ) -> None:
        """Remember a choice for the next call with the same objects."""
        self._kept = (key, value, meta, chosen)


class RecordCheck:
    """Make an `OutgoingRecord` from the arguments of a call."""

    def __init__(
        self,
        max_request_size: int,
        pool: BufferPool,
        choice: PartitionChoice,
        wall_ms: Callable[[], int],
    ) -> None:
        self._max_request_size = max_request_size
        self._pool = pool
        self.choice: PartitionChoice = choice
        self._wall_ms = wall_ms
        self.takes_headers: bool = True
        self._has_warned_of_seconds = False

    def record(
        self,
        meta: TopicMetadata,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> OutgoingRecord:
        """Check the arguments and make the record."""
        try:
            size = record_size_bound(key, value, headers) + HEADER_SIZE
        except (TypeError, ValueError) as error:
            raise SerializationError(str(error), topic=meta.name) from error
        if headers and not self.takes_headers:
            raise UnsupportedVersionError(
                "brokers before Kafka 0.11 cannot store record headers",
                topic=meta.name,
                advice="send without headers, or upgrade the brokers",
            )
        self._pool.check_size(size, meta.name)
        if size > self._max_request_size:
            raise RecordTooLargeError(
                f"the record takes up to {size} bytes in a request, more than "
                f"max_request_size={self._max_request_size}",
                topic=meta.name,
                advice="raise max_request_size (and the broker's message.max.bytes)",
            )
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        else:
            timestamp_ms = checked_timestamp(timestamp_ms, meta.name)
            if timestamp_ms in SECONDS and not self._has_warned_of_seconds:
                self._warn_of_seconds(timestamp_ms, meta.name)
        if partition is None:
            chosen = self.choice(meta.name, key, value, meta)
            if chosen is not None:
                partition = _chosen_partition(chosen, meta)
        return OutgoingRecord(meta, partition, timestamp_ms, key, value, headers, size)

    def _warn_of_seconds(self, timestamp_ms: int, topic: str) -> None:
        """Write one warning for each producer."""
        self._has_warned_of_seconds = True
        _log.warning(
            "timestamp_ms=%d of a record for topic %r is in January to April 1970 and looks like "
            "seconds; give milliseconds (it is sent as it is, and this is logged once)",
            timestamp_ms,
            topic,
        )


def checked_timestamp(timestamp_ms: object, topic: str) -> int:
    """Return a time in milliseconds that a user has given: an int or another exact integer."""
    kind: type[Exception] = ValueError
    try:
        number = index_of(timestamp_ms)  # type: ignore[arg-type]
    except TypeError:
        kind, number = TypeError, -1
    if 0 <= number < _TIMESTAMPS:
        return number
    what = f"timestamp_ms must be an int from 0 to 2**63-1, got {repr_of(timestamp_ms)}"
    raise SerializationError(what, topic=topic) from kind(what)


def partition_index(partition: object, topic: str) -> int:
    """Return a partition that a user has given: an int or another exact integer, but no bool."""
    try:
        number = index_of(partition)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= LAST_PARTITION:
        raise InvalidPartitionError(
            f"a partition is a number from 0 to 2**31-1, got {repr_of(partition)}", topic=topic
        )
    return number


def partitioner_error(cause: BaseException) -> InvalidPartitionError:
    """Return the error of a record for which the partitioner raised, where no call raises that."""
    error = InvalidPartitionError(f"the partitioner raised {exception_without_data(cause)}")
    error.__cause__ = cause
    return error


def refusal_of(raised: BaseException, partitioner: object) -> KafkaError | None:
    """Return the error of one item of a bulk call; None if the call cannot go on.

    A partitioner that is a function of the application may raise anything.
    """
    if isinstance(raised, KafkaError):
        return raised
    if isinstance(partitioner, str) or not isinstance(raised, Exception):
        return None
    return None if isinstance(raised, MemoryError) else partitioner_error(raised)


def _chosen_partition(chosen: object, meta: TopicMetadata) -> int:
    """Return the partition that a partitioner chose; raise if the topic does not have it."""
    number = partition_index(chosen, meta.name)
    if number >= len(meta.partitions):
        raise InvalidPartitionError(
            f"the partitioner chose {number} of {len(meta.partitions)} partitions", topic=meta.name
        )
    return number
