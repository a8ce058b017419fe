"""Checks of what changes at the brokers of a healed cluster right before or amid a call.

Owns: topics that appear, racks that change, throttle times that follow each other. Not here: the
rules for the state of the producer meanwhile.
"""

from __future__ import annotations

import asyncio

from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.faults import FaultScript
from aioproducer.types import NO_LEADER
from aioproducer.wire.api_keys import ApiKey
from simulation.faults.processes import reset_connections
from simulation.releases import all_serve
from simulation.sequels import Sequels

_LEAST_BLOCK_MS, _APPEARS_AFTER_S = 3000, 0.5
_APPEARING_TOPIC = "zz-appearing"
_SMALL_BATCH, _RECORDS, _RECORD_BYTES, _MOMENT_S = 5000, 12, 900, 0.003
_TWO_RACKS = 2
_SHORT_LINGER_MS, _LONG_TIMEOUT_MS, _LATE_MS, _SHORT_WAY_S = 50, 1000, 800, 0.01
_FIRST_WITH_HINTS, _TWO_REPLICAS = 10, 2
_LONG_THROTTLE_MS, _SHORT_THROTTLE_MS, _LONG_DELIVERY_MS = 1500, 100, 5000


class Appearances(Sequels):
    """The questions to the producer of a run, those about changes last."""

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        await super().after_probes()
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_appearing_topic()
            await self._check_changed_racks()
            await self._check_throttling_after_throttling()
            await self._check_leader_hint()

    async def _check_appearing_topic(self) -> None:
        """A topic that is created while a call waits for it is found."""
        if self._config.max_block_ms < _LEAST_BLOCK_MS:
            return
        faults = FaultScript(self._world.cluster.faults)
        is_unknown = faults.every("metadata", topic=_APPEARING_TOPIC).answers(
            "UNKNOWN_TOPIC_OR_PARTITION"
        )
        sending = asyncio.ensure_future(self._sent(_APPEARING_TOPIC, None, 0))
        await asyncio.sleep(_APPEARS_AFTER_S)
        faults.remove(is_unknown)
        self._world.cluster.create_topic(_APPEARING_TOPIC, TopicSpec(1, 1))
        entry = await sending
        if entry.error is not None:
            self._ledger.unrecovered.append(f"{entry.label}: {entry.error}")
        await self._outcome_of(entry)

    async def _check_changed_racks(self) -> None:
        """Records without a key follow brokers that are in each other's racks now."""
        cluster, engine = self._world.cluster, self._producer.engine
        racks = sorted({each.rack for each in cluster.brokers.values() if each.rack is not None})
        if len(racks) != _TWO_RACKS or self._config.batch_size > _SMALL_BATCH:
            return
        name = max(cluster.topics, key=lambda each: len(cluster.topics[each].partitions))
        entries = [await self._sent(name, None, None, _RECORD_BYTES)]
        for node_id, each in cluster.brokers.items():
            cluster.brokers[node_id] = each._replace(rack=racks[each.rack == racks[0]])
        until = self._world.now() + self._config.max_block_ms / 1000
        is_known = await engine.metadata_task.waits.refresh(until)
        for _ in range(_RECORDS):
            entries.append(self._sent_nowait(name, None, _RECORD_BYTES))
            await asyncio.sleep(_MOMENT_S)
        chosen = [each.delivery.partition for each in entries if each.delivery is not None]
        near = [
            each.index
            for each in cluster.topics[name].partitions
            if each.leader != NO_LEADER
            and cluster.brokers[each.leader].rack == self._config.client_rack
        ]
        # By then another one was chosen: the last has got no more than twice `batch_size`.
        if is_known and near and len(chosen) > _RECORDS and chosen[-1] not in near:
            text = f"{name}-{chosen[-1]} is chosen, and {near} are in the client's rack"
            self._ledger.false_reports.append(text)
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_throttling_after_throttling(self) -> None:
        """A throttle time is kept although a new connection is given a shorter one.

        A login goes on in spite of it, as in Java.
        """
        config = self._config
        if config.security_protocol != "PLAINTEXT" or not config.acks_value:
            return
        if config.delivery_timeout_ms < _LONG_DELIVERY_MS:
            return
        cluster, name = self._world.cluster, min(self._world.cluster.topics)
        faults = [cluster.throttle(_LONG_THROTTLE_MS, times=1)]
        await self._outcome_of(await self._sent(name, None, 0))
        await asyncio.sleep(_MOMENT_S)  # an idle moment, in which the time is noted
        faults.append(cluster.faults.throttle(_SHORT_THROTTLE_MS, ApiKey.API_VERSIONS))
        reset_connections(self._world, sorted(self._world.brokers))
        await self._outcome_of(await self._sent(name, None, 0))
        for fault in faults:
            cluster.faults.remove(fault)

    async def _check_leader_hint(self) -> None:
        """A leader that a broker names in its error is used before metadata name it (KIP-951)."""
        config, cluster = self._config, self._world.cluster
        if (
            not config.acks_value
            or not config.retries
            or config.linger_ms > _SHORT_LINGER_MS
            or config.request_timeout_ms < _LONG_TIMEOUT_MS
            or config.delivery_timeout_ms < _LONG_DELIVERY_MS
            or self._world.spec.base_latency_s > _SHORT_WAY_S
            or not all_serve(cluster, ApiKey.PRODUCE, _FIRST_WITH_HINTS)
        ):
            return
        name, topic = min(cluster.topics.items())
        if len(topic.partitions[0].replicas) < _TWO_REPLICAS:
            return
        await self._outcome_of(await self._sent(name, None, 0))
        faults = FaultScript(cluster.faults)
        is_late = faults.every("metadata").is_answered_late(_LATE_MS)
        leader = cluster.move_leader(name, 0)
        began = self._world.now()
        entry, asked = await self._sent(name, None, 0), set[int]()
        while entry.delivery is not None and not entry.delivery.done():
            asked.add(self._producer.engine.metadata_task._asked_node)
            await asyncio.sleep(_MOMENT_S)
        await self._outcome_of(entry)
        took = self._world.now() - began
        faults.remove(is_late)
        # A broker answers in order: the record may wait there for the late metadata.
        if entry.error is None and took >= _LATE_MS / 1000 and leader not in asked:
            self._ledger.late_ends.append(f"{entry.label} took {took:.3f} s with a leader hint")
