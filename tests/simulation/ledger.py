"""The books of a run: every record that a task wanted to send, and what was reported for it.

Owns: entries and the states of their calls. Not here: how records are sent, what the logs say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from aioproducer.errors import KafkaError
from aioproducer.runtime.delivery import Delivery
from aioproducer.types import HeaderPairs, Persistence, RecordMetadata, TopicPartition


class Source(NamedTuple):
    """A record that was read, to make another one of it."""

    where: TopicPartition
    offset: int
    name: bytes


class CallState(Enum):
    """The state of a call that sends."""

    ASKED = "asked"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"
    """One of many in a call that raised."""


EARLY = b"<early/"
"""What the names of records begin with that are to be refused once metadata come."""


@dataclass(slots=True, eq=False)
class Entry:
    """One record.

    Attributes:
        name: The prefix of its value (or key, where there is no value), unique in the run.
        task: The sending task; records of one task are sent one after the other.
        asked_at: When `send` was called.
        settled_at: When `send` returned or raised.
        in_one_call: Whether one call sent it and waited for its outcome; `settled_at` is the time
            of the call then, unless it was refused.
        done_at: When its delivery was seen done, if it was checked.
        notices: How often its done-callback ran; None where it has none.
        delivery: What `send` returned; None where it was thrown away, never seen, or sealed.
        is_open: Whether the delivery was without outcome when it was sealed.
        error: Why it failed or was refused, once that was reported.
        metadata: Where it was written, once that was reported.
        call: The records of the same call of `send_many`: all are settled when it returns.
        delivered_in_bulk: Whether `send_many` reported it as delivered.
        whole: All records of its batch, which is written whole or not at all; else empty.
        transaction: The number of its transaction in the run's books; None outside of any.
        source: What it was made of, where that was read from a topic.
        partitions: How many partitions metadata had during its call, the least and the most; empty
            if that is not known.
    """

    name: bytes
    task: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None
    asked_at: float
    state: CallState = CallState.ASKED
    settled_at: float | None = None
    done_at: float | None = None
    notices: int | None = None
    delivery: Delivery | None = None
    is_open: bool = False
    error: KafkaError | None = None
    metadata: RecordMetadata | None = None
    delivered_in_bulk: bool = False
    in_one_call: bool = False
    call: Sequence[Entry] = ()
    whole: Sequence[Entry] = ()
    transaction: int | None = None
    source: Source | None = None
    partitions: range = range(0)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call that sends the record."""
        names = ("topic", "value", "key", "headers", "partition", "timestamp_ms")
        return {name: getattr(self, name) for name in names}

    @property
    def label(self) -> str:
        """The record in a few words."""
        return f"{self.name.decode()}->{self.topic}"

    def seal(self) -> None:
        """Notes the outcome and lets go of the delivery, which may keep others from being freed."""
        delivery, self.delivery = self.delivery, None
        if delivery is None:
            return
        self.is_open = not delivery.done()
        if not self.is_open:
            self.error = delivery.exception()
            self.metadata = None if self.error else delivery.result()

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was reported as delivered."""
        return self.metadata is not None or self.delivered_in_bulk

    @property
    def must_be_absent(self) -> bool:
        """Whether it was reported as absent from every log."""
        if self.state in {CallState.REFUSED, CallState.CANCELLED}:
            return True
        return self.error is not None and self.error.persistence is Persistence.NOT_PERSISTED


class Alarm(NamedTuple):
    """A call of `on_data_loss`.

    Attributes:
        where: The partition it named.
        at: When.
        lost: The names of the records that its leaders had lost by then.
        to: The producer that called it.
    """

    where: TopicPartition
    at: float
    lost: frozenset[bytes]
    to: str = "producer"


@dataclass(slots=True)
class Ledger:
    """All entries of a run, in the order of their calls."""

    entries: list[Entry] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    """Exceptions of kinds that no call may raise."""
    undocumented: list[str] = field(default_factory=list)
    """Calls of `send` that raised what is no `KafkaError`."""
    false_reports: list[str] = field(default_factory=list)
    """What calls returned and was not so."""
    overtakings: list[tuple[Entry, Entry]] = field(default_factory=list)
    """Entries that were accepted while an earlier call for their topic waited, and that one."""
    offsets: list[tuple[Sequence[Entry], Mapping[TopicPartition, tuple[int, int]]]] = field(
        default_factory=list
    )
    """The records of each bulk call, and the lowest and highest offset that it returned."""
    late_ends: list[str] = field(default_factory=list)
    """Calls that took longer than they may."""
    calls: list[tuple[str, float, float]] = field(default_factory=list)
    """Calls that wait for something, other than `send`: which, when they began and ended."""
    unrecovered: list[str] = field(default_factory=list)
    """What did not work although everything was healed."""
    alarms: list[Alarm] = field(default_factory=list)
    """Losses of acknowledged records that the producer reported."""
    hands_over: bool = False
    """Whether records wait before their call, as those of a blocking producer."""
    refused_later: int = 0
    """Records that a blocking producer refused after its call, which count as failed."""
    unread: int = 0
    """Records for which `on_delivery_error` was called."""
    dropped: list[Entry] = field(default_factory=list)
    """Accepted entries whose delivery was thrown away."""
