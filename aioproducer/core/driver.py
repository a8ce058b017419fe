"""Turns of the sender, metadata and transactions: start with `Driver`.

The liveness rule: *pending work always has a request in flight, a dial in progress or a timer set.*
Each of the three deciders (`Sender`, `MetadataRequests`, `CoordinatorRequests`) keeps its part with
three methods, which use only their own state, the loop time and the connections:

- `poll` returns the actions that are due now. The caller performs them, and then sleeps.
- `next_deadline` returns the next turn if no event comes before it. It is finite while work is
  pending that has neither a request in flight nor a dial in progress.
- `due_at` returns the next turn after an event. Work that was blocked may be able to continue, so
  it is due at once, whatever `next_deadline` returned.

After every event the runtime calls `Driver.after_event` and moves its timers. A decider's own turn
is not an event for itself: what it could not do then, it cannot do now. Nor is the plain response
to a direct send an event while nothing waits for capacity (`Sender.waits_for_capacity`): all that
it changes is that a request less is in flight.

    event (response, connection, call, metadata) --after_event--> timers --> turn: poll, perform
      ^                                                             ^               |
      +---- others: after_event <-----------------------------------+-next_deadline-+
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aioproducer.core.liveness import Connections
from aioproducer.core.metadata.requests import MetadataNodes

if TYPE_CHECKING:
    from aioproducer.core.metadata.requests import MetadataRequests
    from aioproducer.core.sending.actions import Action
    from aioproducer.core.sending.sender import Sender
    from aioproducer.core.transactions.coordinator_requests import CoordinatorRequests


class Network(Connections, MetadataNodes, Protocol):
    """The facts about connections that the deciders need."""


class Turns(NamedTuple):
    """Loop time of each decider's next turn; now or earlier means at once.

    inf: nothing is pending, or a response or a dial will be an event.
    """

    sender: float
    metadata: float
    transactions: float = inf


class Driver:
    """The three deciders of a producer.

    Args:
        sender: decides about batches and the producer id.
        metadata: decides about metadata.
        transactions: decides about transactions, if there are any.
    """

    def __init__(
        self,
        sender: Sender,
        metadata: MetadataRequests,
        transactions: CoordinatorRequests | None = None,
    ) -> None:
        self.sender: Sender = sender
        self.metadata: MetadataRequests = metadata
        self.transactions: CoordinatorRequests | None = transactions

    def poll(self, now: float, nodes: Network) -> list[Action]:
        """Return the actions of all deciders; the runtime polls each decider in its own turn."""
        actions = self.sender.poll(now, nodes) + self.metadata.poll(now, nodes)
        if self.transactions is not None:
            actions += self.transactions.poll(now, nodes)
        return actions

    def after_event(self, now: float, nodes: Network) -> Turns:
        """Return the next turns after an event."""
        return Turns(
            self.sender.due_at(now, nodes),
            self.metadata.due_at(now, nodes),
            inf if self.transactions is None else self.transactions.due_at(now, nodes),
        )

    def after_turn(self, now: float, nodes: Network) -> Turns:
        """Return the next turns if no event comes, once all that is due has been done."""
        return Turns(
            self.sender.next_deadline(now, nodes),
            self.metadata.next_deadline(now, nodes),
            inf if self.transactions is None else self.transactions.next_deadline(now, nodes),
        )

    def broken_rules(self, now: float, nodes: Network, timers: Turns) -> Iterator[str]:
        """Yield what breaks the liveness rule while all deciders wait.

        Args:
            now: loop time.
            nodes: the connections.
            timers: the loop time until which each decider sleeps.
        """
        for batch, wait in self.sender.unattended(nodes, now):
            yield f"{batch.topic_partition} is {wait.obstacle.value}, which nothing ends"
        deadlines = self.after_turn(now, nodes)
        for turn, until, deadline in zip(Turns._fields, timers, deadlines, strict=True):
            if until > deadline:
                yield f"{turn}: sleeps until {until:.3f}, is due at {deadline:.3f}"
        due = self.after_event(now, nodes)
        for turn, at, deadline in list(zip(Turns._fields, due, deadlines, strict=True))[1:]:
            if at <= now and deadline == inf:  # `unattended` has checked the sender's batches
                yield f"{turn}: something is due and has no timer"
        if self.transactions is not None and self.transactions.waits_for_nothing(now, nodes):
            yield "transactions: a call waits for nothing"
