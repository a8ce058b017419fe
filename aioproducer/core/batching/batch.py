"""ProducerBatch: records of one partition, from `OutgoingRecord`s to the outcome.

    OPEN --close()--> CLOSED --pin()--> (in flight) --unpin()--> CLOSED ... --complete()--> done

Invariants
- The outcome is set once; a second one (a late response after an expiry) is ignored.
- The buffer returns to the pool once, and only when the batch is done *and* no transport holds
  it: a batch that expires in flight keeps its buffer until its connection releases it
  (KAFKA-19012).
- `possibly_persisted` is never reset: once an attempt may have been written, no error of another
  attempt proves that the records are not in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import HEADER_SIZE, EncodedBatch
from aioproducer.records.message_set import EncodedMessageSet, records_of
from aioproducer.records.reader import DecodedRecord
from aioproducer.types import HeaderPairs, Persistence, TimestampType, TopicMetadata, TopicPartition

NO_PARTITION = -1
"""The partition of records whose topic has no metadata yet."""
_NO_TOPIC_ID = UUID(int=0)
_SEQUENCES = 2**31
_MOST_GROWTH = 10
"""Bytes by which a record may grow in another batch: timestamps are deltas to the first one's."""


def name_of(where: TopicPartition) -> str:
    """Return a partition's name for people: the topic's while that has no metadata."""
    return where.topic if where.partition == NO_PARTITION else f"{where.topic}-{where.partition}"


class BatchOutcome(NamedTuple):
    """Result of a batch: the offset at which it is written, or the error.

    `record_errors` (KIP-467) has the errors of single records; `error` is the error of the others.
    """

    base_offset: int | None = None
    log_append_time_ms: int | None = None
    error: KafkaError | None = None
    record_errors: Mapping[int, KafkaError] = MappingProxyType({})
    log_start_offset: int | None = None

    @property
    def timestamp_type(self) -> TimestampType:
        """Source of the records' timestamps."""
        if self.log_append_time_ms is None:
            return TimestampType.CREATE_TIME
        return TimestampType.LOG_APPEND_TIME


def outcome_at(base_offset: int, stamped: int, log_start: int) -> BatchOutcome:
    """Return the outcome of a batch with this offset, log append time and log start offset."""
    return BatchOutcome(
        base_offset,
        stamped if stamped >= 0 else None,
        log_start_offset=log_start if log_start >= 0 else None,
    )


RecordParts = tuple[Any, bytes | None, bytes | None, HeaderPairs, int | None, int | None]
"""Topic, key, value, headers, partition and timestamp in ms of a serialized record.

An interceptor may have set any object as the topic; a row of a bulk call may have none.
"""

OnOpened = Callable[["ProducerBatch"], None] | None
"""Called with the batch that is opened for a record, if any."""


@dataclass(slots=True, eq=False, repr=False)
class OutgoingRecord:
    """A checked record on its way into a batch.

    `partition` is None until the sticky partitioner has chosen; `size` bounds the bytes of a batch
    of this record alone, header included. `on_opened` is set by a call that has more records to
    add: it receives the batch that is opened for the record, which is not sent before it is full or
    the call ends its `gathering`. `is_awaited` is set if its sender waits for the outcome at once.
    """

    meta: TopicMetadata
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    size: int
    on_opened: OnOpened = None
    is_awaited: bool = field(default=False, kw_only=True)


@dataclass(slots=True, eq=False, repr=False)
class ProducerBatch:
    """Records of one partition that are sent, acknowledged and failed together.

    Its buffer is filled by `try_append`, never resized, and replaced by `move_to`. `size` is what
    the pool accounts for it. The delivery timeout counts from `now`, the loop time of the creation.
    `ordinal` is the position among all batches of the producer, also of a retry; the parts of a
    split batch sort into its place. `begin` sets both again. `owner` is opaque to the core: the
    runtime resumes awaiting tasks with it. `receipt` has the result that the deliveries of an
    acknowledged batch share. `on_unretrieved` is called when a failed batch is garbage collected
    although the errors of some of its deliveries were never retrieved. `most` records make it full;
    None for no limit.
    """

    topic_partition: TopicPartition
    buffer: bytearray | None
    size: int
    now: InitVar[float]
    ordinal: tuple[int, ...] = (0,)
    owner: object = None
    on_unretrieved: Callable[[ProducerBatch], None] | None = None
    most: int | None = None
    builder: RecordBatchBuilder | None = None
    created_at: float = 0.0
    full: bool = False
    urgent: bool = False
    encoded: EncodedBatch | EncodedMessageSet | None = None
    attempts: int = 0
    last_attempt_at: float = 0.0
    retry_at: float = 0.0
    last_error: KafkaError | None = None
    leader_epoch: int = -1
    pins: int = 0
    on_wire: bool = False
    topic_id: UUID = _NO_TOPIC_ID
    possibly_persisted: bool = False
    outcome: BatchOutcome | None = None
    done: bool = False
    """True once the outcome is set."""
    has_sequence: bool = False
    """True if the batch has a sequence number (KIP-98)."""
    indivisible: bool = False
    """True if its records are written together or not at all."""
    gathering: bool = False
    """True while a bulk call is adding records: while open, the batch is not due."""
    parts: Sequence[ProducerBatch] = ()
    receipt: object = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    retrieved: int = 0
    listeners: dict[object, Callable[[object], None]] = field(default_factory=dict)
    """Callbacks by key, called when the outcome is set; see `add_listener`."""
    _places: Sequence[tuple[ProducerBatch, int]] = ()
    _final_count: int = 0
    _observers: int = 0

    def __post_init__(self, now: float) -> None:
        self.created_at = self.last_attempt_at = self.retry_at = now
        self.builder = RecordBatchBuilder(self.buffer)  # type: ignore[arg-type]  # not None yet
        if self.most is not None:
            # Only `try_append` adds the last record, even if other code writes to the builder.
            self.builder.most = self.most - 1

    def __del__(self) -> None:
        failed = self.outcome is not None and self.outcome.error is not None
        if failed and self.on_unretrieved is not None and self.retrieved < self.count:
            self.on_unretrieved(self)

    @property
    def count(self) -> int:
        """Number of records."""
        return self._final_count if self.builder is None else self.builder.count

    @property
    def next_sequence(self) -> int:
        """The sequence after the last record's: 0 follows 2^31-1."""
        return (self.base_sequence + self.count) % _SEQUENCES

    @property
    def wire_size(self) -> int:
        """Bytes of the batch in a request: exact once encoded, uncompressed before."""
        if self.encoded is not None:
            return self.encoded.size
        return self.uncompressed_size

    @property
    def uncompressed_size(self) -> int:
        """Bytes of the batch before compression; only the header once the memory is released."""
        return HEADER_SIZE + (0 if self.builder is None else self.builder.size)

    @property
    def largest_record(self) -> int:
        """Bytes of the largest record before compression; 0 once the memory is released."""
        return 0 if self.builder is None else self.builder.largest

    @property
    def watchers(self) -> int:
        """Number of awaited records: listeners without those of `add_observer`."""
        return len(self.listeners) - self._observers

    def try_append(self, record: OutgoingRecord) -> bool:
        """Append one record; return False if the batch is closed or has no room.

        The batch is full from then on, and after the last record that it can take.
        """
        builder = self.builder
        if self.full or builder is None:
            return False
        is_last = self.most is not None and builder.count + 1 >= self.most
        if is_last:
            builder.most += 1
        index = builder.try_append(record.timestamp_ms, record.key, record.value, record.headers)
        if index < 0 or is_last:
            self.close()
        return index >= 0

    def move_to(self, buffer: bytearray, size: int) -> tuple[bytearray | None, int]:
        """Move an open batch to a larger buffer; return the old one and its accounted size."""
        if self.builder is None:
            raise IllegalStateError("a batch that gave up its memory cannot grow")
        self.builder.move_to(buffer)
        before = (self.buffer, self.size)
        self.buffer, self.size = buffer, size
        return before

    def begin(self, ordinal: tuple[int, ...], now: float) -> None:
        """Set the position among the producer's batches; the delivery timeout starts now."""
        self.ordinal = ordinal
        self.created_at = self.last_attempt_at = self.retry_at = now

    def close(self) -> None:
        """Accept no more records."""
        self.full = True
        if self.builder is not None:
            self.builder.close()

    def on_attempt(self, now: float, leader_epoch: int) -> None:
        """Record an attempt to send the batch, which takes no more records, to the leader."""
        self.attempts += 1
        self.last_attempt_at = now
        self.leader_epoch = leader_epoch
        self.close()

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer id, epoch and sequence; only while the batch is not being sent."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.has_sequence = base_sequence >= 0
        if self.encoded is not None:
            # A new header: the old one may be pinned by a transport that is closing.
            self.encoded = self.encoded.restamped(producer_id, producer_epoch, base_sequence)

    def persistence(self) -> Persistence:
        """Return what an error of this batch reports about its records."""
        if self.possibly_persisted:
            return Persistence.POSSIBLY_PERSISTED
        return Persistence.NOT_PERSISTED

    def add_listener(self, key: object, callback: Callable[[object], None]) -> None:
        """Call `callback(key)` once, when the outcome is set; `key` must be unique."""
        self.listeners[key] = callback

    def add_observer(self, key: object, callback: Callable[[object], None]) -> None:
        """Do `add_listener` for a listener that awaits no record and is never removed."""
        self.listeners[key] = callback
        self._observers += 1

    def remove_listener(self, key: object) -> None:
        """Remove a listener; unknown keys are ignored."""
        self.listeners.pop(key, None)

    def complete(self, outcome: BatchOutcome) -> bool:
        """Set the outcome and call the listeners; return False if the outcome was set before.

        After an exception (from a signal handler, or MemoryError) another call finishes the rest; a
        listener may be called twice then.
        """
        is_first = self.outcome is None
        if is_first:
            self.outcome = outcome
        self.done = True
        if not self.full:
            self.close()
        if self.listeners:
            self._call_listeners()
        return is_first

    def _call_listeners(self) -> None:
        listeners = self.listeners
        try:
            self.listeners = {}
            for key, callback in listeners.items():
                callback(key)
        except BaseException:
            self.listeners = listeners
            raise

    def take_buffer(self) -> bytearray | None:
        """Release the memory and return it, once; the records are gone, the outcome stays."""
        buffer, self.buffer = self.buffer, None
        if self.builder is not None:
            self._final_count = self.builder.count
            self.builder.release()
        self.builder = self.encoded = None
        return buffer

    def abandon(self) -> None:
        """Drop the memory without returning it: a transport that reads it keeps it alive."""
        self._final_count = self.count
        self.buffer = self.builder = self.encoded = None

    def split(self, groups: Sequence[Sequence[int]]) -> Sequence[ProducerBatch]:
        """Return one batch for each group of indexes of records, in order, to replace this one.

        The batch itself is done when its parts are; its deliveries use `outcome_of`.
        """
        builder = self.builder
        if builder is None:
            raise IllegalStateError("a batch was split after it gave up its memory")
        records = records_of(builder)
        room = builder.size + _MOST_GROWTH * len(records)
        places: list[tuple[ProducerBatch, int]] = [(self, 0)] * len(records)
        parts: list[ProducerBatch] = []
        for number, group in enumerate(groups):
            part = ProducerBatch(
                self.topic_partition,
                bytearray(room),
                0,
                now=self.created_at,
                ordinal=(*self.ordinal, number),
                owner=self.owner,
                on_unretrieved=self.on_unretrieved,
            )
            for place, index in enumerate(group):
                part._append_decoded(records[index])
                places[index] = (part, place)
            part.close()
            part.possibly_persisted = self.possibly_persisted
            parts.append(part)
        self.parts, self._places = parts, places
        return parts

    def records(self) -> list[DecodedRecord]:
        """Return the appended records, while the batch has its memory and is not encoded."""
        return [] if self.builder is None else records_of(self.builder)

    def spread(self, places: Sequence[tuple[ProducerBatch, int]]) -> None:
        """Set the batch and the index to which each record was moved.

        The batch itself is done when these batches are, as after a split.
        """
        self.parts = list(dict.fromkeys(part for part, _ in places))
        self._places = places

    def topic_partition_of(self, index: int) -> TopicPartition:
        """Return the partition of one record."""
        if not self._places:
            return self.topic_partition
        part, place = self._places[index]
        return part.topic_partition_of(place)

    def _append_decoded(self, record: DecodedRecord) -> None:
        if (
            self.builder is None
            or self.builder.try_append(
                record.timestamp_ms, record.key, record.value, tuple(record.headers)
            )
            < 0
        ):  # pragma: no cover - the room was computed
            raise IllegalStateError("a part of a split batch has no room for its records")

    def outcome_of(self, index: int) -> tuple[BatchOutcome, int] | None:
        """Return the outcome of one record, and the record's index in its batch."""
        if self._places:
            part, place = self._places[index]
            found = part.outcome_of(place)
            if found is not None or self.outcome is None or self.outcome.error is None:
                return found
            # An exception interrupted the split: the whole batch failed, including this part.
            return self.outcome, index
        return None if self.outcome is None else (self.outcome, index)

    def record_error(self, index: int) -> KafkaError | None:
        """Return the error of one record, if the outcome has one."""
        found = self.outcome_of(index)
        if found is None or found[0].error is None:
            return None
        outcome, place = found
        return outcome.record_errors.get(place, outcome.error)

    def mark_retrieved(self, index: int) -> None:
        """Mark the error of this record as retrieved."""
        if self._places:
            part, place = self._places[index]
            part.mark_retrieved(place)
        else:
            self.retrieved += 1
