"""The events that a client reported for each transaction, and the verdict on the log.

Owns: the outcomes of numbered transactions, and their counts. Not here: clients, brokers, faults,
time, and what contradicts what is visible: `support.checker`.

    begun --commit called--> committing --it returned--> committed
      |                          |
      +-------- abort returned --+-> aborted

A transaction that stays *begun* was never asked to be committed, so nothing of it may be visible.
One that stays *committing* has an outcome that the client could not learn: it may be visible
whole or not at all. Every transaction has a separate number, and later ones have higher ones: work
that is done again is another transaction, a client that takes over begins with a higher number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from support import checker
from support.checker import End, Kind, Logged, Place, check

VALUE_BYTES = 100
_DIGITS = 8


class State(StrEnum):
    """The state of a transaction, as its client reported it."""

    BEGUN = "begun"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


_BEFORE = {
    State.COMMITTING: {State.BEGUN},
    State.COMMITTED: {State.COMMITTING},
    State.ABORTED: {State.BEGUN, State.COMMITTING},
}


_ENDS = {
    State.BEGUN: (),
    State.COMMITTING: (End.ASKED,),
    State.COMMITTED: (End.ASKED, End.COMMITTED),
    State.ABORTED: (End.ABORTED,),
}


class Entry(NamedTuple):
    """One record as it is in the log.

    Attributes:
        number: Of its transaction.
        turn: Which record of the transaction it is, from 0.
        total: How many the transaction has.
    """

    partition: int
    offset: int
    number: int
    turn: int
    total: int


@dataclass(slots=True)
class Transaction:
    """The known facts about one transaction.

    Attributes:
        total: How many records were meant to be in it.
        offsets: Whether it moves the group's position to the number after its own.
    """

    total: int
    offsets: bool
    state: State = State.BEGUN


class History:
    """The reports of the clients, transaction by transaction."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}
        self.reasons: Counter[str] = Counter()
        """Why transactions failed or clients had to be replaced, and how often."""
        self.committed_losses: int = 0
        """Records that failed in transactions whose commit succeeded."""

    def begin(self, number: int, total: int, *, offsets: bool = False) -> None:
        """A transaction begins."""
        if number in self.transactions:
            raise ValueError(f"transaction {number} has begun before")
        self.transactions[number] = Transaction(total, offsets)

    def move(self, number: int, state: State, *, lost: int = 0) -> None:
        """Record that the client got an outcome, or asked for the commit.

        Args:
            number: Of the transaction.
            state: What it is now.
            lost: How many of its records failed, for `COMMITTED`.
        """
        transaction = self.transactions[number]
        if transaction.state not in _BEFORE[state]:
            raise ValueError(f"transaction {number} was {transaction.state}, not to be {state}")
        transaction.state = state
        self.committed_losses += lost

    def note(self, event: dict[str, Any]) -> None:
        """Record `begin`, `move` or a reason, as a client in another process reports it."""
        match event:
            case {"kind": "begin", "number": number, "total": total, "offsets": offsets}:
                self.begin(number, total, offsets=offsets)
            case {"kind": "move", "number": number, "state": state, "lost": lost}:
                self.move(number, State(state), lost=lost)
            case {"kind": "trouble", "reason": reason}:
                self.reasons[reason] += 1

    def count(self, state: State) -> int:
        """Return how many transactions are in this state."""
        return sum(each.state is state for each in self.transactions.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the transactions of one run."""

    begun: int
    committed: int
    aborted: int
    never_committed: int
    """Given up by a client that died or was fenced before it asked for the commit."""
    unknown_whole: int
    """The client could not know the outcome: visible, all of it."""
    unknown_absent: int
    """The client could not know the outcome: not visible."""
    records: int
    """Visible records."""
    missing: int
    """Records of committed transactions that are not visible."""
    torn: int
    """Transactions of unknown outcome of which only a part is visible."""
    leaked: int
    """Visible records of aborted transactions, and of those never asked to be committed."""
    duplicated: int
    """Visible copies beyond the first."""
    reordered: int
    """Records that follow one that was sent after them to the same partition."""
    strange: int
    """Visible records that no client has sent."""
    committed_losses: int
    """Records whose deliveries failed, in transactions that committed all the same."""
    position_wrong: int
    """1 if the group's position is not that of the last visible transaction that moved it."""
    stuck: int = 0
    """Partitions that a transaction still holds up when everything is over."""

    @property
    def violations(self) -> dict[str, int]:
        """The broken guarantees by name; empty when there are none."""
        names = (
            "missing",
            "torn",
            "leaked",
            "duplicated",
            "reordered",
            "strange",
            "committed_losses",
            "position_wrong",
            "stuck",
        )
        return {name: count for name in names if (count := getattr(self, name))}


def value_of(number: int, turn: int, total: int) -> bytes:
    """The record: three numbers, filled up to 100 bytes."""
    return (b"%0*d" * 3 % (_DIGITS, number, _DIGITS, turn, _DIGITS, total)).ljust(VALUE_BYTES, b".")


def entry_of(partition: int, offset: int, value: bytes | None) -> Entry:
    """A record that was read.

    Raises:
        ValueError: It is none of ours.
    """
    if value is None or len(value) != VALUE_BYTES:
        raise ValueError(f"not one of our records: {value!r}")
    parts = (value[at : at + _DIGITS] for at in range(0, 3 * _DIGITS, _DIGITS))
    return Entry(partition, offset, *map(int, parts))


def judge(
    history: History, log: Iterable[Entry], position: int | None = None, *, stuck: int = 0
) -> Verdict:
    """Compare the reports of the clients with what a read_committed consumer sees.

    Args:
        history: The reports.
        log: Every record the consumer was given.
        position: The group's committed position; None if there is none.
        stuck: Partitions in which a transaction is still open.
    """
    transactions = history.transactions
    logged = [_logged(transactions, entry) for entry in log]
    found = Counter(anomaly.kind for anomaly in check(_for_checker(history), logged))
    ours = [entry.name for entry in logged if entry.name[0] is not _STRANGE]
    visible = Counter(number for number, _ in set(ours))
    unknown = _in(transactions, State.COMMITTING)
    whole = {number for number, each in unknown.items() if visible[number] == each.total}
    moved = (
        number
        for number, each in transactions.items()
        if each.offsets and (each.state is State.COMMITTED or number in whole)
    )
    return Verdict(
        begun=len(transactions),
        committed=history.count(State.COMMITTED),
        aborted=history.count(State.ABORTED),
        never_committed=history.count(State.BEGUN),
        unknown_whole=len(whole),
        unknown_absent=sum(visible[number] == 0 for number in unknown),
        records=len(ours),
        missing=found[Kind.MISSING],
        torn=found[Kind.TORN],
        leaked=found[Kind.LEAKED],
        duplicated=found[Kind.DUPLICATED],
        reordered=found[Kind.REORDERED],
        strange=found[Kind.PHANTOM],
        committed_losses=history.committed_losses,
        position_wrong=int((position or 0) != max(moved, default=-1) + 1),
        stuck=stuck,
    )


_STRANGE = object()


def _logged(transactions: dict[int, Transaction], entry: Entry) -> Logged:
    """Return a visible record under the name that `_for_checker` has given it, or a strange one."""
    sent = transactions.get(entry.number)
    is_ours = sent is not None and entry.total == sent.total and 0 <= entry.turn < sent.total
    name = (entry.number, entry.turn) if is_ours else (_STRANGE, entry)
    return Logged(Place(entry.partition, entry.offset), name)


def _for_checker(history: History) -> checker.History:
    """Return the history for the checker; these clients report no outcome of single records."""
    outcomes = checker.History()
    for number in sorted(history.transactions):
        each = history.transactions[number]
        outcomes.begin(number)
        for turn in range(each.total):
            outcomes.offer((number, turn), writer="all", transaction=number)
            outcomes.accept((number, turn))
            outcomes.abandon((number, turn))
        for end in _ENDS[each.state]:
            outcomes.end(number, end)
    return outcomes


def _in(transactions: dict[int, Transaction], state: State) -> dict[int, Transaction]:
    return {number: each for number, each in transactions.items() if each.state is state}
