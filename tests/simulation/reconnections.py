"""Checks of a producer whose connections end in a healed cluster: other addresses, other versions.

Owns: what a producer does that finds brokers changed. Not here: what happened during the faults.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError, UnsupportedVersionError
from aioproducer.testing.broker import ClusterSettings, TopicSpec
from aioproducer.testing.broker.settings import ApiVersions
from aioproducer.testing.world.weather import Condition, Effect
from aioproducer.wire.api_keys import ApiKey
from simulation.releases import all_serve, serves

if TYPE_CHECKING:
    from aioproducer.testing.world.producer import SimProducer
    from aioproducer.testing.world.world import SimWorld
    from simulation.ledger import Entry, Ledger

_PORT, _OTHER_PORT = 9092, 9093
_SHORT_TRIGGER_MS, _SHORT_AGE_MS = 1000, 2000
_LONG_BLOCK_S = 20.0
_SLACK_S, _MORE_SLACK_S = 1.0, 2.0
_TRIES, _MOST_TOPICS = 12, 4
_LONG_TRIGGER_MS, _LATER_THAN_A_DIAL, _SLOW_FOR_S = 20_000, 1.3, 60.0
"""The jitter of the timeout of a dial is less than that."""
_NEW_TOPIC = "zz-reconnected-{}"
_UNKNOWN_VERSIONS: ApiVersions = {ApiKey.API_VERSIONS: (9, 9)}
_OLDER_VERSIONS = {ApiKey.PRODUCE: (3, 9)}


class Reconnections:
    """The questions to the producer of a run.

    `sent` sends a record with a new name, `outcome_of` waits for its outcome.
    """

    def __init__(
        self,
        producer: SimProducer,
        world: SimWorld,
        ledger: Ledger,
        sent: Callable[[str, bytes | None, int | None], Awaitable[Entry]],
        outcome_of: Callable[[Entry], Awaitable[None]],
    ) -> None:
        self._config = producer.config
        self._engine = producer.engine
        self._world = world
        self._ledger = ledger
        self._sent = sent
        self._outcome_of = outcome_of

    async def check(self) -> None:
        """Ask all of them; the last one takes names of bootstrap servers away.

        Brokers that report no versions end connections as well, which is to be learned first.
        """
        known = self._world.cluster.settings
        if all_serve(self._world.cluster, ApiKey.API_VERSIONS, 0):
            await self._check_second_addresses()
            await self._check_slow_accepts()
            await self._check_unknown_versions(known)
        await self._check_versions(known)
        await self._check_addresses()

    async def _check_addresses(self) -> None:
        """Brokers that are given other names, or other ports, are found there.

        Not if some dials in a row make the producer go back to its bootstrap servers.
        """
        config, world = self._config, self._world
        if config.metadata_max_age_ms > _SHORT_AGE_MS:
            return
        if config.metadata_recovery_rebootstrap_trigger_ms <= _SHORT_TRIGGER_MS:
            return
        names = {node_id: world.cluster.brokers[node_id].host for node_id in world.spec.nodes}
        names |= {node_id: f"moved-{node_id}.sim" for node_id in names if node_id % 2}
        for node_id, host in names.items():
            port = _PORT if node_id % 2 else _OTHER_PORT
            world.network.name(node_id, host, port)
            world.cluster.set_broker_address(node_id, host, port)
        await asyncio.sleep(config.metadata_max_age_ms / 1000 + _SLACK_S)
        nodes = self._engine.metadata.cluster.nodes
        if any(node.host != names.get(node_id) for node_id, node in nodes.items()):
            # Every connection was idle, and is dialed again, maybe first at a port that has moved.
            await asyncio.sleep(_MORE_SLACK_S)
        self._end_connections()
        await asyncio.sleep(_SLACK_S)
        error = await self._error_of_a_record()
        if error is not None:
            self._ledger.unrecovered.append(f"after a move: {error}")
        over = sum(link.is_over for link in self._engine.client._retired)
        if over > len(names):
            self._ledger.false_reports.append(f"{over} links are kept of brokers that are gone")

    async def _check_second_addresses(self) -> None:
        """A broker is found at the second address of its name if the first closes connections."""
        self._world.network.first_address_closes = True
        self._end_connections()
        errors = [await self._error_of_a_record()]
        while errors[-1] is not None and len(errors) < _TRIES:
            errors.append(await self._error_of_a_record())
        self._world.network.first_address_closes = False
        if errors[-1] is not None:
            self._ledger.unrecovered.append(f"at a second address: {errors[-1]}")

    async def _check_slow_accepts(self) -> None:
        """A broker that accepts later than the first dial waits is reached: the next wait longer.

        Not if some dials in a row make the producer go back to its bootstrap servers.
        """
        config, world = self._config, self._world
        if config.metadata_recovery_rebootstrap_trigger_ms <= _LONG_TRIGGER_MS:
            return
        slow_s = _LATER_THAN_A_DIAL * config.socket_connection_setup_timeout_ms / 1000
        slow = Condition(Effect.SLOW_ACCEPT, None, math.inf, slow_s)
        world.disturb(_SLOW_FOR_S)
        world.network.weather.add(slow)
        self._end_connections()
        until, error = world.now() + _SLOW_FOR_S, await self._error_of_a_record()
        while error is not None and world.now() < until:
            error = await self._error_of_a_record()
        slow.until = world.now()
        if error is not None:
            self._ledger.unrecovered.append(f"at brokers that accept after {slow_s} s: {error}")
        await asyncio.sleep(_SLACK_S)

    async def _check_versions(self, before: ClusterSettings) -> None:
        """Brokers that restart with other versions get requests in these."""
        cluster, config = self._world.cluster, self._config
        pauses_s = (config.reconnect_backoff_max_ms + config.retry_backoff_max_ms) / 1000
        are_newer = all_serve(cluster, ApiKey.PRODUCE, _OLDER_VERSIONS[ApiKey.PRODUCE][1])
        for number, versions in enumerate((_OLDER_VERSIONS if are_newer else {}, {})):
            self._restart(before, versions)
            await asyncio.sleep(pauses_s + _SLACK_S)
            cluster.create_topic(_NEW_TOPIC.format(number), TopicSpec(1, 1))
            for name, topic in sorted(cluster.topics.items())[-_MOST_TOPICS:] * 2:
                for partition in topic.partitions:
                    error = await self._error_of_a_record(name, partition.index)
                    if error is not None:
                        text = f"{name}-{partition.index} after a restart: {error}"
                        self._ledger.unrecovered.append(text)
        for link in self._engine.client._links():
            reports = serves(before.api_versions_of(link.node.id), ApiKey.API_VERSIONS, 0)
            known = () if link.versions is None or link.node.id < 0 else link.versions.ranges
            if reports and known and ApiKey.API_VERSIONS not in known:
                text = f"{link.node} reports its versions, and counts as one before 0.10"
                self._ledger.unrecovered.append(text)

    async def _check_unknown_versions(self, known: ClusterSettings) -> None:
        """A call that waits for metadata fails if no broker has versions that can be used.

        At once. After some time without metadata the producer goes back to its bootstrap servers.
        """
        config, block_s = self._config, self._config.max_block_ms / 1000
        trigger_s = config.metadata_recovery_rebootstrap_trigger_ms / 1000
        wait_s = trigger_s + 2 * _SLACK_S if trigger_s < _LONG_BLOCK_S else 0.0
        self._world.disturb(block_s + wait_s + _SLACK_S)
        self._restart(known, _UNKNOWN_VERSIONS)
        entry = await self._sent(_NEW_TOPIC.format("unheard"), None, 0)
        is_known = isinstance(entry.error, UnsupportedVersionError)
        if entry.error is None or (block_s >= _LONG_BLOCK_S and not is_known):
            text = f"{entry.label} at brokers of unknown versions: {entry.error}"
            self._ledger.false_reports.append(text)
        await asyncio.sleep(wait_s)
        if wait_s and self._engine.client._brokers:
            self._ledger.unrecovered.append(f"{wait_s:.0f} s without metadata, and no rebootstrap")

    def _restart(self, before: ClusterSettings, changed: ApiVersions) -> None:
        """Let all brokers have the versions that they had, but for those that change."""
        cluster, by_broker = self._world.cluster, before.api_versions_by_broker.items()
        cluster.settings = replace(
            cluster.settings,
            api_versions={**before.api_versions, **changed},
            api_versions_by_broker={each: {**versions, **changed} for each, versions in by_broker},
        )
        self._end_connections()

    def _end_connections(self) -> None:
        """End all connections; from now on only the names that brokers have lead to them."""
        brokers = self._world.cluster.brokers.values()
        self._world.network.keep_names({broker.host for broker in brokers})

    async def _error_of_a_record(self, topic: str = "", partition: int = 0) -> KafkaError | None:
        """Send a record and wait for its outcome."""
        entry = await self._sent(topic or min(self._world.cluster.topics), None, partition)
        await self._outcome_of(entry)
        return entry.error
