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
                "Addresses of some brokers: `host:port`, several as a sequence or separated by "
                "commas; IPv6 addresses in brackets. The other brokers are found through them.",
                required=True,
            )
        }
    )
    bootstrap_resolve_timeout_ms: int = long_option(
        0,
        "Time that start() tries to resolve the names of the bootstrap servers, in ms; 0 "
        "tries each once. After the start, names are tried again without a limit.",
        source="KIP-909",
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        "`use_all_dns_ips` tries all addresses of a name in turn; "
        "`resolve_canonical_bootstrap_servers_only` replaces bootstrap names by their "
        "canonical names first.",
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
        "The rack of this client, in the form of the brokers' `broker.rack`.",
        sendable(),
        source="KIP-1123",
    )
    metadata_max_age_ms: int = long_option(
        300_000,
        "Age after which the cluster metadata is refreshed, in ms; 0: with every request "
        "that has records, -1: only after failures.",
        low=-1,
    )
    metadata_max_idle_ms: int = long_option(
        300_000,
        "Time without a record after which a topic's metadata is dropped, in ms.",
        low=5_000,
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        "`rebootstrap` starts again from the bootstrap servers when no known broker can be "
        "reached, or a broker asks for it; `none` tries only the known brokers.",
        one_of_ignoring_case("rebootstrap", "none"),
        source="KIP-899",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = long_option(
        300_000,
        "Time without metadata after which the client starts again from the bootstrap "
        "servers, in ms. It waits for a broker that is connected but busy or throttled.",
        source="KIP-1102",
    )
    metadata_cluster_check_enable: bool = option(
        True,
        "Whether brokers (from 4.4 on) check that the client has reached the intended "
        "cluster and node; has no effect with metadata_recovery_strategy=none.",
        source="KIP-1242",
    )
    broker_version_fallback: str = option(
        "0.8.2",
        "The assumed release of brokers that do not report their versions (before 0.10). "
        "What 0.8.2 supports, 0.9 supports too. If given, brokers are probed at once, which "
        "saves 10 s with 0.9. From `0.10.0` on, no broker is taken for an old one.",
        release(),
        source="librdkafka",
    )
    allow_auto_create_topics: bool = option(
        True,
        "Whether brokers may create a topic that does not exist when a record is sent to it.",
        source="KIP-487",
    )

    # -- connections -------------------------------------------------------------------------
    connections_max_idle_ms: int = long_option(
        540_000,
        "Time without traffic after which a connection is closed, in ms; -1, or "
        "librdkafka's 0: never.",
        low=-1,
    )
    reconnect_backoff_ms: int = long_option(
        50,
        "The first wait before a broker is connected to again, in ms; it doubles with each "
        "failure.",
    )
    reconnect_backoff_max_ms: int = long_option(
        1_000,
        "The longest wait before a broker is connected to again, in ms. Equals "
        "reconnect_backoff_ms when only that one is set.",
    )
    socket_connection_setup_timeout_ms: int = long_option(
        10_000,
        "The time limit of the first attempt to connect, in ms; it doubles with each failure.",
        source="KIP-601",
    )
    socket_connection_setup_timeout_max_ms: int = long_option(
        30_000, "The longest time limit of an attempt to connect, in ms.", source="KIP-601"
    )
    send_buffer_bytes: int = option(
        -1,
        "The socket's send buffer in bytes; -1 leaves it to the system (Java: 131072). With "
        "a fixed size, the system does not tune it, and a large request is sent in pieces.",
        at_least(-1),
    )
    receive_buffer_bytes: int = option(
        32_768, "The socket's receive buffer in bytes; -1 leaves it to the system.", at_least(-1)
    )
    proxy_url: str | None = secret_option(
        "The proxy to the brokers: `socks5://user:password@host:port`. With `socks5` the "
        "client resolves the brokers' names, with `socks5h` and `http` (CONNECT, Basic "
        "authentication) the proxy does.",
        source="aioproducer",
    )
    dialer: StreamOpener | None = option(
        None,
        "An async function `(host, port)` that opens a connection to a broker and returns "
        "`(StreamReader, StreamWriter)`; TLS, if configured, is used on top of it.",
        kind=Kind.OBJECT,
        source="aioproducer",
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        "The largest number of requests without a response per broker, plus one without "
        "records; 1 keeps the order of records under retries even without idempotence.",
        at_least(1),
    )

    # -- time and retries --------------------------------------------------------------------
    max_block_ms: int = long_option(
        60_000,
        "Time limit of a send() for metadata and memory together, in ms, and of calls that "
        "ask the cluster: start(), partitions_for(), those of transactions. With 0 a send() "
        "never waits, and these calls wait at most request_timeout_ms.",
    )
    enqueue_timeout_ms: int | None = option(
        None,
        "Time limit of a send() for space in the buffer, in ms; 0: none "
        "(`BufferFullError`), -1: no limit until close(). None: the rest of max_block_ms.",
        at_least(-1),
        kind=Kind.INT,
        source="Kafka 0.8",
    )
    delivery_timeout_ms: int = option(
        120_000,
        "Time limit of a record from the end of send() to its outcome, in ms; at least "
        "linger_ms + request_timeout_ms.",
        at_least(0),
    )
    request_timeout_ms: int = option(
        30_000, "Time limit of a broker's response, in ms.", at_least(0)
    )
    retries: int = option(
        2_147_483_647,
        "How often a batch is sent again after a retriable error; normally "
        "delivery_timeout_ms ends the retries.",
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
        "Replicas that have to write a record before it is acknowledged: all in-sync ones, "
        "the leader alone (1), or none (0: no response, no offset).",
        one_of("all", "-1", "0", "1", -1, 0, 1)._replace(canonical=whole),
        kind=Kind.OBJECT,
    )
    linger_ms: int = long_option(
        5, "The longest time that a batch waits for more records, in ms.", source="Kafka, KIP-1030"
    )
    batch_size: int = option(
        16_384, "The size of a batch in bytes; with 0 only tiny records share a batch.", at_least(0)
    )
    max_request_size: int = option(
        1_048_576, "The largest record and the largest request in bytes.", at_least(0)
    )
    buffer_memory: int = long_option(
        33_554_432,
        "Bytes for records that wait to be sent; send() waits when they are used up.",
    )
    buffer_max_records: int | None = option(
        None,
        "The largest number of buffered records, in addition to buffer_memory; send() waits "
        "at this number. None: no limit.",
        at_least(1),
        kind=Kind.INT,
        source="Kafka 0.8",
    )
    batch_max_records: int | None = option(
        None,
        "The largest number of records in a batch, in addition to batch_size. None: no limit.",
        at_least(1),
        kind=Kind.INT,
        source="Kafka 0.8",
    )
    producer_type: str = option(
        "async",
        "With `sync`, send() waits for the delivery and raises its error, and there is no linger.",
        one_of("async", "sync"),
        source="Kafka 0.8",
    )
    buffer_memory_allocation_strategy: str = option(
        "full",
        "Whether a batch reserves batch_size of buffer_memory at once, or as its records "
        "need it: `incremental` suits many partitions with few records each.",
        one_of_ignoring_case("full", "incremental"),
        source="KIP-1332",
    )
    compression_type: str = option(
        "none", "The codec for batches.", one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    compressed_topics: str | Sequence[str] = option(
        (),
        "The topics whose batches are compressed. Default: all.",
        source="Kafka 0.8",
    )
    compression_gzip_level: int = option(
        -1, "gzip's level; -1 is gzip's default.", either(-1, between(1, 9)), source="KIP-390"
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
        "Called once per failed batch with records whose deliveries are not awaited, with "
        "the partition, the number of these records and the error.",
        kind=Kind.OBJECT,
        source="aioproducer",
    )

    on_data_loss: Callable[[TopicPartition], object] | None = option(
        None,
        "Called with a partition whose acknowledged records are lost: an acknowledged "
        "offset was assigned again, or the topic was deleted and created again.",
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
        "Whether the default partitioner ignores keys and spreads all records.",
        source="KIP-794",
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True, "Whether brokers that are slow to take batches get fewer records.", source="KIP-794"
    )
    partitioner_availability_timeout_ms: int = long_option(
        0,
        "Time without taking a batch after which a broker gets no more records without a "
        "key, in ms; 0: never.",
        source="KIP-794",
    )
    partitioner_rack_aware: bool = option(
        False,
        "Whether the default partitioner prefers partitions with a leader in client_rack, "
        "if there are any, for records without a key.",
        source="KIP-1123",
    )

    # -- extensions --------------------------------------------------------------------------
    key_serializer: Serializer | SerializerFunction | None = option(
        None,
        "Turns keys into bytes: a `Serializer` or a function of the key, asynchronous or "
        "not. None: keys are bytes.",
        kind=Kind.OBJECT,
    )
    value_serializer: Serializer | SerializerFunction | None = option(
        None,
        "Turns values into bytes: a `Serializer` or a function of the value, asynchronous "
        "or not. None: values are bytes.",
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
        "The providers of placeholders in properties (files, variables, `from_properties`): "
        "`env` for `${env:NAME}`, `file` for `${file:PATH:KEY}`, `dir` for "
        "`${dir:PATH:FILE}`.",
        Constraint("left out in Python, where a value is given itself", operator.not_),
        source="KIP-297",
    )

    # -- guarantees --------------------------------------------------------------------------
    enable_idempotence: bool | None = option(
        None,
        "Whether each record is written once and in order, also after retries. None: "
        "Kafka's default, which is on unless acks, retries or the requests in flight "
        "exclude it.",
        kind=Kind.BOOLEAN,
        source="KIP-98, KIP-679",
    )
    transactional_id: str | None = option(
        None,
        "The name by which a producer's transactions are continued after a restart; of two "
        "producers with the same name the older one is fenced.",
        sendable(1),
        source="KIP-98",
    )
    transaction_timeout_ms: int = option(
        60_000,
        "Time after which the coordinator aborts an open transaction, in ms; at most the "
        "broker's transaction.max.timeout.ms.",
        at_least(1),
        source="KIP-98",
    )
    transaction_two_phase_commit_enable: bool = option(
        False,
        "Whether an external coordinator decides transactions, so that they have no "
        "timeout; needs brokers with two-phase commit, which no release enables by default.",
        source="KIP-939",
    )

    # -- metrics -----------------------------------------------------------------------------
    enable_metrics_push: bool = option(
        True,
        "Whether client metrics are pushed to brokers that subscribe to them.",
        source="KIP-714",
    )
    metric_reporters: Sequence[object] = option(
        (),
        "Objects that are called when metrics are added or removed, or the names of their "
        "classes (`package.module.Class`); see `aioproducer.metrics.reporters`. Java's JMX "
        "reporter is ignored.",
        kind=Kind.OBJECT,
    )
    metrics_num_samples: int = option(
        2, "The number of samples for rates, means and peaks.", at_least(1)
    )
    metrics_sample_window_ms: int = long_option(
        30_000, "The length of a sample of rates, means and peaks, in ms."
    )
    metrics_recording_level: str = option(
        "INFO",
        "The level of detail of metrics. All metrics of a producer have the level INFO, as "
        "in Java.",
        one_of("INFO", "DEBUG", "TRACE"),
    )
