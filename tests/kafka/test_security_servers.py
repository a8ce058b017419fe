"""OAUTHBEARER and GSSAPI against a real broker, a token issuer and a Kerberos realm of our own.

They run with AIOPRODUCER_TEST_SECURITY=1, which `make cluster` sets. The issuer's tokens are
signed, and the broker checks them with the issuer's keys; one test uses Kafka's unsigned
development tokens.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.security.attempts import attempt
from support.security.brokers import kerberos, secure_cluster, tokens, unsecured_tokens
from support.security.certificates import Authority
from support.security.issuer import Issuer, serving
from support.security.kerberos import REALM, Realm, missing_programs, running_realm
from support.security.leaks import Evidence, collected, secret

from aioproducer import Producer, RecordMetadata
from aioproducer.errors import AuthenticationError, BootstrapError, SaslAuthenticationFailedError
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.ports import free_ports

CLIENT_SECRET = secret("cl1ent secret 55")
WRONG = secret("wr0ng secret 8")
TOKEN_LIFE_S = 4
REAUTH_MS = 3000
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not os.environ.get("AIOPRODUCER_TEST_SECURITY"),
        reason="takes a minute: AIOPRODUCER_TEST_SECURITY=1 (make cluster) runs it",
    ),
]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving(Issuer("me", CLIENT_SECRET, TOKEN_LIFE_S)) as issuer:
        yield issuer


@pytest.fixture(autouse=True)
def evidence(issuer: Issuer) -> Iterator[Evidence]:
    """The output and the log of the test; it must not hold a secret."""
    with collected() as evidence:
        yield evidence
    for token in issuer.issued:
        secret(token)
    assert evidence.found() == []


@pytest.fixture(scope="module")
def token_broker(
    authority: Authority, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    keys = f"{issuer.url}/keys"
    listeners = [tokens(keys, reauth_ms=REAUTH_MS), unsecured_tokens()]
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    directory = tmp_path_factory.mktemp("broker")
    with secure_cluster(authority, directory, listeners, jvm_options=[allowed]) as cluster:
        yield cluster


def oauth(broker: KafkaCluster, authority: Authority, listener: str = "TOKENS") -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.listener(listener),
        "security_protocol": "SASL_SSL",
        "ssl_truststore_certificates": authority.pem,
        "sasl_mechanism": "OAUTHBEARER",
        "max_block_ms": 20_000,
    }


def endpoint(issuer: Issuer, client_secret: str = CLIENT_SECRET) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_token_endpoint_url": f"{issuer.url}/token",
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": client_secret,
    }


async def test_tokens_of_the_issuer_are_renewed_under_load_without_an_error(
    token_broker: KafkaCluster, authority: Authority, issuer: Issuer
) -> None:
    """Tokens live 4 s, sessions 3 s or as long as the token: three of each in 9 s."""
    loop = asyncio.get_running_loop()
    asked = len(issuer.requests)
    async with Producer(**oauth(token_broker, authority), **endpoint(issuer)) as producer:
        await producer.send_and_wait("t", b"x")  # creates the topic, which takes retries
        retries = producer.metrics()["record_retry_total"]
        until = loop.time() + 9
        while loop.time() < until:
            await asyncio.gather(*[await producer.send("t", b"x" * 200) for _ in range(200)])
        metrics = producer.metrics()
    assert metrics["record_retry_total"] == retries
    assert metrics["record_error_total"] == 0
    assert len(issuer.requests) - asked >= 3


async def test_a_token_of_an_async_function_gets_in(
    token_broker: KafkaCluster, authority: Authority, issuer: Issuer, evidence: Evidence
) -> None:
    async def token() -> str:
        return issuer.token()

    options = oauth(token_broker, authority)
    outcome = await attempt(evidence, **options, sasl_oauthbearer_token=token)
    assert isinstance(outcome, RecordMetadata)


async def test_a_token_for_another_audience_is_refused_at_once(
    token_broker: KafkaCluster, authority: Authority, issuer: Issuer, evidence: Evidence
) -> None:
    async def token() -> str:
        return issuer.token(aud="another service")

    options = oauth(token_broker, authority)
    error = await attempt(evidence, **options, sasl_oauthbearer_token=token)
    assert type(error) is SaslAuthenticationFailedError
    assert "invalid_token" in error.message


async def test_an_expired_token_is_reported_as_such(
    token_broker: KafkaCluster, authority: Authority, issuer: Issuer, evidence: Evidence
) -> None:
    async def token() -> str:
        return issuer.token(life_s=-100)

    options = oauth(token_broker, authority)
    error = await attempt(evidence, **options, sasl_oauthbearer_token=token)
    assert type(error) is AuthenticationError
    assert "expired already" in error.message


async def test_a_wrong_client_secret_ends_start_at_once(
    token_broker: KafkaCluster, authority: Authority, issuer: Issuer, evidence: Evidence
) -> None:
    options = oauth(token_broker, authority) | endpoint(issuer, WRONG)
    error = await attempt(evidence, **options)
    assert type(error) is AuthenticationError
    assert "HTTP 401 (invalid_client" in error.message


async def test_kafkas_unsigned_tokens_get_in_where_the_broker_takes_them(
    token_broker: KafkaCluster, authority: Authority, evidence: Evidence
) -> None:
    line = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice";'
    options = oauth(token_broker, authority, "UNSECURED") | {"sasl_jaas_config": line}
    assert isinstance(await attempt(evidence, **options), RecordMetadata)


# -- Kerberos --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)} (make system-deps)")
    pytest.importorskip("gssapi", reason="the package gssapi is not installed")
    with (
        running_realm(tmp_path_factory.mktemp("realm")) as realm,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        yield realm


@pytest.fixture(scope="module")
def realm_broker(
    realm: Realm, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    principal = "kafka/127.0.0.1"
    listener = kerberos(realm.keytab(principal), f"{principal}@{REALM}")
    options = [f"-Djava.security.krb5.conf={realm.config}"]
    directory = tmp_path_factory.mktemp("broker")
    with secure_cluster(authority, directory, [listener], jvm_options=options) as cluster:
        yield cluster


def with_kerberos(
    broker: KafkaCluster, authority: Authority, keytab: Path | None
) -> dict[str, Any]:
    options = {
        "bootstrap_servers": broker.listener("KERBEROS"),
        "security_protocol": "SASL_SSL",
        "ssl_truststore_certificates": authority.pem,
        "sasl_kerberos_service_name": "kafka",
        "max_block_ms": 60_000,
    }
    if keytab is not None:
        options["sasl_jaas_config"] = (
            f'{KERBEROS_MODULE} required useKeyTab=true keyTab="{keytab}" '
            f'principal="alice@{REALM}";'
        )
    return options


async def test_a_keytab_gets_in(
    realm_broker: KafkaCluster, authority: Authority, realm: Realm, evidence: Evidence
) -> None:
    options = with_kerberos(realm_broker, authority, realm.keytab("alice"))
    assert isinstance(await attempt(evidence, **options), RecordMetadata)


async def test_missing_tickets_and_unknown_services_are_reported_at_once(
    realm_broker: KafkaCluster, authority: Authority, realm: Realm, evidence: Evidence
) -> None:
    error = await attempt(evidence, **with_kerberos(realm_broker, authority, None))
    assert type(error) is AuthenticationError
    assert "No Kerberos credentials available" in error.message
    options = with_kerberos(realm_broker, authority, realm.keytab("alice"))
    error = await attempt(evidence, **options | {"sasl_kerberos_service_name": "nope"})
    assert type(error) is AuthenticationError
    assert "not found in Kerberos database" in error.message


async def test_a_realm_that_cannot_be_reached_is_tried_again(
    realm_broker: KafkaCluster,
    authority: Authority,
    realm: Realm,
    evidence: Evidence,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = with_kerberos(realm_broker, authority, realm.keytab("alice"))
    (closed,) = free_ports(1, "127.0.0.1")
    elsewhere = tmp_path / "krb5.conf"
    elsewhere.write_text(
        re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{closed}", realm.config.read_text())
    )
    monkeypatch.setenv("KRB5_CONFIG", str(elsewhere))
    error = await attempt(evidence, **options | {"max_block_ms": 3000})
    assert type(error) is BootstrapError
    assert "Cannot contact any KDC" in str(error)
