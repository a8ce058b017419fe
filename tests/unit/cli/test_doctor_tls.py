"""The doctor and TLS: which certificate is wrong, and how."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.security.certificates import Authority, Identity

from aioproducer.cli.checkup import Finding, Status
from aioproducer.cli.checkup.handshake_failures import of_tls, of_tls_error
from aioproducer.errors import TlsError
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.net.security.tls_failures import tls_error_of
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity
from cli.checkup_places import examined, failures, only

Brokers = Callable[..., AbstractAsyncContextManager[EmbeddedCluster]]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def brokers(authority: Authority, tmp_path: Path) -> Brokers:
    @asynccontextmanager
    async def run(identity: Identity, **options: Any) -> AsyncIterator[EmbeddedCluster]:
        context = authority.server_context(identity, tmp_path, **options)
        security = ListenerSecurity(ssl_context=context)
        async with EmbeddedCluster(1, topics={"t": 1}, security=security) as cluster:
            yield cluster

    return run


async def examined_by(cluster: EmbeddedCluster, trusted: Authority) -> list[Finding]:
    return await examined(
        cluster.bootstrap_servers,
        "t",
        security_protocol="SSL",
        ssl_truststore_certificates=trusted.pem,
    )


async def test_the_chain_is_shown_and_an_end_near_by_is_a_warning(
    brokers: Brokers, authority: Authority
) -> None:
    async with brokers(authority.issue("broker", "127.0.0.1")) as cluster:
        findings = await examined_by(cluster, authority)
    finding = only(findings, "certificate-expires-soon")
    assert finding.status is Status.WARN
    assert finding.details[0].startswith("CN=broker, for 127.0.0.1; issued by CN=Test CA; valid ")
    assert findings[-1].check == "clock"


async def test_an_unknown_authority_is_reported_with_the_chain(
    brokers: Brokers, authority: Authority
) -> None:
    async with brokers(authority.issue("broker", "127.0.0.1")) as cluster:
        finding = only(await examined_by(cluster, Authority("Another CA")), "authority-unknown")
    assert "ssl.truststore" in (finding.advice or "")
    assert "issued by CN=Test CA" in finding.details[0]


async def test_an_expired_certificate_is_reported(brokers: Brokers, authority: Authority) -> None:
    async with brokers(authority.issue("broker", "127.0.0.1", expired=True)) as cluster:
        finding = only(await examined_by(cluster, authority), "certificate-expired")
    assert "renew" in (finding.advice or "")
    assert "valid " in finding.details[0]


async def test_a_certificate_for_another_host_is_reported(
    brokers: Brokers, authority: Authority
) -> None:
    async with brokers(authority.issue("broker", "kafka.example")) as cluster:
        finding = only(await examined_by(cluster, authority), "host-name-mismatch")
    assert "for kafka.example" in finding.details[0]


async def test_a_bootstrap_server_goes_by_its_canonical_name_and_a_broker_by_its_own(
    brokers: Brokers, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getnameinfo", lambda *_: ("kafka.example", "9092"))
    async with brokers(authority.issue("broker", "kafka.example")) as cluster:
        findings = await examined(
            cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_truststore_certificates=authority.pem,
            client_dns_lookup="resolve_canonical_bootstrap_servers_only",
        )
    assert failures(findings) == ["certificate-expires-soon", "advertised-refused"]


async def test_a_broker_that_wants_our_certificate_is_reported(
    brokers: Brokers, authority: Authority
) -> None:
    identity = authority.issue("broker", "127.0.0.1")
    async with brokers(identity, client_ca=authority.pem) as cluster:
        findings = await examined_by(cluster, authority)
    # The embedded broker closes the connection without a word, others send an alert.
    assert failures(findings)[-1] in {"hung-up", "client-certificate-refused"}
    assert "ssl.keystore" in (findings[-1].advice or "")


async def test_a_listener_that_wants_sasl_inside_tls_is_reported(
    authority: Authority, tmp_path: Path
) -> None:
    context = authority.server_context(authority.issue("broker", "127.0.0.1"), tmp_path)
    security = ListenerSecurity(ssl_context=context, mechanisms=("PLAIN", "SCRAM-SHA-512"))
    async with EmbeddedCluster(1, security=security) as cluster:
        findings = await examined_by(cluster, authority)
    assert failures(findings) == ["certificate-expires-soon", "sasl-expected"]
    assert "offers PLAIN, SCRAM-SHA-512" in findings[-1].found


def test_an_alert_about_our_certificate_is_reported() -> None:
    alert = ssl.SSLError(1, "alert")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    refused = tls_error_of(alert, "broker")
    assert refused is not None
    assert of_tls_error(refused, ()).code == "client-certificate-refused"


def test_a_name_that_the_peer_does_not_serve_is_no_matter_of_our_certificate() -> None:
    alert = ssl.SSLError(1, "tlsv1 unrecognized name")
    alert.reason = "TLSV1_UNRECOGNIZED_NAME"
    refused = tls_error_of(alert, "broker")
    assert refused is not None
    assert of_tls_error(refused, ()).code == "host-name-mismatch"


async def test_a_port_for_tls_is_reported(brokers: Brokers, authority: Authority) -> None:
    async with brokers(authority.issue("broker", "127.0.0.1")) as cluster:
        finding = only(await examined(cluster.bootstrap_servers), "tls-expected")
    assert finding.check == "versions"
    assert "SASL_SSL" in (finding.advice or "")


def test_a_certificate_of_tomorrow_is_distinguished_from_an_expired_one() -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_code = 9
    refused = RefusedDialError(TlsError("the certificate is not yet valid"))
    refused.__cause__ = cause
    failure = of_tls(refused, ())
    assert failure.code == "certificate-not-yet-valid"
    assert "clock" in failure.advice
