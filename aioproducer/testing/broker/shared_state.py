"""State that all brokers of a cluster share: topics, leaders, transactions, offsets.

Invariants:
- All brokers share one view, a change is known to every broker at once, unless a subclass says
  otherwise (`known_brokers`, `known_leadership`, `known_partitions`).
- A broker that is down is in no partition's leadership and answers nothing.
- `subscribe`d callbacks are called after every append and every change of leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer import errors
from aioproducer.testing.broker.faults import Fault, Faults
from aioproducer.testing.broker.placement import Placement, check_partition_count
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import BrokerSpec, ClusterSettings, TopicConfig, TopicSpec
from aioproducer.testing.broker.telemetry import TelemetryReceiver
from aioproducer.testing.broker.topics import (
    NO_LEADER,
    Leadership,
    Partition,
    Topic,
    check_topic_name,
)
from aioproducer.testing.broker.transactions.coordinator import TransactionCoordinators
from aioproducer.testing.broker.transactions.groups import GroupCoordinators
from aioproducer.testing.broker.transactions.shards import CoordinatorShards
from aioproducer.testing.broker.transactions.states import V2
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey

if TYPE_CHECKING:
    import random

_INTERNAL_REPLICAS = 3


class SharedState:
    """The brokers, topics and coordinators of one cluster.

    Attributes:
        settings: How its brokers behave.
        brokers: Every broker by id, up or down.
        topics: Every topic by name.
        faults: Scripted misbehaviour.
        shards: The coordinator of each transactional id and group.
        transactions: The transaction coordinators.
        groups: The group coordinators.
        telemetry: Requested and received metrics of clients.
    """

    def __init__(
        self,
        brokers: Sequence[BrokerSpec],
        *,
        settings: ClusterSettings | None = None,
        rng: random.Random,
    ) -> None:
        """Make a cluster with all `brokers` up and no topic.

        Args:
            brokers: At least one.
            settings: Kafka's defaults if left out.
            rng: Where topic ids come from.
        """
        if not brokers:
            raise ValueError("a cluster needs at least one broker")
        self.settings: ClusterSettings = settings or ClusterSettings()
        self.brokers: dict[int, BrokerSpec] = {broker.node_id: broker for broker in brokers}
        self.topics: dict[str, Topic] = {}
        self.faults: Faults = Faults()
        self.telemetry: TelemetryReceiver = TelemetryReceiver()
        self._rng = rng
        self._live = set(self.brokers)
        self._names_by_id: dict[UUID, str] = {}
        self._names_by_metric: dict[str, str] = {}
        self._listeners: list[Callable[[TopicPartition], None]] = []
        self._next_producer_id = 0
        self._placement = Placement(self.brokers, self.settings)
        self._internal: dict[str, list[Partition]] = {}
        self._transaction_version = self.settings.transaction_version
        self._features_epoch = 0
        self._wakeup_listeners: list[Callable[[int | None], None]] = []
        self._notified_wakeup_ms: int | None = None
        self.shards: CoordinatorShards = CoordinatorShards(self)
        self.transactions: TransactionCoordinators = TransactionCoordinators(self, self.shards)
        self.groups: GroupCoordinators = GroupCoordinators(self.shards, self.transactions)

    def new_uuid(self) -> UUID:
        """Return an id for a topic or a client."""
        return UUID(int=self._rng.getrandbits(128))

    # Changes

    def subscribe(self, on_change: Callable[[TopicPartition], None]) -> None:
        """Call `on_change` after every append to, and change of leader of, a partition."""
        self._listeners.append(on_change)

    def notify(self, topic: str, partition: int) -> None:
        """Notify the subscribers that a partition changed."""
        changed = TopicPartition(topic, partition)
        for listener in self._listeners:
            listener(changed)

    # Time

    def advance(self, now_ms: int) -> None:
        """Do what is due without a request: transaction markers, transactions that took too long.

        Every request does it too; `subscribe_wakeups` is for callers that must not wait for one.
        """
        self.transactions.advance(now_ms)
        due_ms = self.next_wakeup_ms
        if due_ms != self._notified_wakeup_ms:
            self._notified_wakeup_ms = due_ms
            for listener in self._wakeup_listeners:
                listener(due_ms)

    @property
    def next_wakeup_ms(self) -> int | None:
        """The time of `advance`'s next task, if nothing happens before; None for never."""
        return self.transactions.next_due_ms

    def subscribe_wakeups(self, on_change: Callable[[int | None], None]) -> None:
        """Call `on_change` with the new `next_wakeup_ms` whenever it changes."""
        self._wakeup_listeners.append(on_change)

    # Features

    @property
    def transaction_version(self) -> int:
        """The finalized level of the feature `transaction.version`."""
        return self._transaction_version

    @property
    def features_epoch(self) -> int:
        """Grows with every change of a feature."""
        return self._features_epoch

    def set_transaction_version(self, level: int) -> None:
        """Upgrade or downgrade `transaction.version` (0 to 2), as UpdateFeatures does."""
        if not 0 <= level <= V2:
            raise ValueError(f"transaction.version has levels 0 to {V2}, not {level}")
        if level != self._transaction_version:
            self._transaction_version = level
            self._features_epoch += 1

    # Brokers

    @property
    def live_brokers(self) -> list[BrokerSpec]:
        """The brokers that are up, by id."""
        return [self.brokers[node_id] for node_id in sorted(self._live)]

    @property
    def controller_id(self) -> int:
        """The controller's id in responses to clients; -1 when all are down."""
        return min(self._live, default=-1)

    def is_live(self, node_id: int) -> bool:
        """Return whether that broker is up."""
        return node_id in self._live

    def is_reachable(self, node_id: int) -> bool:
        """Return whether other brokers get a response from that one."""
        return self.is_live(node_id)

    def known_brokers(self, node_id: int) -> list[BrokerSpec]:
        """Return the brokers that broker `node_id` believes to be alive, for Metadata responses."""
        return self.live_brokers

    def known_leadership(self, node_id: int, partition: Partition) -> Leadership:
        """Return the leader of a partition in the metadata of broker `node_id`."""
        return partition.leadership

    def known_partitions(self, node_id: int, topic: Topic) -> Sequence[Partition]:
        """Return the partitions of a topic in the metadata of broker `node_id`."""
        return topic.partitions

    def set_broker_address(self, node_id: int, host: str, port: int) -> None:
        """Change a broker's advertised address."""
        self.brokers[node_id] = self.brokers[node_id]._replace(host=host, port=port)

    def set_broker_down(self, node_id: int) -> None:
        """Take a broker away: another in-sync replica, if there is one, leads its partitions."""
        if node_id not in self._live:
            return
        self._live.remove(node_id)
        for partition in self._partitions():
            if partition.lose_replica(node_id):
                self.notify(partition.topic, partition.index)

    def set_broker_up(self, node_id: int) -> None:
        """Bring a broker back; it catches up at once and leads what has no leader."""
        if node_id not in self.brokers:
            raise ValueError(f"there is no broker {node_id}")
        if node_id in self._live:
            return
        self._live.add(node_id)
        for partition in self._partitions():
            if partition.regain_replica(node_id, self._live):
                self.notify(partition.topic, partition.index)

    def move_leader(self, topic: str, partition: int, node_id: int | None = None) -> int:
        """Give a partition another leader, under a new epoch.

        Args:
            topic: The topic.
            partition: The partition.
            node_id: The new leader, an in-sync replica; None for the next one in the ISR.

        Returns:
            The new leader.

        Raises:
            ValueError: There is no such partition, or `node_id` is not in sync.
        """
        found = self.partition(topic, partition)
        if found is None:
            raise ValueError(f"there is no partition {topic}-{partition}")
        candidates = [node for node in found.isr if node in self._live]
        if node_id is None:
            after = candidates.index(found.leader) + 1 if found.leader in candidates else 0
            node_id = candidates[after % len(candidates)] if candidates else NO_LEADER
        if node_id not in candidates:
            raise ValueError(f"broker {node_id} is not an in-sync replica of {topic}-{partition}")
        found.lead_by(node_id)
        self.notify(topic, partition)
        return node_id

    def throttle(
        self, throttle_ms: int, *, node_id: int | None = None, times: int | None = None
    ) -> Fault:
        """Throttle Produce requests, at one broker or all, until `faults.remove` of the result."""
        return self.faults.throttle(throttle_ms, ApiKey.PRODUCE, node_id=node_id, times=times)

    # Topics

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition, also of an internal topic, or None."""
        found = self.topics.get(topic)
        if found is not None:
            return found.partition(index)
        internal = self._internal.get(topic, [])
        return internal[index] if 0 <= index < len(internal) else None

    def internal_partitions(self, topic: str, count: int) -> list[Partition]:
        """Return the partitions of an internal topic, which is created when first asked for.

        They hold leadership only and are listed nowhere.
        """
        if topic not in self._internal:
            nodes = sorted(self.brokers)
            factor = min(_INTERNAL_REPLICAS, len(nodes))
            self._internal[topic] = [
                self.new_partition(
                    topic, index, [nodes[(index + step) % len(nodes)] for step in range(factor)]
                )
                for index in range(count)
            ]
        return self._internal[topic]

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic that has this id, or None."""
        name = self._names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def create_topic(
        self,
        name: str,
        spec: TopicSpec | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic, its replicas spread over the brokers that are up.

        Args:
            name: The topic's name.
            spec: Partitions, replication factor, options.
            assignments: The replicas of each partition, in place of counts.
            validate_only: Check, and leave no trace.

        Raises:
            RefusedError: With the code a broker answers.
        """
        spec = spec or TopicSpec()
        check_topic_name(name)
        if name in self.topics:
            raise RefusedError(errors.TopicAlreadyExistsError, f"Topic '{name}' already exists.")
        self._check_collision(name)
        try:
            config = TopicConfig(spec.configs, self.settings.topic_defaults)
        except ValueError as error:
            raise RefusedError(errors.InvalidConfigError, str(error)) from error
        placed = (
            self._placement.assigned(assignments) if assignments else self._placement.spread(spec)
        )
        topic_id = self.new_uuid()
        partitions = [
            self.new_partition(name, index, replicas) for index, replicas in enumerate(placed)
        ]
        topic = Topic(name, topic_id, config, partitions)
        if not validate_only:
            self.topics[name] = topic
            self._names_by_id[topic_id] = name
            self._names_by_metric[_metric_name(name)] = name
            self._placement.next_topic()
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its data, and the groups' offsets in it.

        Raises:
            RefusedError: There is no such topic.
        """
        topic = self.topics.pop(name, None)
        if topic is None:
            raise RefusedError(errors.UnknownTopicOrPartitionError)
        del self._names_by_id[topic.topic_id], self._names_by_metric[_metric_name(name)]
        self.groups.drop_topic(name)
        for partition in topic.partitions:
            self.notify(name, partition.index)

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Let a topic grow to `count` partitions.

        Raises:
            RefusedError: There is no such topic, or it has as many already.
        """
        topic = self.topics.get(name)
        if topic is None:
            raise RefusedError(errors.UnknownTopicOrPartitionError)
        have = len(topic.partitions)
        if count <= have:
            raise RefusedError(
                errors.InvalidPartitionsError,
                f"The topic {name} currently has {have} partition(s); {count} would not be an "
                "increase.",
            )
        check_partition_count(count)
        if validate_only:
            return
        factor = len(topic.partitions[0].replicas)
        for index in range(have, count):
            replicas = self._placement.replicas_for(index, factor)
            topic.partitions.append(self.new_partition(name, index, replicas))

    def new_partition(self, topic: str, index: int, replicas: Sequence[int]) -> Partition:
        """Return an empty partition; a cluster with another kind of them makes its own."""
        return Partition(topic, index, replicas, self._live)

    def new_producer_id(self) -> int:
        """Return an unused producer id (KIP-98)."""
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    def _check_collision(self, name: str) -> None:
        """Refuse a topic whose metrics would have the names of another one's (Java: Topic).

        Raises:
            RefusedError: INVALID_TOPIC_EXCEPTION.
        """
        other = self._names_by_metric.get(_metric_name(name))
        if other is not None:
            raise RefusedError(
                errors.InvalidTopicError, f"Topic '{name}' collides with existing topic: {other}"
            )

    def _partitions(self) -> list[Partition]:
        listed = [partition for topic in self.topics.values() for partition in topic.partitions]
        return listed + [each for internal in self._internal.values() for each in internal]


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")
