"""SASL between a producer and embedded brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from support.proxies import Proxy
from support.security.attempts import attempt
from support.security.leaks import Evidence, secret

from aioproducer import KafkaError, Producer, RecordMetadata, SaslCredentials
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.security.sasl.authentication import exposed_to
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NAME = "al,i=ce ü"
PASSWORD = secret("wond=er,land \u2468 4711")
WRONG = secret("wr0ng password 8")
TOKEN = secret("dG9rZW4.c2VjcmV0.xyz-~")

BEFORE_1_0 = ClusterSettings(
    api_versions={ApiKey.SASL_HANDSHAKE: (0, 0), ApiKey.SASL_AUTHENTICATE: None}
)


@asynccontextmanager
async def brokers(
    *mechanisms: str, settings: ClusterSettings | None = None, **security: Any
) -> AsyncIterator[EmbeddedCluster]:
    asked = ListenerSecurity(
        mechanisms=mechanisms or PASSWORDS, **{"users": {NAME: PASSWORD}} | security
    )
    async with EmbeddedCluster(
        1, topics={"t": 1}, security=asked, settings=settings, clock_ms=half_as_fast()
    ) as cluster:
        yield cluster


def half_as_fast() -> Callable[[], int]:
    """A clock that gives sessions twice their time: a slow machine's renewal is no late one."""
    start = time.time()
    return lambda: round((start + (time.time() - start) / 2) * 1000)


def sasl(cluster: EmbeddedCluster, mechanism: str, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    } | options


def jaas(module: str, **options: str) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    entries = " ".join(f"{name}={quoted(value)}" for name, value in options.items())
    return f"org.apache.kafka.common.security.{module} required {entries};"


def module_of(mechanism: str) -> str:
    return "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"


# -- getting in ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [None, BEFORE_1_0], ids=["SaslAuthenticate", "bare tokens"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_name_and_password_open_the_connection(
    evidence: Evidence, mechanism: str, settings: ClusterSettings | None
) -> None:
    async with brokers(settings=settings) as cluster:
        options = sasl(cluster, mechanism, sasl_username=NAME, sasl_password=PASSWORD)
        assert isinstance(await attempt(evidence, **options), RecordMetadata)
        assert cluster.security.authentications == 2  # the bootstrap server, the broker


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_javas_jaas_line_opens_the_connection(evidence: Evidence, mechanism: str) -> None:
    async with brokers() as cluster:
        line = jaas(module_of(mechanism), username=NAME, password=PASSWORD)
        options = sasl(cluster, mechanism, sasl_jaas_config=line)
        assert isinstance(await attempt(evidence, **options), RecordMetadata)


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_rotated_credentials_count_from_the_next_connection(mechanism: str) -> None:
    passwords = [PASSWORD]
    rotated = secret("after the rotation 12")

    async def current() -> tuple[str, str]:
        await asyncio.sleep(0)
        return NAME, passwords[-1]

    async with (
        brokers() as cluster,
        Producer(**sasl(cluster, mechanism, sasl_credentials=current)) as producer,
    ):
        await producer.send_and_wait("t", b"1")
        cluster.security.users = {NAME: rotated}
        passwords.append(rotated)
        cluster.drop_connections()
        await producer.send_and_wait("t", b"2")
        assert cluster.security.refusals == 0


async def test_a_delegation_token_says_that_it_is_one(evidence: Evidence) -> None:
    """KIP-48; our brokers take it for a user."""

    async def token() -> SaslCredentials:
        return SaslCredentials(NAME, PASSWORD, {"tokenauth": "true"})

    async with brokers() as cluster:
        options = sasl(cluster, "SCRAM-SHA-256")
        assert isinstance(
            await attempt(evidence, **options, sasl_credentials=token), RecordMetadata
        )
        line = jaas("scram.ScramLoginModule", username=NAME, password=PASSWORD, tokenauth="true")
        assert isinstance(await attempt(evidence, **options, sasl_jaas_config=line), RecordMetadata)


async def test_a_token_from_an_async_function_opens_the_connection(evidence: Evidence) -> None:
    async def token() -> str:
        return TOKEN

    def check(given: str) -> int | None:
        return 60_000 if given == TOKEN else None

    async with brokers("OAUTHBEARER", check_token=check) as cluster:
        options = sasl(cluster, "OAUTHBEARER", sasl_oauthbearer_token=token)
        assert isinstance(await attempt(evidence, **options), RecordMetadata)


# -- being refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_wrong_password_ends_start_at_once_with_the_brokers_words(
    evidence: Evidence, mechanism: str
) -> None:
    async with brokers() as cluster:
        options = sasl(cluster, mechanism, sasl_username=NAME, sasl_password=WRONG)
        error = await attempt(evidence, **options, max_block_ms=60_000)
        assert cluster.security.refusals == 1
    assert type(error) is SaslAuthenticationFailedError
    assert isinstance(error, AuthenticationError)
    assert "Authentication failed" in error.message


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_wrong_password_at_an_old_broker_is_guessed_from_its_silence(
    evidence: Evidence, mechanism: str
) -> None:
    async with brokers(settings=BEFORE_1_0) as cluster:
        options = sasl(cluster, mechanism, sasl_username=NAME, sasl_password=WRONG)
        error = await attempt(evidence, **options, max_block_ms=700)
    assert type(error) is BootstrapError
    assert f"during authentication by {mechanism}" in str(error)


async def test_a_refused_token_is_reported_with_the_brokers_reason(evidence: Evidence) -> None:
    async def token() -> str:
        return TOKEN

    async with brokers("OAUTHBEARER") as cluster:
        options = sasl(cluster, "OAUTHBEARER", sasl_oauthbearer_token=token)
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert type(error) is SaslAuthenticationFailedError
    assert "invalid_token" in error.message


async def test_a_mechanism_the_broker_lacks_is_reported_with_those_it_has(
    evidence: Evidence,
) -> None:
    async with brokers("SCRAM-SHA-512", "OAUTHBEARER") as cluster:
        options = sasl(cluster, "PLAIN", sasl_username=NAME, sasl_password=PASSWORD)
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert type(error) is UnsupportedSaslMechanismError
    assert "set sasl_mechanism to one of those it offers: SCRAM-SHA-512;" in str(error)
    assert "OAUTHBEARER, which would give the password or token to all" in str(error)


async def test_a_broker_that_offers_plain_alone_does_not_get_it_advised(
    evidence: Evidence,
) -> None:
    async with brokers("PLAIN") as cluster:
        options = sasl(cluster, "SCRAM-SHA-512", sasl_username=NAME, sasl_password=PASSWORD)
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert type(error) is UnsupportedSaslMechanismError
    assert "set sasl_mechanism to" not in str(error)
    assert "PLAIN, which would give the password or token to all" in str(error)


@pytest.mark.parametrize(
    ("mechanism", "host", "uses_tls", "exposed"),
    [
        ("PLAIN", "kafka.example", False, True),
        ("OAUTHBEARER", "10.0.0.1", False, True),
        ("AWS_MSK_IAM", "10.0.0.1", False, True),
        ("AWS_MSK_IAM", "10.0.0.1", True, False),
        ("PLAIN", "notlocalhost", False, True),
        ("PLAIN", "kafka.example", True, False),
        ("PLAIN", "localhost", False, False),
        ("PLAIN", "127.0.0.2", False, False),
        ("PLAIN", "::1", False, False),
        ("SCRAM-SHA-512", "kafka.example", False, False),
    ],
)
def test_what_others_can_read_is_known(
    mechanism: str, host: str, uses_tls: bool, exposed: bool
) -> None:
    chosen: Any = SimpleNamespace(name=mechanism)
    assert (exposed_to(chosen, host, uses_tls=uses_tls) is not None) is exposed


@pytest.mark.parametrize("proxy", ["10.0.0.1", "127.0.0.1"])
def test_localhost_behind_a_proxy_is_another_machine(proxy: str) -> None:
    chosen: Any = SimpleNamespace(name="PLAIN")
    assert exposed_to(chosen, "localhost", uses_tls=False, via=proxy) is not None
    assert exposed_to(chosen, "localhost", uses_tls=True, via=proxy) is None


async def test_a_password_for_localhost_through_a_proxy_is_warned_of(
    evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    async with brokers() as cluster, Proxy() as proxy:
        options = sasl(cluster, "PLAIN", sasl_username=NAME, sasl_password=PASSWORD)
        options |= {"proxy_url": f"socks5://127.0.0.1:{proxy.port}"}
        assert isinstance(await attempt(evidence, **options), RecordMetadata)
    assert any("user name and password can be read on the way" in m for m in caplog.messages)


async def test_a_password_that_others_can_read_is_warned_of(
    evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    async def dial(host: str, port: int) -> Any:
        return await asyncio.open_connection("127.0.0.1", port)

    async with brokers() as cluster:
        port = cluster.bootstrap_servers.split(":")[1]
        options = sasl(cluster, "PLAIN", sasl_username=NAME, sasl_password=PASSWORD)
        options |= {"bootstrap_servers": f"kafka.example:{port}", "dialer": dial}
        assert isinstance(await attempt(evidence, **options), RecordMetadata)
    warned = [line for line in caplog.messages if "can be read on the way" in line]
    assert warned == [
        "user name and password can be read on the way to bootstrap server kafka.example:"
        f"{port}, since the connection is not encrypted: use security_protocol=SASL_SSL, or a "
        "SCRAM mechanism"
    ]


async def test_sasl_to_a_port_without_it_is_reported(evidence: Evidence) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        options = sasl(cluster, "PLAIN", sasl_username=NAME, sasl_password=PASSWORD)
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert type(error) is IllegalSaslStateError
    assert "wants no SASL on this port" in str(error)


async def test_no_sasl_to_a_port_with_it_is_refused_by_name(evidence: Evidence) -> None:
    async with brokers() as cluster:
        error = await attempt(
            evidence, bootstrap_servers=cluster.bootstrap_servers, max_block_ms=700
        )
    assert type(error) is AuthenticationError
    assert "wants SASL on this port and offers PLAIN, SCRAM" in str(error)


async def test_refused_credentials_make_no_storm_of_connections() -> None:
    async with (
        brokers() as cluster,
        Producer(
            **sasl(cluster, "PLAIN", sasl_username=NAME, sasl_password=PASSWORD),
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=1000,
            delivery_timeout_ms=2500,
            request_timeout_ms=2000,
        ) as producer,
    ):
        await producer.send_and_wait("t", b"1")
        cluster.security.users = {}
        cluster.drop_connections()
        delivery = await producer.send("t", b"2")
        with pytest.raises(KafkaError):
            await delivery
        # 50, 100, 200, 400, 800 and 1000 ms apart, of two links, each 20 % less by jitter.
        assert 1 <= cluster.security.refusals <= 16


async def test_credentials_that_cannot_be_had_are_asked_for_again(evidence: Evidence) -> None:
    asked = []

    async def flaky() -> tuple[str, str]:
        asked.append(1)
        if len(asked) == 1:
            raise OSError(f"the vault said {WRONG.upper()}")
        return NAME, PASSWORD

    async with brokers() as cluster:
        options = sasl(cluster, "PLAIN", sasl_credentials=flaky)
        assert isinstance(await attempt(evidence, **options), RecordMetadata)


@pytest.mark.parametrize("option", ["sasl_credentials", "sasl_oauthbearer_token"])
async def test_what_a_function_of_the_user_raises_is_the_cause_and_logged_once(
    caplog: pytest.LogCaptureFixture, evidence: Evidence, option: str
) -> None:
    mistake = TypeError("the vault's client wants a region")

    async def broken() -> Any:
        raise mistake

    mechanism = "PLAIN" if option == "sasl_credentials" else "OAUTHBEARER"
    async with brokers(mechanism) as cluster:
        options = sasl(cluster, mechanism, **{option: broken})
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert isinstance(error, AuthenticationError)
    assert f'{option} raised TypeError("the vault\'s client wants a region")' in str(error)
    assert error.__cause__ is mistake
    reported = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[1] for record in reported if record.exc_info] == [mistake]


async def test_a_function_that_awaits_a_cancelled_task_is_named_by_the_error(
    evidence: Evidence,
) -> None:
    async def broken() -> Any:
        task = asyncio.create_task(asyncio.sleep(9))
        task.cancel()
        await task

    async with brokers() as cluster:
        options = sasl(cluster, "PLAIN", sasl_credentials=broken)
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert isinstance(error, AuthenticationError)
    assert "sasl_credentials raised CancelledError()" in str(error)


async def test_credentials_may_come_from_a_function_that_is_not_asynchronous(
    evidence: Evidence,
) -> None:
    async with brokers() as cluster:
        options = sasl(cluster, "PLAIN", sasl_credentials=lambda: (NAME, PASSWORD))
        assert isinstance(await attempt(evidence, **options), RecordMetadata)


@pytest.mark.parametrize("given", [None, ("only one",), ("name", b"bytes"), "text"])
async def test_credentials_of_a_wrong_shape_are_refused(evidence: Evidence, given: object) -> None:
    async def wrong() -> Any:
        return given

    async with brokers() as cluster:
        options = sasl(cluster, "SCRAM-SHA-256", sasl_credentials=wrong)
        error = await attempt(evidence, **options, max_block_ms=60_000)
    assert type(error) is AuthenticationError
    assert "sasl_credentials must return" in str(error)
    assert error.advice == "correct the function given as sasl_credentials"


async def test_a_source_of_credentials_that_is_down_is_not_blamed_on_the_broker(
    evidence: Evidence,
) -> None:
    async def down() -> tuple[str, str]:
        raise ConnectionError("the vault does not answer")

    async with brokers() as cluster:
        options = sasl(cluster, "PLAIN", sasl_credentials=down)
        error = await attempt(evidence, **options, max_block_ms=300)
    assert type(error) is BootstrapError
    assert "sasl_credentials raised ConnectionError('the vault does not answer')" in str(error)
    assert error.advice == ADVICE["credentials-unavailable"]


async def test_a_function_that_never_answers_does_not_hold_start_up(evidence: Evidence) -> None:
    async def stuck() -> tuple[str, str]:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async with brokers() as cluster:
        error = await attempt(
            evidence,
            **sasl(cluster, "PLAIN", sasl_credentials=stuck),
            request_timeout_ms=300,
            max_block_ms=500,
        )
    assert type(error) is BootstrapError
    assert "authentication by PLAIN was not finished in time" in str(error)


# -- sessions that end (KIP-368) -------------------------------------------------------------------


async def send_for(producer: Producer, seconds: float) -> int:
    """Keeps requests in flight all the time; gives how many records were acknowledged."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    count = 0
    while loop.time() < until:
        deliveries = [await producer.send("t", b"x" * 200) for _ in range(50)]
        await asyncio.gather(*deliveries)
        count += len(deliveries)
    return count


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_sessions_are_renewed_under_load_without_losing_a_request(mechanism: str) -> None:
    async with (
        brokers(max_reauth_ms=300) as cluster,
        Producer(
            **sasl(cluster, mechanism, sasl_username=NAME, sasl_password=PASSWORD),
            linger_ms=0,
            batch_size=400,
            retries=0,
            enable_idempotence=False,
        ) as producer,
    ):
        first = cluster.connection_count(1)
        sent = await asyncio.gather(*(send_for(producer, 1.5) for _ in range(3)))
        assert producer.metrics()["record_retry_total"] == 0
        assert producer.metrics()["record_acknowledged_total"] == sum(sent) > 0
        assert cluster.security.authentications >= 5
        assert cluster.connection_count(1) <= first + 1


async def test_an_idle_connection_is_renewed_when_it_is_used_again() -> None:
    async with (
        brokers(max_reauth_ms=200) as cluster,
        Producer(
            **sasl(cluster, "SCRAM-SHA-256", sasl_username=NAME, sasl_password=PASSWORD)
        ) as producer,
    ):
        await producer.send_and_wait("t", b"1")
        before = cluster.security.authentications
        await asyncio.sleep(0.5)
        assert cluster.security.authentications == before
        await producer.send_and_wait("t", b"2")
        assert cluster.security.authentications == before + 1
        assert producer.metrics()["record_retry_total"] == 0


async def test_a_password_changed_during_a_session_fails_its_renewal() -> None:
    async with (
        brokers(max_reauth_ms=300) as cluster,
        Producer(
            **sasl(cluster, "PLAIN", sasl_username=NAME, sasl_password=PASSWORD),
            delivery_timeout_ms=1200,
            request_timeout_ms=1000,
        ) as producer,
    ):
        await producer.send_and_wait("t", b"1")
        cluster.security.users = {}
        await asyncio.sleep(0.4)
        delivery = await producer.send("t", b"2")
        with pytest.raises(KafkaError) as caught:
            await delivery
        assert "Invalid username or password" in str(caught.value)
        # Once the password is right again, so is everything.
        cluster.security.users = {NAME: PASSWORD}
        await producer.send_and_wait("t", b"3")


def test_no_message_shows_a_token_in_its_repr(evidence: Evidence) -> None:
    evidence.text(repr(SaslAuthenticateRequest(auth_bytes=PASSWORD.encode())))
    evidence.text(repr(SaslAuthenticateResponse(auth_bytes=PASSWORD.encode())))
    evidence.text(repr(SaslCredentials("me", PASSWORD)))
