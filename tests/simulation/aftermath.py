"""Checks of a producer in a healed cluster, besides its records: refreshes, keys, waits, memory.

Owns: questions that one call or an attribute of the producer answers. Not here: what happened
during the faults.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from itertools import dropwhile
from operator import eq

from aioproducer import Producer
from aioproducer.errors import (
    AuthorizationError,
    BufferFullError,
    KafkaError,
    ProducerClosedError,
    RecordsFailedError,
)
from aioproducer.net.connection import Connection
from aioproducer.records import murmur2_partition
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.world.producer import SimProducer
from aioproducer.testing.world.weather import Condition, Direction, Effect
from aioproducer.testing.world.world import SimWorld
from aioproducer.types import NO_EPOCH, NO_LEADER
from aioproducer.wire.api_keys import ApiKey
from simulation.kept import kept_ends, kept_topics
from simulation.ledger import CallState, Entry, Ledger
from simulation.reconnections import Reconnections
from simulation.releases import all_serve
from simulation.scenario import Observer

_TASK = -2
_KEYS, _TWO_REQUESTS = 4, 2
_FIRST_THAT_IS_MUTED = 6
"""Of Produce (KIP-219)."""
_FIRST_WITH_RELIABLE_EPOCHS = 9
"""Of Metadata (KAFKA-9212)."""
_TURNS = 3
_RECORDS, _SMALL_BATCH, _LATE_MS = 12, 2000, 300
_WEIGHTS_AGE_S = 0.003
"""After that long the weights of partitions are set again."""
_MOST_TOPICS = 40
"""Each may have to wait for its metadata, and a run may have hundreds."""
_SHORT_AGE_MS = 2000
_SLACK_S, _UNANSWERED_S = 1.0, 60.0
_LEAST_BLOCK_MS = 3000
_APPEARS_AFTER_S = 0.5
_LONGEST_OBLIVION_S = 12.0
_LONG_LINGER_MS, _LEARNED = 500, 4
_SHORT_WAY_S = 0.01
_SHARE_OF_LINGER = 0.25
_NEW_TOPIC, _TRIES = "zz-new", 12
_FORBIDDEN_TOPIC = "zz-forbidden"
_UNDESCRIBED_TOPIC = "zz-undescribed"
_MORE_THAN_HALF, _TWO_PARTITIONS, _OVERHEAD = 0.55, 2, 200
_LONG_BLOCK_MS = 20_000
_ROWS, _ROW_BYTES = 60, 1800
"""Of a bulk call: with small requests more than it may have pending."""
_LAST_SENDS, _LAST_BYTES, _ABSENT_PARTITION = 40, 1000, 10**6
_AT_ONCE_S = 0.1
_INSTANT_S, _MOST_INSTANTS = 0.001, 2000
_QUICK_WINDOWS = 12
"""More send windows than these may take as long to send as the linger."""


class Aftermath:
    """The questions to the producer of a run."""

    def __init__(self, producer: SimProducer, world: SimWorld, ledger: Ledger) -> None:
        self._producer = producer
        self._config = producer.config
        self._world = world
        self._ledger = ledger
        self._number = 0
        self.drops: bool = False
        """Whether the producer is dropped at its end, not closed."""

    async def before_probes(self) -> None:
        """Ask while the last records are those of the tasks."""
        if self._producer.engine.failure is None:
            self._check_refresh()
            self._check_leaders()
            await self._check_clusters()
            await self._check_description()
            await self._check_partition()
            await self._check_keys()

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_ends()
            await self._check_free_memory()
            await self._check_single_records()
            await self._check_new_partition()
            await self._check_keys_in_open_batches()
            await self._check_linger()
            await self._check_wait_for_memory()
            await self._check_bulk()
            await self._check_leaderless()
            await self._check_keys_in_bulk()
            await self._check_cancelled_bulk()
            await self._check_new_topic()
            await self._check_refused_topic()
            await self._check_refresh_beside_a_new_topic()
            await self._check_throttling()
            await self._check_oblivion()
            await Reconnections(
                self._producer, self._world, self._ledger, self._sent, self._outcome_of
            ).check()
            await self._check_one_bound()
            await self._check_adaptive_linger()

    # -- questions --------------------------------------------------------------------------------

    async def _check_ends(self) -> None:
        """Nothing is kept that has ended: no future, batch or connection."""
        if kept_ends(self._producer.engine):
            await asyncio.sleep(0)  # interceptors receive the last outcome in the next turn
        kept = kept_ends(self._producer.engine)
        if kept:
            self._ledger.false_reports.append(f"what has ended is kept: {kept}")

    def _check_refresh(self) -> None:
        """Metadata are not older than `metadata_max_age_ms`."""
        age = self._world.now() - self._producer.engine.metadata.refreshed_at
        if age > self._config.metadata_max_age_ms / 1000 + _SLACK_S:
            self._ledger.unrecovered.append(f"metadata were refreshed {age:.1f} s ago")

    def _check_leaders(self) -> None:
        """A partition without a leader is asked for again until it has one."""
        metadata = self._producer.engine.metadata
        for name in sorted(metadata.topics_in_use):
            topic = metadata.topic(name)
            for each in () if topic is None else topic.partitions:
                leader = self._world.cluster.leader_of(name, each.partition)
                if each.leader == NO_LEADER != leader:
                    self._ledger.unrecovered.append(
                        f"{name}-{each.partition} has leader {leader}, metadata say none"
                    )

    async def _check_clusters(self) -> None:
        """Interceptors get each cluster once, and the present one."""
        await asyncio.sleep(0)
        known = self._producer.engine.metadata.cluster.cluster_id
        for observer in self._config.interceptor_classes:
            clusters = observer.clusters if isinstance(observer, Observer) else [known]
            if clusters[-1:] != [known] or any(map(eq, clusters, clusters[1:])):
                text = f"on_cluster was called for {clusters}, and the cluster is {known}"
                self._ledger.false_reports.append(text)

    async def _check_description(self) -> None:
        """After a refresh, metadata have the leaders, epochs and replicas of the cluster."""
        metadata, cluster = self._producer.engine.metadata, self._world.cluster
        until = self._world.now() + self._config.max_block_ms / 1000
        if not await self._producer.engine.metadata_task.waits.refresh(until):
            if self._config.max_block_ms >= _LEAST_BLOCK_MS:
                self._ledger.unrecovered.append("metadata were asked for, and did not come")
            return
        has_epochs = all_serve(cluster, ApiKey.METADATA, _FIRST_WITH_RELIABLE_EPOCHS)
        for name in sorted(metadata.topics_in_use & cluster.topics.keys()):
            topic = metadata.topic(name)
            described = () if topic is None else topic.partitions
            found = [(p.leader, p.leader_epoch, p.isr) for p in described]
            there = [(p.leader, p.leader_epoch, p.isr) for p in cluster.topics[name].partitions]
            if not has_epochs and all(epoch == NO_EPOCH for _, epoch, _ in found):
                there = [(leader, NO_EPOCH, isr) for leader, _, isr in there]
            if found != there:
                text = f"{name} has leaders, epochs and replicas {there}, metadata say {found}"
                self._ledger.unrecovered.append(text)
            infos = [] if topic is None else await self._producer.partitions_for(name)
            shown = [(p.leader, p.leader_epoch, p.in_sync_replicas) for p in infos]
            public = [
                (None if at == NO_LEADER else at, None if epoch == NO_EPOCH else epoch, isr)
                for at, epoch, isr in found
            ]
            if shown != public:
                text = f"partitions_for({name}) returns {shown}, metadata say {public}"
                self._ledger.false_reports.append(text)

    async def _check_partition(self) -> None:
        """A record without a key goes to a partition that there is."""
        for name, topic in sorted(self._world.cluster.topics.items())[:_MOST_TOPICS]:
            entry = await self._sent(name, None)
            at = -1 if entry.delivery is None else entry.delivery.partition
            if at >= len(topic.partitions):
                self._ledger.false_reports.append(f"{entry.label} is sent to partition {at}")

    async def _check_keys(self) -> None:
        """A key goes to the partition that Java chooses among all there are."""
        if self._config.metadata_max_age_ms > _SHORT_AGE_MS:
            return
        for name, topic in sorted(self._world.cluster.topics.items())[:_MOST_TOPICS]:
            await self._check_keys_of(name, len(topic.partitions))

    async def _check_keys_of(self, name: str, count: int) -> None:
        for number in range(_KEYS):
            entry = await self._sent(name, b"k%d" % number)
            wanted = murmur2_partition(b"k%d" % number, count)
            at = None if entry.delivery is None else entry.delivery.partition
            if at not in {None, wanted}:
                self._ledger.false_reports.append(
                    f"{entry.label} is sent to partition {at}, its key belongs to {wanted}"
                )

    async def _check_free_memory(self) -> None:
        """A record does not have to wait while no other is pending."""
        entry = self._sent_nowait(min(self._world.cluster.topics), 0)
        if isinstance(entry.error, BufferFullError):
            self._ledger.false_reports.append(f"{entry.label}: {entry.error}")
        await self._outcome_of(entry)

    async def _check_single_records(self) -> None:
        """Single records, each of which may be sent directly, after those of another topic."""
        first, *others = sorted(self._world.cluster.topics)
        second = others[0] if others else first
        for name in (first, second, second, first) * 2:
            await self._outcome_of(await self._sent(name, None, 0))
            await asyncio.sleep(_AT_ONCE_S)

    async def _check_new_partition(self) -> None:
        """A partition that appears while a call waits for it is found before the next refresh."""
        cluster = self._world.cluster
        if self._config.max_block_ms < _LEAST_BLOCK_MS:
            return
        name = min(cluster.topics)
        count = len(cluster.topics[name].partitions)
        sending = asyncio.ensure_future(self._sent(name, None, count))
        await asyncio.sleep(_APPEARS_AFTER_S)
        cluster.create_partitions(name, count + 1)
        entry = await sending
        if entry.error is not None:
            self._ledger.unrecovered.append(f"{entry.label}: {entry.error}")

    async def _check_keys_in_open_batches(self) -> None:
        """Keys are spread over a new partition once it is seen, also where batches are open."""
        cluster = self._world.cluster
        if self._config.max_block_ms < _LEAST_BLOCK_MS or not self._config.linger_ms:
            return
        name = min(cluster.topics)
        count = len(cluster.topics[name].partitions)
        for number in range(_KEYS):
            await self._sent(name, b"k%d" % number)
        cluster.create_partitions(name, count + 1)
        until = self._world.now() + self._config.max_block_ms / 1000
        if await self._producer.engine.metadata_task.waits.refresh(until):
            await self._check_keys_of(name, count + 1)
        await self._producer.flush()

    async def _check_leaderless(self) -> None:
        """Records without a key go on in the partitions that have a leader."""
        cluster, config = self._world.cluster, self._config
        engine, name = self._producer.engine, min(cluster.topics)
        topic = cluster.topics[name]
        last = topic.partitions[-1]
        leader, until = last.leader, self._world.now() + config.max_block_ms / 1000
        if (
            len(topic.partitions) < _TWO_PARTITIONS
            or config.batch_size > _SMALL_BATCH
            or topic.config.max_message_bytes < _ROW_BYTES + _OVERHEAD
        ):
            return
        await self._producer.flush()
        self._world.disturb(config.max_block_ms / 1000 + _SLACK_S)
        last.lead_by(NO_LEADER)
        await engine.metadata_task.waits.refresh(until)
        described = engine.metadata.topic(name)
        is_known = described is not None and described.partitions[-1].leader == NO_LEADER
        faults, entries = FaultScript(cluster.faults), []
        fault = faults.every("produce").is_answered_late(_LATE_MS)  # for queues of other lengths
        for _ in range(_RECORDS):
            entries.append(self._sent_nowait(name, None, _ROW_BYTES))
            await asyncio.sleep(_WEIGHTS_AGE_S)
        faults.remove(fault)
        cluster.move_leader(name, last.index, leader)
        chosen = [each.delivery.partition for each in entries if each.delivery is not None]
        # The partition that was chosen before may be used until it has got its share.
        if is_known and last.index in dropwhile(lambda each: each == chosen[0], chosen):
            self._ledger.false_reports.append(f"{name}-{last.index} has no leader, and is chosen")
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_keys_in_bulk(self) -> None:
        """Keys are spread over a new partition that is seen while a bulk call goes on."""
        cluster, waits = self._world.cluster, self._producer.engine.metadata_task.waits
        if self._config.max_block_ms < _LEAST_BLOCK_MS or not self._config.linger_ms:
            return
        name = min(cluster.topics)
        count = len(cluster.topics[name].partitions)
        entries: list[Entry] = []

        async def rows() -> AsyncIterator[tuple[object, ...]]:
            for partitions in (count, count + 1):
                if partitions > count:
                    cluster.create_partitions(name, partitions)
                    until = self._world.now() + self._config.max_block_ms / 1000
                    if not await waits.refresh(until):
                        return
                # Batches of one record would be sent at once, since the call awaits each.
                for number in range(2 * _KEYS):
                    entry = self._entry(name, b"k%d" % (number % _KEYS))
                    entry.state = CallState.UNKNOWN
                    if partitions > count:
                        entry.partitions = range(partitions, partitions + 1)
                    entries.append(entry)
                    yield entry.key, entry.value

        result = await self._producer.send_many(name, rows())
        for entry in entries:
            entry.settled_at = self._world.now()
            if not result.failed:
                entry.state, entry.delivered_in_bulk = CallState.ACCEPTED, True

    async def _check_cancelled_bulk(self) -> None:
        """A bulk call that is cancelled reads no outcome: failures after it are reported.

        Each of two flushes that wait raises.
        """
        await self._producer.flush()
        stats, name = self._producer._usable().stats, min(self._world.cluster.topics)
        before, entries = stats.records_appended, [self._entry(name, None, 0) for _ in range(_KEYS)]
        call = asyncio.ensure_future(
            self._producer.send_many(name, [each.value for each in entries], partition=0)
        )
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        del call
        gc.collect()  # what has failed before, and is garbage in a cycle
        await asyncio.sleep(0)
        reported = stats.unretrieved_failures
        flushes = [
            asyncio.ensure_future(self._producer.flush(raise_failures=True)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        failed = self._producer.purge(in_flight=True)
        raised = await asyncio.gather(*flushes, return_exceptions=True)
        if failed and not all(isinstance(each, RecordsFailedError) for each in raised):
            self._ledger.false_reports.append(f"{failed} failed, two flushes end with {raised}")
        await asyncio.sleep(_SLACK_S)
        appended = stats.records_appended - before
        for number, entry in enumerate(entries):
            entry.state = CallState.ACCEPTED if number < appended else CallState.CANCELLED
            entry.settled_at = self._world.now()
        self._ledger.dropped += entries[:appended]
        gc.collect()
        await asyncio.sleep(0)
        if stats.unretrieved_failures != reported + failed:
            reported = stats.unretrieved_failures - reported
            self._ledger.false_reports.append(
                f"{failed} failed after a bulk call, {reported} count"
            )

    async def _check_linger(self) -> None:
        """A record lingers, and a flush does not wait for the end of that."""
        world = self._world
        linger_s = self._config.linger_ms / 1000
        if self._config.linger_ms < _LONG_LINGER_MS or world.spec.base_latency_s > _SHORT_WAY_S:
            return
        entry = await self._sent(min(world.cluster.topics), None, 0)
        await asyncio.sleep(linger_s * _SHARE_OF_LINGER)
        if entry.delivery is not None and self._config.batch_max_records != 1:
            batch, _ = entry.delivery.batch_and_index()
            if batch.attempts:
                self._ledger.false_reports.append(f"{entry.label} is sent before its linger ends")
        began = world.now()
        await self._producer.flush()
        took = world.now() - began
        if entry.error is None and took >= linger_s * (0.9 - _SHARE_OF_LINGER):
            self._ledger.late_ends.append(f"flush() took {took:.3f} s, linger is {linger_s:.3f} s")

    async def _check_wait_for_memory(self) -> None:
        """A call that waits for memory does not wait for the end of other records' linger."""
        config, world = self._config, self._world
        name, topic = min(world.cluster.topics.items())
        size = round(config.buffer_memory * _MORE_THAN_HALF)
        if (
            config.linger_ms < _LONG_LINGER_MS
            or world.spec.base_latency_s > _SHORT_WAY_S
            or len(topic.partitions) < _TWO_PARTITIONS
            or size > min(config.max_request_size, topic.config.max_message_bytes) - _OVERHEAD
            or size > _QUICK_WINDOWS * world.spec.window
        ):
            return
        began = world.now()
        entries = [await self._sent(name, bytes(size), at) for at in range(_TWO_PARTITIONS)]
        took = world.now() - began
        if not any(entry.error for entry in entries) and took >= config.linger_ms / 1000 * 0.9:
            self._ledger.late_ends.append(f"send() waited {took:.3f} s for memory that lingered")
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_bulk(self) -> None:
        """A bulk call that has enough batches pending goes on when they are acknowledged."""
        config, cluster = self._config, self._world.cluster
        name = min(cluster.topics)
        limits = (config.max_request_size, cluster.topics[name].config.max_message_bytes)
        if (
            config.max_block_ms < _LONG_BLOCK_MS
            or self._world.spec.base_latency_s > _SHORT_WAY_S
            or config.buffer_max_records is not None
            or min(limits) < _ROW_BYTES + _OVERHEAD
        ):
            return
        entries = [self._entry(name, None, 0, _ROW_BYTES) for _ in range(_ROWS)]
        began = self._world.now()
        result = await self._producer.send_many(name, [each.value for each in entries], partition=0)
        took = self._world.now() - began
        for entry in entries:
            entry.state, entry.settled_at = CallState.UNKNOWN, self._world.now()
        if not result.failed and took > _LONG_BLOCK_MS / 1000 * 0.9:
            self._ledger.late_ends.append(f"send_many of {_ROWS} took {took:.3f} s")

    async def _check_new_topic(self) -> None:
        """A topic that only `send_nowait` names is found, unless a serializer may have to wait."""
        if self._config.value_serializer is not None:
            return
        self._world.cluster.create_topic(_NEW_TOPIC, TopicSpec(1, 1))
        entry = self._entry(_NEW_TOPIC, None, 0)
        for _ in range(_TRIES):
            entry.asked_at = entry.settled_at = self._world.now()
            try:
                entry.delivery = self._producer.send_nowait(_NEW_TOPIC, entry.value, partition=0)
            except KafkaError as error:
                entry.state, entry.error = CallState.REFUSED, error
                await asyncio.sleep(_APPEARS_AFTER_S)
            else:
                entry.state, entry.error = CallState.ACCEPTED, None
                await self._outcome_of(entry)
                break
        if entry.error is not None:
            self._ledger.unrecovered.append(f"{entry.label}: {entry.error}")

    async def _check_refused_topic(self) -> None:
        """A call for a topic that the client may not use ends at once; later it may use it."""
        if self._config.max_block_ms < _LEAST_BLOCK_MS:
            return
        faults = FaultScript(self._world.cluster.faults)
        fault = faults.every("metadata", topic=_FORBIDDEN_TOPIC).answers(
            "TOPIC_AUTHORIZATION_FAILED"
        )
        began = self._world.now()
        entry = await self._sent(_FORBIDDEN_TOPIC, None)
        faults.remove(fault)
        took = self._world.now() - began
        if not isinstance(entry.error, AuthorizationError) or took > _LEAST_BLOCK_MS / 1000:
            self._ledger.unrecovered.append(
                f"{entry.label}, refused, after {took:.1f} s: {entry.error}"
            )
        self._world.cluster.create_topic(_FORBIDDEN_TOPIC, TopicSpec(1, 1))
        allowed = await self._sent(_FORBIDDEN_TOPIC, None)
        if isinstance(allowed.error, AuthorizationError):
            self._ledger.unrecovered.append(f"{allowed.label}, allowed by now: {allowed.error}")
        await self._outcome_of(allowed)

    async def _check_refresh_beside_a_new_topic(self) -> None:
        """A refresh is of all topics, also if a new topic is requested before the pause ends.

        A response to a request from before it does not end it.
        """
        metadata, waits = self._producer.engine.metadata, self._producer.engine.metadata_task.waits
        until = self._world.now() + self._config.max_block_ms / 1000
        await waits.refresh(until)
        began = self._world.now()
        sending = asyncio.ensure_future(self._sent(f"{_NEW_TOPIC}-2", None, 0))
        is_answered = await waits.refresh(until)
        if is_answered and metadata.refreshed_at <= began:
            text = f"a refresh of {began:.3f} ends, the metadata are of {metadata.refreshed_at:.3f}"
            self._ledger.false_reports.append(text)
        await self._outcome_of(await sending)
        until = self._world.now() + self._config.max_block_ms / 1000
        earlier = asyncio.ensure_future(waits.refresh(until))
        for _ in range(_MOST_INSTANTS):
            if metadata._fetch is None:
                await asyncio.sleep(_INSTANT_S)
        before = waits.requests_sent
        if await waits.refresh(until) and waits.requests_sent == before:
            self._ledger.false_reports.append("a refresh ends by the response to an earlier one")
        await earlier

    async def close(self) -> None:
        """Close while calls wait: what is accepted is delivered, the others are refused at once."""
        name = min(self._world.cluster.topics, default=None)
        sends = []
        if name is not None and self._producer.engine.failure is None:
            works = [self._sent(name, None, 0, _LAST_BYTES) for _ in range(_LAST_SENDS)]
            works.append(self._sent(name, None, _ABSENT_PARTITION))
            sends = [asyncio.ensure_future(work) for work in works]
            await asyncio.sleep(0)
        closed_at = self._world.now()
        await self._end()
        for entry in await asyncio.gather(*sends):
            took = (entry.settled_at or 0.0) - closed_at
            if entry.state is CallState.REFUSED and took > _AT_ONCE_S:
                self._ledger.late_ends.append(f"{entry.label} is refused {took:.3f} s after close")
            await self._outcome_of(entry)
            is_cut = isinstance(entry.error, ProducerClosedError)
            if is_cut and entry.state is CallState.ACCEPTED:
                self._ledger.unrecovered.append(f"{entry.label} was accepted: {entry.error}")

    async def _end(self) -> None:
        """Close the producer, or have it closed as by `__del__`, and wait until it is."""
        if not self.drops:
            await self._producer.close()
            return
        engine = self._producer.engine
        engine.close_soon()
        until = self._world.now() + self._config.delivery_timeout_ms / 1000 + _SLACK_S
        while engine._closer is None or not engine._closer.done():
            await asyncio.sleep(_AT_ONCE_S)
            if self._world.now() > until:
                self._ledger.late_ends.append("a producer that was dropped is not closed")
                return

    async def close_unanswered(self, *, cancels: bool) -> None:
        """Close with a bound, beside a close without one, while no broker answers.

        Or cancel the close without a bound, which ends the delivery of records as well. A call that
        waits for metadata has its outcome when the close begins.
        """
        world, producer, entries = self._world, self._producer, []
        if world.cluster.topics and producer.engine.failure is None:
            entries.append(await self._sent(min(world.cluster.topics), None, 0))
        began, until = world.now(), world.now() + _UNANSWERED_S
        world.disturb(_UNANSWERED_S)
        for node_id in world.spec.nodes:
            held = Condition(Effect.HELD, node_id, until, direction=Direction.TO_CLIENT)
            world.network.weather.add(held)
        waiting = asyncio.ensure_future(producer.partitions_for(_UNDESCRIBED_TOPIC))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(producer.close())
        if cancels:
            await asyncio.sleep(_SLACK_S)
            closing.cancel()
        await asyncio.gather(
            closing, producer.close(None if cancels else _SLACK_S), return_exceptions=cancels
        )
        await asyncio.gather(waiting, return_exceptions=True)
        took = world.now() - began
        if took > 2 * _SLACK_S:
            what = "a close after a cancelled one" if cancels else f"close({_SLACK_S})"
            self._ledger.late_ends.append(f"{what} took {took:.3f} s")
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_throttling(self) -> None:
        """A request that a throttling broker answers late does not end its connection.

        Not with sessions: one that ends meanwhile ends the connection. Nor before KIP-219.
        """
        config, cluster = self._config, self._world.cluster
        name = min(cluster.topics)
        throttle_ms = round(config.request_timeout_ms + 1000 * _SLACK_S)
        if (
            not config.acks_value
            or config.security_protocol != "PLAINTEXT"
            or config.linger_ms
            or config.max_in_flight_requests_per_connection < _TWO_REQUESTS
            or min(config.delivery_timeout_ms, config.connections_max_idle_ms) < 2 * throttle_ms
            or not all_serve(cluster, ApiKey.PRODUCE, _FIRST_THAT_IS_MUTED)
        ):
            return
        await self._outcome_of(await self._sent(name, None, 0))
        before = self._connection(name)
        fault = cluster.throttle(throttle_ms, times=1)
        entries = [await self._sent(name, None, 0) for _ in range(_TWO_REQUESTS)]
        for entry in entries:
            await self._outcome_of(entry)
        cluster.faults.remove(fault)
        await asyncio.sleep(throttle_ms / 1000)  # a request for metadata may wait for its end
        if before is not None and before is not self._connection(name):
            self._ledger.unrecovered.append("a connection was closed while the broker throttled")

    async def _check_oblivion(self) -> None:
        """A topic that is not used any more takes no memory but what keeps out duplicates."""
        idle_s = self._config.metadata_max_idle_ms / 1000
        seconds = idle_s + 2 * self._config.metadata_max_age_ms / 1000 + _SLACK_S
        if seconds > _LONGEST_OBLIVION_S:
            return
        await asyncio.sleep(seconds)
        cluster = self._world.cluster
        topics = {*cluster.topics, *(topic.name for topic in cluster.deleted)}
        kept = kept_topics(self._producer.engine, topics)
        if kept:
            self._ledger.false_reports.append(f"topics are kept that are not used: {kept}")

    async def _check_one_bound(self) -> None:
        """A call that waits for a partition and then for memory is bounded by `max_block_ms`."""
        config, cluster, pool = self._config, self._world.cluster, self._producer.engine.pool
        if config.enqueue_timeout_ms is not None or config.max_block_ms >= _LONG_BLOCK_MS:
            return
        name = min(cluster.topics)
        count = len(cluster.topics[name].partitions)
        sending = asyncio.ensure_future(self._sent(name, None, count))
        await asyncio.sleep(_APPEARS_AFTER_S)
        size = pool.available
        taken = pool.try_allocate(size)
        cluster.create_partitions(name, count + 1)
        entry = await sending
        if taken is not None:
            pool.deallocate(taken, size)
        took = self._world.now() - entry.asked_at
        if took > config.max_block_ms / 1000 + _AT_ONCE_S:
            self._ledger.late_ends.append(f"{entry.label}: send() took {took:.3f} s")

    async def _check_adaptive_linger(self) -> None:
        """A task that waits for each of its records waits for the end of a linger at first only."""
        config, world = self._config, self._world
        if config.linger_ms < _LONG_LINGER_MS or world.spec.base_latency_s > _SHORT_WAY_S:
            return
        for _ in range(_LEARNED):
            began = world.now()
            entry = await self._sent(min(world.cluster.topics), None, 0)
            await self._outcome_of(entry)
        took = world.now() - began
        if entry.error is None and took >= config.linger_ms / 1000 * 0.9:
            self._ledger.late_ends.append(f"{entry.label} lingered, and its task waited {took:.3f}")

    # -- steps ------------------------------------------------------------------------------------

    async def _sent(
        self, topic: str, key: bytes | None, partition: int | None = None, size: int = 0
    ) -> Entry:
        """Send a record with a new name; its entry has the error, if there is one."""
        entry = self._entry(topic, key, partition, size)
        producer: Producer = self._producer
        try:
            entry.delivery = await producer.send(topic, entry.value, key, partition=partition)
        except KafkaError as error:
            entry.state, entry.error = CallState.REFUSED, error
        except Exception as error:
            entry.state = CallState.UNKNOWN
            self._ledger.undocumented.append(f"{entry.label}: send() raises {error!r}")
        else:
            entry.state = CallState.ACCEPTED
        entry.settled_at = self._world.now()
        return entry

    def _sent_nowait(self, topic: str, partition: int | None, size: int = 0) -> Entry:
        """Send a record with a new name without a wait; its entry has the error."""
        entry = self._entry(topic, None, partition, size)
        try:
            entry.delivery = self._producer.send_nowait(topic, entry.value, partition=partition)
        except KafkaError as error:
            entry.state, entry.error = CallState.REFUSED, error
        except Exception as error:
            entry.state = CallState.UNKNOWN
            self._ledger.undocumented.append(f"{entry.label}: send_nowait() raises {error!r}")
        else:
            entry.state = CallState.ACCEPTED
        entry.settled_at = self._world.now()
        return entry

    def _entry(
        self, topic: str, key: bytes | None, partition: int | None = None, size: int = 0
    ) -> Entry:
        """Return the entry of a record with a new name, and a value of at least so many bytes."""
        self._number += 1
        name = b"<aftermath/%d>" % self._number
        value = name.ljust(size, b".")
        entry = Entry(name, _TASK, topic, partition, key, value, (), None, self._world.now())
        self._ledger.entries.append(entry)
        return entry

    def _connection(self, topic: str) -> Connection | None:
        """Return the connection to the leader of a topic's first partition."""
        partition = self._world.cluster.partition(topic, 0)
        link = None if partition is None else self._producer.engine.client.link(partition.leader)
        return None if link is None else link._connection

    async def _outcome_of(self, entry: Entry) -> None:
        """Wait for the outcome of a record; its entry has the error, if there is one."""
        try:
            if entry.delivery is not None:
                await entry.delivery
        except KafkaError as error:
            entry.error = error
