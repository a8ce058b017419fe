"""A partition's state of idempotent producers, to detect duplicates and gaps (KIP-98).

Rules (Java: ProducerStateManager, ProducerAppendInfo):
- A batch equal in epoch and sequences to one of the last five is a duplicate: not written again,
  its first answer is repeated.
- An older epoch is refused (INVALID_PRODUCER_EPOCH); a newer one must begin at sequence 0.
- Within an epoch sequences follow each other; 0 follows 2^31-1. Anything else is
  OUT_OF_ORDER_SEQUENCE_NUMBER.
- A producer id without state may begin anywhere (KIP-360), except in a transaction of version 2,
  which begins at sequence 0 (KIP-890). Other brokers differ: `UnknownProducers`.
- A producer id expires some time after the largest timestamp in its last batch, unless it has an
  open transaction. Without LogAppendTime that timestamp is the client's: records of last year
  expire at the next check. Checks are periodic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from aioproducer import errors
from aioproducer.testing.broker.refusal import RefusedError

REMEMBERED_BATCHES = 5
"""Java: ProducerStateEntry.NUM_BATCHES_TO_RETAIN; why in-flight requests are limited to five."""

_MAX_SEQUENCE = 2**31 - 1
_NO_SEQUENCE = -1


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence `count` steps after `sequence`, wrapping to 0 after 2^31-1."""
    return (sequence + count) % (_MAX_SEQUENCE + 1)


class ProducerBatchKey(NamedTuple):
    """The identity of a batch of an idempotent producer within one partition."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int


class WrittenBatch(NamedTuple):
    """A remembered batch and what is answered for it again."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


class _ProducerEntry:
    __slots__ = ("epoch", "last_timestamp_ms", "written")

    def __init__(self, epoch: int, last_timestamp_ms: int) -> None:
        self.epoch = epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.written: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)


class ProducerStates:
    """The idempotent producers of one partition."""

    __slots__ = ("_checked_ms", "_entries")

    def __init__(self) -> None:
        self._entries: dict[int, _ProducerEntry] = {}
        self._checked_ms: int | None = None

    def find_duplicate(self, key: ProducerBatchKey) -> WrittenBatch | None:
        """Return the stored batch that `key` repeats, or None; refuse a fenced epoch or a gap."""
        entry = self._entries.get(key.producer_id)
        if entry is None:
            return None
        if key.epoch < entry.epoch:
            raise RefusedError(
                errors.InvalidProducerEpochError,
                f"Epoch of producer {key.producer_id} is {key.epoch}, "
                f"which is smaller than the last seen epoch {entry.epoch}",
            )
        if key.epoch > entry.epoch:
            self._check_begins_epoch(key)
            return None
        for written in entry.written:
            if (written.first_sequence, written.last_sequence) == key[2:]:
                return written
        self._check_follows(key, entry)
        return None

    def remember(self, key: ProducerBatchKey, base_offset: int, timestamp_ms: int) -> None:
        """Note a batch that has been written."""
        entry = self._entries.get(key.producer_id)
        if entry is None or entry.epoch != key.epoch:
            entry = self._entries[key.producer_id] = _ProducerEntry(key.epoch, timestamp_ms)
        entry.last_timestamp_ms = timestamp_ms
        entry.written.append(
            WrittenBatch(key.first_sequence, key.last_sequence, base_offset, timestamp_ms)
        )

    def see_epoch(self, producer_id: int, epoch: int, timestamp_ms: int = -1) -> None:
        """Note a marker: with a newer epoch it fences what the producer sent before (KIP-890)."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch < epoch:
            entry = self._entries[producer_id] = _ProducerEntry(epoch, timestamp_ms)
        entry.last_timestamp_ms = timestamp_ms

    def epoch_of(self, producer_id: int) -> int | None:
        """Return the last epoch seen of a producer; None for an unknown one."""
        entry = self._entries.get(producer_id)
        return None if entry is None else entry.epoch

    def remove(self, producer_id: int) -> None:
        """Lose what is known of a producer, as a broker does when the state expires."""
        self._entries.pop(producer_id, None)

    def expire(
        self, now_ms: int, *, after_ms: int, every_ms: int, has_transaction: Callable[[int], bool]
    ) -> list[int]:
        """Remove producers that had expired at the last periodic check.

        Args:
            now_ms: The broker's clock.
            after_ms: The broker option `producer.id.expiration.ms`.
            every_ms: The broker option `producer.id.expiration.check.interval.ms`.
            has_transaction: Whether a producer id has an open transaction here.

        Returns:
            The producer ids that were removed now.
        """
        check_ms = now_ms - now_ms % every_ms
        if self._checked_ms == check_ms:
            return []
        self._checked_ms = check_ms
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if check_ms - entry.last_timestamp_ms >= after_ms and not has_transaction(producer_id)
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return expired

    @staticmethod
    def _check_begins_epoch(key: ProducerBatchKey) -> None:
        if key.first_sequence != 0:
            raise RefusedError(
                errors.OutOfOrderSequenceNumberError,
                f"Invalid sequence number for new epoch of producer {key.producer_id}: "
                f"{key.epoch} (request epoch), {key.first_sequence} (seq. number)",
            )

    @staticmethod
    def _check_follows(key: ProducerBatchKey, entry: _ProducerEntry) -> None:
        # Nothing is written yet under an epoch that a marker began.
        last = entry.written[-1].last_sequence if entry.written else _NO_SEQUENCE
        if key.first_sequence != sequence_after(last, 1):
            raise RefusedError(
                errors.OutOfOrderSequenceNumberError,
                f"Out of order sequence number for producer {key.producer_id}: "
                f"{key.first_sequence} (incoming seq. number), {last} (current end seq. number)",
            )
