"""TLS and SASL against a real broker: logins, refusals and their errors, sessions that end.

PLAIN, SCRAM and mutual TLS; what takes further servers is in `test_security_servers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.security.attempts import attempt
from support.security.brokers import (
    create_scram_user,
    mutual_tls,
    plain_and_scram,
    secure_cluster,
)
from support.security.certificates import Authority
from support.security.leaks import Evidence, collected, secret

from aioproducer import Producer, ProducerConfig, RecordMetadata
from aioproducer.cli.checkup import Checkup, Scope, Status
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    KafkaError,
    SaslAuthenticationFailedError,
    TlsError,
    UnsupportedSaslMechanismError,
)
from aioproducer.testing.kafka import KafkaCluster

NAME = "alice"
PASSWORD = secret("w'on,der=ß \u2468 4711")
WRONG = secret("wr0ng password 8")
KEY_PASSWORD = secret("key password 7f3a")
REAUTH_MS = 3000

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def broker(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    directory = tmp_path_factory.mktemp("broker")
    listeners = [plain_and_scram({NAME: PASSWORD}, reauth_ms=REAUTH_MS), mutual_tls()]
    with secure_cluster(authority, directory, listeners) as cluster:
        create_scram_user(cluster, NAME, PASSWORD)
        yield cluster


@pytest.fixture(autouse=True)
def evidence() -> Iterator[Evidence]:
    """The output and the log of the test; it must not hold a secret."""
    with collected() as evidence:
        yield evidence
    assert evidence.found() == []


def passwords(broker: KafkaCluster, authority: Authority, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.listener("PASSWORDS"),
        "security_protocol": "SASL_SSL",
        "ssl_truststore_certificates": authority.pem,
        "sasl_mechanism": mechanism,
        "sasl_username": NAME,
        "sasl_password": PASSWORD,
    }


def mutual(broker: KafkaCluster, authority: Authority, signer: Authority) -> dict[str, Any]:
    me = signer.issue("me")
    return {
        "bootstrap_servers": broker.listener("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_truststore_certificates": authority.pem,
        "ssl_keystore_certificate_chain": me.certificate_pem,
        "ssl_keystore_key": me.key_pem(KEY_PASSWORD),
        "ssl_key_password": KEY_PASSWORD,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_right_password_gets_in_and_a_wrong_one_is_refused_at_once(
    broker: KafkaCluster, authority: Authority, evidence: Evidence, mechanism: str
) -> None:
    options = passwords(broker, authority, mechanism)
    assert isinstance(await attempt(evidence, **options), RecordMetadata)
    error = await attempt(evidence, **options | {"sasl_password": WRONG, "max_block_ms": 60_000})
    assert type(error) is SaslAuthenticationFailedError
    assert "Authentication failed" in error.message


async def test_a_client_certificate_gets_in_and_its_absence_is_refused(
    broker: KafkaCluster, authority: Authority, evidence: Evidence
) -> None:
    options = mutual(broker, authority, authority)
    assert isinstance(await attempt(evidence, **options), RecordMetadata)
    none = {name: value for name, value in options.items() if "key" not in name}
    for bad in (none, mutual(broker, authority, Authority("stranger"))):
        error = await attempt(evidence, **bad, max_block_ms=2000)
        # The broker's reset may overtake its words (TLS 1.3); then the hint has to do.
        assert type(error) in {TlsError, BootstrapError}
        assert "ssl_keystore_location" in str(error)


async def test_settings_that_cannot_fit_are_reported_at_once(
    broker: KafkaCluster, authority: Authority, evidence: Evidence
) -> None:
    good = passwords(broker, authority, "PLAIN") | {"max_block_ms": 60_000}
    plain = good | {"bootstrap_servers": broker.bootstrap_servers}
    to_tls = {"bootstrap_servers": broker.listener("PASSWORDS"), "max_block_ms": 60_000}
    no_sasl = to_tls | {
        "security_protocol": "SSL",
        "ssl_truststore_certificates": authority.pem,
    }
    other_name = good["bootstrap_servers"].replace("127.0.0.1", "localhost")
    cases = [
        (good | {"bootstrap_servers": other_name}, TlsError, "for another host than localhost"),
        (good | {"ssl_truststore_certificates": Authority().pem}, TlsError, "is not trusted"),
        (plain, TlsError, "does not use TLS on this port"),
        (to_tls, TlsError, "set security_protocol to SSL or SASL_SSL"),
        (no_sasl, AuthenticationError, "wants SASL on this port and offers"),
        (plain | {"security_protocol": "SASL_PLAINTEXT"}, KafkaError, "wants no SASL"),
    ]
    for options, kind, text in cases:
        error = await attempt(evidence, **options)
        assert isinstance(error, kind)
        assert text in str(error)


async def send_for(producer: Producer, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    count = 0
    while loop.time() < until:
        await asyncio.gather(*[await producer.send("load", b"x" * 200) for _ in range(200)])
        count += 200
    return count


@pytest.mark.slow
async def test_sessions_are_renewed_under_load_without_an_error(
    broker: KafkaCluster, authority: Authority
) -> None:
    """`connections.max.reauth.ms`=3000; without a renewal the broker would close the connection."""
    options = passwords(broker, authority, "SCRAM-SHA-256")
    async with Producer(**options, linger_ms=0) as producer:
        # The first record creates the topic: its leader may refuse records for a moment.
        await producer.send_and_wait("load", b"first")
        before = producer.metrics()
        sent = await send_for(producer, 2.5 * REAUTH_MS / 1000)
        metrics = producer.metrics()
    assert metrics["record_acknowledged_total"] == 1 + sent > 1
    assert metrics["record_retry_total"] == before["record_retry_total"]
    assert metrics["record_error_total"] == 0


async def test_a_mechanism_the_broker_lacks_is_reported_with_those_it_has(
    broker: KafkaCluster, authority: Authority, evidence: Evidence
) -> None:
    options = passwords(broker, authority, "OAUTHBEARER")
    del options["sasl_username"], options["sasl_password"]

    async def token() -> str:
        return "abc"

    error = await attempt(evidence, **options, sasl_oauthbearer_token=token, max_block_ms=60_000)
    assert type(error) is UnsupportedSaslMechanismError
    assert "SCRAM-SHA-512" in str(error)


# -- what `aioproducer doctor` says ----------------------------------------------------------------


async def failures(evidence: Evidence, **options: Any) -> list[str]:
    """The codes of what the doctor finds wrong."""
    checkup = Checkup(ProducerConfig(**options), Scope(), evidence.add)
    await checkup.run()
    return [each.code for each in checkup.findings if each.status is Status.FAIL]


async def test_the_doctor_finds_nothing_wrong_with_what_is_right(
    broker: KafkaCluster, authority: Authority, evidence: Evidence
) -> None:
    for options in (
        {"bootstrap_servers": broker.bootstrap_servers},
        passwords(broker, authority, "SCRAM-SHA-512"),
        mutual(broker, authority, authority),
    ):
        assert await failures(evidence, **options) == []


async def test_the_doctor_reports_what_a_real_broker_refuses(
    broker: KafkaCluster, authority: Authority, evidence: Evidence
) -> None:
    good = passwords(broker, authority, "PLAIN")
    for changes, code in (
        ({"sasl_password": WRONG}, "credentials-refused"),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_username": None,
                "sasl_password": None,
                "sasl_oauthbearer_token": _no_token,
            },
            "mechanism-not-offered",
        ),
        ({"security_protocol": "SSL"}, "sasl-expected"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "tls-expected"),
        ({"bootstrap_servers": broker.bootstrap_servers}, "tls-not-spoken"),
        ({"ssl_truststore_certificates": Authority("Other").pem}, "authority-unknown"),
    ):
        options = good | changes
        if "SASL" not in options["security_protocol"]:
            options = {name: it for name, it in options.items() if not name.startswith("sasl")}
        assert await failures(evidence, **options) == [code]
    without = mutual(broker, authority, authority)
    without = {name: it for name, it in without.items() if not name.startswith("ssl_key")}
    assert await failures(evidence, **without) == ["client-certificate-refused"]


async def _no_token() -> str:
    raise AssertionError("the mechanism is refused before a token is asked for")
