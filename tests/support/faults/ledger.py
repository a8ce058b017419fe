"""What a client said about each record, and the verdict when the log has been read.

Owns: the outcomes of numbered records and their comparison with the log. Must not know: clients,
brokers, faults, time.

A record is *offered* when the client is asked to take it. It is then acknowledged, failed, refused
(the client never took it), or it stays unresolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from aioproducer.types import Persistence


class LogEntry(NamedTuple):
    """One record as it stands in the log."""

    partition: int
    offset: int
    number: int


class _State(Enum):
    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    REFUSED = "refused"


class Ledger:
    """Outcomes of the records of one client, by number."""

    def __init__(self) -> None:
        self._states: dict[int, _State] = {}
        self._pending = 0
        self._sealed = False
        self.places: dict[int, tuple[int, int]] = {}
        """Partition and offset of acknowledged records, where the client told them."""
        self.denied: set[int] = set()
        """Numbers of which the client said that they are not in the log."""
        self.excused: set[int] = set()
        """Acknowledged records that were deleted on purpose."""
        self.reasons: dict[str, int] = {}
        """Why records failed or were refused, and how many."""

    def offer(self, number: int) -> None:
        """The client is asked to take the record."""
        if number in self._states:
            raise ValueError(f"record {number} was offered before")
        self._states[number] = _State.PENDING
        self._pending += 1

    def acknowledge(self, number: int, partition: int, offset: int | None) -> None:
        """The client says that the record stands in the log."""
        self._settle(number, _State.ACKNOWLEDGED)
        if not self._sealed and offset is not None and offset >= 0:
            self.places[number] = (partition, offset)

    def fail(self, number: int, persistence: Persistence | None, reason: str) -> None:
        """The client took the record and gave it up."""
        self._settle(number, _State.FAILED, reason)
        if not self._sealed and persistence is Persistence.NOT_PERSISTED:
            self.denied.add(number)

    def refuse(self, number: int, reason: str) -> None:
        """The client did not take the record, so it must not appear."""
        self._settle(number, _State.REFUSED, reason)
        self.denied.add(number)

    def excuse_acknowledged(self) -> None:
        """All that was acknowledged up to now has been deleted by an administrator."""
        self.excused = self.acknowledged

    def seal(self) -> None:
        """Time is up: what the client says from now on, as it is closed, changes nothing."""
        self._sealed = True

    @property
    def pending(self) -> int:
        """How many records have no outcome."""
        return self._pending

    @property
    def offered(self) -> int:
        """How many records the client was asked to take."""
        return len(self._states)

    @property
    def acknowledged(self) -> set[int]:
        """The numbers that the client called delivered."""
        return {n for n, state in self._states.items() if state is _State.ACKNOWLEDGED}

    def count(self, state: str) -> int:
        """How many records are `acknowledged`, `failed`, `refused` or `pending`."""
        return sum(found.value == state for found in self._states.values())

    def _settle(self, number: int, state: _State, reason: str | None = None) -> None:
        if self._sealed:
            return
        if self._states.get(number) is not _State.PENDING:
            raise ValueError(f"record {number} has no open outcome: {self._states.get(number)}")
        self._states[number] = state
        self._pending -= 1
        if reason is not None:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the records of one client in one scenario."""

    accepted: int
    acknowledged: int
    failed: int
    refused: int
    """The client raised instead of taking the record: allowed, for it is no promise."""
    lost: int
    """Acknowledged and not in the log."""
    duplicated: int
    """Copies beyond the first."""
    reordered: int
    """Records that stand behind one that was sent after them to the same partition."""
    misplaced: int
    """Acknowledged at an offset where another record stands."""
    unresolved: int
    """Accepted, and neither acknowledged nor failed in the end."""
    wrongly_not_persisted: int
    """Called "not persisted" (or refused) and in the log."""
    deleted: int = 0
    """Acknowledged and then deleted together with the topic; not counted as lost."""
    retries: int | None = None
    """Records that were sent again, where the client tells."""
    seconds: float = 0.0
    reasons: tuple[tuple[str, int], ...] = ()

    @property
    def violations(self) -> dict[str, int]:
        """What breaks a promise, by name; empty when all is well."""
        counts = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "misplaced": self.misplaced,
            "unresolved": self.unresolved,
            "wrongly not persisted": self.wrongly_not_persisted,
        }
        return {name: count for name, count in counts.items() if count}


def judge(
    ledger: Ledger, log: Iterable[LogEntry], *, seconds: float = 0.0, retries: int | None = None
) -> Verdict:
    """Compare what the client said with what stands in the log."""
    entries = sorted(log)
    seen: set[int] = set()
    at: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    duplicated = reordered = 0
    for partition, offset, number in entries:
        at[partition, offset] = number
        if number in seen:
            duplicated += 1
            continue
        seen.add(number)
        if number < newest.get(partition, -1):
            reordered += 1
        newest[partition] = max(number, newest.get(partition, -1))
    promised = ledger.acknowledged - ledger.excused
    misplaced = sum(
        number in promised and at.get(place) != number for number, place in ledger.places.items()
    )
    refused = ledger.count("refused")
    return Verdict(
        accepted=ledger.offered - refused,
        acknowledged=ledger.count("acknowledged"),
        failed=ledger.count("failed"),
        refused=refused,
        lost=len(promised - seen),
        duplicated=duplicated,
        reordered=reordered,
        misplaced=misplaced,
        unresolved=ledger.pending,
        wrongly_not_persisted=len(ledger.denied & seen),
        deleted=len(ledger.excused),
        retries=retries,
        seconds=seconds,
        reasons=tuple(sorted(ledger.reasons.items())),
    )
