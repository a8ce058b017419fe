"""The faults, one coroutine each.

Owns: what is broken, in which order and for how long. Not here: clients, the verdict.

Every scenario begins with some healthy seconds and ends with all brokers up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from support.faults.ground import FaultGround
from support.faults.ledger import Ledger
from support.faults.proxy import NetworkFault

_HEALTHY_S = 2.0
_SOME = 0.1
"""A connection that always breaks never gets beyond its handshake; this one carries records."""
_FENCED_S = 7.0
"""Longer than a broker's session (5 s): the controller has moved its partitions by then."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The resources that a fault may use."""

    ground: FaultGround
    topics: Mapping[str, Ledger]
    request_timeout_s: float

    async def leader(self, but: Collection[int] = ()) -> int:
        """A broker that leads partitions of one of the topics, and is none of these if possible."""
        leaders = set((await self.ground.leaders(next(iter(self.topics)))).values())
        return min(leaders.difference(but) or leaders)

    async def wait_in_sync(self) -> None:
        """All brokers that run are ready, all replicas in sync."""
        await self.ground.wait_ready()
        for topic in self.topics:
            await self.ground.wait_in_sync(topic)


Fault = Callable[[Situation], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault with a name.

    Attributes:
        min_insync: `min.insync.replicas` of the topics.
        through_proxy: Whether clients reach the brokers through the proxies only.
        felt: Whether a client has to send records again.
        remark: What to know when reading its verdicts.
    """

    name: str
    description: str
    fault: Fault
    min_insync: int = 2
    through_proxy: bool = False
    felt: bool = True
    remark: str = ""


def kill_leaders(rounds: int) -> Fault:
    """One leader after the other dies and comes back."""

    async def fault(situation: Situation) -> None:
        killed: set[int] = set()
        for _ in range(rounds):
            await asyncio.sleep(_HEALTHY_S)
            victim = await situation.leader(but=killed)
            killed.add(victim)
            await kill_for(situation.ground, [victim], _HEALTHY_S)
            await situation.wait_in_sync()

    return fault


def freeze_leaders(rounds: int) -> Fault:
    """One leader after the other stops answering for longer than a request may take."""

    async def fault(situation: Situation) -> None:
        frozen: set[int] = set()
        for _ in range(rounds):
            await asyncio.sleep(_HEALTHY_S)
            victim = await situation.leader(but=frozen)
            frozen.add(victim)
            silence_s = max(_FENCED_S, situation.request_timeout_s + 2)
            await freeze_for(situation.ground, [victim], silence_s)
            await situation.wait_in_sync()

    return fault


async def rolling_restart(situation: Situation) -> None:
    """Each broker in turn ends properly and comes back."""
    for node_id in situation.ground.cluster.node_ids:
        await asyncio.sleep(_HEALTHY_S)
        await situation.ground.stop(node_id)
        await situation.ground.start(node_id)
        await situation.wait_in_sync()


async def too_few_in_sync(situation: Situation) -> None:
    """One broker is down for 15 s and the topics want all three replicas in sync."""
    await asyncio.sleep(_HEALTHY_S)
    victim = await situation.leader()
    await kill_for(situation.ground, [victim], 15)
    await situation.wait_in_sync()


async def two_brokers_frozen(situation: Situation) -> None:
    """Two of three brokers, and with them the controllers' quorum, are silent for 15 s."""
    await asyncio.sleep(_HEALTHY_S)
    survivor = await situation.leader()
    victims = [id_ for id_ in situation.ground.cluster.node_ids if id_ != survivor]
    await freeze_for(situation.ground, victims, 15)
    await situation.wait_in_sync()


async def all_down(situation: Situation) -> None:
    """Every broker is killed at once; 20 s later they start again."""
    await asyncio.sleep(_HEALTHY_S)
    await kill_for(situation.ground, situation.ground.cluster.node_ids, 20)
    await situation.wait_in_sync()


async def kill_for(ground: FaultGround, node_ids: Collection[int], seconds: float) -> None:
    """Kill these brokers; they start again even when the scenario is cut short."""
    try:
        await asyncio.gather(*(ground.kill(node_id) for node_id in node_ids))
        await asyncio.sleep(seconds)
    finally:
        await asyncio.gather(*(ground.start(node_id) for node_id in node_ids))


async def freeze_for(ground: FaultGround, node_ids: Collection[int], seconds: float) -> None:
    """Freeze these brokers; they go on even when the scenario is cut short."""
    try:
        await asyncio.gather(*(ground.pause(node_id) for node_id in node_ids))
        await asyncio.sleep(seconds)
    finally:
        await asyncio.gather(*(ground.resume(node_id) for node_id in node_ids))


async def strike(
    ground: FaultGround,
    struck: Collection[int],
    fault: NetworkFault,
    seconds: float,
    chance: float,
) -> None:
    """The network before these brokers is at fault; it is healthy again in any case."""
    ground.note(f"network before {sorted(struck)}: {fault.value}")
    proxies = [ground.proxies[node_id] for node_id in struck]
    for proxy in proxies:
        proxy.chance, proxy.fault = chance, fault
    try:
        await asyncio.sleep(seconds)
    finally:
        for proxy in proxies:
            proxy.fault = NetworkFault.NONE
        ground.note("network healthy")


def network(fault: NetworkFault, strike_s: float, chance: float) -> Fault:
    """The network before one broker at a time, then before all of them, is at fault."""

    async def misbehave(situation: Situation) -> None:
        nodes = list(situation.ground.proxies)
        for struck in [*([node_id] for node_id in nodes), nodes]:
            await asyncio.sleep(_HEALTHY_S)
            await strike(situation.ground, struck, fault, strike_s, chance)
        await asyncio.sleep(_HEALTHY_S)

    return misbehave


async def recreated_topic(situation: Situation) -> None:
    """The topic is deleted and, 3 s later, there again under the same name."""
    await asyncio.sleep(5)
    situation.ground.note("delete the topics")
    for topic, ledger in situation.topics.items():
        await situation.ground.delete_topic(topic)
        ledger.excuse_acknowledged()
    await asyncio.sleep(3)
    situation.ground.note("create the topics")
    for topic in situation.topics:
        await situation.ground.create_topic(topic)
    await situation.wait_in_sync()


def _proxied(name: str, fault: NetworkFault, strike_s: float, chance: float = 1.0) -> Scenario:
    often = "" if chance == 1 else f" (each piece with a chance of {chance:.0%})"
    return Scenario(
        name,
        f"the network {fault.value}{often}: {strike_s:g} s before each broker, then before all",
        network(fault, strike_s, chance),
        through_proxy=True,
        felt=fault is not NetworkFault.DELAY,
    )


_RECREATED = """\
What was acknowledged before is gone with the old topic, as an administrator wants it. aioproducer
follows the name: records that were accepted and not yet acknowledged are written to the new topic,
in order, whose offsets begin at 0. While the topic is missing `send` waits for it, `max_block_ms`
at most; what was accepted waits for `delivery_timeout_ms`."""

_ALL = (
    Scenario(
        "kill -9", "one leader after the other is killed and restarted, 3 times", kill_leaders(3)
    ),
    Scenario(
        "SIGSTOP",
        "one leader after the other is frozen for longer than the request timeout, 2 times",
        freeze_leaders(2),
    ),
    Scenario("rolling restart", "each broker ends properly and comes back", rolling_restart),
    Scenario(
        "ISR too small",
        "one broker is down for 15 s while min.insync.replicas is 3",
        too_few_in_sync,
        min_insync=3,
    ),
    Scenario(
        "two brokers frozen",
        "two of three brokers, and the controllers' quorum, are frozen for 15 s",
        two_brokers_frozen,
    ),
    Scenario("all brokers down", "all are killed and start 20 s later", all_down),
    _proxied("network: delay", NetworkFault.DELAY, 4),
    _proxied("network: reset", NetworkFault.DROP, 5, _SOME),
    _proxied("network: half requests", NetworkFault.TRUNCATE_REQUESTS, 5, _SOME),
    _proxied("network: half answers", NetworkFault.TRUNCATE_ANSWERS, 5, _SOME),
    _proxied("network: half-closed", NetworkFault.HALF_CLOSE, 5, _SOME),
    _proxied("network: lost answers", NetworkFault.SWALLOW_ANSWERS, 7),
    _proxied("network: black hole", NetworkFault.BLACK_HOLE, 7),
    Scenario(
        "topic recreated",
        "the topic is deleted and created 3 s later",
        recreated_topic,
        felt=False,  # what is in flight at that moment is a matter of chance
        remark=_RECREATED,
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""Every scenario by its name."""
