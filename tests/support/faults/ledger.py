"""The outcome that a client reported for each record, and the verdict on the log.

Owns: the outcomes of numbered records, and their counts. Not here: clients, brokers, faults, time,
and what contradicts the log: `support.checker`.

A record is *offered* when the client is asked to take it. It is then acknowledged, failed, refused
(the client never took it), or it stays unresolved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aioproducer.types import Persistence
from support.checker import History, Kind, Logged, Place, check


class LogEntry(NamedTuple):
    """One record in the log."""

    partition: int
    offset: int
    number: int


class Ledger:
    """Outcomes of the records of one client, by number."""

    def __init__(self) -> None:
        self._sealed = False
        self.history = History()
        self.reasons: Counter[str] = Counter()
        """Why records failed or were refused, and how many."""

    def offer(self, number: int) -> None:
        """The client is asked to take the record."""
        self.history.offer(number, writer="the client")

    def acknowledge(self, number: int, partition: int, offset: int | None) -> None:
        """The client says that the record is in the log."""
        known = offset is not None and offset >= 0
        if not self._sealed:
            self.history.acknowledge(number, Place(partition, offset or 0) if known else None)

    def fail(self, number: int, persistence: Persistence | None, reason: str) -> None:
        """The client took the record and gave it up."""
        if not self._sealed:
            self.history.fail(number, not_persisted=persistence is Persistence.NOT_PERSISTED)
            self.reasons[reason] += 1

    def refuse(self, number: int, reason: str) -> None:
        """The client did not take the record, so it must not appear."""
        if not self._sealed:
            self.history.refuse(number)
            self.reasons[reason] += 1

    def excuse_acknowledged(self) -> None:
        """All that was acknowledged up to now has been deleted by an administrator."""
        self.history.excuse_acknowledged()

    def seal(self) -> None:
        """Time is up: what the client says from now on, as it is closed, changes nothing."""
        self._sealed = True

    @property
    def acknowledged(self) -> int:
        """The number of records that the client reported as delivered."""
        return self.history.count("acknowledged")

    @property
    def pending(self) -> int:
        """The number of records without outcome."""
        return self.history.pending


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the records of one client in one scenario."""

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
    """Records that follow one that was sent after them to the same partition."""
    misplaced: int
    """Acknowledged at an offset where another record is stored."""
    unresolved: int
    """Accepted, and neither acknowledged nor failed in the end."""
    wrongly_not_persisted: int
    """Called "not persisted" (or refused) and in the log."""
    second_outcome: int
    """Outcomes after another outcome."""
    phantom: int
    """In the log, and never offered."""
    deleted: int = 0
    """Acknowledged and then deleted together with the topic; not counted as lost."""
    retries: int | None = None
    """Records that were sent again, where the client counts them."""
    seconds: float = 0.0
    reasons: tuple[tuple[str, int], ...] = ()

    @property
    def violations(self) -> dict[str, int]:
        """The broken guarantees by name; empty when there are none."""
        counts = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "misplaced": self.misplaced,
            "unresolved": self.unresolved,
            "wrongly not persisted": self.wrongly_not_persisted,
            "second outcome": self.second_outcome,
            "phantom": self.phantom,
        }
        return {name: count for name, count in counts.items() if count}


def judge(
    ledger: Ledger, log: Iterable[LogEntry], *, seconds: float = 0.0, retries: int | None = None
) -> Verdict:
    """Compare what the client said with what is in the log."""
    history = ledger.history
    logged = [Logged(Place(partition, offset), number) for partition, offset, number in log]
    found = Counter(anomaly.kind for anomaly in check(history, logged))
    refused = history.count("refused")
    return Verdict(
        accepted=history.offered - refused,
        acknowledged=history.count("acknowledged"),
        failed=history.count("failed"),
        refused=refused,
        lost=found[Kind.LOST],
        duplicated=found[Kind.DUPLICATED],
        reordered=found[Kind.REORDERED],
        misplaced=found[Kind.MISPLACED],
        unresolved=found[Kind.UNRESOLVED],
        wrongly_not_persisted=found[Kind.WRONGLY_NOT_PERSISTED],
        second_outcome=found[Kind.SECOND_OUTCOME],
        phantom=found[Kind.PHANTOM],
        deleted=history.excused,
        retries=retries,
        seconds=seconds,
        reasons=tuple(sorted(ledger.reasons.items())),
    )
