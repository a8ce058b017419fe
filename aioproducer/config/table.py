"""The option table: all options of a producer, except security.

Names, types, defaults and limits are Kafka 4.4's `ProducerConfig`; a field's name is Kafka's name
with underscores for dots. Options of our own say so in `source`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aioproducer.config.option import (
    METADATA_KEY,
    Constraint,
    Kind,
    Option,
    at_least,
    between,
    either,
    long_option,
    one_of,
    one_of_ignoring_case,
    option,
    release,
    secret_option,
    sendable,
    whole,
)
from aioproducer.errors import KafkaError
from aioproducer.serializers.calling import SerializerFunction
from aioproducer.serializers.protocol import Serializer
from aioproducer.types import Partitioner, PartitionFunction, StreamOpener, TopicPartition

Acks = Literal["all", "-1", "0", "1", -1, 0, 1]
"""How many replicas must have a record before it counts as delivered; "all" and -1 are the same."""

DeliveryErrorCallback = Callable[[TopicPartition, int, KafkaError], object]
"""`(partition, failed records, error)`, called once per batch whose failure was not awaited."""


@dataclass(frozen=True, slots=True, kw_only=True, init=False, eq=False, repr=False)
class CoreOptions:
    """The options of a producer that are not about security."""

    # -- the cluster -------------------------------------------------------------------------
    bootstrap_servers: str | Sequence[str] = field(
        metadata={
            METADATA_KEY: Option(
                Kind.LIST,
                "Where to find the cluster: `host:port`, several separated by commas or as a "
                "sequence; IPv6 addresses in brackets. Any reachable broker will do.",
                required=True,
            )
        }
    )
    bootstrap_resolve_timeout_ms: int = long_option(
        0,
        "How long start() tries while none of the bootstrap servers' names can be resolved, in ms; "
        "0 tries each once. Later on, names that cannot be resolved are tried again without bound.",
        source="KIP-909",
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        "Whether all addresses of a name are tried in turn, or bootstrap names are replaced by "
        "their canonical names first.",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    client_id: str = option(
        "",
        "The client's name in the brokers' logs, quotas and metrics; "
        "`producer-<n>` when not given.",
        sendable(),
    )
    client_rack: str = option(
        "",
        "The rack of this client, as the brokers' `broker.rack` names theirs.",
        sendable(),
        source="KIP-1123",
    )
    metadata_max_age_ms: int = long_option(
        300_000,
        "After how many ms the cluster metadata is refreshed unasked; 0 with every request that "
        "carries records, -1 only when something fails.",
        low=-1,
    )
    metadata_max_idle_ms: int = long_option(
        300_000, "After how many ms without a record a topic's metadata is dropped.", low=5_000
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        "Whether to start again from the bootstrap servers when no known broker can be reached or "
        "a broker asks for it; with `none` only the brokers last known are tried.",
        one_of_ignoring_case("rebootstrap", "none"),
        source="KIP-899",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = long_option(
        300_000,
        "After how many ms without metadata the client starts again from the bootstrap servers. "
        "A broker that is connected but busy or throttled is waited for.",
        source="KIP-1102",
    )
    metadata_cluster_check_enable: bool = option(
        True,
        "Whether brokers (from 4.4 on) check that the client reached the cluster and node it "
        "meant; has no effect with metadata_recovery_strategy=none.",
        source="KIP-1242",
    )
    broker_version_fallback: str = option(
        "0.8.2",
        "The assumed release of brokers that do not report their versions, as those before 0.10 do "
        "not; what 0.8.2 understands, 0.9 does too. Given explicitly, brokers are probed at once, "
        "which saves 10 s with 0.9. From `0.10.0` on no broker counts as old.",
        release(),
        source="librdkafka",
    )
    allow_auto_create_topics: bool = option(
        True,
        "Whether brokers may create a topic that is sent to and does not exist.",
        source="KIP-487",
    )

    # -- connections -------------------------------------------------------------------------
    connections_max_idle_ms: int = long_option(
        540_000,
        "After how many ms without traffic a connection is closed; -1, or librdkafka's 0, never.",
        low=-1,
    )
    reconnect_backoff_ms: int = long_option(
        50, "The first wait before a broker is dialled again, in ms; it doubles with each failure."
    )
    reconnect_backoff_max_ms: int = long_option(
        1_000,
        "The longest wait before a broker is dialled again, in ms. Equals "
        "reconnect_backoff_ms when only that one is set.",
    )
    socket_connection_setup_timeout_ms: int = long_option(
        10_000,
        "How long setting up a connection may take at first, in ms; it doubles with each failure.",
        source="KIP-601",
    )
    socket_connection_setup_timeout_max_ms: int = long_option(
        30_000, "How long setting up a connection may take at most, in ms.", source="KIP-601"
    )
    send_buffer_bytes: int = option(
        -1,
        "The socket's send buffer in bytes; -1 leaves it to the system (Java: 131072). A fixed "
        "size ends the system's own tuning, and a large request leaves in pieces.",
        at_least(-1),
    )
    receive_buffer_bytes: int = option(
        32_768, "The socket's receive buffer in bytes; -1 leaves it to the system.", at_least(-1)
    )
    proxy_url: str | None = secret_option(
        "The proxy that leads to the brokers, as `socks5://user:password@host:port`. `socks5` "
        "resolves the brokers' names here, `socks5h` and `http` (CONNECT, with Basic "
        "authentication) at the proxy.",
        source="aioproducer",
    )
    dialer: StreamOpener | None = option(
        None,
        "An async function `(host, port)` that opens a stream to a broker as `(StreamReader, "
        "StreamWriter)`, instead of the client; TLS, where switched on, goes on top of it.",
        kind=Kind.OBJECT,
        source="aioproducer",
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        "How many requests may wait for their answer per broker, and one more without records; "
        "1 keeps the order of records under retries even without idempotence.",
        at_least(1),
    )

    # -- time and retries --------------------------------------------------------------------
    max_block_ms: int = long_option(
        60_000,
        "How long one send() may wait for metadata and memory together, in ms. So long calls that "
        "ask the cluster may wait for it, too: start(), partitions_for(), those of transactions. "
        "With 0 a send() never waits, and these calls wait at most request_timeout_ms.",
    )
    enqueue_timeout_ms: int | None = option(
        None,
        "How long send() may wait for room in the buffer, in ms: 0 not at all (`BufferFullError`), "
        "-1 without bound, until close(). None: what is left of max_block_ms.",
        at_least(-1),
        kind=Kind.INT,
        source="Kafka 0.8",
    )
    delivery_timeout_ms: int = option(
        120_000,
        "How long a record may take from the end of send() to its outcome, in "
        "ms; at least linger_ms + request_timeout_ms.",
        at_least(0),
    )
    request_timeout_ms: int = option(
        30_000, "How long a broker may take to answer a request, in ms.", at_least(0)
    )
    retries: int = option(
        2_147_483_647,
        "How often a batch is sent again after a retriable error; "
        "delivery_timeout_ms is the bound that matters.",
        at_least(0),
    )
    retry_backoff_ms: int = long_option(
        100, "The first wait before a request is sent again, in ms; it doubles with each failure."
    )
    retry_backoff_max_ms: int = long_option(
        1_000, "The longest wait before a request is sent again, in ms."
    )

    # -- batches -----------------------------------------------------------------------------
    acks: Acks = option(
        "all",
        "How many replicas must have a record: all in-sync ones, the leader "
        "alone (1), or none (0: no answer, no offset).",
        one_of("all", "-1", "0", "1", -1, 0, 1)._replace(canonical=whole),
        kind=Kind.OBJECT,
    )
    linger_ms: int = long_option(
        5, "How long a batch waits for more records at most, in ms.", source="Kafka, KIP-1030"
    )
    batch_size: int = option(
        16_384, "The size of a batch in bytes; with 0 only tiny records share a batch.", at_least(0)
    )
    max_request_size: int = option(
        1_048_576, "The largest record and the largest request in bytes.", at_least(0)
    )
    buffer_memory: int = long_option(
        33_554_432,
        "How many bytes of records may wait to be sent; send() waits when they are used up.",
    )
    buffer_max_records: int | None = option(
        None,
        "How many records may be buffered, besides the bound of buffer_memory; send() waits when "
        "there are as many. None: any number.",
        at_least(1),
        kind=Kind.INT,
        source="Kafka 0.8",
    )
    batch_max_records: int | None = option(
        None,
        "How many records make a batch full, besides batch_size. None: any number.",
        at_least(1),
        kind=Kind.INT,
        source="Kafka 0.8",
    )
    producer_type: str = option(
        "async",
        "With `sync`, send() returns when the record is delivered and raises when it is not, and "
        "nothing lingers.",
        one_of("async", "sync"),
        source="Kafka 0.8",
    )
    buffer_memory_allocation_strategy: str = option(
        "full",
        "Whether a batch takes batch_size of buffer_memory at once, or as its records need it: "
        "`incremental` suits many partitions with few records each.",
        one_of_ignoring_case("full", "incremental"),
        source="KIP-1332",
    )
    compression_type: str = option(
        "none", "How batches are compressed.", one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    compressed_topics: str | Sequence[str] = option(
        (),
        "The topics whose batches are compressed; all of them when none is named.",
        source="Kafka 0.8",
    )
    compression_gzip_level: int = option(
        -1, "gzip's level, -1 being its own default.", either(-1, between(1, 9)), source="KIP-390"
    )
    compression_lz4_level: int = option(9, "lz4's level.", between(1, 17), source="KIP-390")
    compression_zstd_level: int = option(
        3, "zstd's level.", between(-131_072, 22), source="KIP-390"
    )
    compression_threads_threshold_bytes: int = option(
        65_536,
        "Batches of at least this many bytes are compressed in a thread, smaller "
        "ones on the event loop.",
        at_least(0),
        source="aioproducer",
    )
    on_delivery_error: DeliveryErrorCallback | None = option(
        None,
        "Called once per failed batch with deliveries that were dropped unread, with the "
        "partition, the number of those records and the error.",
        kind=Kind.OBJECT,
        source="aioproducer",
    )

    on_data_loss: Callable[[TopicPartition], object] | None = option(
        None,
        "Called with a partition of which acknowledged records are lost: an offset that had been "
        "acknowledged was assigned again (or the topic was deleted and created anew).",
        kind=Kind.OBJECT,
        source="aioproducer",
    )

    # -- partitions --------------------------------------------------------------------------
    partitioner: str | PartitionFunction | Partitioner = option(
        "default",
        "The partitioner, which chooses a record's partition: a name (`default`, `murmur2`, "
        "`murmur2_random`, `consistent` or `crc32`, `consistent_random`, `round_robin`, `random`, "
        "and 0.8's `java_string_hash` and `java_bytes_hash`), "
        "a function, or an object with a `partition` method.",
        kind=Kind.OBJECT,
        kafka_name="partitioner.class",
    )
    partitioner_ignore_keys: bool = option(
        False,
        "Whether the default partitioner spreads records with a key like those without.",
        source="KIP-794",
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True, "Whether brokers that are slow to take batches get fewer records.", source="KIP-794"
    )
    partitioner_availability_timeout_ms: int = long_option(
        0,
        "After how many ms without taking a batch a broker gets no more records "
        "without a key; 0 never.",
        source="KIP-794",
    )
    partitioner_rack_aware: bool = option(
        False,
        "Whether the default partitioner prefers partitions led in the client_rack, as long as "
        "there are any, for records without a key.",
        source="KIP-1123",
    )

    # -- extensions --------------------------------------------------------------------------
    key_serializer: Serializer | SerializerFunction | None = option(
        None,
        "Turns keys into bytes: a `Serializer` or a function of the key, either of which may be "
        "asynchronous; None takes bytes as they are.",
        kind=Kind.OBJECT,
    )
    value_serializer: Serializer | SerializerFunction | None = option(
        None,
        "Turns values into bytes: a `Serializer` or a function of the value, either of which may "
        "be asynchronous; None takes bytes as they are.",
        kind=Kind.OBJECT,
    )
    interceptor_classes: Sequence[object] = option(
        (),
        "Objects that see every record and its outcome, in this order; see "
        "`aioproducer.interceptors`.",
        kind=Kind.OBJECT,
        source="Kafka, KIP-42",
    )
    config_providers: Sequence[str] = option(
        (),
        "In properties (files, variables, `from_properties`): which of `env`, `file` and `dir` "
        "look up placeholders in values: `${env:NAME}`, `${file:PATH:KEY}`, `${dir:PATH:FILE}`.",
        Constraint("left out in Python, where a value is given itself", operator.not_),
        source="KIP-297",
    )

    # -- guarantees --------------------------------------------------------------------------
    enable_idempotence: bool | None = option(
        None,
        "Whether retries can neither duplicate nor reorder records. None: "
        "Kafka's default, on where acks, retries and the requests in flight allow it.",
        kind=Kind.BOOLEAN,
        source="KIP-98, KIP-679",
    )
    transactional_id: str | None = option(
        None,
        "The name under which transactions survive a restart; of two producers with the same "
        "name the older one is fenced.",
        sendable(1),
        source="KIP-98",
    )
    transaction_timeout_ms: int = option(
        60_000,
        "After how many ms the coordinator aborts an open transaction; at most the broker's "
        "transaction.max.timeout.ms.",
        at_least(1),
        source="KIP-98",
    )
    transaction_two_phase_commit_enable: bool = option(
        False,
        "Whether an outside coordinator decides transactions, so that they have no timeout; needs "
        "brokers that offer it, which none does by itself yet.",
        source="KIP-939",
    )

    # -- metrics -----------------------------------------------------------------------------
    enable_metrics_push: bool = option(
        True,
        "Whether client metrics are pushed to brokers that ask for them; costs nothing where none "
        "does.",
        source="KIP-714",
    )
    metric_reporters: Sequence[object] = option(
        (),
        "Objects that are notified of metrics as they come and go, or the names of their "
        "classes (`package.module.Class`); see `aioproducer.metrics.reporters`. Java's JMX "
        "reporter is left out.",
        kind=Kind.OBJECT,
    )
    metrics_num_samples: int = option(
        2, "Over how many samples rates, means and peaks are taken.", at_least(1)
    )
    metrics_sample_window_ms: int = long_option(
        30_000, "How long one sample of rates, means and peaks lasts, in ms."
    )
    metrics_recording_level: str = option(
        "INFO",
        "How detailed metrics are. All that a producer has are of the level INFO, here as in Java.",
        one_of("INFO", "DEBUG", "TRACE"),
    )
