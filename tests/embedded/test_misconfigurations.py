"""Misconfigurations: each error names what is wrong and what to do, and comes in time.

The errors are those of a program: it starts a producer and writes one record. What cannot become
well by waiting is refused at once, with every option at its default. Where waiting may help (the
broker may be about to start), the program has a short `max_block_ms`.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.hostile import HostileServer, service, silent
from support.security.certificates import Authority

from aioproducer import KafkaError, Producer, ProducerConfig, TopicPartition
from aioproducer.errors import ConfigError
from aioproducer.serializers import AvroSerializer, SchemaRegistry
from aioproducer.testing import EmbeddedCluster, StubSchemaRegistry
from aioproducer.testing.broker import ClusterSettings, TopicSpec
from aioproducer.testing.security import ListenerSecurity

AT_ONCE_S = 3.0
WAITED_S = 15.0
WAIT_MS = 1000
BRIEF: dict[str, Any] = {
    "max_block_ms": WAIT_MS,
    "delivery_timeout_ms": 1500,
    "request_timeout_ms": 1000,
}
PASSWORD = "correct horse"


class Ground:
    """The servers that a misconfiguration may need."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()

    @asynccontextmanager
    async def tls_cluster(
        self, *hosts: str, expired: bool = False, client_ca: str | None = None, **security: Any
    ) -> AsyncIterator[EmbeddedCluster]:
        """A broker whose certificate is for these hosts."""
        identity = self.authority.issue("broker", *(hosts or ("127.0.0.1",)), expired=expired)
        context = self.authority.server_context(identity, self.directory, client_ca=client_ca)
        async with EmbeddedCluster(
            1, topics={"t": 1}, security=ListenerSecurity(ssl_context=context, **security)
        ) as cluster:
            yield cluster

    @property
    def trust(self) -> dict[str, Any]:
        """Options that make clients trust it."""
        return {"security_protocol": "SSL", "ssl_truststore_certificates": self.authority.pem}


@dataclass(frozen=True)
class Misconfiguration:
    """The mistake, what the error has to name, and what it has to advise."""

    happen: Callable[[Ground], Awaitable[object]]
    names: tuple[str, ...]
    advises: tuple[str, ...]
    within_s: float

    @property
    def id(self) -> str:
        return self.happen.__name__


TABLE: list[Misconfiguration] = []


def table(
    *, names: tuple[str, ...], advises: tuple[str, ...], waits: bool = False
) -> Callable[[Callable[[Ground], Awaitable[object]]], Callable[[Ground], Awaitable[object]]]:
    """A row of the table: regular expressions for the cause and for the advice.

    What `waits` ends by a limit the program sets, since a later attempt might succeed.
    """

    def row(happen: Callable[[Ground], Awaitable[object]]) -> Callable[[Ground], Awaitable[object]]:
        TABLE.append(Misconfiguration(happen, names, advises, WAITED_S if waits else AT_ONCE_S))
        return happen

    return row


async def write(
    topic: str = "t", partition: int | None = None, value: bytes = b"v", **options: Any
) -> None:
    """Run the program."""
    async with Producer(**options) as producer:
        if producer.config.transactional_id is None:
            await producer.send_and_wait(topic, value, partition=partition)
            return
        async with producer.transaction():
            await producer.send_and_wait(topic, value, partition=partition)


@asynccontextmanager
async def plain_cluster(**settings: Any) -> AsyncIterator[EmbeddedCluster]:
    """One broker without authentication; it creates no topics."""
    async with EmbeddedCluster(
        1, topics={"t": 1}, settings=ClusterSettings(**{"auto_create_topics": False} | settings)
    ) as cluster:
        yield cluster


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is held, and refuses."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


# -- the address -----------------------------------------------------------------------------------


@table(
    names=("127.0.0.1:", "refused"), advises=("start the broker", "bootstrap_servers"), waits=True
)
async def wrong_port(ground: Ground) -> None:
    with closed_port() as port:
        await write(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=WAIT_MS)


@table(names=("an HTTP server",), advises=("host and port",))
async def http_port(ground: Ground) -> None:
    async with service(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        await write(bootstrap_servers=server)


@table(names=("an SSH server",), advises=("host and port",))
async def ssh_port(ground: Ground) -> None:
    async with service(b"SSH-2.0-OpenSSH_9.2\r\n") as server:
        await write(bootstrap_servers=server)


@table(
    names=("another binary protocol", "no bootstrap server is a Kafka"), advises=("host and port",)
)
async def port_of_a_binary_protocol(ground: Ground) -> None:
    async with service(b"\xca\xfe\xba\xbe" * 8) as server:
        await write(bootstrap_servers=server)


@table(names=("takes connections", "nothing has answered"), advises=("port",), waits=True)
async def silent_port(ground: Ground) -> None:
    async with HostileServer(silent) as server:
        await write(
            bootstrap_servers=f"127.0.0.1:{server.port}",
            **BRIEF | {"request_timeout_ms": 500},
        )


@table(names=("no-such-host.invalid", "resolve|name"), advises=("bootstrap_servers",))
async def unresolvable_name(ground: Ground) -> None:
    await write(bootstrap_servers="no-such-host.invalid:9092")


@table(names=("broker 1", "127.0.0.1:"), advises=("advertised.listeners",), waits=True)
async def advertised_listener_that_refuses(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        server = cluster.bootstrap_servers
        cluster.state.set_broker_address(1, "127.0.0.1", 1)
        await write(
            bootstrap_servers=server,
            **BRIEF,
        )


@table(
    names=("broker 1", "kafka-0:9092"), advises=("advertised.listeners", "container"), waits=True
)
async def advertised_name_of_a_container(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        server = cluster.bootstrap_servers
        cluster.state.set_broker_address(1, "kafka-0", 9092)
        await write(
            bootstrap_servers=server,
            **BRIEF,
        )


@contextmanager
def tls_port(context: ssl.SSLContext) -> Iterator[int]:
    """A port with TLS whose refusals are sent, as brokers do and asyncio's servers do not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection.dup() as raw:
                        with suppress(OSError):
                            context.wrap_socket(connection, server_side=True).recv(1)
                        # A socket closed with something unread would reset the connection.
                        raw.shutdown(socket.SHUT_WR)
                        while raw.recv(4096):
                            pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(AT_ONCE_S)


@table(names=("the proxy cannot be reached",), advises=("proxy_url",), waits=True)
async def proxy_that_is_not_there(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        with closed_port() as port:
            await write(
                bootstrap_servers=cluster.bootstrap_servers,
                proxy_url=f"socks5://127.0.0.1:{port}",
                max_block_ms=WAIT_MS,
            )


# -- TLS -------------------------------------------------------------------------------------------


@table(names=("uses TLS on this port",), advises=("security_protocol to SSL",))
async def plaintext_to_a_tls_port(ground: Ground) -> None:
    async with ground.tls_cluster() as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers)


@table(names=("does not use TLS",), advises=("PLAINTEXT",))
async def tls_to_a_plaintext_port(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers, **ground.trust)


@table(names=("certificate is not trusted",), advises=("ssl_truststore_location",))
async def wrong_authority(ground: Ground) -> None:
    async with ground.tls_cluster() as cluster:
        await write(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_truststore_certificates=Authority("another").pem,
        )


@table(names=("another host than 127.0.0.1",), advises=("connect by a name",))
async def wrong_host_name(ground: Ground) -> None:
    async with ground.tls_cluster("kafka.example") as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers, **ground.trust)


@table(names=("certificate", "expired"), advises=("renew",))
async def expired_certificate(ground: Ground) -> None:
    async with ground.tls_cluster(expired=True) as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers, **ground.trust)


@table(names=("refused the TLS handshake", "certificate"), advises=("ssl_keystore",))
async def no_client_certificate(ground: Ground) -> None:
    identity = ground.authority.issue("broker", "127.0.0.1")
    context = ground.authority.server_context(
        identity, ground.directory, client_ca=ground.authority.pem
    )
    with tls_port(context) as port:
        await write(bootstrap_servers=f"127.0.0.1:{port}", **ground.trust)


@table(names=("ssl_truststore_certificates", "no certificate"), advises=("PEM",))
async def bad_pem(ground: Ground) -> None:
    await write(
        bootstrap_servers="127.0.0.1:9093",
        security_protocol="SSL",
        ssl_truststore_certificates="not a certificate",
    )


@table(names=("ssl_keystore_location", "no certificate"), advises=("client's certificate",))
async def client_key_without_certificate(ground: Ground) -> None:
    key = ground.directory / "client.pem"
    key.write_text(ground.authority.issue("client").key_pem())
    await write(bootstrap_servers="127.0.0.1:9093", ssl_keystore_location=str(key), **ground.trust)


@table(names=("private key is encrypted",), advises=("ssl_key_password",))
async def encrypted_key_without_password(ground: Ground) -> None:
    identity = ground.authority.issue("client")
    path = identity.pem_file(ground.directory / "client.pem", "secret")
    await write(bootstrap_servers="127.0.0.1:9093", ssl_keystore_location=str(path), **ground.trust)


@table(
    names=("private key is not the certificate's",), advises=("private key of this certificate",)
)
async def key_of_another_certificate(ground: Ground) -> None:
    path = ground.directory / "client.pem"
    key, certificate = ground.authority.issue("one"), ground.authority.issue("other")
    path.write_text(key.key_pem() + certificate.certificate_pem)
    await write(bootstrap_servers="127.0.0.1:9093", ssl_keystore_location=str(path), **ground.trust)


@table(names=(r"no-such\.pem", "No such file"), advises=("path",))
async def trust_store_that_is_not_there(ground: Ground) -> None:
    await write(
        bootstrap_servers="127.0.0.1:9093",
        security_protocol="SSL",
        ssl_truststore_location=str(ground.directory / "no-such.pem"),
    )


# -- SASL ------------------------------------------------------------------------------------------


def sasl(mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "app",
        "sasl_password": password,
    }


@asynccontextmanager
async def sasl_cluster(*mechanisms: str) -> AsyncIterator[EmbeddedCluster]:
    security = ListenerSecurity(mechanisms=mechanisms or ("PLAIN",), users={"app": PASSWORD})
    async with EmbeddedCluster(1, topics={"t": 1}, security=security) as cluster:
        yield cluster


@table(names=("does not offer PLAIN",), advises=("sasl_mechanism", "SCRAM-SHA-512"))
async def wrong_mechanism(ground: Ground) -> None:
    async with sasl_cluster("SCRAM-SHA-512") as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers, **sasl())


@table(names=("SASL_AUTHENTICATION_FAILED", "PLAIN", "User:app"), advises=("password",))
async def wrong_password(ground: Ground) -> None:
    async with sasl_cluster() as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers, **sasl(password="wrong"))


@table(names=("no SASL",), advises=("PLAINTEXT",))
async def sasl_to_a_listener_without(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers, **sasl())


@table(names=("wants SASL", "SCRAM-SHA-512"), advises=("security_protocol", "sasl_mechanism"))
async def no_sasl_to_a_listener_with(ground: Ground) -> None:
    async with sasl_cluster("SCRAM-SHA-512") as cluster:
        await write(bootstrap_servers=cluster.bootstrap_servers)


@table(names=("sasl_password needs security_protocol",), advises=("SASL_SSL",))
async def user_without_a_protocol_for_it(ground: Ground) -> None:
    await write(bootstrap_servers="127.0.0.1:9092", sasl_username="app", sasl_password=PASSWORD)


@table(names=("GROUP_AUTHORIZATION_FAILED", "User:app needs READ on group 'g'"), advises=("grant",))
async def group_not_authorized(ground: Ground) -> None:
    async with sasl_cluster() as cluster:
        cluster.faults.every("txn_offset_commit").answers("GROUP_AUTHORIZATION_FAILED")
        options = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "pay"}
        async with Producer(**options, **sasl()) as producer, producer.transaction() as transaction:
            await transaction.send_offsets({TopicPartition("t", 0): 1}, "g")


# -- topics ----------------------------------------------------------------------------------------


@table(names=("orders", "does not exist|does not host"), advises=("create",), waits=True)
async def missing_topic(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        await write("orders", bootstrap_servers=cluster.bootstrap_servers, max_block_ms=WAIT_MS)


@table(names=("partition 7", r"has 1 partition"), advises=("partition",), waits=True)
async def partition_out_of_range(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        await write(partition=7, bootstrap_servers=cluster.bootstrap_servers, max_block_ms=WAIT_MS)


@table(names=("topic t", "User:ANONYMOUS", "DESCRIBE on topic 't'"), advises=("grant",))
async def topic_that_may_not_be_seen(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        cluster.faults.every("metadata", topic="t").answers("TOPIC_AUTHORIZATION_FAILED")
        await write(bootstrap_servers=cluster.bootstrap_servers)


@table(names=("topic t", "User:app needs WRITE on topic 't'"), advises=("grant",))
async def topic_that_may_not_be_written(ground: Ground) -> None:
    async with sasl_cluster() as cluster:
        cluster.faults.every("produce", topic="t").answers("TOPIC_AUTHORIZATION_FAILED")
        await write(bootstrap_servers=cluster.bootstrap_servers, **sasl())


@table(names=("User:app needs WRITE on transactional id 'pay'",), advises=("grant",))
async def transactional_id_not_authorized(ground: Ground) -> None:
    async with sasl_cluster() as cluster:
        cluster.faults.every("init_producer_id").answers("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        await write(bootstrap_servers=cluster.bootstrap_servers, transactional_id="pay", **sasl())


@table(
    names=("User:app needs IDEMPOTENT_WRITE on the cluster or", "WRITE on a topic"),
    advises=("grant",),
)
async def idempotence_not_authorized(ground: Ground) -> None:
    async with sasl_cluster() as cluster:
        cluster.faults.every("init_producer_id").answers("CLUSTER_AUTHORIZATION_FAILED")
        await write(bootstrap_servers=cluster.bootstrap_servers, **sasl())


# -- records ---------------------------------------------------------------------------------------


@table(names=("topic t", "MESSAGE_TOO_LARGE"), advises=("max.message.bytes",))
async def too_large_for_the_topic(ground: Ground) -> None:
    topics = {"t": TopicSpec(1, configs={"max.message.bytes": "1000"})}
    async with EmbeddedCluster(1, topics=topics) as cluster:
        await write(value=bytes(5000), bootstrap_servers=cluster.bootstrap_servers)


@table(names=("max_request_size", "bytes"), advises=("max_request_size",))
async def too_large_for_the_producer(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        await write(value=bytes(2_000_000), bootstrap_servers=cluster.bootstrap_servers)


@table(names=("topic t", "NOT_ENOUGH_REPLICAS"), advises=("min.insync.replicas",), waits=True)
async def too_few_replicas(ground: Ground) -> None:
    topics = {"t": TopicSpec(1, 2, configs={"min.insync.replicas": "2"})}
    async with EmbeddedCluster(2, topics=topics) as cluster:
        await cluster.stop_broker(3 - cluster.move_leader("t", 0))
        await write(
            bootstrap_servers=cluster.bootstrap_servers,
            **BRIEF,
        )


@table(
    names=("INVALID_TRANSACTION_TIMEOUT", "transaction_timeout_ms=2000000"),
    advises=("transaction_timeout_ms", "transaction.max.timeout.ms"),
)
async def transaction_timeout_above_the_brokers(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        await write(
            bootstrap_servers=cluster.bootstrap_servers,
            transactional_id="pay",
            transaction_timeout_ms=2_000_000,
        )


@table(names=("topic t", "UNSUPPORTED_COMPRESSION_TYPE"), advises=("compression_type",))
async def codec_unknown_to_the_broker(ground: Ground) -> None:
    async with plain_cluster() as cluster:
        cluster.faults.every("produce", topic="t").answers("UNSUPPORTED_COMPRESSION_TYPE")
        await write(bootstrap_servers=cluster.bootstrap_servers, compression_type="zstd")


# -- schema registries -----------------------------------------------------------------------------


async def write_avro(url: str, **options: Any) -> None:
    async with (
        SchemaRegistry(url, retries=0, **options) as registry,
        plain_cluster() as cluster,
    ):
        serializer = AvroSerializer(registry, '"string"')
        await write(
            value="v",  # type: ignore[arg-type]
            bootstrap_servers=cluster.bootstrap_servers,
            value_serializer=serializer,
        )


@table(names=("schema registry at http://127.0.0.1:",), advises=("URL",))
async def registry_that_is_not_there(ground: Ground) -> None:
    with closed_port() as port:
        await write_avro(f"http://127.0.0.1:{port}")


@table(names=("t-value",), advises=("credentials",))
async def registry_with_other_credentials(ground: Ground) -> None:
    stub = StubSchemaRegistry(failures=[401])
    await write_avro("http://registry", transport=stub.transport)


@table(names=("no schema registry", "HTTP 404"), advises=("URL",))
async def registry_address_of_a_web_site(ground: Ground) -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(404, html="<h1>Not found</h1>"))
    await write_avro("http://registry", transport=page)


@table(names=("t-value", "not found"), advises=("register",))
async def schema_that_is_not_registered(ground: Ground) -> None:
    await write_avro("http://registry", transport=StubSchemaRegistry().transport)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.id)
async def test_the_error_names_what_is_wrong_and_what_to_do(
    case: Misconfiguration, tmp_path: Path
) -> None:
    with pytest.raises(KafkaError) as caught:
        async with asyncio.timeout(case.within_s):
            await case.happen(Ground(tmp_path))
    cause, _, advice = str(caught.value).partition(" -> ")
    for pattern in case.names:
        assert re.search(pattern, cause), (pattern, str(caught.value))
    for pattern in case.advises:
        assert re.search(pattern, advice), (pattern, str(caught.value))


@dataclass(frozen=True)
class Refused:
    """Options that no broker has to see, what the error names, and what it advises."""

    id: str
    options: dict[str, Any]
    names: str
    advises: str


def refused(name: str, names: str, advises: str, **options: Any) -> Refused:
    return Refused(name, options, names, advises)


SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "app"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PATHS = {"ssl_truststore_certificates": "ssl_truststore_location"} | {
    "ssl_keystore_certificate_chain": "ssl_keystore_location",
    "ssl_keystore_key": "ssl_key_location",
}

REFUSED = [
    # the address
    refused("no servers", "not None", "host:port", bootstrap_servers=None),
    refused("servers in bytes", "not b'a:9092'", "decode", bootstrap_servers=b"a:9092"),
    refused("a pair", "not \\('a', 9092\\)", "host:port", bootstrap_servers=("a", 9092)),
    refused("no port", "'kafka' is not", "port .*kafka:9092", bootstrap_servers="kafka"),
    refused("port 0", "outside 1-65535", "9092", bootstrap_servers="kafka:0"),
    refused("named port", "'kafka:plain'", "number", bootstrap_servers="kafka:plain"),
    refused("bare IPv6", "'::1:9092'", "brackets", bootstrap_servers="::1:9092"),
    refused("IPv6, no port", "'fe80::1'", "brackets", bootstrap_servers="fe80::1"),
    refused("semicolons", "'a:1;b:1'", "commas", bootstrap_servers="a:1;b:1"),
    refused("blanks", "'a:1 b:1'", "commas", bootstrap_servers="a:1 b:1"),
    refused("JSON", "is not host:port", "quotes", bootstrap_servers='["a:9092"]'),
    refused("a socket", "kafka.sock", "Unix sockets", bootstrap_servers="/run/kafka.sock"),
    refused("ZooKeeper", "2181/kafka", "ZooKeeper", bootstrap_servers="zk:2181/kafka"),
    refused("a placeholder", "KAFKA", "placeholder", bootstrap_servers="${KAFKA}"),
    refused("a comment", "is not host:port", "comment", bootstrap_servers="a:1 # ours"),
    refused("a login", "is not host:port", "sasl_username", bootstrap_servers="app:pw@a:9092"),
    # numbers and choices
    refused("a unit", "linger_ms .* '5ms'", "milliseconds", linger_ms="5ms"),
    refused("half a ms", "linger_ms .* 0.5", "milliseconds", linger_ms=0.5),
    refused("16 KB", "batch_size .* '16KB'", "bytes", batch_size="16KB"),
    refused("no end", "max_block_ms .* inf", "milliseconds", max_block_ms=float("inf")),
    refused(
        "10 ms to deliver", "delivery_timeout_ms=10", "request_timeout_ms", delivery_timeout_ms=10
    ),
    refused("acks in bytes", "one of 'none', 'gzip'.* b'gzip'", "decode", compression_type=b"gzip"),
    refused(
        "acks=0 and idempotence", "contradicts acks=0", "acks", acks=0, enable_idempotence=True
    ),
    refused("acks=1 and transactions", "acks=1", "acks", acks=1, transactional_id="x"),
    # logins
    refused("no password", "sasl_password is missing", "variable", **SASL),
    refused("empty password", "sasl_password is empty", "variable", **SASL, sasl_password=""),
    refused("password in bytes", "a bytes", "decode", **SASL, sasl_password=b"correct horse"),
    refused(
        "no mechanism",
        "default is GSSAPI",
        "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        security_protocol="SASL_SSL",
        sasl_username="app",
        sasl_password=PASSWORD,
    ),
    refused(
        "Kerberos without a service",
        "sasl_kerberos_service_name",
        "kafka",
        security_protocol="SASL_SSL",
        sasl_mechanism="GSSAPI",
    ),
    refused(
        "JAAS of another mechanism",
        "PlainLoginModule, which is for PLAIN",
        "sasl_mechanism to PLAIN",
        security_protocol="SASL_SSL",
        sasl_jaas_config=f'{JAAS} username="app" password="{PASSWORD}";',
    ),
    refused(
        "a JAAS file",
        "must be of the form",
        "path",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_jaas_config="/etc/kafka/jaas.conf",
    ),
    # TLS
    *(
        refused(f"{given} in {name}", f"{name} must be PEM text, not the path", other, **options)
        for name, other in PATHS.items()
        for given in ("/etc/ssl/a.pem", "certs/a.crt", "C:\\\\a.key", "~/a", "a.p12")
        for options in [{"security_protocol": "SSL", name: given}]
    ),
    *(
        refused(f"a Path in {name}", f"{name} .* a PosixPath", "_location", **options)
        for name in PATHS
        for options in [{"security_protocol": "SSL", name: Path("/a.pem")}]
    ),
    refused(
        "a Path", "PosixPath", "str", security_protocol="SSL", ssl_truststore_location=Path("/a")
    ),
    refused(
        "PEM in base64",
        "PEM in base64",
        "decode",
        security_protocol="SSL",
        ssl_truststore_certificates=b64encode(b"-----BEGIN CERTIFICATE-----").decode(),
    ),
    refused(
        "a directory without certificates",
        "is a directory without certificates",
        "rehash",
        security_protocol="SSL",
        ssl_truststore_location=str(Path(__file__).parent),
    ),
    refused(
        "a key alone",
        "ssl_keystore_key needs the certificate",
        "ssl_keystore_certificate_chain",
        security_protocol="SSL",
        ssl_keystore_key="-----BEGIN PRIVATE KEY-----",
    ),
    refused(
        "a server's context",
        "one of a server",
        "create_default_context",
        security_protocol="SSL",
        ssl_context=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
    ),
    refused(
        "unknown cipher suites",
        "none is known among NOPE",
        "openssl ciphers",
        security_protocol="SSL",
        ssl_cipher_suites="NOPE",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
async def test_options_that_cannot_work_are_refused_before_a_connection(case: Refused) -> None:
    with pytest.raises(ConfigError) as caught:
        async with asyncio.timeout(AT_ONCE_S):
            await write(**{"bootstrap_servers": "127.0.0.1:1"} | case.options)
    cause, _, advice = str(caught.value).partition(" -> ")
    assert re.search(case.names, cause), str(caught.value)
    assert re.search(case.advises, advice), str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("text", ['{"bootstrap.servers": "a:1"}', "[kafka]\nbootstrap.servers=a:1"])
def test_a_file_of_another_form_is_called_so(text: str, tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match="not a properties file -> write one line name=value"):
        ProducerConfig.from_file(path)


def test_a_byte_order_mark_belongs_to_no_option(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("\ufeffbootstrap.servers=a:1")
    assert ProducerConfig.from_file(path).bootstrap == (("a", 1),)


def test_text_in_place_of_properties_names_what_reads_files() -> None:
    with pytest.raises(TypeError, match="not str; ProducerConfig"):
        ProducerConfig.from_properties("bootstrap.servers=a:1")  # type: ignore[arg-type]


def test_white_space_around_a_password_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ProducerConfig(bootstrap_servers="a:1", **SASL, sasl_password=f"{PASSWORD}\n")
    assert "sasl_password begins or ends with white space" in caplog.text
    assert PASSWORD not in caplog.text
