"""One batch of records for one partition, from its first append to its outcome.

Owns: the builder and its buffer while records come in, the encoded form afterwards, the facts about
attempts, and the one outcome all its records share. Must not know: asyncio, sockets, the
accumulator's queues.

    OPEN --close()--> CLOSED --hold()--> (in flight) --release()--> CLOSED ... --complete()--> done

Invariants
- The outcome is set once; whoever comes second (a late response after an expiry) is ignored.
- The buffer goes back to the pool once, and only when the batch is done *and* no transport holds
  it: a batch that expires in flight keeps its buffer until its connection lets go (KAFKA-19012).
- `possibly_persisted` never turns back: once an attempt may have been written, no later refusal
  of another attempt can promise that the records do not stand in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from aioproducer.core.batching.outgoing import OutgoingRecord
from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import HEADER_SIZE, EncodedBatch
from aioproducer.records.message_set import EncodedMessageSet, records_of
from aioproducer.records.protocol import BatchBuilder
from aioproducer.records.reader import DecodedRecord
from aioproducer.types import Persistence, TimestampType, TopicPartition

NO_PARTITION = -1
"""The partition of records whose topic is not known yet."""
_NO_TOPIC_ID = UUID(int=0)
_MOST_GROWTH = 10
"""Bytes by which a record may grow in another batch: its timestamp counts from the first one's."""


class BatchOutcome(NamedTuple):
    """What became of a batch: where it stands, or why it failed.

    `record_errors` (KIP-467) has the records that failed for a reason of their own; `error` is that
    of the others.
    """

    base_offset: int | None = None
    log_append_time_ms: int | None = None
    error: KafkaError | None = None
    record_errors: Mapping[int, KafkaError] = MappingProxyType({})
    log_start_offset: int | None = None

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the records' timestamps."""
        if self.log_append_time_ms is None:
            return TimestampType.CREATE_TIME
        return TimestampType.LOG_APPEND_TIME


class ProducerBatch:
    """Records of one partition that are sent, acknowledged and failed together.

    Args:
        topic_partition: where the records go.
        buffer: the memory for them; filled by `try_append`, never resized, left by `move_to`.
        size: bytes accounted for the buffer in the pool.
        now: loop time of the creation, seconds; the delivery timeout counts from here.
        ordinal: position among all batches of the producer, the parts of a split one sorting into
            its place; a retry goes back to its old place. `begin` sets both anew.
        owner: opaque to the core; the runtime keeps here what resumes awaiters, and in `receipt`
            the answer that the deliveries of an acknowledged batch share.
        on_unretrieved: called when the batch failed and is forgotten although some of its
            deliveries were never looked at.
        most: how many records make it full; None for any number.
    """

    __slots__ = (
        "_final_count",
        "_most",
        "_on_unretrieved",
        "_places",
        "attempts",
        "base_sequence",
        "buffer",
        "builder",
        "created_at",
        "done",
        "encoded",
        "full",
        "gathering",
        "has_sequence",
        "holds",
        "indivisible",
        "last_attempt_at",
        "last_error",
        "leader_epoch",
        "listeners",
        "on_wire",
        "ordinal",
        "outcome",
        "owner",
        "parts",
        "possibly_persisted",
        "producer_epoch",
        "producer_id",
        "receipt",
        "retrieved",
        "retry_at",
        "size",
        "topic_id",
        "topic_partition",
        "urgent",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffer: bytearray,
        size: int,
        *,
        now: float,
        ordinal: tuple[int, ...] = (0,),
        owner: object = None,
        on_unretrieved: Callable[[ProducerBatch], None] | None = None,
        most: int | None = None,
    ) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.buffer: bytearray | None = buffer
        self.builder: BatchBuilder | None = RecordBatchBuilder(buffer)
        self.size: int = size
        self.created_at: float = now
        self.ordinal: tuple[int, ...] = ordinal
        self.owner: object = owner
        self.full: bool = False
        self.urgent: bool = False
        self.encoded: EncodedBatch | EncodedMessageSet | None = None
        self.attempts: int = 0
        self.last_attempt_at: float = now
        self.retry_at: float = now
        self.last_error: KafkaError | None = None
        self.leader_epoch: int = -1
        self.holds: int = 0
        self.on_wire: bool = False
        self.topic_id: UUID = _NO_TOPIC_ID
        self.possibly_persisted: bool = False
        self.outcome: BatchOutcome | None = None
        self.done: bool = False
        """Whether the outcome is known."""
        self.has_sequence: bool = False
        """Whether the batch holds a sequence number (KIP-98)."""
        self.indivisible: bool = False
        """Whether its records are written together or not at all."""
        self.gathering: bool = False
        """Whether a bulk call is adding records: while open it is not due, even without linger."""
        self.parts: Sequence[ProducerBatch] = ()
        self._places: Sequence[tuple[ProducerBatch, int]] = ()
        self.receipt: object = None
        self.producer_id: int = -1
        self.producer_epoch: int = -1
        self.base_sequence: int = -1
        self.retrieved: int = 0
        self._final_count = 0
        self.listeners: dict[object, Callable[[object], None]] = {}
        """What is called with which key when the outcome is known; for `add_listener`."""
        self._on_unretrieved = on_unretrieved
        self._most = most
        if most is not None:
            # The last one comes in here, whoever writes to the builder otherwise.
            self.builder.most = most - 1

    def __del__(self) -> None:
        failed = self.outcome is not None and self.outcome.error is not None
        if failed and self._on_unretrieved is not None and self.retrieved < self.count:
            self._on_unretrieved(self)

    @property
    def count(self) -> int:
        """Number of records."""
        return self._final_count if self.builder is None else self.builder.count

    @property
    def wire_size(self) -> int:
        """Bytes of the batch in a request: exact once encoded, uncompressed before."""
        if self.encoded is not None:
            return self.encoded.size
        return self.uncompressed_size

    @property
    def uncompressed_size(self) -> int:
        """Bytes of the batch before compression; those of its header once the memory is gone."""
        return HEADER_SIZE + (0 if self.builder is None else self.builder.size)

    @property
    def largest_record(self) -> int:
        """Bytes of the largest record before compression; 0 once the memory is gone."""
        return 0 if self.builder is None else self.builder.largest

    @property
    def watchers(self) -> int:
        """How many want to hear of the outcome; each awaited delivery is one."""
        return len(self.listeners)

    def try_append(self, record: OutgoingRecord) -> bool:
        """Appends one record; False when it is closed or has no room.

        It is full from then on, and behind the last record it takes.
        """
        builder = self.builder
        if self.full or builder is None:
            return False
        is_last = self._most is not None and builder.count + 1 >= self._most
        if is_last:
            builder.most += 1
        index = builder.try_append(record.timestamp_ms, record.key, record.value, record.headers)
        if index < 0 or is_last:
            self.close()
        return index >= 0

    def move_to(self, buffer: bytearray, size: int) -> tuple[bytearray | None, int]:
        """Goes on in a larger buffer, while open; returns the old one and its accounted size."""
        if self.builder is None:
            raise IllegalStateError("a batch that gave up its memory cannot grow")
        self.builder.move_to(buffer)
        before = (self.buffer, self.size)
        self.buffer, self.size = buffer, size
        return before

    def begin(self, ordinal: tuple[int, ...], now: float) -> None:
        """Take a place among the producer's batches; the delivery timeout counts from now."""
        self.ordinal = ordinal
        self.created_at = self.last_attempt_at = self.retry_at = now

    def close(self) -> None:
        """Takes no more records."""
        self.full = True
        if self.builder is not None:
            self.builder.close()

    def on_attempt(self, now: float, leader_epoch: int) -> None:
        """The batch is on its way to the leader of `leader_epoch`."""
        self.attempts += 1
        self.last_attempt_at = now
        self.leader_epoch = leader_epoch

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Gives the batch its place in the producer's sequence; only while nobody sends it."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.has_sequence = base_sequence >= 0
        if self.encoded is not None:
            # A new header: the old one may be pinned by a transport that is closing.
            self.encoded = self.encoded.restamped(producer_id, producer_epoch, base_sequence)

    def persistence(self) -> Persistence:
        """What a failure of this batch may claim about its records."""
        if self.possibly_persisted:
            return Persistence.POSSIBLY_PERSISTED
        return Persistence.NOT_PERSISTED

    def add_listener(self, key: object, callback: Callable[[object], None]) -> None:
        """`callback(key)` runs once, when the outcome is known; `key` must be unique."""
        self.listeners[key] = callback

    def remove_listener(self, key: object) -> None:
        """Forgets a listener; unknown keys are ignored."""
        self.listeners.pop(key, None)

    def remove_listeners(self, unwanted: Callable[[object], bool]) -> int:
        """Forgets the listeners whose key is `unwanted`; returns how many."""
        keys = [key for key in self.listeners if unwanted(key)]
        for key in keys:
            del self.listeners[key]
        return len(keys)

    def complete(self, outcome: BatchOutcome) -> bool:
        """Set the outcome and call the listeners; False when it was known already.

        After an exception (a signal handler's, MemoryError) another call does what is left: a
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
        """Gives up the memory, once; deliveries may keep the batch, not its records."""
        buffer, self.buffer = self.buffer, None
        self._final_count = self.count
        if self.builder is not None:
            self.builder.release()
        self.builder = self.encoded = None
        return buffer

    def abandon(self) -> None:
        """Let go of the memory without giving it back: a transport that reads it keeps it."""
        self._final_count = self.count
        self.buffer = self.builder = self.encoded = None

    def split(self, groups: Sequence[Sequence[int]]) -> Sequence[ProducerBatch]:
        """One batch for each group of records, in place of this one.

        The batch itself is done when its parts are; its deliveries find theirs by `outcome_of`.

        Args:
            groups: The indexes of their records, in order; each record is in one group.
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
                on_unretrieved=self._on_unretrieved,
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
        """The records it has taken, while it has its memory and is not encoded."""
        return [] if self.builder is None else records_of(self.builder)

    def spread(self, places: Sequence[tuple[ProducerBatch, int]]) -> None:
        """Its records are in other batches now, each at this index in that batch.

        The batch itself is done when these are, as when it is split.
        """
        self.parts = list(dict.fromkeys(part for part, _ in places))
        self._places = places

    def topic_partition_of(self, index: int) -> TopicPartition:
        """Where one record goes."""
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
        """The outcome that holds for one record, and the record's index in that batch."""
        if self._places:
            part, place = self._places[index]
            found = part.outcome_of(place)
            if found is not None or self.outcome is None or self.outcome.error is None:
                return found
            # An exception ended the split half-way: the whole batch failed, and this part with it.
            return self.outcome, index
        return None if self.outcome is None else (self.outcome, index)

    def record_error(self, index: int) -> KafkaError | None:
        """The error of one record, once the outcome is known."""
        found = self.outcome_of(index)
        if found is None or found[0].error is None:
            return None
        outcome, place = found
        return outcome.record_errors.get(place, outcome.error)

    def mark_retrieved(self, index: int) -> None:
        """Somebody has seen the error of this record."""
        if self._places:
            part, place = self._places[index]
            part.mark_retrieved(place)
        else:
            self.retrieved += 1
