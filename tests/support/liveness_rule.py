"""The liveness rule of `core.driver`, checked in a state in which all deciders wait."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Protocol

from aioproducer.core.driver import Driver, Turns
from aioproducer.core.metadata.requests import MetadataNodes
from aioproducer.core.sending.reasons import Obstacle, Wait

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.sending.actions import NodeView
    from aioproducer.core.sending.sender import Sender
    from aioproducer.core.transactions.coordinators import CoordinatorSession


class Connections(MetadataNodes, Protocol):
    """State of the connections that the rule needs besides what the deciders need."""

    def in_flight(self, node_id: int) -> int:
        """Return the number of requests in flight to the node."""

    def is_dialing(self, node_id: int) -> bool:
        """Return whether a dial or a handshake is in progress."""

    def link(self, node_id: int) -> object:
        """Return None unless the node is among those that requests can be sent to."""


def after_turn(driver: Driver, now: float, nodes: MetadataNodes) -> Turns:
    """Return the next turns if no event comes, once all that is due has been done."""
    transactions = driver.transactions
    return Turns(
        driver.sender.next_deadline(now, nodes),
        driver.metadata.next_deadline(now, nodes),
        inf if transactions is None else transactions.next_deadline(now, nodes),
    )


def broken_rules(driver: Driver, now: float, nodes: Connections, timers: Turns) -> Iterator[str]:
    """Yield what breaks the liveness rule.

    Args:
        driver: the deciders.
        now: loop time.
        nodes: the connections.
        timers: the loop time until which each decider sleeps.
    """
    for batch, wait in unattended(driver.sender, nodes, now):
        yield f"{batch.topic_partition} is {wait.obstacle.value}, which nothing ends"
    deadlines = after_turn(driver, now, nodes)
    for turn, until, deadline in zip(Turns._fields, timers, deadlines, strict=True):
        if until > deadline:
            yield f"{turn}: sleeps until {until:.3f}, is due at {deadline:.3f}"
    due = driver.after_event(now, nodes)
    for turn, at, deadline in list(zip(Turns._fields, due, deadlines, strict=True))[1:]:
        if at <= now and deadline == inf:  # `unattended` has checked the sender's batches
            yield f"{turn}: something is due and has no timer"
    if driver.transactions is not None and _waits_for_nothing(driver.transactions, now, nodes):
        yield "transactions: a call waits for nothing"


def unattended(
    sender: Sender, nodes: Connections, now: float
) -> Iterator[tuple[ProducerBatch, Wait]]:
    """Yield the batches for which only the delivery timeout is pending."""
    accumulator, producer_id = sender.accumulator, sender.producer_id
    for batch in accumulator.incomplete():
        wait = sender.wait_of(batch)
        match wait.obstacle:
            case Obstacle.PRODUCER_ID:
                attended = producer_id.in_flight or producer_id.due_at(now, nodes) < inf
            case Obstacle.EARLIER_BATCH:
                where = batch.topic_partition
                attended = any(each.topic_partition == where for each in accumulator.pinned)
            case Obstacle.CONNECTION:
                queue = accumulator.queue(*batch.topic_partition)
                node_id = None if queue is None else queue.node_id
                attended = node_id is not None and (
                    node_id in sender._preparing
                    or nodes.ready_at(node_id, now) < inf
                    or nodes.is_dialing(node_id)
                    or nodes.in_flight(node_id) > 0
                    # After a rebootstrap: the next response has the brokers.
                    or (sender._metadata.is_awaited and nodes.link(node_id) is None)
                )
            case _:
                # Timers, requests and fetches that `broken_rules` checks elsewhere.
                attended = True
        if not attended:
            yield batch, wait


def _waits_for_nothing(session: CoordinatorSession, now: float, nodes: NodeView) -> bool:
    """Return whether a pending call has no request in flight, timer or batch to wait for."""
    manager = session._manager
    if not manager.is_busy or session._in_flight is not None:
        return False
    awaits_batches = manager.awaits_batches and not session._accumulator.is_idle
    return not awaits_batches and session.next_deadline(now, nodes) == inf
