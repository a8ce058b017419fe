"""Settings of a simulated cluster: its brokers, its options, its topics' options.

Invariants:
- An option name that Kafka does not have is refused (INVALID_CONFIG), one that Kafka has but that
  changes nothing here (segment sizes, flush intervals ...) is kept and described, as by a broker.
- Values are validated when they are set, so reading them never fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aioproducer.wire.api_keys import ApiKey

MAX_REQUEST_BYTES = 100 * 1024 * 1024
"""The broker option `socket.request.max.bytes`."""

ApiVersions = Mapping[ApiKey, tuple[int, int] | None]


class BrokerSpec(NamedTuple):
    """One broker: its id and its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be created: -1 is the cluster's default."""

    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class UnknownProducers(Enum):
    """The handling of a batch of an unknown producer whose sequence is not 0."""

    ACCEPT = "accept"
    """Written, whatever its sequence is: Kafka since 2.5 (KIP-360)."""
    UNKNOWN_PRODUCER_ID = "unknown producer id"
    """Refused with UNKNOWN_PRODUCER_ID: Kafka before."""
    OUT_OF_ORDER = "out of order"
    """Refused with OUT_OF_ORDER_SEQUENCE_NUMBER, without the log's start: Redpanda."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The behaviour of the simulated brokers.

    Attributes:
        cluster_id: The id in Metadata and DescribeCluster.
        auto_create_topics: Whether Metadata for an unknown topic creates it (KIP-487 lets the
            client refuse).
        default_partitions: Partitions of a topic created without a count.
        default_replication_factor: Bounded by the number of brokers.
        topic_defaults: Topic options that hold for every topic not setting its own.
        verify_records: Decode every record of every batch on produce and check offsets, counts and
            timestamps, not just the batch header and its CRC. Costs CPU per record.
        names_bad_records: Whether the refusal of a batch names the records to blame (KIP-467).
            Brokers before Kafka 2.4 do not, nor does Redpanda.
        max_request_bytes: A larger frame closes the connection.
        connections_max_idle_ms: After how long without a request a broker closes a connection; -1
            never.
        producer_id_expiration_ms: How long after its last batch a producer expires.
        producer_id_expiration_check_interval_ms: How often partitions check for such producers.
        unknown_producers: The handling of a batch of an unknown producer, unless it begins at 0.
        transaction_version: The level of the feature `transaction.version` a cluster starts with: 2
            bumps a producer's epoch at every end of a transaction (KIP-890), below it does not.
        transaction_max_timeout_ms: The longest transaction a producer may ask for.
        transaction_partitions: How many partitions the transactions' coordinators share (a broker's
            default is 50).
        offsets_partitions: The same for the groups' coordinators.
        coordinator_load_ms: How long a coordinator that takes over answers
            COORDINATOR_LOAD_IN_PROGRESS.
        marker_delay_ms: How long each step takes that follows the decision on a transaction's end:
            a marker per partition, then the completion. 0 does them before anything else happens.
        two_phase_commit: Whether producers may prepare transactions without a timeout (KIP-939).
        api_versions: Overrides of the advertised and served version range per API; None takes the
            API away. Stands in for an older broker.
        api_versions_by_broker: The same of single brokers, in place of `api_versions`, as while
            brokers are upgraded one after the other.
        first_epoch: The epoch of a new producer id. Brokers give 0; a later one is soon used up.
    """

    cluster_id: str = "aioproducer-embedded-1"
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int = 3
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    verify_records: bool = False
    names_bad_records: bool = True
    max_request_bytes: int = MAX_REQUEST_BYTES
    connections_max_idle_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    unknown_producers: UnknownProducers = UnknownProducers.ACCEPT
    transaction_version: int = 2
    transaction_max_timeout_ms: int = 900_000
    transaction_partitions: int = 5
    offsets_partitions: int = 5
    coordinator_load_ms: int = 0
    marker_delay_ms: int = 0
    two_phase_commit: bool = False
    api_versions: ApiVersions = field(default_factory=dict)
    api_versions_by_broker: Mapping[int, ApiVersions] = field(default_factory=dict)
    first_epoch: int = 0

    def api_versions_of(self, node_id: int) -> ApiVersions:
        """Return the overrides for one broker."""
        return self.api_versions_by_broker.get(node_id, self.api_versions)


def _whole_number(minimum: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        if int(text) < minimum:
            raise ValueError(f"must be at least {minimum}")

    return check


def _one_of(*choices: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")

    return check


def _cleanup_policy(text: str) -> None:
    for policy in filter(None, text.split(",")):
        _one_of("delete", "compact")(policy.strip())


def _anything(text: str) -> None:
    """Accept any value: options without effect here are not checked."""


class _Option(NamedTuple):
    default: str
    check: Callable[[str], None] = _anything


SOURCE_TOPIC, SOURCE_STATIC_BROKER, SOURCE_DEFAULT = 1, 4, 5

_LONG_MAX = str(2**63 - 1)

TOPIC_OPTIONS: Mapping[str, _Option] = {
    "cleanup.policy": _Option("delete", _cleanup_policy),
    # The batches keep the codec that the producer chose; recompressing is not what is tested here.
    "compression.type": _Option(
        "producer", _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "max.message.bytes": _Option("1048588", _whole_number(0)),
    "message.timestamp.after.max.ms": _Option("3600000", _whole_number(0)),
    "message.timestamp.before.max.ms": _Option(_LONG_MAX, _whole_number(0)),
    "message.timestamp.type": _Option("CreateTime", _one_of("CreateTime", "LogAppendTime")),
    "min.insync.replicas": _Option("1", _whole_number(1)),
    "retention.bytes": _Option("-1", _whole_number(-1)),
    "compression.gzip.level": _Option("-1"),
    "compression.lz4.level": _Option("9"),
    "compression.zstd.level": _Option("3"),
    "delete.retention.ms": _Option("86400000"),
    "file.delete.delay.ms": _Option("60000"),
    "flush.messages": _Option(_LONG_MAX),
    "flush.ms": _Option(_LONG_MAX),
    "follower.replication.throttled.replicas": _Option(""),
    "index.interval.bytes": _Option("4096"),
    "leader.replication.throttled.replicas": _Option(""),
    "local.retention.bytes": _Option("-2"),
    "local.retention.ms": _Option("-2"),
    "max.compaction.lag.ms": _Option(_LONG_MAX),
    "min.cleanable.dirty.ratio": _Option("0.5"),
    "min.compaction.lag.ms": _Option("0"),
    "preallocate": _Option("false"),
    "remote.log.copy.disable": _Option("false"),
    "remote.log.delete.on.disable": _Option("false"),
    # The brokers have no tiered storage.
    "remote.storage.enable": _Option("false", _one_of("false")),
    "retention.ms": _Option("604800000"),
    "segment.bytes": _Option("1073741824"),
    "segment.index.bytes": _Option("10485760"),
    "segment.jitter.ms": _Option("0"),
    "segment.ms": _Option("604800000"),
    "unclean.leader.election.enable": _Option("false"),
}
"""Every topic option with its default (Java: TopicConfig, LogConfig)."""


class TopicConfig:
    """The effective options of one topic: its own, over the cluster's, over Kafka's defaults."""

    __slots__ = ("_defaults", "own")

    def __init__(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Check and keep the options.

        Raises:
            ValueError: An unknown option or an impossible value; the text names it.
        """
        for name, value in own.items():
            _check_option(name, value)
        self.own: dict[str, str] = dict(own)
        self._defaults = defaults

    def __getitem__(self, name: str) -> str:
        """Return the value in force for an option of `TOPIC_OPTIONS`."""
        if name in self.own:
            return self.own[name]
        return self._defaults.get(name, TOPIC_OPTIONS[name].default)

    def source(self, name: str) -> int:
        """Return the source of the value in force (Java: DescribeConfigsResponse.ConfigSource)."""
        if name in self.own:
            return SOURCE_TOPIC
        return SOURCE_STATIC_BROKER if name in self._defaults else SOURCE_DEFAULT

    @property
    def is_compacted(self) -> bool:
        """Whether records need keys (`cleanup.policy` names compact)."""
        return "compact" in self["cleanup.policy"]

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock replaces the records' timestamps (KIP-32)."""
        return self["message.timestamp.type"] == "LogAppendTime"

    @property
    def max_message_bytes(self) -> int:
        """The largest batch the topic takes, header included."""
        return int(self["max.message.bytes"])

    @property
    def min_insync_replicas(self) -> int:
        """The number of in-sync replicas that `acks=all` needs."""
        return int(self["min.insync.replicas"])

    @property
    def retention_bytes(self) -> int | None:
        """The bytes that a partition keeps; None for all of them."""
        limit = int(self["retention.bytes"])
        return None if limit < 0 else limit

    @property
    def timestamp_bounds_ms(self) -> tuple[int, int]:
        """The allowed distance of a timestamp from the broker's clock, back and ahead (KIP-937)."""
        before = int(self["message.timestamp.before.max.ms"])
        return before, int(self["message.timestamp.after.max.ms"])


def _check_option(name: str, value: str) -> None:
    option = TOPIC_OPTIONS.get(name)
    if option is None:
        raise ValueError(f"Unknown topic config name: {name}")
    try:
        option.check(value)
    except ValueError as error:
        raise ValueError(f"Invalid value {value} for configuration {name}: {error}") from None
