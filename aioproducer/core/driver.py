"""Turns of the sender, metadata and transactions: start with `Driver`.

The liveness rule: *pending work always has a request in flight, a dial in progress or a timer set.*
Each of the three deciders (`Sender`, `MetadataRequests`, `CoordinatorSession`) keeps its part with
three methods, which use only their own state, the loop time and the connections:

- `poll` returns the actions that are due now. The caller performs them, and then sleeps.
- `next_deadline` returns the next turn if no event comes before it. It is finite while work is
  pending that has neither a request in flight nor a dial in progress.
- `due_at` returns the next turn after an event, which is at once for work that was blocked.

The plain response to a direct send is no event while nothing waits for capacity
(`Sender.waits_for_capacity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aioproducer.core.metadata.requests import MetadataNodes, MetadataRequests
    from aioproducer.core.sending.sender import Sender
    from aioproducer.core.transactions.coordinators import CoordinatorSession


class Turns(NamedTuple):
    """Loop time of each decider's next turn; now or earlier means at once.

    inf: nothing is pending, or a response or a dial will be an event.
    """

    sender: float
    metadata: float
    transactions: float = inf


@dataclass(slots=True, eq=False)
class Driver:
    """The three deciders of a producer: batches and the producer id, metadata, transactions."""

    sender: Sender
    metadata: MetadataRequests
    transactions: CoordinatorSession | None = None

    def after_event(self, now: float, nodes: MetadataNodes) -> Turns:
        """Return the next turns after an event."""
        return Turns(
            self.sender.due_at(now),
            self.metadata.due_at(now, nodes),
            inf if self.transactions is None else self.transactions.due_at(now),
        )
