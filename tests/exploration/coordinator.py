"""A transaction coordinator: states, epochs and markers, by the protocols V1 and V2.

Markers are written at once; a transaction never times out.
"""

from __future__ import annotations

FENCED = 90
INVALID_EPOCH = 47
INVALID_STATE = 48
CONCURRENT = 51
UNKNOWN_PRODUCER = 59
ABORTABLE = 120
WITHOUT_EFFECT = frozenset(
    {FENCED, INVALID_EPOCH, INVALID_STATE, CONCURRENT, UNKNOWN_PRODUCER, ABORTABLE}
)
"""Codes of requests that have changed nothing; with any other a change may have come before."""


class Coordinator:
    """The state of one transactional id."""

    def __init__(self) -> None:
        self.epoch = -1
        self.last_epoch = -1
        """The epoch before the last bump, if its producer may ask for that again."""
        self.state = "empty"  # or "ongoing", "commit", "abort"
        self.partitions: frozenset[int] = frozenset()
        self.has_group = False
        self.open: frozenset[int] = frozenset()
        """The records of the transaction that is open."""
        self.pending = False
        """Whether offsets are part of it."""
        self.committed: frozenset[int] = frozenset()
        self.offsets_committed = 0

    def init(self, epoch: int, *, v2: bool) -> tuple[int, int]:
        """Error code and epoch; -1 is the epoch of a new producer.

        What runs is aborted first, whatever epoch is named, and the request is refused (Java:
        TransactionCoordinator.prepareInitProducerIdTransit). Before V2 its producer is fenced.
        """
        if self.state == "ongoing":
            self._finish("abort")
            self.last_epoch = self.epoch if v2 else -1
            self.epoch += 1
            return CONCURRENT, -1
        if epoch >= 0 and epoch != self.epoch:
            return (0, self.epoch) if epoch == self.last_epoch else (FENCED, -1)
        self.last_epoch = epoch if epoch >= 0 else -1
        self.epoch += 1
        self.state = "empty"
        return 0, self.epoch

    def add_partitions(self, epoch: int, partitions: frozenset[int]) -> int:
        return self._begin(epoch) or self._add(partitions)

    def add_group(self, epoch: int) -> int:
        code = self._begin(epoch)
        self.has_group |= not code
        return code

    def append(self, epoch: int, partition: int, *, v2: bool) -> int:
        """Return the error code for a batch that is to be written in the transaction."""
        if epoch != self.epoch:
            return INVALID_EPOCH
        if v2:
            return self._begin(epoch) or self._add(frozenset({partition}))
        ongoing = self.state == "ongoing" and partition in self.partitions
        return 0 if ongoing else INVALID_STATE

    def commit_offsets(self, epoch: int, *, v2: bool) -> int:
        if epoch != self.epoch:
            return INVALID_EPOCH
        if v2:
            self._begin(epoch)
        elif self.state != "ongoing" or not self.has_group:
            return INVALID_STATE
        self.pending = True
        return 0

    def end(self, epoch: int, *, commit: bool, v2: bool) -> tuple[int, int]:
        """Error code and, in V2, the next epoch."""
        wanted = "commit" if commit else "abort"
        if v2 and epoch == self.epoch - 1 and self.state in {"commit", "abort"}:
            return (0, self.epoch) if self.state == wanted else (INVALID_STATE, -1)
        if epoch != self.epoch:
            return FENCED, -1
        if self.state != "ongoing" and not (v2 and not commit):
            return (0, -1) if self.state == wanted and not v2 else (INVALID_STATE, -1)
        self._finish(wanted)
        if v2:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        return 0, self.epoch if v2 else -1

    def _begin(self, epoch: int) -> int:
        if epoch != self.epoch:
            return FENCED
        self.state = "ongoing"
        return 0

    def _add(self, partitions: frozenset[int]) -> int:
        self.partitions |= partitions
        return 0

    def _finish(self, state: str) -> None:
        if state == "commit":
            self.committed |= self.open
            self.offsets_committed += self.pending
        self.state, self.open, self.partitions = state, frozenset(), frozenset()
        self.has_group = self.pending = False
