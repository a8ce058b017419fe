"""The doctor on its way to a broker: each cause of a failure has its own finding."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
from support import hostile
from support.hostile import HostileServer
from support.security.leaks import Evidence, collected, secret

from aioproducer.cli.checkup import Finding, Status, verdict
from aioproducer.cli.checkup.findings import CheckFailedError
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.net.dial.dialer import Address
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity
from cli.checkup_places import (
    BRIEF_S,
    FakeDialer,
    closed_port,
    examined,
    failures,
    only,
    probe_by,
    stranger,
)

PASSWORD = secret("doctor password 5f2e")
FIRST, SECOND = Address("192.0.2.1", 9092), Address("192.0.2.2", 9092)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(2, topics={"t": 2}) as cluster:
        yield cluster


def first_of(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers.split(",")[0]


async def test_a_healthy_cluster_is_well(cluster: EmbeddedCluster) -> None:
    findings = await examined(first_of(cluster), "t")
    assert failures(findings) == []
    assert verdict(findings) == (Status.OK, ExitCode.OK)
    seen = [each.check for each in findings]
    assert seen == [
        *("name", "port", "versions", "cluster", "advertised", "advertised"),
        *("topic", "authorization", "clock"),
    ]
    versions = next(each for each in findings if each.check == "versions")
    assert "Kafka 4." in versions.found


# -- name and port --------------------------------------------------------------------------------


async def test_a_name_without_address_is_reported() -> None:
    dialer = FakeDialer(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with pytest.raises(CheckFailedError, match="broker has no address") as caught:
        await probe_by(dialer).resolve()
    assert caught.value.code == "name-unresolved"
    assert caught.value.exit_code is ExitCode.UNREACHABLE


async def test_a_resolver_that_does_not_answer_is_reported() -> None:
    with pytest.raises(CheckFailedError) as caught:
        await probe_by(FakeDialer(None), BRIEF_S).resolve()
    assert caught.value.code == "name-slow"


async def test_a_refusing_port_is_reported() -> None:
    with closed_port() as server:
        findings = await examined(server)
    finding = only(findings, "port-refused")
    assert "connection refused" in finding.found
    assert verdict(findings) == (Status.FAIL, ExitCode.UNREACHABLE)


async def test_a_port_that_swallows_packets_is_distinguished_from_one_that_refuses() -> None:
    probe = probe_by(FakeDialer([FIRST], {FIRST: None}), BRIEF_S)
    await probe.resolve()
    with pytest.raises(CheckFailedError) as caught:
        await probe.connect()
    assert caught.value.code == "port-silent"
    assert "firewall" in caught.value.advice


async def test_an_address_without_a_route_is_reported() -> None:
    probe = probe_by(FakeDialer([FIRST], {FIRST: OSError(113, "No route to host")}))
    await probe.resolve()
    with pytest.raises(CheckFailedError, match="No route to host") as caught:
        await probe.connect()
    assert caught.value.code == "port-unreachable"


async def test_a_proxy_that_cannot_be_reached_is_reported() -> None:
    with closed_port() as proxy:
        findings = await examined("192.0.2.1:9092", proxy_url=f"http://{proxy}")
    assert "the proxy cannot be reached: connection refused" in only(findings, "proxy-failed").found
    assert verdict(findings) == (Status.FAIL, ExitCode.UNREACHABLE)


async def test_the_name_of_a_proxy_without_address_is_reported() -> None:
    findings = await examined("192.0.2.1:9092", proxy_url="http://proxy.invalid:3128")
    assert "the proxy's name proxy.invalid" in only(findings, "proxy-failed").found


async def test_a_proxy_that_wants_credentials_is_reported() -> None:
    answer = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    async with stranger(answer) as proxy:
        findings = await examined("192.0.2.1:9092", proxy_url=f"http://{proxy}")
    assert "user name" in only(findings, "proxy-credentials-refused").found
    assert verdict(findings) == (Status.FAIL, ExitCode.REFUSED)


async def test_one_silent_address_among_good_ones_is_a_warning(cluster: EmbeddedCluster) -> None:
    host, _, port = first_of(cluster).partition(":")
    good = Address(host, int(port))

    class Mixed(FakeDialer):
        async def connect(self, address, *, server_hostname, limit):  # type: ignore[no-untyped-def]
            if address == good:
                from aioproducer.net.dial.dialer import TcpDialer

                return await TcpDialer().connect(
                    address, server_hostname=server_hostname, limit=limit
                )
            return await super().connect(address, server_hostname=server_hostname, limit=limit)

    probe = probe_by(Mixed([FIRST, good], {FIRST: None}), 2.0)
    await probe.resolve()
    with pytest.raises(CheckFailedError) as caught:
        await probe.connect()
    assert (caught.value.code, caught.value.status) == ("address-silent", Status.WARN)
    assert isinstance(await probe.request_versions(), Finding)
    await probe.close()


# -- what listens there ---------------------------------------------------------------------------


async def test_a_port_without_tls_is_reported(cluster: EmbeddedCluster) -> None:
    findings = await examined(first_of(cluster), security_protocol="SSL")
    finding = only(findings, "tls-not-spoken")
    assert "PLAINTEXT" in (finding.advice or "")
    assert verdict(findings)[1] is ExitCode.REFUSED


async def test_a_server_that_is_not_kafka_is_reported() -> None:
    async with stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        findings = await examined(server)
    assert only(findings, "not-kafka").check == "versions"


async def test_a_controller_is_reported_as_one() -> None:
    async with HostileServer(hostile.advertises(hostile.CONTROLLER_RANGES)) as server:
        findings = await examined(f"{server.host}:{server.port}")
    finding = only(findings, "not-kafka")
    assert finding.found == "a Kafka controller answers there, not a broker"
    assert "controller.listener.names" in (finding.advice or "")


async def test_a_broker_that_closes_the_connection_is_reported(cluster: EmbeddedCluster) -> None:
    cluster.faults.every("api_versions", node_id=1).drops_the_connection()
    assert only(await examined(first_of(cluster)), "hung-up").check == "versions"


async def test_a_frozen_broker_is_reported_within_the_bound(cluster: EmbeddedCluster) -> None:
    cluster.freeze_broker(1)
    finding = only(await examined(first_of(cluster), step_s=BRIEF_S), "no-answer")
    assert finding.exit_code is ExitCode.UNREACHABLE
    cluster.thaw_broker(1)


async def test_all_of_it_is_bounded_too(cluster: EmbeddedCluster) -> None:
    cluster.freeze_broker(1)
    finding = only(await examined(first_of(cluster), total_s=BRIEF_S), "out-of-time")
    assert finding.exit_code is ExitCode.UNREACHABLE
    cluster.thaw_broker(1)


async def test_one_dead_server_does_not_keep_it_from_the_others(cluster: EmbeddedCluster) -> None:
    with closed_port() as dead:
        findings = await examined(f"{dead},{first_of(cluster)}", "t")
    assert only(findings, "port-refused").about == dead
    assert findings[-1].check == "clock"


async def test_servers_of_two_clusters_are_reported(cluster: EmbeddedCluster) -> None:
    async with EmbeddedCluster(1, settings=ClusterSettings(cluster_id="another")) as another:
        findings = await examined(f"{first_of(cluster)},{another.bootstrap_servers}")
    assert "another" in only(findings, "clusters-differ").found


async def test_a_server_that_has_no_cluster_id_is_not_of_another_cluster(
    cluster: EmbeddedCluster,
) -> None:
    async with EmbeddedCluster(1, settings=ClusterSettings(cluster_id="")) as nameless:
        servers = [first_of(cluster), nameless.bootstrap_servers]
        for given in (servers, servers[::-1]):
            findings = await examined(",".join(given))
            names = [each.found for each in findings if each.check == "cluster"]
            assert all(each.status is Status.OK for each in findings if each.check == "cluster")
            assert "a cluster without an id, 1 broker" in names


async def test_a_store_that_cannot_be_read_is_an_option_to_correct() -> None:
    findings = await examined(
        "127.0.0.1:1", security_protocol="SSL", ssl_truststore_location="/missing/ca.pem"
    )
    assert only(findings, "options-refused").exit_code is ExitCode.USAGE


# -- SASL -----------------------------------------------------------------------------------------


@pytest.fixture
def evidence() -> AsyncIterator[Evidence]:
    with collected() as evidence:
        yield evidence
    assert evidence.found() == []


def sasl(mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": password,
    }


@pytest.fixture
async def guarded() -> AsyncIterator[EmbeddedCluster]:
    security = ListenerSecurity(mechanisms=("SCRAM-SHA-256",), users={"alice": PASSWORD})
    async with EmbeddedCluster(2, topics={"t": 1}, security=security) as cluster:
        yield cluster


async def test_good_credentials_are_accepted(guarded: EmbeddedCluster, evidence: Evidence) -> None:
    findings = await examined(first_of(guarded), "t", **sasl())
    assert failures(findings) == []
    assert "SCRAM-SHA-256: accepted" in next(e for e in findings if e.check == "sasl").found
    for finding in findings:
        evidence.add(finding)


async def test_wrong_credentials_are_reported(guarded: EmbeddedCluster, evidence: Evidence) -> None:
    wrong = secret("wrong password c41d")
    findings = await examined(first_of(guarded), **sasl(password=wrong))
    assert only(findings, "credentials-refused").check == "sasl"
    for finding in findings:
        evidence.add(finding)


async def test_a_mechanism_that_is_not_offered_is_reported(guarded: EmbeddedCluster) -> None:
    finding = only(await examined(first_of(guarded), **sasl("PLAIN")), "mechanism-not-offered")
    assert "SCRAM-SHA-256" in (finding.advice or "")


async def test_a_listener_that_wants_sasl_is_reported(guarded: EmbeddedCluster) -> None:
    finding = only(await examined(first_of(guarded)), "sasl-expected")
    assert "offers SCRAM-SHA-256" in finding.found
    assert "SASL_PLAINTEXT" in (finding.advice or "")


async def test_a_listener_without_sasl_is_reported(cluster: EmbeddedCluster) -> None:
    findings = await examined(first_of(cluster), **sasl())
    assert only(findings, "sasl-not-expected").check == "sasl"


async def test_a_package_without_native_core_is_a_warning(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = "the package in /venv has no native core"
    monkeypatch.setattr("aioproducer.cli.checkup.checkup.missing_core", lambda: missing)
    findings = await examined(first_of(cluster), "t")
    found = only(findings, "native-core-missing")
    assert (found.status, found.found) == (Status.WARN, missing)
    assert "wheel" in (found.advice or "")
