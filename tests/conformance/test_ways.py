"""The ways to a broker besides straight TCP over IPv4: proxies, a user's own dialer, IPv6."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.dialed import DialedProducer
from support.hostile import HostileServer, Peer
from support.proxies import Proxy
from support.security.attempts import attempt
from support.security.certificates import Authority
from support.security.leaks import Evidence, collected, secret
from support.waiting import until

from aioproducer import KafkaError, Producer, ProducerConfig, RecordMetadata
from aioproducer.errors import (
    BootstrapError,
    ConfigError,
    ConnectionSetupTimeoutError,
    ProxyAuthenticationError,
    ProxyError,
    TlsError,
)
from aioproducer.net.dial.dialer import Address, TcpDialer
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.testing.security import ListenerSecurity

LOGIN = ("ali@ce", secret("pr0xy/pass: w\u00f6rd"))
CANONICAL = "resolve_canonical_bootstrap_servers_only"
WRONG = secret("wr0ng pr0xy pass")
KINDS = {"socks5": "socks5", "socks5h": "socks5", "http": "http"}
QUICK = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 10}

Secured = Callable[..., AbstractAsyncContextManager[tuple[EmbeddedCluster, dict[str, Any]]]]


@pytest.fixture
def evidence() -> Iterator[Evidence]:
    """The output and the log of the test; it must not hold a secret."""
    with collected() as evidence:
        yield evidence
    assert evidence.found() == []


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(2, topics={"t": 2}) as cluster:
        yield cluster


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """One broker with TLS whose certificate has the given names, and the options for it."""

    @asynccontextmanager
    async def run(
        *names: str, host: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[EmbeddedCluster, dict[str, Any]]]:
        authority = Authority()
        context = authority.server_context(authority.issue("broker", *names), tmp_path)
        security = ListenerSecurity(ssl_context=context)
        async with EmbeddedCluster(1, host, topics={"t": 1}, security=security) as cluster:
            yield (
                cluster,
                {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem},
            )

    return run


def port_of(cluster: EmbeddedCluster, node_id: int = 1) -> int:
    return cluster.state.brokers[node_id].port


def url_of(proxy: Proxy, scheme: str, password: str = LOGIN[1]) -> str:
    login = f"{quote(LOGIN[0], safe='')}:{secret(quote(password, safe=''))}@" if proxy.login else ""
    return f"{scheme}://{login}{proxy.place}"


async def send_to_all(producer: Producer) -> None:
    for number in range(20):
        await producer.send_and_wait("t", b"%d" % number, partition=number % 2)


async def values(cluster: EmbeddedCluster) -> list[list[bytes | None]]:
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    return [[record.value for record in records] for records in read.values()]


# -- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", [None, LOGIN], ids=["open", "with a login"])
@pytest.mark.parametrize("scheme", KINDS)
async def test_everything_goes_through_the_proxy(
    cluster: EmbeddedCluster, evidence: Evidence, scheme: str, login: tuple[str, str] | None
) -> None:
    ports = {port_of(cluster, node) for node in (1, 2)}
    names = {"kafka.test": "127.0.0.1", "::1": "127.0.0.1"}  # where `localhost` is both
    async with Proxy(KINDS[scheme], login, names) as proxy:  # type: ignore[arg-type]
        name = "localhost" if scheme == "socks5" else "kafka.test"
        config = ProducerConfig(
            bootstrap_servers=f"{name}:{port_of(cluster)}", proxy_url=url_of(proxy, scheme)
        )
        evidence.add(config)
        async with Producer(config) as producer:
            await send_to_all(producer)
            evidence.add(producer.health())
            assert sum(map(cluster.connection_count, (1, 2))) == proxy.accepted
        assert {port for _, port in proxy.asked} == ports
        assert (("kafka.test", port_of(cluster)) in proxy.asked) is (scheme != "socks5")
        assert set(proxy.logins) == ({login} if login else set())
    numbers = [[b"%d" % number for number in range(first, 20, 2)] for first in (0, 1)]
    assert await values(cluster) == numbers


@pytest.mark.parametrize("scheme", KINDS)
async def test_the_name_of_the_broker_is_verified_through_the_proxy(
    secured: Secured, evidence: Evidence, scheme: str
) -> None:
    names = {"kafka.test": "127.0.0.1", "other.test": "127.0.0.1"}
    right, wrong = ("127.0.0.1", "localhost") if scheme == "socks5" else tuple(names)
    async with (
        Proxy(KINDS[scheme], LOGIN, names) as proxy,  # type: ignore[arg-type]
        secured("127.0.0.1", "kafka.test") as (cluster, tls),
    ):
        options = tls | {"proxy_url": url_of(proxy, scheme), "max_block_ms": 60_000}
        port = port_of(cluster)
        good = await attempt(evidence, bootstrap_servers=f"{right}:{port}", **options)
        assert isinstance(good, RecordMetadata)
        bad = await attempt(evidence, bootstrap_servers=f"{wrong}:{port}", **options)
        assert isinstance(bad, TlsError)
        assert f"another host than {wrong}" in str(bad)


async def test_a_port_without_tls_is_reported_through_the_proxy(
    cluster: EmbeddedCluster, evidence: Evidence
) -> None:
    async with Proxy("http") as proxy:
        error = await attempt(
            evidence,
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            proxy_url=url_of(proxy, "http"),
            max_block_ms=60_000,
        )
        assert isinstance(error, TlsError)
        assert "does not use TLS" in str(error)


@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_a_login_the_proxy_refuses_ends_start_at_once(
    cluster: EmbeddedCluster, evidence: Evidence, scheme: str
) -> None:
    async with Proxy(scheme, LOGIN) as proxy:  # type: ignore[arg-type]
        options = {"bootstrap_servers": cluster.bootstrap_servers, "max_block_ms": 60_000}
        wrong = await attempt(evidence, proxy_url=url_of(proxy, scheme, WRONG), **options)
        missing = await attempt(evidence, proxy_url=f"{scheme}://{proxy.place}", **options)
        for error in (wrong, missing):
            assert type(error) is ProxyAuthenticationError
        assert "refused the user name or the password" in str(wrong)
        assert "wants a user name and a password" in str(missing)
        assert proxy.asked == []


@pytest.mark.parametrize(
    ("proxy", "scheme", "words"),
    [
        (Proxy("socks5", refusal=2), "socks5", "rules do not allow"),
        (Proxy("http", refusal=503), "http", "503 'Not Today'"),
        (Proxy("http", answer=b"SSH-2.0-x\r\n\r\n"), "http", "does not support HTTP"),
        (Proxy("socks5", answer=b"HTTP/1.1 400 Bad\r\n\r\n"), "socks5h", "does not support SOCKS5"),
    ],
    ids=["SOCKS5 refuses", "HTTP refuses", "no HTTP", "no SOCKS5"],
)
async def test_a_proxy_that_does_not_connect_is_reported_and_not_stormed(
    cluster: EmbeddedCluster, evidence: Evidence, proxy: Proxy, scheme: str, words: str
) -> None:
    async with proxy:
        error = await attempt(
            evidence,
            bootstrap_servers=f"127.0.0.1:{port_of(cluster)}",
            proxy_url=url_of(proxy, scheme),
            max_block_ms=400,
            reconnect_backoff_ms=50,
        )
        assert isinstance(error, BootstrapError)
        assert words in str(error)
        assert f"through the proxy {proxy.place}" in str(error)
        # One dial per backoff of 50 ms, growing, whatever the proxy does.
        assert 1 <= proxy.accepted <= 20


async def test_an_unreachable_proxy_is_a_proxy_error(cluster: EmbeddedCluster) -> None:
    async with Proxy("socks5") as proxy:
        url = url_of(proxy, "socks5h")
    async with first_failure(proxy_url=url) as failure:
        assert type(failure) is ProxyError
        assert "the proxy cannot be reached" in str(failure)
        assert failure.retriable


async def test_a_proxy_that_resets_connections_is_a_proxy_error() -> None:
    async with (
        HostileServer(reset_at_once) as proxy,
        first_failure(proxy_url=f"socks5h://{proxy.host}:{proxy.port}") as failure,
    ):
        assert type(failure) is ProxyError


async def reset_at_once(peer: Peer) -> None:
    await peer.reader.read(1)
    peer.reset()


async def test_a_silent_proxy_costs_no_more_than_the_setup_timeout() -> None:
    async with (
        Proxy("http", answer=b"") as proxy,
        first_failure(
            proxy_url=url_of(proxy, "http"), socket_connection_setup_timeout_ms=200
        ) as failure,
    ):
        assert type(failure) is ConnectionSetupTimeoutError
        assert f"through the proxy {proxy.place}: no answer in time" in str(failure)


@asynccontextmanager
async def first_failure(**options: Any) -> AsyncIterator[KafkaError]:
    """Return the reason why a producer with these options has no first connection."""
    producer = Producer(bootstrap_servers="kafka.test:9092", **options)

    def failure() -> KafkaError | None:
        engine = producer._engine
        return None if engine is None else engine.client.connection_failures(-1)

    starting = asyncio.create_task(producer.start())
    try:
        await until(lambda: failure() is not None)
        found = failure()
        assert found is not None
        yield found
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await producer.close(0)


async def test_records_wait_until_the_proxy_is_back(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Proxy("socks5") as proxy,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers, proxy_url=url_of(proxy, "socks5"), **QUICK
        ) as producer,
    ):
        await send_to_all(producer)
        proxy.refusal = 1
        with caplog.at_level(logging.ERROR):
            cluster.drop_connections()
            delivery = await producer.send("t", b"late", partition=0)
            await asyncio.sleep(0.3)
            assert not delivery.done()
            proxy.refusal = None
            assert (await delivery).offset == 10
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# -- a dialer of one's own ------------------------------------------------------------------------


async def test_a_dialer_opens_every_connection(cluster: EmbeddedCluster) -> None:
    opened = []

    async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        opened.append((host, port))
        return await asyncio.open_connection("127.0.0.1", port)

    server = f"not.resolved:{port_of(cluster)}"
    async with Producer(bootstrap_servers=server, dialer=dial) as producer:
        await send_to_all(producer)
    assert opened[0] == ("not.resolved", port_of(cluster))
    assert {port for _, port in opened} == {port_of(cluster, node) for node in (1, 2)}


async def test_tls_goes_on_top_of_what_a_dialer_opens(secured: Secured, evidence: Evidence) -> None:
    async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)

    async with secured("127.0.0.1", "kafka.test") as (cluster, tls):
        options = tls | {"dialer": dial, "max_block_ms": 60_000}
        port = port_of(cluster)
        good = await attempt(evidence, bootstrap_servers=f"kafka.test:{port}", **options)
        assert isinstance(good, RecordMetadata)
        bad = await attempt(evidence, bootstrap_servers=f"other.test:{port}", **options)
        assert isinstance(bad, TlsError)


async def test_what_a_dialer_raises_is_a_failed_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class TunnelError(Exception):
        pass

    calls = 0

    async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        nonlocal calls
        calls += 1
        raise TunnelError("no tunnel today")

    with caplog.at_level(logging.ERROR):
        async with first_failure(dialer=dial) as failure:
            assert "TunnelError('no tunnel today')" in str(failure)
            assert failure.retriable
    assert calls < 20
    assert caplog.records == []


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dialer": "x"}, "dialer must be"),
        ({"dialer": asyncio.sleep, "proxy_url": "http://p:1"}, "exclude each other"),
        (
            {
                "dialer": asyncio.sleep,
                "client_dns_lookup": "resolve_canonical_bootstrap_servers_only",
            },
            "resolves names elsewhere",
        ),
        (
            {"proxy_url": "socks5h://p:1", "client_dns_lookup": CANONICAL},
            "resolves names elsewhere",
        ),
        ({"proxy_url": f"ftp://a:{WRONG}@p:1"}, "must start with"),
    ],
)
def test_options_that_cannot_work_are_refused(
    evidence: Evidence, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        ProducerConfig(bootstrap_servers="h:1", **options)
    evidence.add(caught.value)


# -- IPv6 -----------------------------------------------------------------------------------------


async def test_brokers_on_ipv6_are_reached_by_bracketed_addresses() -> None:
    async with (
        EmbeddedCluster(2, host="::1", topics={"t": 2}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        assert cluster.bootstrap_servers.startswith("[::1]:")
        await send_to_all(producer)
        assert sum(map(len, await values(cluster))) == 20


@pytest.mark.parametrize("scheme", [None, *KINDS])
async def test_an_ipv6_address_is_verified_by_tls_straight_and_through_proxies(
    secured: Secured, evidence: Evidence, scheme: str | None
) -> None:
    async with (
        Proxy(KINDS[scheme or "http"], host="::1") as proxy,  # type: ignore[arg-type]
        secured("::1", host="::1") as (cluster, tls),
    ):
        way = {} if scheme is None else {"proxy_url": url_of(proxy, scheme)}
        options = tls | way | {"bootstrap_servers": cluster.bootstrap_servers}
        assert isinstance(await attempt(evidence, **options), RecordMetadata)
        assert {host for host, _ in proxy.asked} == ({"::1"} if scheme else set())


class TwoAddresses(TcpDialer):
    """`kafka.test` has an IPv6 address without a listener, and a good one."""

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        places = ["::1", "127.0.0.1"] if host == "kafka.test" else [host]
        found = [await TcpDialer.resolve(self, p, port, canonical=canonical) for p in places]
        return [address for addresses in found for address in addresses]


async def test_a_name_with_a_dead_address_leads_to_its_other_one(cluster: EmbeddedCluster) -> None:
    async with DialedProducer(
        TwoAddresses(), bootstrap_servers=f"kafka.test:{port_of(cluster)}"
    ) as producer:
        await send_to_all(producer)
