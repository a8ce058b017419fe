"""Rules that hold in every state."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import inf

from support.liveness_rule import broken_rules

from aioproducer.core.batching.batch import ProducerBatch
from exploration.world import ViolationError, World


def check(world: World) -> None:
    """Raise a `ViolationError` unless the state is a good one."""
    _check_logs(world)
    if world.is_dead:
        return
    _check_memory(world)
    _check_wake_ups(world)
    if world.is_over:
        _check_end(world)


def _check_logs(world: World) -> None:
    for partition, log in world.logs.items():
        ids = log.ids
        if world.config.idempotent or world.config.ordered:
            if not world.config.idempotent:
                # Each may be there more than once, and one that has failed come late.
                firsts = list(dict.fromkeys(ids))
                ids = [each for each in firsts if world.outcomes.get(each) in {None, "ok"}]
            order = {number: at for at, number in enumerate(world.accepted[partition])}
            places = [order.get(number, -1) for number in ids]
            if any(before >= after for before, after in pairwise(places)):
                raise ViolationError(
                    f"partition {partition} has records {ids} out of order or twice"
                )
    for number, outcome in world.outcomes.items():
        if outcome in {"no", "not accepted"} and number in world.written:
            raise ViolationError(f"record {number} is written, but its error says it is not")


def _check_memory(world: World) -> None:
    pool, accumulator = world.pool, world.accumulator
    world.batches = [batch for batch in world.batches if batch.buffer is not None]
    used = sum(batch.size for batch in world.batches)
    request = world.request
    if request is not None:
        used += request.granted if request.buffer is None else request.size
    if pool.total - pool.available != used:
        raise ViolationError(
            f"{pool.total - pool.available} bytes are accounted for, {used} are in use"
        )
    expected = Counter[ProducerBatch]()
    for link in world.net.links.values():
        for each in [*link.requests, *(request for request, _ in link.answers)]:
            expected.update(each.batches)
        expected.update(link.preparing)
    for batch in world.batches:
        expected[batch] += sum(not part.done for part in batch.parts)
    pins = {batch: batch.pins for batch in accumulator.pinned}
    if pins != +expected:
        raise ViolationError(f"{len(pins)} batches are pinned, transports have {len(+expected)}")


def _check_wake_ups(world: World) -> None:
    """Work that is pending has a request in flight, a dial in progress or a timer set."""
    if world.is_woken:
        return
    for broken in broken_rules(world.driver, world.now, world.net, world.timers):
        raise ViolationError(broken)


def _check_end(world: World) -> None:
    if not world.accumulator.is_idle:
        raise ViolationError("batches are left over at the end")
    if world.pool.available != world.pool.total:
        raise ViolationError("memory is left over at the end")
    if world.until < inf and not world.is_woken and world.next_expiry < inf:
        raise ViolationError("a timer is left over at the end")
