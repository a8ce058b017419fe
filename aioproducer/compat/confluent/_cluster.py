"""The result of `list_topics()`: confluent-kafka's description of the cluster.

In a program that has imported `confluent_kafka.admin`, its classes are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aioproducer.compat._shared_classes import counterpart
from aioproducer.compat.confluent import _errors as errors
from aioproducer.wire.messages.metadata import MetadataResponse

_MODULE = "confluent_kafka.admin"


class PartitionMetadata:
    """A partition.

    Attributes:
        id: The number of the partition.
        leader: The id of the leader, or -1.
        replicas: The ids of the brokers that have a replica.
        isrs: The ids of those that are in sync.
        error: A `KafkaError`, or None.
    """

    def __init__(self) -> None:
        self.id: int = -1
        self.leader: int = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: errors.KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id}{'' if self.error is None else f', {self.error}'})"

    def __str__(self) -> str:
        return str(self.id)


class TopicMetadata:
    """A topic.

    Attributes:
        topic: The name.
        partitions: `PartitionMetadata` by id.
        error: A `KafkaError`, such as of a topic that does not exist, or None.
    """

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: errors.KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self) -> str:
        return str(self.topic)


class BrokerMetadata:
    """A broker.

    Attributes:
        id: The node id.
        host: The host that clients connect to.
        port: Its port.
    """

    def __init__(self) -> None:
        self.id: int = -1
        self.host: str | None = None
        self.port: int = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class ClusterMetadata:
    """The cluster.

    Attributes:
        cluster_id: Its id, or None.
        controller_id: The id of the controller, or -1.
        brokers: `BrokerMetadata` by id.
        topics: `TopicMetadata` by name.
        orig_broker_id: The id of the broker that has answered.
        orig_broker_name: That broker as host:port/id.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id: int = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


def cluster_of(answer: MetadataResponse, cluster_id: str | None, asked: int) -> ClusterMetadata:
    """Return an answer to a Metadata request in confluent-kafka's shape; `asked` has answered.

    `cluster_id` is the id as known before; old brokers do not send it.
    """
    cluster: ClusterMetadata = _made(ClusterMetadata)
    cluster.cluster_id = answer.cluster_id or cluster_id
    cluster.controller_id = answer.controller_id
    for each in answer.brokers:
        broker: BrokerMetadata = _made(BrokerMetadata)
        broker.id, broker.host, broker.port = each.node_id, each.host, each.port
        cluster.brokers[broker.id] = broker
    for described in answer.topics:
        topic: TopicMetadata = _made(TopicMetadata)
        topic.topic, topic.error = described.name, _error(described.error_code)
        for part in described.partitions:
            partition: PartitionMetadata = _made(PartitionMetadata)
            partition.id, partition.leader = part.partition_index, part.leader_id
            partition.replicas = list(part.replica_nodes)
            partition.isrs = list(part.isr_nodes)
            partition.error = _error(part.error_code)
            topic.partitions[partition.id] = partition
        cluster.topics[described.name or ""] = topic
    cluster.orig_broker_id = asked
    origin = cluster.brokers.get(asked)
    cluster.orig_broker_name = None if origin is None else f"{origin.host}:{origin.port}/{asked}"
    return cluster


@contextmanager
def asking(what: str, code: int) -> Iterator[list[int]]:
    """Raise the end of the time for the block as confluent-kafka does; `what` fails then.

    The block gets a list for the brokers that are asked: after one, the code is `_TIMED_OUT`.
    """
    asked: list[int] = []
    try:
        yield asked
    except errors.KafkaException as error:
        if error.args[0].code() != errors.KafkaError._TIMED_OUT:
            raise
        code = errors.KafkaError._TIMED_OUT if asked else code
        raise errors.exception(code, f"{what}: {errors.text_of(code)}") from error.__cause__


def known_cluster_id(found: str | None) -> str:
    """Return the cluster id; raise `KafkaException` if there is none."""
    if found is None:
        raise errors.exception(
            errors.KafkaError._TIMED_OUT,
            "Failed to retrieve cluster id: the brokers are older than Kafka 0.10.1 and have none",
        )
    return found


def check_topic_asked_for(topic: Any) -> None:
    """Raise TypeError unless it is a name or None."""
    if topic is not None and not isinstance(topic, str):
        raise TypeError(f"argument 1 must be str or None, not {type(topic).__name__}")


def _made(own: Any) -> Any:
    return (counterpart(_MODULE, own.__name__) or own)()


def _error(code: int) -> errors.KafkaError | None:
    return errors.KafkaError(code) if code else None
