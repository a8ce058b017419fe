"""Faults that strike while transactions run, one coroutine each.

Owns: what is broken, in which phase of a transaction and for how long. Not here: what a
transaction consists of, the verdict.

Every fault ends with all brokers up and in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.faults.proxy import NetworkFault
from support.faults.scenarios import strike
from support.transactions.client import Phase
from support.transactions.stage import ClientProcess, Stage

_HEALTHY_S = 1.0
_UNDER_WAY_S = 0.5
"""How long a request has been on its way to a broker that does not answer before that dies."""
_SOON_S = (0.002, 0.004, 0.008)
"""A call takes about as long on an idle machine."""
_DOWN_S = 2.0
_CLIENT_S = 300.0
_FAILOVER_S = 8.0
"""Longer than a broker's session (5 s): another broker coordinates by then."""

Fault = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault with a name.

    Attributes:
        work: Fields of the client's `Work` that the scenario needs otherwise.
        through_proxy: Whether the client reaches the brokers through the proxies.
        own_clients: Whether the fault runs its clients itself, in separate processes.
    """

    name: str
    description: str
    fault: Fault
    work: Mapping[str, Any] = field(default_factory=dict)
    through_proxy: bool = False
    own_clients: bool = False


def kill_coordinator(phase: Phase, rounds: int = 1) -> Fault:
    """The transaction coordinator dies as the phase begins, and with its request unanswered."""

    async def fault(stage: Stage) -> None:
        for _ in range(rounds):
            for under_way in (False, True):
                await _kill(stage, phase, await stage.coordinator(), under_way=under_way)

    return fault


def kill_leader(phase: Phase, rounds: int = 1) -> Fault:
    """The leader of a partition dies, likewise."""

    async def fault(stage: Stage) -> None:
        for _ in range(rounds):
            for under_way in (False, True):
                await _kill(stage, phase, await stage.leader(), under_way=under_way)

    return fault


async def kill_after_lost_answers(stage: Stage) -> None:
    """The coordinator carries the commit out, its answer is lost, and it dies."""
    for _ in range(3):
        await asyncio.sleep(_HEALTHY_S)
        coordinator = await stage.coordinator()
        proxy = stage.ground.proxies[coordinator]
        async with stage.at(Phase.COMMIT):
            stage.ground.note(f"network before {coordinator}: {NetworkFault.SWALLOW_ANSWERS.value}")
            proxy.chance, proxy.fault = 1.0, NetworkFault.SWALLOW_ANSWERS
        try:
            await asyncio.sleep(_UNDER_WAY_S)
            await stage.ground.kill(coordinator)
        finally:
            proxy.fault = NetworkFault.NONE
        await _bring_back(stage, coordinator)


async def freeze_coordinator(stage: Stage) -> None:
    """The coordinator is silent for longer than a request may take, and than its session."""
    short_s = stage.work.request_timeout_ms / 1000 + 1
    for phase in (Phase.BEGIN, Phase.COMMIT):
        for seconds in (short_s, _FAILOVER_S):
            await asyncio.sleep(_HEALTHY_S)
            coordinator = await stage.coordinator()
            async with stage.at(phase):
                await stage.ground.pause(coordinator)
            await asyncio.sleep(seconds)
            await stage.ground.resume(coordinator)
            await stage.wait_in_sync()


def misbehaving_network(fault: NetworkFault, seconds: float, chance: float) -> Fault:
    """The network before one broker at a time, then before all of them, is at fault."""

    async def misbehave(stage: Stage) -> None:
        nodes = list(stage.ground.proxies)
        for struck in [*([node_id] for node_id in nodes), nodes]:
            await asyncio.sleep(_HEALTHY_S)
            await strike(stage.ground, struck, fault, seconds, chance)

    return misbehave


async def outlast_the_timeout(stage: Stage) -> None:
    """The client pauses for longer than its transactions may last."""
    for phase in (Phase.PRODUCE, Phase.OFFSETS, Phase.COMMIT, Phase.ABORT):
        await asyncio.sleep(_HEALTHY_S)
        async with stage.at(phase):
            stage.ground.note(f"client pauses before {phase.value}")
            await asyncio.sleep(2 * stage.work.transaction_timeout_ms / 1000 + 1)


async def kill_clients(stage: Stage) -> None:
    """Clients die by kill -9 in every phase, as it begins and soon after; the next takes over."""
    for phase in Phase:
        for under_way_s in (0, *_SOON_S):
            async with stage.client_process() as client:
                await client.reach(phase, after=0 if phase is Phase.INIT else 15)
                await asyncio.sleep(under_way_s)
                stage.ground.note(f"kill -9 of the client at {phase.value}")
                await client.kill()
    await _last_client(stage)


async def raise_zombies(stage: Stage) -> None:
    """Clients freeze, others take over, the frozen ones go on and must be fenced."""
    async with stage.client_process() as old:
        await _haunt(stage, old, [Phase.PRODUCE, Phase.OFFSETS, Phase.COMMIT, Phase.ABORT])


async def _haunt(stage: Stage, old: ClientProcess, phases: list[Phase]) -> None:
    if not phases:
        await old.finish(_CLIENT_S)
        return
    await old.reach(phases[0], after=20)
    stage.ground.note(f"SIGSTOP of the client at {phases[0].value}")
    old.freeze()
    async with stage.client_process() as new:
        await new.reach(Phase.BEGIN, after=10)
        stage.ground.note("SIGCONT of the client")
        await old.thaw_and_see_it_fenced()
        await _haunt(stage, new, phases[1:])


async def _last_client(stage: Stage) -> None:
    async with stage.client_process() as client:
        await client.finish(_CLIENT_S)


async def _kill(stage: Stage, phase: Phase, victim: int, *, under_way: bool) -> None:
    await asyncio.sleep(_HEALTHY_S)
    ground = stage.ground
    ground.note(f"client at {phase.value}")
    if under_way:
        async with stage.at(phase):
            await ground.pause(victim)
        await asyncio.sleep(_UNDER_WAY_S)
        await ground.kill(victim)
    else:
        async with stage.at(phase):
            await ground.kill(victim)
    await _bring_back(stage, victim)


async def _bring_back(stage: Stage, node_id: int) -> None:
    try:
        await asyncio.sleep(_DOWN_S)
    finally:
        await stage.ground.start(node_id)
    await stage.wait_in_sync()


def _coordinator_killed(phase: Phase, **work: Any) -> Scenario:
    return Scenario(
        f"coordinator killed: {phase.value}",
        f"kill -9 of the coordinator twice, before and during {phase.value}",
        kill_coordinator(phase),
        work,
    )


_ALL = (
    _coordinator_killed(Phase.INIT, reopen_every=20),
    _coordinator_killed(Phase.BEGIN),
    _coordinator_killed(Phase.PRODUCE),
    _coordinator_killed(Phase.OFFSETS),
    _coordinator_killed(Phase.COMMIT),
    _coordinator_killed(Phase.COMMITTED),
    _coordinator_killed(Phase.ABORT),
    Scenario(
        "coordinator killed: answer to the commit lost",
        "the answers to three commits are lost, then kill -9 of the coordinator",
        kill_after_lost_answers,
        through_proxy=True,
    ),
    Scenario(
        "leader killed",
        "kill -9 of a partition's leader in the middle of producing, 4 times",
        kill_leader(Phase.PRODUCE, 2),
    ),
    Scenario(
        "coordinator frozen",
        "SIGSTOP of the coordinator 4 times, for longer than the request timeout and than the "
        "session, at the first record and at EndTxn",
        freeze_coordinator,
    ),
    Scenario(
        "network: reset",
        "each piece of traffic ends its connection with a chance of 10%: 5 s before each broker, "
        "then before all",
        misbehaving_network(NetworkFault.DROP, 5, 0.1),
        through_proxy=True,
    ),
    Scenario(
        "network: lost answers",
        "requests arrive and their answers do not: 4 s before each broker, then before all",
        misbehaving_network(NetworkFault.SWALLOW_ANSWERS, 4, 1.0),
        through_proxy=True,
    ),
    Scenario(
        "client killed",
        "kill -9 of the client in each of 7 phases, 4 times; the next one takes over at once",
        kill_clients,
        own_clients=True,
    ),
    Scenario(
        "zombies",
        "the client is frozen, another takes over, the frozen one goes on; 4 times",
        raise_zombies,
        own_clients=True,
    ),
    Scenario(
        "transaction timeout",
        "the client pauses for longer than transaction_timeout_ms, in 4 phases",
        outlast_the_timeout,
        {"transaction_timeout_ms": 2_000},
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""Every scenario by its name."""
