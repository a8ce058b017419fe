"""One checker for histories: outcomes of records and transactions against the logs.

Owns: the sequence *offered, accepted, outcome* of each record and *begun, commit asked, ended* of
each transaction, and what may contradict it in the logs. Not here: clients, brokers, faults, time.

The simulation, the faults on real brokers and the transactions on real brokers write histories and
are judged by `check`. A history is written as events occur; an event that cannot follow the ones
before, as a second outcome, is an anomaly by itself. `make soak` sends too many records to keep:
`bench.numbering` judges them as they come, and a property test compares it with `check`.

Per partition the order of a log has to be an order in which the calls may have taken effect: the
records of one writer in the order in which it offered them, each at most once and at the place that
was acknowledged, and a transaction's records visible all together or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The ways in which a history and its logs contradict each other."""

    UNRESOLVED = "unresolved"
    """Accepted, and neither acknowledged nor failed in the end."""
    SECOND_OUTCOME = "second outcome"
    """An outcome after another outcome."""
    LOST = "lost"
    """Acknowledged, and in no log."""
    MISPLACED = "misplaced"
    """Acknowledged at an offset that another record has."""
    DUPLICATED = "duplicated"
    """More than one copy."""
    REORDERED = "reordered"
    """After a record that its writer sent later."""
    PHANTOM = "phantom"
    """In a log, and offered by no writer."""
    WRONGLY_NOT_PERSISTED = "wrongly not persisted"
    """Refused, or failed as not persisted, and in a log."""
    MISSING = "missing"
    """Of a committed transaction, and not visible."""
    LEAKED = "leaked"
    """Visible, of a transaction that was aborted or was never to be committed."""
    TORN = "torn"
    """Transactions of unknown outcome of which only a part is visible."""
    COMMITTED_LOSS = "committed loss"
    """Failed, in a transaction that is committed all the same."""


class Anomaly(NamedTuple):
    """One contradiction."""

    kind: Kind
    text: str


class Place(NamedTuple):
    """A position in a log."""

    partition: Hashable
    offset: int


class Logged(NamedTuple):
    """A record in a log.

    Attributes:
        place: Where.
        name: Which.
        visible: Whether a committed reader gets it.
    """

    place: Place
    name: Hashable
    visible: bool = True


@dataclass(frozen=True, slots=True)
class Promises:
    """The guarantees of a run; the defaults are those of an idempotent producer with `acks=all`.

    Attributes:
        kept: Whether what is acknowledged stays; not with `acks=0`.
        once: Whether no record may have two copies.
        ordered: Whether the records of a writer keep their order.
    """

    kept: bool = True
    once: bool = True
    ordered: bool = True


class _State(StrEnum):
    OFFERED = "offered"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    ABANDONED = "abandoned"


_BEFORE = {
    _State.ACCEPTED: {_State.OFFERED},
    _State.REFUSED: {_State.OFFERED},
    # Some clients do not say that they have taken a record.
    _State.ACKNOWLEDGED: {_State.OFFERED, _State.ACCEPTED},
    _State.FAILED: {_State.OFFERED, _State.ACCEPTED},
    _State.ABANDONED: {_State.OFFERED, _State.ACCEPTED},
}


class End(StrEnum):
    """The state of a transaction as its client sees it."""

    BEGUN = "begun"
    ASKED = "to be committed"
    COMMITTED = "committed"
    ABORTED = "aborted"


_END_BEFORE = {
    End.ASKED: {End.BEGUN},
    End.COMMITTED: {End.ASKED},
    End.ABORTED: {End.BEGUN, End.ASKED},
}


@dataclass(slots=True)
class _Record:
    number: int
    writer: Hashable
    transaction: Hashable
    state: _State = _State.OFFERED
    accepted: bool = False
    place: Place | None = None
    denied: bool = False
    excused: bool = False


@dataclass(slots=True)
class History:
    """Calls and outcomes of clients, in the order in which they happened.

    Names of records and transactions are any hashable values, each used once.
    """

    anomalies: list[Anomaly] = field(default_factory=list)
    _records: dict[Hashable, _Record] = field(default_factory=dict)
    _ends: dict[Hashable, End] = field(default_factory=dict)
    _pending: int = 0

    def offer(
        self, name: Hashable, *, writer: Hashable = None, transaction: Hashable = None
    ) -> None:
        """A client is asked to take a record.

        Args:
            name: Of the record.
            writer: Offers its records one after the other; None for no order.
            transaction: The one it belongs to.
        """
        if name in self._records:
            raise ValueError(f"record {name!r} was offered before")
        self._records[name] = _Record(len(self._records), writer, transaction)
        self._pending += 1

    def accept(self, name: Hashable) -> None:
        """The client has taken the record."""
        self._move(name, _State.ACCEPTED)

    def refuse(self, name: Hashable) -> None:
        """The client has not taken the record, so it must not appear."""
        self._move(name, _State.REFUSED).denied = True

    def acknowledge(self, name: Hashable, place: Place | None = None) -> None:
        """The client says that the record is in the log, and where if it says that, too."""
        record = self._move(name, _State.ACKNOWLEDGED)
        record.place = record.place or place

    def fail(self, name: Hashable, *, not_persisted: bool) -> None:
        """The client has given the record up."""
        self._move(name, _State.FAILED).denied |= not_persisted

    def abandon(self, name: Hashable) -> None:
        """The client died or does not wait for the outcome: none is due any more."""
        self._move(name, _State.ABANDONED)

    def excuse_acknowledged(self) -> None:
        """All that is acknowledged by now has been deleted by an administrator."""
        for record in self._records.values():
            record.excused |= record.state is _State.ACKNOWLEDGED

    def begin(self, transaction: Hashable) -> None:
        """A transaction begins."""
        if transaction in self._ends:
            raise ValueError(f"transaction {transaction!r} has begun before")
        self._ends[transaction] = End.BEGUN

    def end(self, transaction: Hashable, end: End) -> None:
        """A commit is asked for, or a client learns how the transaction has ended."""
        before = self._ends[transaction]
        if before not in _END_BEFORE[end]:
            text = f"transaction {transaction!r} is {end} after it was {before}"
            self.anomalies.append(Anomaly(Kind.SECOND_OUTCOME, text))
            return
        self._ends[transaction] = end

    @property
    def pending(self) -> int:
        """The number of records without outcome."""
        return self._pending

    @property
    def offered(self) -> int:
        """The number of records that clients were asked to take."""
        return len(self._records)

    @property
    def excused(self) -> int:
        """The number of acknowledged records that may be absent."""
        return sum(record.excused for record in self._records.values())

    def count(self, state: str) -> int:
        """The numbers of records that are `acknowledged`, `failed`, `refused`, ..."""
        return sum(record.state == state for record in self._records.values())

    def _move(self, name: Hashable, state: _State) -> _Record:
        record = self._records[name]
        if record.state not in _BEFORE[state]:
            text = f"{name!r} is {state} after it was {record.state}"
            self.anomalies.append(Anomaly(Kind.SECOND_OUTCOME, text))
            return record
        if state is not _State.ACCEPTED:
            self._pending -= 1
        record.accepted |= state in {_State.ACCEPTED, _State.ACKNOWLEDGED, _State.FAILED}
        record.state = state
        return record


def check(
    history: History,
    log: Iterable[Logged],
    promises: Promises | None = None,
    *,
    lost: Collection[Logged] = (),
) -> list[Anomaly]:
    """Return every contradiction between a history and the logs.

    Args:
        history: The calls and outcomes.
        log: Every record in the logs, in any order.
        promises: What holds in this run.
        lost: Records that the cluster may have lost although they were acknowledged.
    """
    found = _Logs(log)
    checked = _Check(history._records, history._ends, found, promises or Promises(), lost)
    return [
        *history.anomalies,
        *checked.of_outcomes(),
        *checked.of_copies(),
        *checked.of_order(),
        *checked.of_transactions(),
    ]


class _Logs:
    """The logs by place and by name."""

    def __init__(self, log: Iterable[Logged]) -> None:
        self.entries = list(log)
        self.at = {entry.place: entry.name for entry in self.entries}
        self.places: dict[Hashable, list[Place]] = defaultdict(list)
        self.visible: Counter[Hashable] = Counter()
        for entry in self.entries:
            self.places[entry.name].append(entry.place)
            self.visible[entry.name] += entry.visible

    def partitions(self) -> Iterator[list[tuple[int, Hashable]]]:
        """Yield offsets and names of each partition in the order of offsets."""
        by_partition: dict[Hashable, list[tuple[int, Hashable]]] = defaultdict(list)
        for (partition, offset), name, _ in self.entries:
            by_partition[partition].append((offset, name))
        for entries in by_partition.values():
            yield sorted(entries, key=lambda entry: entry[0])


class _Check:
    def __init__(
        self,
        records: dict[Hashable, _Record],
        ends: dict[Hashable, End],
        logs: _Logs,
        promises: Promises,
        lost: Collection[Logged],
    ) -> None:
        self._records = records
        self._ends = ends
        self._logs = logs
        self._promises = promises
        self._lost_places = {(each.name, each.place) for each in lost}
        self._lost_names = {each.name for each in lost}

    def of_outcomes(self) -> Iterator[Anomaly]:
        """Yield outcomes of single records that are not true."""
        for name, record in self._records.items():
            if record.state in {_State.OFFERED, _State.ACCEPTED}:
                yield Anomaly(Kind.UNRESOLVED, f"{name!r} was {record.state}, and has no outcome")
            elif record.denied and name in self._logs.places:
                where = _text(self._logs.places[name])
                yield Anomaly(
                    Kind.WRONGLY_NOT_PERSISTED, f"{name!r} {record.state}, and is {where}"
                )
            elif record.state is _State.ACKNOWLEDGED and self._promises.kept and not record.excused:
                yield from self._of_acknowledged(name, record.place)

    def _of_acknowledged(self, name: Hashable, place: Place | None) -> Iterator[Anomaly]:
        if place is None:
            if name not in self._logs.places and name not in self._lost_names:
                yield Anomaly(Kind.LOST, f"{name!r} is acknowledged, and in no log")
            return
        at = self._logs.at.get(place)
        if at == name or (name, place) in self._lost_places:
            return
        elsewhere = self._logs.places.get(name)
        if elsewhere is None:
            yield Anomaly(Kind.LOST, f"{name!r} is acknowledged {_text([place])}, and in no log")
        if elsewhere is not None or at is not None:
            there = "nothing" if at is None else repr(at)
            yield Anomaly(Kind.MISPLACED, f"{name!r} was to be {_text([place])}: {there} is there")

    def of_copies(self) -> Iterator[Anomaly]:
        """Yield records that are in the logs too often, or should not be."""
        for name, places in self._logs.places.items():
            if name not in self._records:
                yield Anomaly(
                    Kind.PHANTOM, f"{name!r} is {_text(places)}, and no writer offered it"
                )
            elif self._promises.once and len(places) > 1:
                yield from (
                    Anomaly(Kind.DUPLICATED, f"{name!r} is {_text(places)}") for _ in places[1:]
                )

    def of_order(self) -> Iterator[Anomaly]:
        """Yield records that come after one that their writer offered later.

        Without idempotence a request that was given up may still arrive: only what is acknowledged
        is in order then.
        """
        if not self._promises.ordered:
            return
        for entries in self._logs.partitions():
            newest: dict[Hashable, tuple[int, Hashable]] = {}
            seen: set[Hashable] = set()
            for offset, name in entries:
                record = self._records.get(name)
                if record is None or record.writer is None or name in seen:
                    continue
                if not self._promises.once and record.state is not _State.ACKNOWLEDGED:
                    continue
                seen.add(name)
                last = newest.get(record.writer)
                if last is not None and record.number < last[0]:
                    yield Anomaly(
                        Kind.REORDERED, f"{name!r} at {offset} was sent before {last[1]!r}"
                    )
                else:
                    newest[record.writer] = record.number, name

    def of_transactions(self) -> Iterator[Anomaly]:
        """Yield transactions of which a committed reader gets too much or too little."""
        contents: dict[Hashable, list[tuple[Hashable, _Record]]] = defaultdict(list)
        for name, record in self._records.items():
            if record.transaction is not None:
                contents[record.transaction].append((name, record))
        for transaction, end in self._ends.items():
            certain = [(name, record) for name, record in contents[transaction] if record.accepted]
            visible = [name for name, _ in contents[transaction] if self._logs.visible[name]]
            yield from self._of_transaction(transaction, end, certain, visible)

    def _of_transaction(
        self,
        transaction: Hashable,
        end: End,
        certain: list[tuple[Hashable, _Record]],
        visible: list[Hashable],
    ) -> Iterator[Anomaly]:
        what = f"transaction {transaction!r}, {end}"
        shown = sum(self._logs.visible[name] > 0 for name, _ in certain)
        if end in {End.BEGUN, End.ABORTED}:
            for name in visible:
                where = _text(self._logs.places[name])
                yield Anomaly(Kind.LEAKED, f"{name!r} of {what}, is visible {where}")
        elif end is End.COMMITTED:
            for name, record in certain:
                if not self._logs.visible[name]:
                    yield Anomaly(Kind.MISSING, f"{name!r} of {what}, is not visible")
                if record.state is _State.FAILED:
                    yield Anomaly(Kind.COMMITTED_LOSS, f"{name!r} of {what}, failed")
        elif 0 < shown < len(certain):
            yield Anomaly(Kind.TORN, f"{shown} of {len(certain)} records of {what}, are visible")


def _text(places: Iterable[Place]) -> str:
    return "at " + ", ".join(f"{partition}@{offset}" for partition, offset in places)
