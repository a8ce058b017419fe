"""The faults of a soak and their order, drawn from a seed.

Owns: the deck of faults and the draw. Not here: clients, the verdict, the clock.

Invariants: the same seed gives the same plan; every kind comes as often as the deck has it before
the deck is shuffled again; the first fault fills the producer's memory, so that what it occupies
afterwards can be judged.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.faults.proxy import NetworkFault
from support.faults.scenarios import Situation, freeze_for, kill_for, rolling_restart, strike

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEAD_S = 2.0
_SILENT_S = 7.0
"""Longer than a request may take (5 s), and than a broker's session."""
_FLAKY_S = 5.0
_SOME = 0.1
"""A connection that always breaks never gets beyond its handshake; this one carries records."""
_QUORUM_LOST_S = 18.0
"""Longer than `buffer_memory` lasts at 20,000 records/s."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault; `draw` decides which broker it meets."""

    name: str
    happen: Callable[[Situation, random.Random], Awaitable[None]]


async def _kill(situation: Situation, draw: random.Random) -> None:
    await kill_for(situation.ground, [await _drawn_leader(situation, draw)], _DEAD_S)


async def _freeze(situation: Situation, draw: random.Random) -> None:
    await freeze_for(situation.ground, [await _drawn_leader(situation, draw)], _SILENT_S)


async def _roll(situation: Situation, draw: random.Random) -> None:
    await rolling_restart(situation)


async def _lose_quorum(situation: Situation, draw: random.Random) -> None:
    nodes = situation.ground.cluster.node_ids
    await freeze_for(situation.ground, draw.sample(nodes, 2), _QUORUM_LOST_S)


def _network(fault: NetworkFault, seconds: float, chance: float = 1.0) -> Fault:
    async def happen(situation: Situation, draw: random.Random) -> None:
        nodes = sorted(situation.ground.proxies)
        struck = nodes if draw.random() < 0.25 else [draw.choice(nodes)]
        await strike(situation.ground, struck, fault, seconds, chance)

    return Fault(f"network {fault.value}", happen)


async def _drawn_leader(situation: Situation, draw: random.Random) -> int:
    drawn = draw.choice(situation.ground.cluster.node_ids)
    others = [node_id for node_id in situation.ground.cluster.node_ids if node_id != drawn]
    return await situation.leader(but=others)


OPENING = Fault("two of three brokers frozen", _lose_quorum)
_KILL = Fault("kill -9 of a leader", _kill)
_FREEZE = Fault("SIGSTOP of a leader", _freeze)
DECK: Sequence[Fault] = (
    _KILL,
    _KILL,
    _KILL,
    _FREEZE,
    _FREEZE,
    Fault("rolling restart", _roll),
    _network(NetworkFault.DELAY, _FLAKY_S),
    _network(NetworkFault.DROP, _FLAKY_S, _SOME),
    _network(NetworkFault.TRUNCATE_REQUESTS, _FLAKY_S, _SOME),
    _network(NetworkFault.TRUNCATE_ANSWERS, _FLAKY_S, _SOME),
    _network(NetworkFault.HALF_CLOSE, _FLAKY_S, _SOME),
    _network(NetworkFault.SWALLOW_ANSWERS, _SILENT_S),
    _network(NetworkFault.BLACK_HOLE, _SILENT_S),
)


def plan(draw: random.Random) -> Iterator[Fault]:
    """The opening, then deck after deck, each shuffled."""
    yield OPENING
    for deck in itertools.repeat(DECK):
        yield from draw.sample(deck, len(deck))
