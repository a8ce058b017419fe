"""TLS between a producer and embedded brokers: what is accepted, what is refused, and how."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.security.attempts import attempt
from support.security.certificates import Authority, Identity
from support.security.leaks import Evidence, secret
from support.waiting import until

from aioproducer import Producer, RecordMetadata
from aioproducer.errors import BootstrapError, ConfigError, KafkaError, TlsError
from aioproducer.net.security.pem import read_store
from aioproducer.net.security.tls import TlsContexts, TlsSettings, make_context
from aioproducer.net.security.tls_dialer import TlsDialer
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity

KEY_PASSWORD = secret("key password 7f3a")
STORE_PASSWORD = secret("store password 91bc")

Brokers = Callable[..., AbstractAsyncContextManager[EmbeddedCluster]]


@pytest.fixture
def brokers(authority: Authority, tmp_path: Path) -> Brokers:
    @asynccontextmanager
    async def run(
        identity: Identity | None = None, *, client_ca: str | None = None
    ) -> AsyncIterator[EmbeddedCluster]:
        shown = identity or authority.issue("broker", "localhost", "127.0.0.1")
        context = authority.server_context(shown, tmp_path, client_ca=client_ca)
        security = ListenerSecurity(ssl_context=context)
        async with EmbeddedCluster(1, topics={"t": 1}, security=security) as cluster:
            yield cluster

    return run


def tls(cluster: EmbeddedCluster, authority: Authority, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_truststore_certificates": authority.pem,
    } | options


def trust_forms(authority: Authority, directory: Path) -> dict[str, dict[str, Any]]:
    pem = directory / "ca.pem"
    pem.write_text(f"a comment\n{authority.pem}")
    store = authority.pkcs12_file(directory / "ca.p12", STORE_PASSWORD)
    context = ssl.create_default_context(cadata=authority.pem)
    return {
        "text": {"ssl_truststore_certificates": authority.pem},
        "text in one line": {"ssl_truststore_certificates": authority.pem.replace("\n", " ")},
        "text with escapes": {"ssl_truststore_certificates": authority.pem.replace("\n", "\\r\\n")},
        "PEM file": {"ssl_truststore_location": str(pem), "ssl_truststore_type": "PEM"},
        "PKCS12 file": {
            "ssl_truststore_location": str(store),
            "ssl_truststore_password": STORE_PASSWORD,
        },
        "context": {"ssl_context": context},
    }


@pytest.mark.parametrize(
    "form",
    ["text", "text in one line", "text with escapes", "PEM file", "PKCS12 file", "context"],
)
async def test_trust_may_be_given_in_every_form(
    brokers: Brokers, authority: Authority, tmp_path: Path, evidence: Evidence, form: str
) -> None:
    trust = trust_forms(authority, tmp_path)[form]
    async with brokers() as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SSL"}
        assert isinstance(await attempt(evidence, **options, **trust), RecordMetadata)


@pytest.mark.parametrize("trusted", ["intermediate", "own"])
async def test_each_certificate_of_the_trust_store_is_trusted_without_its_root(
    brokers: Brokers, authority: Authority, evidence: Evidence, trusted: str
) -> None:
    intermediate = Authority("intermediate", signer=Authority("root"))
    broker = intermediate.issue("broker", "127.0.0.1")
    pem = intermediate.pem if trusted == "intermediate" else broker.certificate_pem
    async with brokers(broker) as cluster:
        options = tls(cluster, authority, ssl_truststore_certificates=pem)
        assert isinstance(await attempt(evidence, **options), RecordMetadata)


@pytest.mark.parametrize("reason", ["expired", "another host"])
async def test_trusted_certificate_of_a_broker_is_still_checked(
    brokers: Brokers, authority: Authority, evidence: Evidence, reason: str
) -> None:
    host = "127.0.0.1" if reason == "expired" else "broker.example"
    broker = authority.issue("broker", host, expired=reason == "expired")
    async with brokers(broker) as cluster:
        trust = {"ssl_truststore_certificates": broker.certificate_pem}
        error = await refused(evidence, **tls(cluster, authority, **trust))
    assert type(error) is TlsError
    assert reason in str(error)


async def test_without_a_trust_store_the_systems_authorities_are_trusted(
    brokers: Brokers,
    authority: Authority,
    tmp_path: Path,
    evidence: Evidence,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = tmp_path / "system.pem"
    system.write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    async with brokers() as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SSL"}
        assert isinstance(await attempt(evidence, **options), RecordMetadata)
        other = Authority("stranger").pem
        error = await attempt(evidence, **options, ssl_truststore_certificates=other)
        assert "certificate is not trusted" in str(error)


def test_certificates_and_host_names_are_verified_by_default() -> None:
    context = make_context(TlsSettings())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


def identity_forms(me: Identity, directory: Path) -> dict[str, dict[str, Any]]:
    key = directory / "key.pem"
    key.write_text(me.key_pem(KEY_PASSWORD))
    chain = directory / "chain.pem"
    chain.write_text(me.certificate_pem)
    both = me.pem_file(directory / "both.pem", KEY_PASSWORD)
    store = me.pkcs12_file(directory / "me.p12", STORE_PASSWORD)
    return {
        "texts": {
            "ssl_keystore_certificate_chain": me.certificate_pem,
            "ssl_keystore_key": secret(me.key_pem()),
        },
        "texts, encrypted": {
            "ssl_keystore_certificate_chain": me.certificate_pem.replace("\n", " "),
            "ssl_keystore_key": me.key_pem(KEY_PASSWORD).replace("\n", " "),
            "ssl_key_password": KEY_PASSWORD,
        },
        "one file": {"ssl_keystore_location": str(both), "ssl_key_password": KEY_PASSWORD},
        "two files": {
            "ssl_keystore_location": str(chain),
            "ssl_key_location": str(key),
            "ssl_key_password": KEY_PASSWORD,
        },
        "PKCS12": {
            "ssl_keystore_location": str(store),
            "ssl_keystore_password": STORE_PASSWORD,
            "ssl_keystore_type": "pkcs12",
        },
    }


@pytest.mark.parametrize("form", ["texts", "texts, encrypted", "one file", "two files", "PKCS12"])
async def test_a_client_certificate_may_be_given_in_every_form(
    brokers: Brokers, authority: Authority, tmp_path: Path, evidence: Evidence, form: str
) -> None:
    mine = identity_forms(authority.issue("me"), tmp_path)[form]
    async with brokers(client_ca=authority.pem) as cluster:
        outcome = await attempt(evidence, **tls(cluster, authority, **mine))
        assert isinstance(outcome, RecordMetadata)


# -- refusals --------------------------------------------------------------------------------------


async def refused(evidence: Evidence, **options: Any) -> KafkaError:
    """The error of a producer that fails at once, long before `max_block_ms`."""
    outcome = await attempt(evidence, **{"max_block_ms": 60_000} | options)
    assert isinstance(outcome, KafkaError)
    return outcome


async def test_an_unknown_authority_is_refused(
    brokers: Brokers, authority: Authority, evidence: Evidence
) -> None:
    stranger = Authority("stranger").pem
    async with brokers() as cluster:
        options = tls(cluster, authority, ssl_truststore_certificates=stranger)
        error = await refused(evidence, **options)
    assert type(error) is TlsError
    assert "certificate is not trusted" in str(error)
    assert "ssl_truststore_location" in str(error)


async def test_an_expired_certificate_is_refused(
    brokers: Brokers, authority: Authority, evidence: Evidence
) -> None:
    old = authority.issue("broker", "127.0.0.1", expired=True)
    async with brokers(old) as cluster:
        error = await refused(evidence, **tls(cluster, authority))
    assert type(error) is TlsError
    assert "expired" in str(error)
    assert "renew" in str(error)


@pytest.mark.parametrize("name", ["localhost", "broker.example"])
async def test_a_certificate_for_another_host_is_refused(
    brokers: Brokers, authority: Authority, evidence: Evidence, name: str
) -> None:
    async with brokers(authority.issue("broker", name)) as cluster:
        error = await refused(evidence, **tls(cluster, authority))
    assert type(error) is TlsError
    assert "certificate is for another host than 127.0.0.1" in str(error)


async def test_a_certificate_with_a_common_name_alone_is_for_no_host(
    brokers: Brokers, authority: Authority, evidence: Evidence
) -> None:
    async with brokers(authority.issue("localhost")) as cluster:
        port = cluster.bootstrap_servers.split(":")[1]
        options = tls(cluster, authority) | {"bootstrap_servers": f"localhost:{port}"}
        error = await refused(evidence, **options)
    assert type(error) is TlsError
    assert "certificate is for another host than localhost" in str(error)


@pytest.mark.parametrize("off", ["", "none"])
async def test_the_check_of_host_names_can_be_given_up(
    brokers: Brokers, authority: Authority, evidence: Evidence, off: str
) -> None:
    async with brokers(authority.issue("broker", "broker.example")) as cluster:
        options = tls(cluster, authority, ssl_endpoint_identification_algorithm=off)
        assert isinstance(await attempt(evidence, **options), RecordMetadata)


@pytest.mark.parametrize("versions", [["TLSv1.2"], ["TLSv1.3"]])
async def test_a_broker_that_does_not_accept_our_certificate_says_so(
    brokers: Brokers, authority: Authority, evidence: Evidence, versions: list[str]
) -> None:
    async with brokers(client_ca=authority.pem) as cluster:
        options = tls(cluster, authority, ssl_enabled_protocols=versions)
        error = await attempt(evidence, **options, max_block_ms=1500)
    # In TLS 1.3 the refusal comes after our first bytes; the reset these cause may overtake it.
    assert type(error) in {TlsError, BootstrapError}
    assert "ssl_keystore_location" in str(error)


async def test_plain_text_to_a_port_for_tls_is_reported(
    brokers: Brokers, authority: Authority, evidence: Evidence
) -> None:
    async with brokers() as cluster:
        servers = cluster.bootstrap_servers
        outcome = await attempt(evidence, bootstrap_servers=servers, max_block_ms=700)
    assert type(outcome) is TlsError
    assert "set security_protocol to SSL or SASL_SSL" in str(outcome)


async def test_tls_to_a_port_for_plain_text_is_reported(
    authority: Authority, evidence: Evidence
) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        error = await refused(evidence, **tls(cluster, authority))
    assert type(error) is TlsError
    assert "does not use TLS on this port" in str(error)
    assert "PLAINTEXT or SASL_PLAINTEXT" in str(error)


async def test_a_refusal_does_not_make_a_storm_of_connections(
    brokers: Brokers, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 1.5 s, with a backoff from 50 ms to 1 s, there is room for some seven dials a link."""
    dials = []
    connect = TlsDialer.connect

    async def counted(self: TlsDialer, *args: Any, **kwargs: Any) -> Any:
        dials.append(1)
        return await connect(self, *args, **kwargs)

    trust = tmp_path / "ca.pem"
    trust.write_text(authority.pem)
    async with brokers() as cluster:
        options = tls(cluster, authority, ssl_truststore_location=str(trust))
        del options["ssl_truststore_certificates"]
        options |= {"delivery_timeout_ms": 1500, "request_timeout_ms": 1400}
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"1")
            trust.write_text(Authority("stranger").pem)
            monkeypatch.setattr(TlsDialer, "connect", counted)
            cluster.drop_connections()
            delivery = await producer.send("t", b"2")
            with pytest.raises(KafkaError):
                await delivery
            (node,) = producer.health().nodes.values()
            assert "certificate is not trusted" in str(node.last_error)
    assert 1 <= len(dials) <= 16


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ssl_truststore_location": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        ({"ssl_truststore_certificates": "nothing"}, "holds no certificate"),
        (
            {"ssl_truststore_certificates": "-----BEGIN TRUSTED CERTIFICATE-----\nMII=\n"},
            "which only OpenSSL reads -> convert each: openssl x509",
        ),
        ({"ssl_cipher_suites": ["NO-SUCH-SUITE"]}, "ssl_cipher_suites: none is known"),
        ({"ssl_cipher_suites": ["ALL:COMPLEMENTOFALL:@SECLEVEL=0"]}, "name suites"),
        ({"ssl_cipher_suites": ["HIGH@SECLEVEL=0"]}, "name suites"),
        ({"ssl_cipher_suites": ["ALL", "eNULL"]}, "do not encrypt, or do not authenticate"),
        ({"ssl_cipher_suites": ["ECDHE-ECDSA-NULL-SHA"]}, "ssl_cipher_suites"),
        ({"ssl_cipher_suites": ["TLS_RSA_WITH_NULL_SHA256"]}, "ssl_cipher_suites"),
        ({"ssl_cipher_suites": ["AECDH-AES256-SHA"]}, "ssl_cipher_suites"),
        pytest.param(
            {"ssl_cipher_suites": ["TLS_AES_128_GCM_SHA256"]},
            "name all of them or none",
            marks=pytest.mark.skipif(sys.version_info >= (3, 15), reason="there it can be chosen"),
        ),
        ({"ssl_enabled_protocols": ["TLSv1.3"], "ssl_protocol": "TLSv1.2"}, "is below every"),
    ],
)
async def test_what_cannot_work_is_refused_at_start(
    evidence: Evidence, options: dict[str, Any], text: str
) -> None:
    error = await attempt(
        evidence, bootstrap_servers="127.0.0.1:1", security_protocol="SSL", **options
    )
    assert type(error) is ConfigError
    assert text in str(error)


@pytest.mark.parametrize(
    ("password", "text"),
    [
        (None, "is encrypted -> give its password as ssl_key_password"),
        ("wrong", "cannot be read with ssl_key"),
    ],
)
async def test_a_key_that_cannot_be_decrypted_is_refused_without_a_prompt(
    authority: Authority, evidence: Evidence, password: str | None, text: str
) -> None:
    me = authority.issue("me")
    error = await attempt(
        evidence,
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SSL",
        ssl_keystore_certificate_chain=me.certificate_pem,
        ssl_keystore_key=me.key_pem(KEY_PASSWORD),
        ssl_key_password=password,
    )
    assert type(error) is ConfigError
    assert text in str(error)


async def test_a_key_of_another_certificate_is_refused(
    authority: Authority, evidence: Evidence
) -> None:
    error = await attempt(
        evidence,
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SSL",
        ssl_keystore_certificate_chain=authority.issue("me").certificate_pem,
        ssl_keystore_key=secret(authority.issue("you").key_pem()),
    )
    assert type(error) is ConfigError
    assert "not the certificate's" in str(error)


def test_a_store_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a keystore"):
        read_store("/dev/zero", None)


def test_a_store_may_have_16_mib(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(authority.pem)
    os.truncate(path, 16 * 1024 * 1024)
    assert len(read_store(str(path), None).certificates) == 1
    os.truncate(path, 16 * 1024 * 1024 + 1)
    with pytest.raises(ConfigError, match="it has more than 16777216 bytes"):
        read_store(str(path), None)


@pytest.mark.parametrize("content", ["", "ca.pem", "\x31\x80"])
def test_a_file_that_is_no_store_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"ca\.pem is neither PEM nor PKCS12"):
        read_store(str(path), None)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"keystore_location": "key"}, "ssl_keystore_location holds no certificate"),
        ({"keystore_location": "chain"}, "ssl_keystore_location holds no private key"),
        (
            {"keystore_location": "chain", "key_location": "chain"},
            "ssl_key_location holds no private key",
        ),
        (
            {"keystore_certificate_chain": "nothing"},
            "ssl_keystore_certificate_chain holds no certificate",
        ),
        ({"keystore_location": "chain", "keystore_key": "no"}, "ssl_keystore_key holds no private"),
    ],
)
def test_the_option_that_lacks_a_key_or_a_certificate_is_named(
    authority: Authority, tmp_path: Path, given: dict[str, str], text: str
) -> None:
    me = authority.issue("me")
    (tmp_path / "key").write_text(me.key_pem())
    (tmp_path / "chain").write_text(me.certificate_pem)
    options = {
        name: str(tmp_path / value) if name.endswith("location") else value
        for name, value in given.items()
    }
    with pytest.raises(ConfigError, match=text):
        make_context(TlsSettings(**options))


@pytest.mark.timeout(30)
def test_a_store_that_is_a_pipe_is_refused_without_a_wait_for_its_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="not a keystore: it is a pipe"):
        read_store(str(pipe), None)


def test_a_store_of_javas_own_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trust.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigError, match="JKS store") as caught:
        read_store(str(path), None)
    assert "keytool -importkeystore" in str(caught.value)


def test_a_store_of_another_kind_than_said_is_refused(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(authority.pem)
    with pytest.raises(ConfigError, match="is PEM, not PKCS12"):
        read_store(str(path), None, "PKCS12")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CAMELLIA_128_CBC_SHA256", "ECDHE-ECDSA-CAMELLIA128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_javas_names_of_cipher_suites_mean_the_same_here(name: str, expected: str) -> None:
    context = make_context(TlsSettings(cipher_suites=(name,)))
    chosen = [suite["name"] for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    assert chosen == [expected]
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


# -- reloading -------------------------------------------------------------------------------------


async def test_renewed_certificates_are_read_at_the_next_connection(
    brokers: Brokers, authority: Authority, evidence: Evidence, tmp_path: Path
) -> None:
    mine = authority.issue("me").pem_file(tmp_path / "me.pem")
    stranger = Authority("stranger")
    async with brokers(client_ca=authority.pem) as cluster:
        options = tls(cluster, authority, ssl_keystore_location=str(mine))
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"1")
            stranger.issue("me").pem_file(mine)
            os.utime(mine, ns=(1, 1))
            cluster.drop_connections()
            renewed = await attempt(evidence, **options, max_block_ms=1500)
            assert isinstance(renewed, KafkaError)
            authority.issue("me").pem_file(mine)
            await producer.send_and_wait("t", b"2")


@pytest.mark.parametrize(
    ("content", "words"), [("good", "read the TLS certificates again"), ("-----BEGIN ", "keeping")]
)
async def test_a_changed_file_is_read_once(
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    content: str,
    words: str,
) -> None:
    caplog.set_level("INFO", "aioproducer")
    trust = tmp_path / "ca.pem"
    trust.write_text(authority.pem)
    contexts = TlsContexts(TlsSettings(truststore_location=str(trust)))
    first = await contexts.current()
    assert await contexts.current() is first
    assert words not in caplog.text
    trust.write_text(Authority("other").pem * 2 if content == "good" else content)
    second = await contexts.current()
    assert (second is not first) is (content == "good")
    assert await contexts.current() is second
    assert caplog.text.count(words) == 1


async def test_the_systems_authorities_are_read_again_when_they_change(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system.pem"
    system.write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    contexts = TlsContexts(TlsSettings())
    first = await contexts.current()
    assert await contexts.current() is first
    system.write_text(authority.pem + Authority("other").pem)
    second = await contexts.current()
    assert len(second.get_ca_certs()) == len(first.get_ca_certs()) + 1


async def test_a_file_that_is_half_written_leaves_the_last_good_certificates_in_use(
    brokers: Brokers, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = authority.issue("me").pem_file(tmp_path / "me.pem")
    async with brokers(client_ca=authority.pem) as cluster:
        options = tls(cluster, authority, ssl_keystore_location=str(mine))
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"1")
            mine.write_text("-----BEGIN ")
            cluster.drop_connections()
            await producer.send_and_wait("t", b"2")
    assert "keeping the TLS certificates as they were" in caplog.text


# -- without acknowledgements ----------------------------------------------------------------------


async def test_what_was_sent_without_acknowledgement_gets_out_before_the_end(
    brokers: Brokers, authority: Authority
) -> None:
    """TLS keeps bytes in its own buffer, after the one that we can see."""
    async with brokers() as cluster:
        producer = Producer(
            **tls(cluster, authority), acks=0, enable_idempotence=False, linger_ms=0
        )
        async with producer:
            await producer.send("t", b"x")
            await producer.flush()
            cluster.freeze_broker(1)
            asyncio.get_running_loop().call_later(0.3, cluster.thaw_broker, 1)
            for _ in range(39):
                await producer.send("t", b"x" * 100_000)
        await until(lambda: cluster.state.topics["t"].partition(0).log.end_offset == 40)


async def test_a_certificate_in_der_is_called_so(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "ca.der"
    path.write_bytes(ssl.PEM_cert_to_DER_cert(authority.pem))
    with pytest.raises(ConfigError, match=r"is a certificate in DER.*openssl x509 -inform DER"):
        async with Producer(
            bootstrap_servers="127.0.0.1:1",
            security_protocol="SSL",
            ssl_truststore_location=str(path),
        ):
            pass
