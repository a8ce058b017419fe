"""Rules for batches, sessions and dials that hold whenever a producer waits.

Owns: what must be true of one producer at an idle moment besides the rule of `core.driver`. Not
here: when it is checked, see `simulation.liveness`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine

_LATE_S = 0.1
"""How late a step may be."""
_ATTEMPTS_WITHOUT_PAUSE = 3
"""After so many attempts even a new leader gets the batch only after a pause."""


class Numbers(NamedTuple):
    """The numbers with which a batch is sent."""

    producer_id: int
    epoch: int
    sequence: int


def numbers_on_wire(engine: ProducerEngine) -> dict[tuple[tuple[int, ...], int], Numbers]:
    """Return the numbers of the batches of requests without a response, by their attempt."""
    return {
        (batch.ordinal, batch.attempts): Numbers(
            batch.producer_id, batch.producer_epoch, batch.base_sequence
        )
        for batch in engine.accumulator.pinned
        if batch.on_wire
    }


def broken_while_waiting(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield what a waiting producer does not do although it could, or has done too early."""
    for rule in _RULES:
        for text in rule(engine, now):
            yield f"at {now:.3f}: {text}"


def _sleeps_although_woken(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Tasks that sleep although they were woken after their last turn began."""
    for task in (engine.sender_task, engine.metadata_task, engine.transactions):
        wakeup = None if task is None else task._wakeup
        if wakeup is not None and wakeup._woken and wakeup.is_asleep:
            yield f"{type(task).__name__} was woken, and sleeps"


def _several_before_the_first(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches in flight together under an epoch of which the leader has acknowledged none.

    A broker without state of the producer would accept the second after refusing the first.
    """
    sequencer = engine.accumulator.sequencer
    if engine.transactions is not None or not sequencer.is_idempotent:
        return
    for where, partition in sequencer._partitions.items():
        on_wire = sum(batch.on_wire for batch in partition.in_flight)
        if on_wire > 1 and not partition.newest and not partition.log_is_new:
            yield f"{on_wire} batches of {where} are the first of their epoch"


def _waits_though_leader_changed(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches that wait for the end of their backoff although their leader has changed."""
    for batch in engine.accumulator.incomplete():
        if batch.pins or not 0 < batch.attempts <= _ATTEMPTS_WITHOUT_PAUSE:
            continue
        epoch = engine.metadata.leader_epoch(*batch.topic_partition)
        if epoch > batch.leader_epoch and batch.retry_at > now:
            yield f"a batch of {batch.topic_partition} waits for {batch.retry_at - now:.3f} s more"


def _renewed_late(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Sessions that are renewed only after their end, when brokers close the connection."""
    for link in engine.client._links():
        session = link._session
        if link.versions is None or session is None or session.lifetime_s is None:
            continue
        if link._renew_at > link.ready_since + session.lifetime_s:
            yield f"the session with node {link.node.id} is renewed after its end"


def _not_dialed(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Brokers that could be dialed while metadata are due and no broker can be asked."""
    client = engine.client
    links = list((client._brokers or client._bootstrap).values())
    if engine.metadata.next_update_at(now) > now or client.any_connected():
        return
    if not any(link.is_dialing for link in client._links()):
        waiting = [now - link._retry_at for link in links if link.can_connect(now)]
        if waiting and max(waiting) > _LATE_S:
            yield f"metadata are due, and a broker could be dialed for {max(waiting):.3f} s"


_RULES = (
    _sleeps_although_woken,
    _several_before_the_first,
    _waits_though_leader_changed,
    _renewed_late,
    _not_dialed,
)
