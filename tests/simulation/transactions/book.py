"""The books of the transactions of a run: what was wanted, and what was reported.

Owns: transactions and their outcomes. Not here: how they are carried out, what the logs say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from aioproducer.errors import KafkaError
from aioproducer.types import PreparedTransaction, TopicPartition


class Outcome(Enum):
    """The reported end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    REFUSED = "refused"
    """The commit raised an error that says that nothing will be visible."""
    UNREPORTED = "unreported"


_VISIBLE = frozenset({Outcome.COMMITTED})


@dataclass(slots=True, eq=False)
class TransactionEntry:
    """One transaction.

    Attributes:
        number: Which of all in the run.
        actor: Whose.
        began_at: When it was begun.
        prepare_asked_at: When it was to be prepared; None if it never was.
        prepared: The handle by which others end it; None if none was handed over.
        commit_asked_at: When its commit was asked for first; None if it never was.
        outcome: The end that was reported.
        group: The group whose positions belong to it.
        copy_group: Another group with the same positions; None without.
        offsets: These positions.
        overslept: Whether its user waited for longer than the coordinator does.
        lost_at: When a process that was to end it while prepared found that it had ended.
        contradictions: Reports about it that cannot all be true.
        refusal: The error with which it could only be aborted; None without.
    """

    number: int
    actor: str
    began_at: float
    prepare_asked_at: float | None = None
    prepared: PreparedTransaction | None = None
    commit_asked_at: float | None = None
    outcome: Outcome = Outcome.UNREPORTED
    group: str | None = None
    copy_group: str | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    overslept: bool = False
    lost_at: float | None = None
    contradictions: list[str] = field(default_factory=list)
    refusal: KafkaError | None = None

    @property
    def label(self) -> str:
        """The transaction in a few words."""
        return f"transaction {self.number} of {self.actor}"

    @property
    def closed_at(self) -> float | None:
        """The time when its user ended it, or let others decide or decided for a commit."""
        return self.commit_asked_at if self.prepare_asked_at is None else self.prepare_asked_at

    def report(self, outcome: Outcome) -> None:
        """Record a report of how it has ended."""
        before, self.outcome = self.outcome, outcome
        if before is not Outcome.UNREPORTED and (before in _VISIBLE) != (outcome in _VISIBLE):
            self.contradictions.append(f"first {before.value}, then {outcome.value}")

    def lose(self, now: float) -> None:
        """Record a report that it has ended by itself, although it was prepared."""
        if self.lost_at is None:
            self.lost_at = now

    @property
    def must_be_absent(self) -> bool:
        """Whether nothing of it may ever be visible."""
        return self.commit_asked_at is None or self.outcome in {Outcome.ABORTED, Outcome.REFUSED}


@dataclass(slots=True, eq=False)
class ActorEntry:
    """One incarnation.

    Attributes:
        name: Its name.
        transactional_id: What its producer is known by.
        number: Which incarnation of its seat.
        appeared_at: When its process began.
        ready_at: When its producer had started; None if it never had.
        ended_with: The error that ended it.
        was_shut_out: Whether another incarnation or a timeout had fenced it by then.
    """

    name: str
    transactional_id: str
    number: int
    appeared_at: float
    ready_at: float | None = None
    ended_with: KafkaError | None = None
    was_shut_out: bool = False


@dataclass(slots=True)
class TransactionBook:
    """All transactions and incarnations of a run, in the order of their beginning."""

    transactions: list[TransactionEntry] = field(default_factory=list)
    actors: list[ActorEntry] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Mistakes in the requests of clients."""

    def renamed(self, actor: ActorEntry, now: float) -> ActorEntry:
        """The same process under a transactional id of which it is the first incarnation."""
        mark = f"+{len(self.actors)}"
        entry = ActorEntry(actor.name + mark, actor.transactional_id + mark, actor.number, now)
        self.actors.append(entry)
        return entry

    def begin(self, actor: str, now: float) -> TransactionEntry:
        """One more transaction."""
        entry = TransactionEntry(len(self.transactions), actor, now)
        self.transactions.append(entry)
        return entry
