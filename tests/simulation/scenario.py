"""The stage of a run: cluster, producer options, and how much is sent; all drawn from the seed.

Owns: what may vary between runs besides faults. Not here: how any of it is carried out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from aioproducer.interceptors import ClusterInfo
from aioproducer.records import murmur2_partition
from aioproducer.testing.broker import ClusterSettings, TopicSpec
from aioproducer.testing.security import ListenerSecurity
from aioproducer.testing.world.cluster import ReplicationTiming
from aioproducer.testing.world.faults import Shape
from aioproducer.testing.world.spec import WorldSpec
from aioproducer.types import HeaderPairs, Record, RecordMetadata, TopicMetadata
from aioproducer.wire.api_keys import ApiKey
from simulation.transactions.plan import OUTPUT_TOPIC, Plan

USERS = {"sim": "secret"}
LOGIN: Mapping[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "sim",
    "sasl_plain_password": USERS["sim"],
}
CHAOS_S = 60.0
"""How long producers work, and faults may strike at most; then everything heals."""

_QUIET_START_S = 1.0
_MOST_RECORD_BYTES = 2500

_WINDOWS = {
    0.0005: (512, 2048, 256 * 1024),
    0.01: (8 * 1024, 256 * 1024),
    0.05: (64 * 1024, 256 * 1024),
    0.1: (64 * 1024, 256 * 1024),
}
"""Send windows by latency: a small one over a long way could not carry a request in its time."""

_LEAST_TIMEOUT_IN_LATENCIES = 80
"""A transaction over many partitions takes dozens of round trips before V2."""
_LEAST_BLOCK_IN_LATENCIES = 40
"""With memory for two batches a record waits for others' announcements and acknowledgements."""

_LONGEST_TURN_S = 0.0003
_SHARE_OF_SLOW_LOOPS = 0.25
"""Of the runs: there, time passes while callbacks run, not only between them."""

_SLOWEST_SERIALIZER_S = 0.025

_SHARE_OF_LARGE_RECORDS = 0.2
_ROOM_FOR_LARGE_RECORDS = 1 << 20
_BY_ID = (13, 13)
"""The versions of Produce that name topics by their ids."""

_MEANINGLESS = ("enable_idempotence", "retries")

_SHARE_OF_SINGLE_RECORDS = 0.3
_SHARE_OF_EARLY_STARTS = 0.12
_SHARE_OF_REBOOTSTRAPS = 0.12
_SHARE_OF_PARTITIONERS = 0.12
_SHARE_WITHOUT_RESPONSES, _SHARE_OF_SMALL_REQUESTS = 0.06, 0.2
_SHARE_OF_NODE_0, _SHARE_OF_MORE_CALLS = 0.25, 0.3
_SHARE_OF_HAND_OVERS = 0.08
SHARE_OF_SESSIONS, _SHARE_OF_EARLY_SESSIONS = 0.07, 0.4
_SHARE_OF_RACKS = 0.06
_SHARE_WITHOUT_PRODUCER_IDS = 0.2
_SHARE_OF_LARGE_BATCHES, _LARGE_BATCH_BYTES = 0.1, 300_000
_SHARE_OF_FEW_PLACES, _LINGER_MS = 0.6, 50
_LARGEST_WINDOW = 256 * 1024
_RACKS = ("rack-0", "rack-1")
_SESSIONS_MS = (1500, 5000)
ENDLESS, _ENDLESS_S = b"<endless>", 3600.0
"""A value whose serializer takes so long."""
_HOOKS = ("value_serializer", "interceptor_classes")
_SHARE_OF_BOUNDED_QUEUES = 0.6
_ENQUEUE_TIMEOUTS_MS, _FEW_RECORDS = (0, 20, 500, -1), (2, 8)
_BOUNDS = ("buffer_max_records", "batch_max_records")
_SINGLE_RECORDS: Mapping[str, Any] = {"compression_type": "none", "linger_ms": 0}
"""With these a record that nothing precedes is sent within its call of `send`."""
_WITHOUT_RESPONSES: Mapping[str, Any] = {
    "acks": 0,
    "enable_idempotence": False,
    "max_in_flight_requests_per_connection": 5,
    "batch_size": 200,
    "linger_ms": 0,
}
_SHORTEST_WAY_S, _SMALLEST_WINDOW = 0.0005, 512
"""With these several requests without responses wait until they can leave."""
_SMALL_REQUESTS: Mapping[str, Any] = {"max_request_size": 3000, "batch_size": 2000}
"""With these the batches of several partitions do not fit into one request."""


class Pause(NamedTuple):
    """A time in which no task sends.

    Attributes:
        begins_at: After so many seconds of activity.
        seconds: How long it lasts.
    """

    begins_at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Scenario(WorldSpec):
    """The parameters of a run; its times do not count pauses.

    Attributes:
        tasks: How many tasks send.
        records: How many records they send together, about.
        closes_at: When the producer is closed amid the faults; None for an end in peace.
        close_timeout_s: The timeout of that close.
        purges: Whether tasks give up what waits, now and then.
        transactions: What the producers are to do in transactions; None for a run without.
        heals_at: When everything heals.
        parade: Topics that tasks use one after the other, a few at a time; without, they use all
            topics all the time.
        pauses: When no task sends for long, in their order.
        brokers: How brokers differ from those of other runs, see `ClusterSettings`.
        longest_turn_s: How long a turn of the event loop takes at most.
        session_ms: How long brokers accept a client's credentials; 0 if they ask for none.
        large_records: Whether some records are larger than what is copied into a request.
        starts_early: Whether records are sent before the producer has metadata, if it has no
            transactions.
        more_calls: Whether tasks also make the calls of `simulation.calls`.
        hands_over: Whether tasks send as the threads of a blocking producer do.
        releases: The older and the newer one of the brokers, where there are two.
    """

    tasks: int
    records: int
    closes_at: float | None
    close_timeout_s: float
    purges: bool
    transactions: Plan | None = None
    heals_at: float = CHAOS_S
    parade: Sequence[str] = ()
    pauses: Sequence[Pause] = ()
    brokers: Mapping[str, Any] = field(default_factory=dict)
    longest_turn_s: float = 0.0
    session_ms: int = 0
    large_records: bool = False
    starts_early: bool = False
    more_calls: bool = False
    hands_over: bool = False
    releases: tuple[str, str] | None = None

    @property
    def gives_producer_ids(self) -> bool:
        """Whether brokers give producer ids; without them no producer is idempotent."""
        versions = self.brokers.get("api_versions", {})
        return versions.get(ApiKey.INIT_PRODUCER_ID, ()) is not None

    @property
    def writes_by_id(self) -> bool:
        """Whether a topic created anew gets no record before the producer has seen its id.

        V1 transactions write to topics by their names, and so do all clients of older brokers.
        """
        _, newest = self.brokers.get("api_versions", {}).get(ApiKey.PRODUCE, _BY_ID)
        is_v1 = self.transactions is not None and self.transactions.version == 1
        is_lowered = "api_versions_by_broker" in self.brokers
        return newest >= _BY_ID[0] and not (is_v1 or is_lowered)

    def clock(self, active_s: float) -> float:
        """The virtual time after so many seconds of activity."""
        return active_s + sum(each.seconds for each in self.pauses if each.begins_at <= active_s)

    def idle_times(self, settling_s: float) -> list[tuple[float, float]]:
        """The pauses on the virtual clock, without so many seconds at the beginning of each."""
        ends = [self.clock(each.begins_at) for each in self.pauses]
        starts = [
            end - each.seconds + settling_s for end, each in zip(ends, self.pauses, strict=True)
        ]
        return list(zip(starts, ends, strict=True))

    @property
    def security(self) -> ListenerSecurity:
        """With sessions, a password."""
        if not self.session_ms:
            return ListenerSecurity()
        return ListenerSecurity(mechanisms=("PLAIN",), users=USERS, max_reauth_ms=self.session_ms)

    def rack_of(self, node_id: int) -> str | None:
        """One of two, if the client has a rack."""
        return _RACKS[node_id % len(_RACKS)] if "client_rack" in self.options else None

    def settings(self, settings: ClusterSettings) -> ClusterSettings:
        """As the scenario and the transactions' plan say."""
        settings = replace(settings, **self.brokers)
        return settings if self.transactions is None else self.transactions.settings(settings)

    @property
    def shape(self) -> Shape:
        """The targets that faults can have."""
        plan = self.transactions
        return Shape(
            self.nodes,
            {name: spec.partitions for name, spec in self.topics.items()},
            {} if plan is None else {seat.name: seat.group for seat in plan.seats},
        )

    @property
    def fault_times(self) -> tuple[float, float]:
        """Between which times faults strike."""
        return _QUIET_START_S, self.heals_at * 0.97


def draw_scenario(rng: random.Random, *, unclean_elections: bool = False) -> Scenario:
    """A stage, drawn."""
    brokers = rng.choice((3, 3, 3, 4))
    hasty = rng.random() < 0.15
    base_latency = rng.choice(sorted(_WINDOWS))
    scenario = Scenario(
        nodes=tuple(range(1, brokers + 1)),
        topics=_topics(rng),
        options=_options(rng, brokers, base_latency),
        timing=ReplicationTiming(
            fetch_lag=rng.choice((0.002, 0.02, 0.1)),
            longest_lag=rng.choice((0.5, 2.0, 4.0)),
            session_timeout=rng.choice((0.3, 1.0, 3.0)),
        ),
        window=rng.choice(_WINDOWS[base_latency]),
        base_latency_s=base_latency,
        tasks=rng.randint(3, 6),
        records=rng.randint(300, 550),
        closes_at=round(rng.uniform(CHAOS_S * 0.9, CHAOS_S * 1.1), 3) if hasty else None,
        close_timeout_s=rng.choice((0.0, 0.05, 1.0, 5.0)),
        unclean_elections=unclean_elections,
        purges=rng.random() < 0.2,
    )
    scenario = replace(
        scenario,
        options={**scenario.options, **_bounds(rng)},
        longest_turn_s=_LONGEST_TURN_S if rng.random() < _SHARE_OF_SLOW_LOOPS else 0.0,
    )
    scenario = replace(scenario, options={**scenario.options, **_user_objects(rng)})
    return _with_large_records(scenario) if rng.random() < _SHARE_OF_LARGE_RECORDS else scenario


def _with_large_records(scenario: Scenario) -> Scenario:
    room = {
        "buffer_memory": max(scenario.options["buffer_memory"], _ROOM_FOR_LARGE_RECORDS),
        "max_request_size": _ROOM_FOR_LARGE_RECORDS,
    }
    return replace(scenario, options={**scenario.options, **room}, large_records=True)


def with_more_options(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario with options that only some of the runs without transactions have."""
    options = dict(scenario.options)
    if rng.random() < _SHARE_OF_SINGLE_RECORDS:
        options = {name: value for name, value in options.items() if name not in _BOUNDS}
        options |= _SINGLE_RECORDS
    if rng.random() < _SHARE_OF_REBOOTSTRAPS:
        options["metadata_recovery_rebootstrap_trigger_ms"] = rng.choice((1000, 4000))
    if rng.random() < _SHARE_OF_PARTITIONERS:
        options["partitioner"] = _choose_partition
    starts_early = rng.random() < _SHARE_OF_EARLY_STARTS
    scenario = replace(scenario, options=options, starts_early=starts_early)
    if rng.random() < _SHARE_WITHOUT_RESPONSES:
        scenario = replace(
            scenario,
            options={**options, **_WITHOUT_RESPONSES},
            base_latency_s=_SHORTEST_WAY_S,
            window=_SMALLEST_WINDOW,
        )
    elif rng.random() < _SHARE_OF_SMALL_REQUESTS and not scenario.large_records:
        scenario = replace(scenario, options={**options, **_SMALL_REQUESTS})
    return scenario


def with_node_0(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with brokers that count from 0."""
    if rng.random() >= _SHARE_OF_NODE_0:
        return scenario
    nodes = tuple(node - 1 for node in scenario.nodes)
    options = {**scenario.options, "bootstrap_servers": _addresses(nodes)}
    return replace(scenario, nodes=nodes, options=options)


def with_more_calls(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with tasks that make more calls."""
    if rng.random() >= _SHARE_OF_MORE_CALLS:
        return scenario
    options = dict(scenario.options)
    if rng.random() < _SHARE_OF_BOUNDED_QUEUES:
        options["enqueue_timeout_ms"] = rng.choice(_ENQUEUE_TIMEOUTS_MS)
        options["buffer_max_records"] = rng.choice(_FEW_RECORDS)
    return replace(scenario, options=options, more_calls=True)


def with_hand_over(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with tasks that hand their records over.

    Records for serializers and interceptors are not handed over.
    """
    if scenario.more_calls or rng.random() >= _SHARE_OF_HAND_OVERS:
        return scenario
    options = {name: each for name, each in scenario.options.items() if name not in _HOOKS}
    return replace(scenario, options=options, hands_over=True)


def with_sessions(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with sessions that have to be renewed (KIP-368)."""
    is_early = scenario.starts_early and not scenario.pauses  # a day has many sessions
    share = _SHARE_OF_EARLY_SESSIONS if is_early else SHARE_OF_SESSIONS
    if scenario.session_ms or rng.random() >= share:
        return scenario
    options = {**scenario.options, **LOGIN}
    return replace(scenario, options=options, session_ms=rng.choice(_SESSIONS_MS))


def with_racks(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with a client in one of two racks (KIP-1123)."""
    if "partitioner" in scenario.options or rng.random() >= _SHARE_OF_RACKS:
        return scenario
    racks = {"client_rack": _RACKS[0], "partitioner_rack_aware": True}
    return replace(scenario, options={**scenario.options, **racks})


def with_large_batches(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with batches of which a call opens one in a turn."""
    if rng.random() >= _SHARE_OF_LARGE_BATCHES:
        return scenario
    memory = _LARGE_BATCH_BYTES * rng.choice((2, 3))
    room = {"batch_size": _LARGE_BATCH_BYTES, "buffer_memory": memory}
    if rng.random() < _SHARE_OF_FEW_PLACES:
        timeout = scenario.options["delivery_timeout_ms"] + _LINGER_MS
        room |= {"linger_ms": _LINGER_MS, "delivery_timeout_ms": timeout}
        room["buffer_max_records"] = max(_FEW_RECORDS)
    # A small window could not carry such a batch within `request_timeout_ms`.
    return replace(scenario, window=_LARGEST_WINDOW, options={**scenario.options, **room})


def without_producer_ids(scenario: Scenario, rng: random.Random) -> Scenario:
    """The scenario, in a share of the runs with brokers that give none (before 0.11).

    Not with options that ask for them. The producer goes on without idempotence.
    """
    is_asked_for = "enable_idempotence" in scenario.options
    if rng.random() >= _SHARE_WITHOUT_PRODUCER_IDS or is_asked_for or scenario.brokers:
        return scenario
    return replace(scenario, brokers={"api_versions": {ApiKey.INIT_PRODUCER_ID: None}})


def _choose_partition(
    topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
) -> int | None:
    """As the default partitioner for keys; of other records it leaves some to that."""
    count = len(cluster.partitions)
    if key is not None:
        return murmur2_partition(key, count)
    size = len(value or b"")
    return size % count if size % 3 else None


def with_plan(scenario: Scenario, plan: Plan, rng: random.Random) -> Scenario:
    """The scenario with transactions, which ask for certain options."""
    options: dict[str, Any] = {
        name: value for name, value in scenario.options.items() if name not in _MEANINGLESS
    }
    least = int(_LEAST_TIMEOUT_IN_LATENCIES * scenario.base_latency_s * 1000)
    options |= {"acks": "all", "transaction_timeout_ms": max(least, plan.timeout_ms)}
    least = int(_LEAST_BLOCK_IN_LATENCIES * scenario.base_latency_s * 1000)
    options["max_block_ms"] = max(least, options["max_block_ms"])
    topics: Mapping[str, TopicSpec] = scenario.topics
    if any(seat.reads for seat in plan.seats):
        topics = {**topics, OUTPUT_TOPIC: TopicSpec(rng.randint(1, 3), rng.choice((3, 3, 2, 1)))}
    return replace(scenario, options=options, topics=topics, transactions=plan)


def _topics(rng: random.Random) -> dict[str, TopicSpec]:
    topics = {}
    for name in ("t1", "t2", "t3")[: rng.choice((1, 1, 2, 3))]:
        replicas = rng.choice((3, 3, 3, 2, 1))
        configs = {"min.insync.replicas": str(rng.randint(1, min(2, replicas)))}
        if rng.random() < 0.2:
            configs["message.timestamp.type"] = "LogAppendTime"
        if rng.random() < 0.25:
            configs["max.message.bytes"] = str(rng.choice((400, 1200)))
        topics[name] = TopicSpec(rng.randint(1, 3), replicas, configs)
    return topics


def _bounds(rng: random.Random) -> dict[str, Any]:
    """Draw how many records may be buffered and in a batch, and how a batch gets its memory."""
    bounds: dict[str, Any] = {}
    if rng.random() < 0.25:
        bounds["buffer_max_records"] = rng.choice((1, 5, 40))
    if rng.random() < 0.25:
        bounds["batch_max_records"] = rng.choice((1, 2, 10))
    if rng.random() < 0.25:
        bounds["buffer_memory_allocation_strategy"] = "incremental"
    return bounds


class Observer:
    """An interceptor that changes nothing.

    Attributes:
        shown: How many records it has seen before they were sent.
        unnamed: How many of these had no topic.
        reported: The outcome of each record: its metadata and error.
        clusters: The ids of the clusters that were reported.
    """

    def __init__(self) -> None:
        self.shown: int = 0
        self.unnamed: int = 0
        self.reported: list[tuple[RecordMetadata, BaseException | None]] = []
        self.clusters: list[str | None] = []

    def on_cluster(self, cluster: ClusterInfo) -> None:
        """Note a cluster."""
        self.clusters.append(cluster.cluster_id)

    def on_send(self, record: Record) -> Record:
        """Count a record."""
        self.shown += 1
        self.unnamed += record.topic is None
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
    ) -> None:
        """Note the outcome of a record."""
        self.reported.append((metadata, error))


class LateSerializer:
    """A serializer that returns the value, for some only later, for `ENDLESS` after all calls.

    Attributes:
        closed: How often it was closed.
    """

    def __init__(self) -> None:
        self.closed: int = 0

    def __call__(self, value: bytes | None) -> bytes | Awaitable[bytes] | None:
        """Return the value, or what it can be awaited from."""
        if value is None or (len(value) % 3 and value != ENDLESS):
            return value

        async def later() -> bytes:
            share = len(value) % 7 / 7
            await asyncio.sleep(_ENDLESS_S if value == ENDLESS else _SLOWEST_SERIALIZER_S * share)
            return value

        return later()

    async def close(self) -> None:
        """Take some time."""
        await asyncio.sleep(_SLOWEST_SERIALIZER_S)
        self.closed += 1


def _user_objects(rng: random.Random) -> dict[str, Any]:
    """Draw whether an interceptor observes the records, and a serializer waits for some."""
    objects: dict[str, Any] = {}
    if rng.random() < 0.15:
        objects["interceptor_classes"] = (Observer(),)
    if rng.random() < 0.15:
        objects["value_serializer"] = LateSerializer()
    return objects


def _addresses(nodes: Iterable[int]) -> list[str]:
    return [f"broker-{node}.sim:9092" for node in nodes]


def _options(rng: random.Random, brokers: int, base_latency: float) -> dict[str, Any]:
    linger = rng.choice((0, 0, 5, 50, 500))
    request_timeout = rng.choice((400, 1000, 3000) if base_latency < 0.05 else (1500, 3000))
    batch_size = rng.choice((200, 600, 2000, 16384))
    options: dict[str, Any] = {
        "bootstrap_servers": _addresses(range(1, brokers + 1)),
        "client_id": "sim",
        "acks": rng.choice(("all",) * 8 + (1, 0)),
        "linger_ms": linger,
        "request_timeout_ms": request_timeout,
        "delivery_timeout_ms": linger
        + request_timeout
        + rng.choice((0, 50, 1000, 4000, 30000, 30000)),
        "batch_size": batch_size,
        "buffer_memory": max(batch_size * rng.choice((2, 4, 32)), 2 * _MOST_RECORD_BYTES),
        "max_request_size": rng.choice((4096, 1048576)),
        "max_block_ms": rng.choice((1500, 3000, 20000)),
        "max_in_flight_requests_per_connection": rng.choice((1, 1, 2, 5, 5, 5)),
        "retry_backoff_ms": rng.choice((10, 100)),
        "retry_backoff_max_ms": 1000,
        "compression_type": rng.choice(("none", "none", "gzip", "lz4", "zstd")),
        "compression_threads_threshold_bytes": rng.choice((0, 65536)),
        "metadata_max_age_ms": rng.choice((500, 2000, 300000)),
        "metadata_max_idle_ms": rng.choice((5000, 300000)),
        "connections_max_idle_ms": rng.choice((2000, 540000)),
        "socket_connection_setup_timeout_ms": rng.choice((500, 2000)),
        "socket_connection_setup_timeout_max_ms": 4000,
        "partitioner_adaptive_partitioning_enable": rng.random() < 0.5,
        "partitioner_availability_timeout_ms": rng.choice((0, 500)),
    }
    if options["compression_type"] == "none":
        # Neither with this option nor with compression is a record sent directly.
        options["partitioner_availability_timeout_ms"] = 0
    if rng.random() < 0.15:
        options["retries"] = rng.choice((0, 0, 1, 3))
    if rng.random() < 0.35:
        options["enable_idempotence"] = False
        if rng.random() < 0.5:
            # The other way to order: one request at a time.
            options["max_in_flight_requests_per_connection"] = 1
    return options
