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
    """Where to find the cluster: `host:port`, several separated by commas or as a sequence; IPv6
    addresses in brackets. Any reachable broker will do."""
    bootstrap_resolve_timeout_ms: int
    """How long start() tries while none of the bootstrap servers' names can be resolved, in ms;
    0 tries each once. Later on, names that cannot be resolved are tried again without bound."""
    client_dns_lookup: str
    """Whether all addresses of a name are tried in turn, or bootstrap names are replaced by
    their canonical names first."""
    client_id: str
    """The client's name in the brokers' logs, quotas and metrics; `producer-<n>` when not given."""
    client_rack: str
    """The rack of this client, as the brokers' `broker.rack` names theirs."""
    metadata_max_age_ms: int
    """After how many ms the cluster metadata is refreshed unasked; 0 with every request that
    carries records, -1 only when something fails."""
    metadata_max_idle_ms: int
    """After how many ms without a record a topic's metadata is dropped."""
    metadata_recovery_strategy: str
    """Whether to start again from the bootstrap servers when no known broker can be reached or a
    broker asks for it; with `none` only the brokers last known are tried."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """After how many ms without metadata the client starts again from the bootstrap servers. A
    broker that is connected but busy or throttled is waited for."""
    metadata_cluster_check_enable: bool
    """Whether brokers (from 4.4 on) check that the client reached the cluster and node it meant;
    has no effect with metadata_recovery_strategy=none."""
    broker_version_fallback: str
    """The assumed release of brokers that do not report their versions, as those before 0.10 do
    not; what 0.8.2 understands, 0.9 does too. Given explicitly, brokers are probed at once,
    which saves 10 s with 0.9. From `0.10.0` on no broker counts as old."""
    allow_auto_create_topics: bool
    """Whether brokers may create a topic that is sent to and does not exist."""
    connections_max_idle_ms: int
    """After how many ms without traffic a connection is closed; -1, or librdkafka's 0, never."""
    reconnect_backoff_ms: int
    """The first wait before a broker is dialled again, in ms; it doubles with each failure."""
    reconnect_backoff_max_ms: int
    """The longest wait before a broker is dialled again, in ms. Equals reconnect_backoff_ms when
    only that one is set."""
    socket_connection_setup_timeout_ms: int
    """How long setting up a connection may take at first, in ms; it doubles with each failure."""
    socket_connection_setup_timeout_max_ms: int
    """How long setting up a connection may take at most, in ms."""
    send_buffer_bytes: int
    """The socket's send buffer in bytes; -1 leaves it to the system (Java: 131072). A fixed size
    ends the system's own tuning, and a large request leaves in pieces."""
    receive_buffer_bytes: int
    """The socket's receive buffer in bytes; -1 leaves it to the system."""
    proxy_url: str | None
    """The proxy that leads to the brokers, as `socks5://user:password@host:port`. `socks5`
    resolves the brokers' names here, `socks5h` and `http` (CONNECT, with Basic
    authentication) at the proxy."""
    dialer: StreamOpener | None
    """An async function `(host, port)` that opens a stream to a broker as `(StreamReader,
    StreamWriter)`, instead of the client; TLS, where switched on, goes on top of it."""
    max_in_flight_requests_per_connection: int
    """How many requests may wait for their answer per broker, and one more without records; 1
    keeps the order of records under retries even without idempotence."""
    max_block_ms: int
    """How long one send() may wait for metadata and memory together, in ms. So long calls that
    ask the cluster may wait for it, too: start(), partitions_for(), those of transactions.
    With 0 a send() never waits, and these calls wait at most request_timeout_ms."""
    enqueue_timeout_ms: int | None
    """How long send() may wait for room in the buffer, in ms: 0 not at all (`BufferFullError`),
    -1 without bound, until close(). None: what is left of max_block_ms."""
    delivery_timeout_ms: int
    """How long a record may take from the end of send() to its outcome, in ms; at least
    linger_ms + request_timeout_ms."""
    request_timeout_ms: int
    """How long a broker may take to answer a request, in ms."""
    retries: int
    """How often a batch is sent again after a retriable error; delivery_timeout_ms is the bound
    that matters."""
    retry_backoff_ms: int
    """The first wait before a request is sent again, in ms; it doubles with each failure."""
    retry_backoff_max_ms: int
    """The longest wait before a request is sent again, in ms."""
    acks: Acks
    """How many replicas must have a record: all in-sync ones, the leader alone (1), or none (0:
    no answer, no offset)."""
    linger_ms: int
    """How long a batch waits for more records at most, in ms."""
    batch_size: int
    """The size of a batch in bytes; with 0 only tiny records share a batch."""
    max_request_size: int
    """The largest record and the largest request in bytes."""
    buffer_memory: int
    """How many bytes of records may wait to be sent; send() waits when they are used up."""
    buffer_max_records: int | None
    """How many records may be buffered, besides the bound of buffer_memory; send() waits when
    there are as many. None: any number."""
    batch_max_records: int | None
    """How many records make a batch full, besides batch_size. None: any number."""
    producer_type: str
    """With `sync`, send() returns when the record is delivered and raises when it is not, and
    nothing lingers."""
    buffer_memory_allocation_strategy: str
    """Whether a batch takes batch_size of buffer_memory at once, or as its records need it:
    `incremental` suits many partitions with few records each."""
    compression_type: str
    """How batches are compressed."""
    compressed_topics: str | Sequence[str]
    """The topics whose batches are compressed; all of them when none is named."""
    compression_gzip_level: int
    """gzip's level, -1 being its own default."""
    compression_lz4_level: int
    """lz4's level."""
    compression_zstd_level: int
    """zstd's level."""
    compression_threads_threshold_bytes: int
    """Batches of at least this many bytes are compressed in a thread, smaller ones on the event
    loop."""
    on_delivery_error: DeliveryErrorCallback | None
    """Called once per failed batch with deliveries that were dropped unread, with the partition,
    the number of those records and the error."""
    on_data_loss: Callable[[TopicPartition], object] | None
    """Called with a partition of which acknowledged records are lost: an offset that had been
    acknowledged was assigned again (or the topic was deleted and created anew)."""
    partitioner: str | PartitionFunction | Partitioner
    """The partitioner, which chooses a record's partition: a name (`default`, `murmur2`,
    `murmur2_random`, `consistent` or `crc32`, `consistent_random`, `round_robin`, `random`,
    and 0.8's `java_string_hash` and `java_bytes_hash`), a function, or an object with a
    `partition` method."""
    partitioner_ignore_keys: bool
    """Whether the default partitioner spreads records with a key like those without."""
    partitioner_adaptive_partitioning_enable: bool
    """Whether brokers that are slow to take batches get fewer records."""
    partitioner_availability_timeout_ms: int
    """After how many ms without taking a batch a broker gets no more records without a key; 0
    never."""
    partitioner_rack_aware: bool
    """Whether the default partitioner prefers partitions led in the client_rack, as long as
    there are any, for records without a key."""
    key_serializer: Serializer | SerializerFunction | None
    """Turns keys into bytes: a `Serializer` or a function of the key, either of which may be
    asynchronous; None takes bytes as they are."""
    value_serializer: Serializer | SerializerFunction | None
    """Turns values into bytes: a `Serializer` or a function of the value, either of which may be
    asynchronous; None takes bytes as they are."""
    interceptor_classes: Sequence[object]
    """Objects that see every record and its outcome, in this order; see
    `aioproducer.interceptors`."""
    config_providers: Sequence[str]
    """In properties (files, variables, `from_properties`): which of `env`, `file` and `dir` look
    up placeholders in values: `${env:NAME}`, `${file:PATH:KEY}`, `${dir:PATH:FILE}`."""
    enable_idempotence: bool | None
    """Whether retries can neither duplicate nor reorder records. None: Kafka's default, on where
    acks, retries and the requests in flight allow it."""
    transactional_id: str | None
    """The name under which transactions survive a restart; of two producers with the same name
    the older one is fenced."""
    transaction_timeout_ms: int
    """After how many ms the coordinator aborts an open transaction; at most the broker's
    transaction.max.timeout.ms."""
    transaction_two_phase_commit_enable: bool
    """Whether an outside coordinator decides transactions, so that they have no timeout; needs
    brokers that offer it, which none does by itself yet."""
    enable_metrics_push: bool
    """Whether client metrics are pushed to brokers that ask for them; costs nothing where none
    does."""
    metric_reporters: Sequence[object]
    """Objects that are notified of metrics as they come and go, or the names of their classes
    (`package.module.Class`); see `aioproducer.metrics.reporters`. Java's JMX reporter is left
    out."""
    metrics_num_samples: int
    """Over how many samples rates, means and peaks are taken."""
    metrics_sample_window_ms: int
    """How long one sample of rates, means and peaks lasts, in ms."""
    metrics_recording_level: str
    """How detailed metrics are. All that a producer has are of the level INFO, here as in Java."""
    security_protocol: str
    """Whether connections use TLS, SASL, both or neither."""
    sasl_mechanism: str
    """The SASL mechanism."""
    sasl_username: str | None
    """The user name for PLAIN and SCRAM."""
    sasl_password: str | None
    """The password for PLAIN and SCRAM."""
    sasl_jaas_config: str | None
    """Java's JAAS line; its user name and password are taken from it."""
    sasl_credentials: (
        Callable[
            [], tuple[str, str] | SaslCredentials | Awaitable[tuple[str, str] | SaslCredentials]
        ]
        | None
    )
    """A function, async or not, that returns user name and password; asked at each login."""
    sasl_oauthbearer_token: Callable[[], str | OAuthToken | Awaitable[str | OAuthToken]] | None
    """A function, async or not, that returns a token; called when a new one is due."""
    sasl_kerberos_service_name: str | None
    """The brokers' Kerberos service name."""
    sasl_login_connect_timeout_ms: int | None
    """How long connecting to the token endpoint may take, in ms; 10 s when left out or 0."""
    sasl_login_read_timeout_ms: int | None
    """How long the token endpoint may take to answer, in ms; 10 s when left out or 0."""
    sasl_login_refresh_buffer_seconds: int
    """How long before its end a credential is refreshed at the latest, in s."""
    sasl_login_refresh_min_period_seconds: int
    """How long a credential is kept at least, in s."""
    sasl_login_refresh_window_factor: float
    """After which part of its life a credential is refreshed."""
    sasl_login_refresh_window_jitter: float
    """The random part of the moment of a refresh."""
    sasl_login_retry_backoff_ms: int
    """The first wait before a login is tried again, in ms."""
    sasl_login_retry_backoff_max_ms: int
    """The longest wait before a login is tried again, in ms."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """Where tokens are fetched."""
    https_ca_location: str | None
    """The file of the authorities of the token endpoint; the system's when left out."""
    sasl_oauthbearer_scope: str | None
    """The scope a token is asked for."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client id at the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """The client secret at the token endpoint."""
    sasl_oauthbearer_header_urlencode: bool
    """Whether id and secret are URL-encoded in the header."""
    sasl_oauthbearer_assertion_algorithm: str
    """How assertions are signed."""
    sasl_oauthbearer_assertion_claim_aud: str | None
    """The assertion's audience."""
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """How long an assertion is valid, in s."""
    sasl_oauthbearer_assertion_claim_iss: str | None
    """The assertion's issuer."""
    sasl_oauthbearer_assertion_claim_jti_include: bool
    """Whether an assertion carries an id."""
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """From how long before its making an assertion is valid, in s."""
    sasl_oauthbearer_assertion_claim_sub: str | None
    """The assertion's subject."""
    sasl_oauthbearer_assertion_file: str | None
    """A file that holds a ready assertion."""
    sasl_oauthbearer_assertion_private_key_file: str | None
    """The file of the key that signs assertions."""
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    """The passphrase of that key."""
    sasl_oauthbearer_assertion_template_file: str | None
    """A file of static claims and headers."""
    sasl_oauthbearer_jwt_retriever_class: str | None
    """How tokens are had: client_credentials, jwt_bearer or file; by the URL when left out."""
    ssl_truststore_certificates: str | None
    """The trusted certificates in PEM."""
    ssl_truststore_location: str | None
    """The file of the trusted certificates."""
    ssl_truststore_password: str | None
    """The password of that file."""
    ssl_truststore_type: str
    """The format of that file; found out when left out."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificates in PEM."""
    ssl_keystore_key: str | None
    """The client's private key in PEM."""
    ssl_keystore_location: str | None
    """The file of the client's key and certificates."""
    ssl_keystore_password: str | None
    """The password of that file."""
    ssl_keystore_type: str
    """The format of that file; found out when left out."""
    ssl_key_location: str | None
    """The file of the client's private key where it is not with the certificates."""
    ssl_key_password: str | None
    """The password of the client's private key."""
    ssl_endpoint_identification_algorithm: str
    """How host names are verified; the empty string switches it off."""
    ssl_enabled_protocols: Sequence[str]
    """The TLS versions allowed; TLSv1 and TLSv1.1 are left out."""
    ssl_protocol: str
    """The highest TLS version."""
    ssl_cipher_suites: Sequence[str]
    """The cipher suites allowed, in Java's names or OpenSSL's."""
    ssl_context: SSLContext | None
    """A ready `ssl.SSLContext`, instead of all other options of TLS."""
