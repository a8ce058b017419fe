"""A check of a producer whose event loop is blocked while a request is in flight.

All timers are late then, and fire in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioproducer.errors import DeliveryTimeoutError
from aioproducer.testing.world.weather import Condition, Direction, Effect
from simulation.ledger import CallState

if TYPE_CHECKING:
    from aioproducer.testing.world.producer import SimProducer
    from aioproducer.testing.world.world import SimWorld
    from simulation.ledger import Entry, Ledger

_SLACK_S = 1.0


async def check_blocked_loop(
    producer: SimProducer,
    world: SimWorld,
    ledger: Ledger,
    sent: Callable[[str, bytes | None, int | None], Awaitable[Entry]],
    outcome_of: Callable[[Entry], Awaitable[None]],
) -> None:
    """A record whose time is over expires, even if its request has also timed out by then.

    Args:
        producer: The producer of the run, in a healed cluster.
        world: The event loop, which is blocked for `delivery_timeout_ms`, and the brokers, which do
            not answer meanwhile.
        ledger: The books of the run.
        sent: Sends a record with a new name.
        outcome_of: Waits for the outcome of a record.
    """
    config = producer.config
    if config.metadata_recovery_rebootstrap_trigger_ms <= config.delivery_timeout_ms:
        return  # it would start over, and its bootstrap servers may be gone
    await producer.flush()
    blocked_s = config.delivery_timeout_ms / 1000
    until = world.now() + blocked_s + _SLACK_S
    world.disturb(until + _SLACK_S - world.now())
    for node_id in world.spec.nodes:
        held = Condition(Effect.HELD, node_id, until, direction=Direction.TO_CLIENT)
        world.network.weather.add(held)
    entry = await sent(min(world.cluster.topics), None, 0)
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.sleep(world.spec.base_latency_s)
    world.loop.call_soon(lambda: world.loop._set_time(world.now() + blocked_s))
    await flushing
    await outcome_of(entry)
    is_accepted = entry.delivery is not None and entry.error is not None
    if is_accepted and not isinstance(entry.error, DeliveryTimeoutError):
        ledger.false_reports.append(f"{entry.label} is out of time, and {entry.error!r}")
    # Its time has passed although brokers answered before and after.
    entry.state, entry.error, entry.delivery = CallState.UNKNOWN, None, None
    await asyncio.sleep(max(0.0, until - world.now()) + _SLACK_S)
