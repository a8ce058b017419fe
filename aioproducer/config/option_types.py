"""The options of a producer for type checkers, made by `.ci/tools/option_types.py`.

`ProducerOptions` types the keyword arguments of `Producer`, so that an IDE completes and explains
them. Names of other clients' options are understood at run time, but are not listed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext
from typing import TypedDict

from aioproducer.config.table import Acks, DeliveryErrorCallback
from aioproducer.serializers.calling import SerializerFunction
from aioproducer.serializers.protocol import Serializer
from aioproducer.types import (
    OAuthToken,
    Partitioner,
    PartitionFunction,
    SaslCredentials,
    StreamOpener,
    TopicPartition,
)


class ProducerOptions(TypedDict, total=False):
    """The options of `Producer`; `aioproducer.config.OPTIONS` has their defaults and limits."""

    bootstrap_servers: str | Sequence[str]
    """Addresses of some brokers: `host:port`, several as a sequence or separated by commas; IPv6
    addresses in brackets. The other brokers are found through them."""
    bootstrap_resolve_timeout_ms: int
    """Time that start() tries to resolve the names of the bootstrap servers, in ms; 0 tries each
    once. After the start, names are tried again without a limit."""
    client_dns_lookup: str
    """`use_all_dns_ips` tries all addresses of a name in turn;
    `resolve_canonical_bootstrap_servers_only` replaces bootstrap names by their canonical
    names first."""
    client_id: str
    """The client's name in the brokers' logs, quotas and metrics; `producer-<n>` when not given."""
    client_rack: str
    """The rack of this client, in the form of the brokers' `broker.rack`."""
    metadata_max_age_ms: int
    """Age after which the cluster metadata is refreshed, in ms; 0: with every request that has
    records, -1: only after failures."""
    metadata_max_idle_ms: int
    """Time without a record after which a topic's metadata is dropped, in ms."""
    metadata_recovery_strategy: str
    """`rebootstrap` starts again from the bootstrap servers when no known broker can be reached,
    or a broker asks for it; `none` tries only the known brokers."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """Time without metadata after which the client starts again from the bootstrap servers, in
    ms. It waits for a broker that is connected but busy or throttled."""
    metadata_cluster_check_enable: bool
    """Whether brokers (from 4.4 on) check that the client has reached the intended cluster and
    node; has no effect with metadata_recovery_strategy=none."""
    broker_version_fallback: str
    """The assumed release of brokers that do not report their versions (before 0.10). What 0.8.2
    supports, 0.9 supports too. If given, brokers are probed at once, which saves 10 s with
    0.9. From `0.10.0` on, no broker is taken for an old one."""
    allow_auto_create_topics: bool
    """Whether brokers may create a topic that does not exist when a record is sent to it."""
    connections_max_idle_ms: int
    """Time without traffic after which a connection is closed, in ms; -1, or librdkafka's 0:
    never."""
    reconnect_backoff_ms: int
    """The first wait before a broker is connected to again, in ms; it doubles with each failure."""
    reconnect_backoff_max_ms: int
    """The longest wait before a broker is connected to again, in ms. Equals reconnect_backoff_ms
    when only that one is set."""
    socket_connection_setup_timeout_ms: int
    """The time limit of the first attempt to connect, in ms; it doubles with each failure."""
    socket_connection_setup_timeout_max_ms: int
    """The longest time limit of an attempt to connect, in ms."""
    send_buffer_bytes: int
    """The socket's send buffer in bytes; -1 leaves it to the system (Java: 131072). With a fixed
    size, the system does not tune it, and a large request is sent in pieces."""
    receive_buffer_bytes: int
    """The socket's receive buffer in bytes; -1 leaves it to the system."""
    proxy_url: str | None
    """The proxy to the brokers: `socks5://user:password@host:port`. With `socks5` the client
    resolves the brokers' names, with `socks5h` and `http` (CONNECT, Basic authentication) the
    proxy does."""
    dialer: StreamOpener | None
    """An async function `(host, port)` that opens a connection to a broker and returns
    `(StreamReader, StreamWriter)`; TLS, if configured, is used on top of it."""
    max_in_flight_requests_per_connection: int
    """The largest number of requests without a response per broker, plus one without records; 1
    keeps the order of records under retries even without idempotence."""
    max_block_ms: int
    """Time limit of a send() for metadata and memory together, in ms, and of calls that ask the
    cluster: start(), partitions_for(), those of transactions. With 0 a send() never waits,
    and these calls wait at most request_timeout_ms."""
    enqueue_timeout_ms: int | None
    """Time limit of a send() for space in the buffer, in ms; 0: none (`BufferFullError`), -1: no
    limit until close(). None: the rest of max_block_ms."""
    delivery_timeout_ms: int
    """Time limit of a record from the end of send() to its outcome, in ms; at least linger_ms +
    request_timeout_ms."""
    request_timeout_ms: int
    """Time limit of a broker's response, in ms."""
    retries: int
    """How often a batch is sent again after a retriable error; normally delivery_timeout_ms ends
    the retries."""
    retry_backoff_ms: int
    """The first wait before a request is sent again, in ms; it doubles with each failure."""
    retry_backoff_max_ms: int
    """The longest wait before a request is sent again, in ms."""
    acks: Acks
    """Replicas that have to write a record before it is acknowledged: all in-sync ones, the
    leader alone (1), or none (0: no response, no offset)."""
    linger_ms: int
    """The longest time that a batch waits for more records, in ms."""
    batch_size: int
    """The size of a batch in bytes; with 0 only tiny records share a batch."""
    max_request_size: int
    """The largest record and the largest request in bytes."""
    buffer_memory: int
    """Bytes for records that wait to be sent; send() waits when they are used up."""
    buffer_max_records: int | None
    """The largest number of buffered records, in addition to buffer_memory; send() waits at this
    number. None: no limit."""
    batch_max_records: int | None
    """The largest number of records in a batch, in addition to batch_size. None: no limit."""
    producer_type: str
    """With `sync`, send() waits for the delivery and raises its error, and there is no linger."""
    buffer_memory_allocation_strategy: str
    """Whether a batch reserves batch_size of buffer_memory at once, or as its records need it:
    `incremental` suits many partitions with few records each."""
    compression_type: str
    """The codec for batches."""
    compressed_topics: str | Sequence[str]
    """The topics whose batches are compressed. Default: all."""
    compression_gzip_level: int
    """gzip's level; -1 is gzip's default."""
    compression_lz4_level: int
    """lz4's level."""
    compression_zstd_level: int
    """zstd's level."""
    compression_threads_threshold_bytes: int
    """Batches of at least this many bytes are compressed in a thread, smaller ones on the event
    loop."""
    on_delivery_error: DeliveryErrorCallback | None
    """Called once per failed batch with records whose deliveries are not awaited, with the
    partition, the number of these records and the error."""
    on_data_loss: Callable[[TopicPartition], object] | None
    """Called with a partition whose acknowledged records are lost: an acknowledged offset was
    assigned again, or the topic was deleted and created again."""
    partitioner: str | PartitionFunction | Partitioner
    """The partitioner, which chooses a record's partition: a name (`default`, `murmur2`,
    `murmur2_random`, `consistent` or `crc32`, `consistent_random`, `round_robin`, `random`,
    and 0.8's `java_string_hash` and `java_bytes_hash`), a function, or an object with a
    `partition` method."""
    partitioner_ignore_keys: bool
    """Whether the default partitioner ignores keys and spreads all records."""
    partitioner_adaptive_partitioning_enable: bool
    """Whether brokers that are slow to take batches get fewer records."""
    partitioner_availability_timeout_ms: int
    """Time without taking a batch after which a broker gets no more records without a key, in
    ms; 0: never."""
    partitioner_rack_aware: bool
    """Whether the default partitioner prefers partitions with a leader in client_rack, if there
    are any, for records without a key."""
    key_serializer: Serializer | SerializerFunction | None
    """Turns keys into bytes: a `Serializer` or a function of the key, asynchronous or not. None:
    keys are bytes."""
    value_serializer: Serializer | SerializerFunction | None
    """Turns values into bytes: a `Serializer` or a function of the value, asynchronous or not.
    None: values are bytes."""
    interceptor_classes: Sequence[object]
    """Objects that see every record and its outcome, in this order; see
    `aioproducer.interceptors`."""
    config_providers: Sequence[str]
    """The providers of placeholders in properties (files, variables, `from_properties`): `env`
    for `${env:NAME}`, `file` for `${file:PATH:KEY}`, `dir` for `${dir:PATH:FILE}`."""
    enable_idempotence: bool | None
    """Whether each record is written once and in order, also after retries. None: Kafka's
    default, which is on unless acks, retries or the requests in flight exclude it."""
    transactional_id: str | None
    """The name by which a producer's transactions are continued after a restart; of two
    producers with the same name the older one is fenced."""
    transaction_timeout_ms: int
    """Time after which the coordinator aborts an open transaction, in ms; at most the broker's
    transaction.max.timeout.ms."""
    transaction_two_phase_commit_enable: bool
    """Whether an external coordinator decides transactions, so that they have no timeout; needs
    brokers with two-phase commit, which no release enables by default."""
    enable_metrics_push: bool
    """Whether client metrics are pushed to brokers that subscribe to them."""
    metric_reporters: Sequence[object]
    """Objects that are called when metrics are added or removed, or the names of their classes
    (`package.module.Class`); see `aioproducer.metrics.reporters`. Java's JMX reporter is
    ignored."""
    metrics_num_samples: int
    """The number of samples for rates, means and peaks."""
    metrics_sample_window_ms: int
    """The length of a sample of rates, means and peaks, in ms."""
    metrics_recording_level: str
    """The level of detail of metrics. All metrics of a producer have the level INFO, as in Java."""
    security_protocol: str
    """Whether connections use TLS, SASL, both or neither."""
    sasl_mechanism: str
    """The SASL mechanism."""
    sasl_username: str | None
    """The user name for PLAIN and SCRAM."""
    sasl_password: str | None
    """The password for PLAIN and SCRAM."""
    sasl_jaas_config: str | None
    """Java's JAAS line: the login module with its options."""
    sasl_credentials: (
        Callable[
            [], tuple[str, str] | SaslCredentials | Awaitable[tuple[str, str] | SaslCredentials]
        ]
        | None
    )
    """A function, async or not, that returns user name and password; called before each login."""
    sasl_oauthbearer_token: Callable[[], str | OAuthToken | Awaitable[str | OAuthToken]] | None
    """A function, async or not, that returns a token; called when a new one is due."""
    sasl_kerberos_service_name: str | None
    """The brokers' Kerberos service name."""
    sasl_login_connect_timeout_ms: int | None
    """Time limit of a connection to the token endpoint, in ms. Default, and 0: 10 s."""
    sasl_login_read_timeout_ms: int | None
    """Time limit of a response of the token endpoint, in ms. Default, and 0: 10 s."""
    sasl_login_refresh_buffer_seconds: int
    """A credential is refreshed at least this long before it expires, in s."""
    sasl_login_refresh_min_period_seconds: int
    """The shortest time between two refreshes of a credential, in s."""
    sasl_login_refresh_window_factor: float
    """The share of its lifetime after which a credential is refreshed."""
    sasl_login_refresh_window_jitter: float
    """The largest random share of the lifetime that is added to the time of a refresh."""
    sasl_login_retry_backoff_ms: int
    """The first wait before a login is tried again, in ms."""
    sasl_login_retry_backoff_max_ms: int
    """The longest wait before a login is tried again, in ms."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """The URL of the token endpoint."""
    https_ca_location: str | None
    """The file of the authorities that sign the token endpoint's certificate. Default: the
    system's."""
    sasl_oauthbearer_scope: str | None
    """The scope of the token."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client id at the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """The client secret at the token endpoint."""
    sasl_oauthbearer_header_urlencode: bool
    """Whether id and secret are URL-encoded in the header."""
    sasl_oauthbearer_assertion_algorithm: str
    """The algorithm that signs assertions."""
    sasl_oauthbearer_assertion_claim_aud: str | None
    """The assertion's audience."""
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """The lifetime of an assertion, in s."""
    sasl_oauthbearer_assertion_claim_iss: str | None
    """The assertion's issuer."""
    sasl_oauthbearer_assertion_claim_jti_include: bool
    """Whether an assertion has an id."""
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """How long before its creation an assertion is valid, in s."""
    sasl_oauthbearer_assertion_claim_sub: str | None
    """The assertion's subject."""
    sasl_oauthbearer_assertion_file: str | None
    """A file with a ready assertion."""
    sasl_oauthbearer_assertion_private_key_file: str | None
    """The file of the key that signs assertions."""
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    """The passphrase of that key."""
    sasl_oauthbearer_assertion_template_file: str | None
    """A file with static claims and headers of assertions."""
    sasl_oauthbearer_jwt_retriever_class: str | None
    """The source of tokens: client_credentials, jwt_bearer or file. Default: by the URL."""
    ssl_truststore_certificates: str | None
    """The trusted certificates in PEM."""
    ssl_truststore_location: str | None
    """The file of the trusted certificates."""
    ssl_truststore_password: str | None
    """The password of that file."""
    ssl_truststore_type: str
    """The format of that file. Default: detected."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificates in PEM."""
    ssl_keystore_key: str | None
    """The client's private key in PEM."""
    ssl_keystore_location: str | None
    """The file of the client's key and certificates."""
    ssl_keystore_password: str | None
    """The password of that file."""
    ssl_keystore_type: str
    """The format of that file. Default: detected."""
    ssl_key_location: str | None
    """The file of the client's private key, if it is not in the file of the certificates."""
    ssl_key_password: str | None
    """The password of the client's private key."""
    ssl_endpoint_identification_algorithm: str
    """How host names are verified; the empty string disables it."""
    ssl_enabled_protocols: Sequence[str]
    """The allowed TLS versions; TLSv1 and TLSv1.1 are ignored."""
    ssl_protocol: str
    """The highest TLS version."""
    ssl_cipher_suites: Sequence[str]
    """The allowed cipher suites, by Java's names or OpenSSL's."""
    ssl_context: SSLContext | None
    """A ready `ssl.SSLContext`, instead of all other options of TLS."""
