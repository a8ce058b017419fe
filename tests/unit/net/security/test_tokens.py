"""Times and sources of fetched tokens, and failures to fetch them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from support.security.certificates import Authority
from support.security.issuer import Issuer, decoded, encoded, serving
from support.security.leaks import Evidence, secret

from aioproducer import OAuthToken, ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    ConfigError,
    KafkaConnectionError,
    KafkaError,
)
from aioproducer.net.security.assertions import (
    AssertionSettings,
    assertion_file,
    make_assertion,
    signed_assertions,
)
from aioproducer.net.security.oidc import EndpointSettings, TokenEndpoint, token_file
from aioproducer.net.security.sasl.oauthbearer import OAuthBearer
from aioproducer.net.security.tokens import CachedTokens, RefreshPolicy, as_token
from net.virtual import virtual_time

CLIENT_SECRET = secret("cl1ent:secret 55 ü")
WRONG = secret("wr0ng one")
PASSPHRASE = secret("passphrase 0815")
DRY = Random(1)
UTC_NOW = datetime.now(UTC)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Gives tokens of a life, or the error it was given."""

    def __init__(self, clock: Clock, life_s: float | None) -> None:
        self.clock = clock
        self.life_s = life_s
        self.error: Exception | None = None
        self.hangs = False
        self.count = 0

    async def __call__(self) -> OAuthToken:
        await asyncio.sleep(3600 if self.hangs else 0)
        if self.error is not None:
            raise self.error
        self.count += 1
        ends = None if self.life_s is None else self.clock.now + self.life_s
        return OAuthToken(f"token-{self.count}", ends)


def cached(life_s: float | None = 1000.0, **policy: float) -> tuple[Clock, Source, CachedTokens]:
    clock = Clock()
    source = Source(clock, life_s)
    settings = {"window_jitter": 0.0, "buffer_s": 0.0, "min_period_s": 0.0} | policy
    return clock, source, CachedTokens(source, RefreshPolicy(**settings), rng=DRY, clock=clock)


async def test_a_token_is_used_until_four_fifths_of_its_life() -> None:
    clock, _, tokens = cached()
    assert (await tokens.token()).value == "token-1"
    clock.now += 799
    assert (await tokens.token()).value == "token-1"
    clock.now += 1
    assert (await tokens.token()).value == "token-2"


async def test_a_token_of_unknown_life_is_fetched_each_time() -> None:
    _, _, tokens = cached(None)
    assert [(await tokens.token()).value for _ in range(2)] == ["token-1", "token-2"]


async def test_many_connections_at_once_cost_one_fetch() -> None:
    _, source, tokens = cached()
    values = {token.value for token in await asyncio.gather(*(tokens.token() for _ in range(9)))}
    assert values == {"token-1"}
    assert source.count == 1


async def test_while_fetching_fails_the_old_token_does_until_its_end() -> None:
    clock, source, tokens = cached()
    await tokens.token()
    source.error = KafkaConnectionError("not now")
    clock.now += 900
    assert (await tokens.token()).value == "token-1"
    clock.now += 100
    with pytest.raises(KafkaConnectionError, match="not now"):
        await tokens.token()
    source.error = None
    assert (await tokens.token()).value == "token-2"


async def test_a_failed_fetch_is_repeated_after_10_s_not_by_each_connection() -> None:
    clock, source, tokens = cached()
    await tokens.token()
    source.error = KafkaConnectionError("not now")
    clock.now += 900
    await tokens.token()
    source.error = None
    clock.now += 9.9
    assert (await tokens.token()).value == "token-1"
    clock.now += 0.2
    assert (await tokens.token()).value == "token-2"


@virtual_time
async def test_while_a_fetch_hangs_the_old_token_does() -> None:
    """Within `request_timeout_ms`, in which the connection has to be authenticated."""
    clock, source, tokens = cached()
    await tokens.token()
    source.hangs = True
    clock.now += 900
    async with asyncio.timeout(30):
        values = [token.value for token in await asyncio.gather(*(tokens.token() for _ in "12345"))]
    assert values == ["token-1"] * 5


@virtual_time
async def test_after_a_fetch_that_outlasts_its_connection_the_next_uses_the_old_token() -> None:
    clock, source, tokens = cached()
    await tokens.token()
    source.hangs = True
    clock.now += 900
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await tokens.token()
    async with asyncio.timeout(5):
        assert (await tokens.token()).value == "token-1"


@pytest.mark.parametrize("passed_s", [60, 700, -1])
async def test_a_token_that_a_broker_has_refused_is_replaced_at_its_next_use(
    passed_s: float,
) -> None:
    """The clock may be slow, or may have been set back."""
    clock, _, tokens = cached(min_period_s=60.0)
    refused = await tokens.token()
    clock.now += passed_s
    tokens.on_refused(refused)
    assert (await tokens.token()).value == "token-2"
    assert (await tokens.token()).value == "token-2"


async def test_refused_tokens_cost_one_fetch_in_the_least_period() -> None:
    clock, source, tokens = cached(min_period_s=60.0)
    for _ in range(100):
        tokens.on_refused(await tokens.token())
        clock.now += 1.5
    assert source.count == 3


async def test_the_refusal_of_an_earlier_token_does_not_replace_the_next() -> None:
    clock, _, tokens = cached(min_period_s=60.0)
    earlier = await tokens.token()
    clock.now += 800
    assert (await tokens.token()).value == "token-2"
    clock.now += 100
    tokens.on_refused(earlier)
    assert (await tokens.token()).value == "token-2"


async def test_a_token_is_not_used_after_its_end_whatever_the_refresh_window() -> None:
    """A short life has no bounds by `min_period_s` and `buffer_s`."""
    clock, _, tokens = cached(window_factor=1.0, window_jitter=0.25, buffer_s=2000.0)
    assert (await tokens.token()).value == "token-1"
    clock.now += 1000
    assert (await tokens.token()).value == "token-2"


@pytest.mark.parametrize("life_s", [-1, 0])
async def test_a_token_that_has_ended_already_is_refused(life_s: float) -> None:
    _, _, tokens = cached(life_s)
    with pytest.raises(AuthenticationError, match="expired already"):
        await tokens.token()


@pytest.mark.parametrize(
    ("life_s", "expected"),
    [(3600, 2880), (1000, 700), (100, 80), (365, 65), (361, 61), (360, 288)],
)
@pytest.mark.parametrize("fetched_at", [0, 7])
def test_the_moment_of_a_refresh_keeps_javas_bounds(
    life_s: float, expected: float, fetched_at: float
) -> None:
    """0.8 of the life; 300 s before the end; after 60 s; short lives have no bounds."""
    policy = RefreshPolicy(window_jitter=0.0)
    assert policy.moment(fetched_at, fetched_at + life_s, DRY) == fetched_at + expected


@pytest.mark.parametrize("fetched_at", [0, 7])
def test_a_refresh_waits_for_the_least_period_after_the_fetch(fetched_at: float) -> None:
    policy = RefreshPolicy(window_factor=0.5, window_jitter=0.0, min_period_s=600, buffer_s=100)
    assert policy.moment(fetched_at, fetched_at + 1000, DRY) == fetched_at + 600


def test_the_moment_of_a_refresh_is_up_to_5_percent_later_by_jitter() -> None:
    policy, life_s = RefreshPolicy(), 10_000
    moments = [policy.moment(0, life_s, Random(seed)) for seed in range(100)]
    assert 8_000 <= min(moments) < 8_050
    assert 8_450 < max(moments) <= 8_500


def test_the_defaults_are_those_of_the_options() -> None:
    options = ProducerConfig(bootstrap_servers="kafka:9092")
    policy = RefreshPolicy()
    assert policy.window_factor == options.sasl_login_refresh_window_factor
    assert policy.window_jitter == options.sasl_login_refresh_window_jitter
    assert policy.min_period_s == options.sasl_login_refresh_min_period_seconds
    assert policy.buffer_s == options.sasl_login_refresh_buffer_seconds
    settings = EndpointSettings("http://issuer.example/token")
    assert settings.urlencode_header is options.sasl_oauthbearer_header_urlencode is False
    assert settings.jwt_bearer is False
    assert settings.retry_backoff_s == options.sasl_login_retry_backoff_ms / 1000
    assert settings.retry_s == options.sasl_login_retry_backoff_max_ms / 1000
    assert (settings.connect_timeout_s, settings.read_timeout_s) == (10, 10)
    assertions = AssertionSettings("key.pem")
    assert assertions.with_id is options.sasl_oauthbearer_assertion_claim_jti_include is False
    assert assertions.life_s == options.sasl_oauthbearer_assertion_claim_exp_seconds
    assert assertions.valid_before_s == options.sasl_oauthbearer_assertion_claim_nbf_seconds


def test_a_jwt_says_itself_when_it_ends() -> None:
    claims = encoded(json.dumps({"exp": 1234.5}).encode())
    assert as_token(f"a.{claims}.c").expires_at == 1234.5
    for other in ("opaque", "a.!!!.c", f"a.{encoded(b'[]')}.c", f"a.{encoded(b'{')}.c"):
        assert as_token(other).expires_at is None
    assert as_token(f"a.{encoded(json.dumps({'exp': True}).encode())}.c").expires_at is None
    with pytest.raises(AuthenticationError, match="must be a str or an OAuthToken, not bytes"):
        as_token(b"token")


@pytest.mark.parametrize(
    ("seconds", "expires_at"),
    [
        (0, 0.0),
        (-5, -5.0),
        (253_402_300_799, 253_402_300_799.0),
        (253_402_300_800, None),
        (-253_402_300_800, None),
        (None, None),
    ],
)
def test_the_end_of_a_jwt_is_before_the_year_10000(
    seconds: int | None, expires_at: float | None
) -> None:
    claims = encoded(json.dumps({"exp": seconds}).encode())
    assert as_token(f"a.{claims}.c").expires_at == expires_at


@pytest.mark.parametrize("parts", [2, 4])
def test_a_token_that_does_not_have_three_parts_is_not_read(parts: int) -> None:
    claims = encoded(json.dumps({"exp": 1234.5}).encode())
    assert as_token(".".join(["a", claims, "c", "d"][:parts])).expires_at is None


@pytest.mark.parametrize("filler", ["", "x", "xx", "xxx"])
def test_the_end_of_a_jwt_is_read_whatever_its_length(filler: str) -> None:
    """Base64 without padding has any length but one more than a multiple of four."""
    claims = encoded(json.dumps({"exp": 1234.5, "sub": filler}).encode())
    assert as_token(f"a.{claims.rstrip('=')}.c").expires_at == 1234.5


def test_a_token_of_the_user_is_used_as_it_is() -> None:
    token = OAuthToken("opaque", 1234.5, {"a": "b"})
    assert as_token(token, {"c": "d"}) is token


@pytest.mark.parametrize("end", [1.8e12, float("nan"), -inf, True, "1800000000", UTC_NOW])
def test_an_end_that_is_no_time_in_seconds_is_refused(end: Any) -> None:
    with pytest.raises(AuthenticationError, match="not a time in seconds since the epoch"):
        as_token(OAuthToken("opaque", end))


def test_a_token_of_the_user_may_have_no_end() -> None:
    assert as_token(OAuthToken("opaque", inf)).expires_at == inf


def test_a_token_may_be_of_a_subclass_with_another_constructor() -> None:
    class JsonToken(OAuthToken):
        def __init__(self, answer: dict[str, Any]) -> None:
            super().__init__(answer["access_token"], answer["expires_at"])

    given = JsonToken({"access_token": "opaque", "expires_at": 5.0})
    assert as_token(given) is given
    assert as_token(given, {"a": "b"}) == OAuthToken("opaque", 5.0, {"a": "b"})


def test_a_token_of_the_user_without_extensions_gets_those_of_the_options() -> None:
    token = as_token(OAuthToken("opaque", 1234.5), {"c": "d"})
    assert (token.value, token.expires_at, token.extensions) == ("opaque", 1234.5, {"c": "d"})


# -- the message -----------------------------------------------------------------------------------


class Fixed:
    def __init__(self, token: OAuthToken) -> None:
        self._token = token
        self.refused: list[OAuthToken] = []

    async def token(self) -> OAuthToken:
        return self._token

    def on_refused(self, token: OAuthToken) -> None:
        self.refused.append(token)


async def test_token_and_extensions_are_sent_as_rfc_7628_has_them() -> None:
    token = OAuthToken("abc", None, {"logicalCluster": "lkc-1"})
    exchange = OAuthBearer(Fixed(token)).exchange("broker")
    assert await anext(exchange) == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"
    with pytest.raises(StopAsyncIteration):
        await exchange.asend(b"")


@pytest.mark.parametrize(
    "token",
    [
        OAuthToken("with blank"),
        OAuthToken("abc\x01auth=x"),
        OAuthToken(""),
        OAuthToken("abc", None, {"auth": "x"}),
        OAuthToken("abc", None, {"n1": "x"}),
        OAuthToken("abc", None, {"name": "a\x01b"}),
    ],
)
async def test_what_would_break_the_message_is_refused(token: OAuthToken) -> None:
    with pytest.raises(AuthenticationError):
        await anext(OAuthBearer(Fixed(token)).exchange("broker"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": "invalid_token"}, "invalid_token"),
        ({"status": "x" * 300}, "x" * 200),
        ({"status": "bad abc.def"}, r"bad \*\*\*"),
        ({"status": "bad lkc-1234"}, r"bad \*\*\*"),
        ({"status": 7}, "no reason given"),
        ({}, "no reason given"),
        ({"status": "bad", "filler": "x" * 65_536}, "no reason given"),
        ([], "no reason given"),
    ],
)
async def test_the_status_of_a_refused_token_is_shown_without_the_token(
    answer: object, reason: str
) -> None:
    token = OAuthToken("abc.def", None, {"logicalCluster": "lkc-1234"})
    tokens = Fixed(token)
    exchange = OAuthBearer(tokens).exchange("broker")
    await anext(exchange)
    await exchange.asend(json.dumps(answer).encode())
    with pytest.raises(AuthenticationError, match=f"refused the OAuth token: {reason} ->"):
        await exchange.asend(b"")
    assert tokens.refused == [token]


@given(st.binary(min_size=1))
def test_whatever_a_broker_answers_to_a_token_only_refuses_it(answer: bytes) -> None:
    async def run() -> None:
        exchange = OAuthBearer(Fixed(OAuthToken("abc"))).exchange("broker")
        await anext(exchange)
        assert await exchange.asend(answer) == b"\x01"
        with pytest.raises(AuthenticationError, match="refused the OAuth token"):
            await exchange.asend(b"")

    asyncio.run(run())


@given(st.text() | st.lists(st.text(), min_size=3, max_size=3).map(".".join))
def test_any_text_may_be_a_token(text: str) -> None:
    assert as_token(text).value == text


# -- the token endpoint ----------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Any:
    with serving(Issuer("me", CLIENT_SECRET)) as issuer:
        yield issuer


def endpoint(
    issuer: Issuer, assertions: Any = None, path: str = "/token", **settings: Any
) -> TokenEndpoint:
    known = {"client_id": "me", "retry_backoff_s": 0.01, "retry_s": 1.0}
    if assertions is None:
        known["client_secret"] = CLIENT_SECRET
    return TokenEndpoint(
        EndpointSettings(f"{issuer.url}{path}", **known | settings),
        extensions={},
        assertions=assertions,
        rng=Random(1),
    )


async def test_client_credentials_get_a_token(issuer: Issuer) -> None:
    token = await endpoint(issuer, scope="a b").fetch()
    assert token.value == issuer.issued[-1]
    assert token.expires_at is not None
    assert issuer.requests == [{"grant_type": "client_credentials", "scope": "a b"}]


async def test_no_proxy_is_taken_from_the_environment(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await endpoint(issuer, retry_s=0.1).fetch()).value == issuer.issued[-1]


async def test_errors_of_the_server_are_tried_again(issuer: Issuer) -> None:
    issuer.failures = [500, 503, 429, 408]
    assert (await endpoint(issuer).fetch()).value
    assert len(issuer.requests) == 5


async def test_a_busy_endpoint_is_given_time_before_the_next_request(issuer: Issuer) -> None:
    issuer.failures = [503, 503]
    started = time.monotonic()
    await endpoint(issuer, retry_backoff_s=0.1, retry_s=30.0).fetch()
    assert time.monotonic() - started > 0.1
    assert len(issuer.requests) == 3


async def test_an_endpoint_that_stays_unable_is_given_up_for_now(issuer: Issuer) -> None:
    issuer.failures = [503] * 100
    with pytest.raises(KafkaConnectionError, match=r"no token after \d+ attempt.*HTTP 503"):
        await endpoint(issuer, retry_s=0.5, retry_backoff_s=0.02).fetch()
    assert 2 <= len(issuer.requests) < 20


async def test_an_endpoint_is_not_asked_again_after_the_time_for_retries(issuer: Issuer) -> None:
    issuer.failures = [503] * 100
    known = {"client_id": "me", "client_secret": CLIENT_SECRET}
    settings = EndpointSettings(f"{issuer.url}/token", retry_backoff_s=10, retry_s=5, **known)
    unlucky = Random(2)  # its first delay is no shorter than 5 s
    asked = TokenEndpoint(settings, extensions={}, assertions=None, rng=unlucky)
    with pytest.raises(KafkaConnectionError, match=r"no token after 1 attempt.*HTTP 503$"):
        await asked.fetch()
    assert len(issuer.requests) == 1


async def test_an_endpoint_that_is_not_there_is_given_up_for_now(issuer: Issuer) -> None:
    broken = TokenEndpoint(
        EndpointSettings("http://127.0.0.1:1/token", "me", CLIENT_SECRET, retry_s=0.1),
        extensions={},
        assertions=None,
        rng=Random(1),
    )
    with pytest.raises(KafkaConnectionError, match="no token after"):
        await broken.fetch()


async def test_a_refusal_is_final_and_quotes_the_endpoint(
    issuer: Issuer, evidence: Evidence
) -> None:
    with pytest.raises(AuthenticationError) as caught:
        await endpoint(issuer, client_secret=WRONG).fetch()
    evidence.add(caught.value)
    assert "HTTP 401 (invalid_client: unknown client)" in str(caught.value)
    assert len(issuer.requests) == 1


async def test_id_and_secret_can_be_url_encoded(issuer: Issuer) -> None:
    issuer.client_secret = "cl1ent%3Asecret+55+%C3%BC"
    assert (await endpoint(issuer, urlencode_header=True).fetch()).value


# -- assertions ------------------------------------------------------------------------------------


def assertion(issuer: Issuer, directory: Path, **settings: Any) -> AssertionSettings:
    path = directory / "client.key"
    path.write_bytes(issuer.client_key_pem(PASSPHRASE))
    known = {"audience": "issuer", "issuer": "me", "subject": "me", "passphrase": PASSPHRASE}
    return AssertionSettings(str(path), **known | settings)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("jwt_bearer", [True, False])
async def test_a_signed_assertion_takes_the_place_of_the_secret(
    issuer: Issuer, tmp_path: Path, evidence: Evidence, algorithm: str, jwt_bearer: bool
) -> None:
    if algorithm == "ES256":
        issuer.client_key = ec.generate_private_key(ec.SECP256R1())
    settings = assertion(issuer, tmp_path, algorithm=algorithm)
    evidence.text(repr(settings))
    fetched = await endpoint(issuer, signed_assertions(settings), jwt_bearer=jwt_bearer).fetch()
    assert fetched.value == issuer.issued[-1]
    (form,) = issuer.requests
    if jwt_bearer:
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    else:
        assert form["grant_type"] == "client_credentials"
        assert form["client_assertion_type"].endswith(":jwt-bearer")


async def test_an_assertion_from_a_file_is_sent_as_it_is(issuer: Issuer, tmp_path: Path) -> None:
    ready = tmp_path / "assertion.jwt"
    ready.write_text(make_assertion(assertion(issuer, tmp_path), 1e9) + "\n")
    with pytest.raises(AuthenticationError, match="HTTP 401"):  # it ended in 2001
        await endpoint(issuer, assertion_file(str(ready))).fetch()


def test_a_template_adds_claims_and_headers(issuer: Issuer, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "k"}, "payload": {"tenant": "x", "aud": "lost"}}')
    made = make_assertion(
        assertion(issuer, tmp_path, template_file=str(template), with_id=True), 1000.7
    )
    header, claims, _ = (json.loads(decoded(p)) if p[:2] == "ey" else p for p in made.split("."))
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "k"}
    assert (claims["tenant"], claims["aud"], claims["iat"]) == ("x", "issuer", 1000)
    assert (claims["exp"], claims["nbf"]) == (1300, 940)
    assert claims["jti"]


def test_a_template_does_not_change_the_algorithm(issuer: Issuer, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text('{"header": {"alg": "none"}}')
    made = make_assertion(assertion(issuer, tmp_path, template_file=str(template)), 0)
    header, _, signature = made.split(".")
    assert json.loads(decoded(header))["alg"] == "RS256"
    assert signature


def test_a_key_of_another_curve_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    issuer.client_key = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(AuthenticationError, match="is not one for ES256"):
        make_assertion(assertion(issuer, tmp_path, algorithm="ES256"), 0)


def test_a_template_that_cannot_be_signed_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": 7}}')
    with pytest.raises(AuthenticationError, match="cannot be signed"):
        make_assertion(assertion(issuer, tmp_path, template_file=str(template)), 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"passphrase": "wrong"}, "cannot be read"),
        ({"passphrase": None}, "cannot be read"),
        ({"algorithm": "ES256"}, "is not one for ES256"),
        ({"template_file": "/nowhere"}, "/nowhere cannot be read"),
    ],
)
def test_a_key_or_template_of_no_use_is_named(
    issuer: Issuer, tmp_path: Path, evidence: Evidence, change: dict[str, Any], text: str
) -> None:
    with pytest.raises(AuthenticationError, match=text) as caught:
        make_assertion(assertion(issuer, tmp_path, **change), 0)
    evidence.add(caught.value)


async def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    read = token_file(str(path), {})
    with pytest.raises(KafkaConnectionError, match="cannot be read"):
        await read()
    path.write_text("abc\n")
    assert (await read()).value == "abc"


@asynccontextmanager
async def hostile(
    *parts: bytes, pause_s: float = 0.0, tls: SSLContext | None = None
) -> AsyncIterator[str]:
    """The address of a token endpoint that answers with these bytes, whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}/token"


def asking(url: str, **settings: Any) -> TokenEndpoint:
    chosen = EndpointSettings(url, "me", CLIENT_SECRET, retry_s=0.2, **settings)
    return TokenEndpoint(chosen, extensions={}, assertions=None, rng=Random(1))


async def test_the_certificate_of_a_token_endpoint_is_verified_by_the_authorities_of_a_file(
    tmp_path: Path,
) -> None:
    authority, ca = Authority(), tmp_path / "ca.pem"
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer", "127.0.0.1").pem_file(tmp_path / "own.pem"))
    ca.write_text(authority.pem)
    head = b"HTTP/1.1 400 -\r\nContent-Length: 0\r\n\r\n"
    async with hostile(head, tls=context) as url:
        with pytest.raises(AuthenticationError, match="HTTP 400"):
            await asking(url, ca_location=str(ca)).fetch()
        for other in (None, str(tmp_path / "other.pem")):
            (tmp_path / "other.pem").write_text(Authority("Another CA").pem)
            with pytest.raises(KafkaConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await asking(url, ca_location=other).fetch()
        with pytest.raises(ConfigError, match=r"missing\.pem cannot be read"):
            asking(url, ca_location=str(tmp_path / "missing.pem"))


async def test_an_answer_that_is_compressed_is_not_unpacked() -> None:
    body = gzip.compress(bytes(50_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    tracemalloc.start()
    try:
        async with hostile(head + body) as url:
            with pytest.raises(AuthenticationError, match="is compressed, which was not requested"):
                await asking(url).fetch()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10_000_000


async def test_no_more_of_an_answer_is_read_than_a_token_needs() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 400000000\r\n\r\n"
    async with hostile(head, *[bytes(100_000)] * 20) as url:
        with pytest.raises(AuthenticationError, match="exceeds 1048576 bytes"):
            await asking(url).fetch()


@pytest.mark.parametrize(
    "head", [b"Content-Encoding: gzip\r\nContent-Length: 3\r\n", b"Content-Length: 40000000\r\n"]
)
async def test_an_error_counts_by_its_status_whatever_its_page_is(head: bytes) -> None:
    parts = [b"HTTP/1.1 503 -\r\n%b\r\n" % head, *[bytes(100_000)] * 20]
    async with hostile(*parts) as url:
        with pytest.raises(KafkaConnectionError, match="HTTP 503"):
            await asking(url).fetch()


async def test_a_time_that_a_busy_endpoint_asks_for_is_waited_for() -> None:
    busy = b"HTTP/1.1 429 -\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"
    async with hostile(busy) as url:
        with pytest.raises(KafkaConnectionError, match=r"no token after 1 attempt.*HTTP 429"):
            await asking(url, retry_backoff_s=0.001).fetch()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"429 -\r\nRetry-After: 9999999", KafkaConnectionError),
        (b"401 -", AuthenticationError),
    ],
)
async def test_an_endpoint_that_was_busy_or_has_refused_is_not_asked_again_at_once(
    answer: bytes, kind: type[KafkaError]
) -> None:
    async with hostile(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % answer) as url:
        endpoint = asking(url)
        with pytest.raises(kind) as first:
            await endpoint.fetch()
    # Nothing listens there any more.
    with pytest.raises(kind) as second:
        await endpoint.fetch()
    assert second.value is not first.value
    assert str(second.value) == str(first.value)


async def test_the_target_of_a_redirect_is_named_without_its_login() -> None:
    to = "https://user:login-of-1@elsewhere/token"
    moved = f"HTTP/1.1 302 -\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()
    async with hostile(moved) as url:
        with pytest.raises(AuthenticationError) as caught:
            await asking(url).fetch()
    assert "HTTP 302 (a redirect to https://" in caught.value.message
    assert "elsewhere/token" in caught.value.message
    assert "login-of-1" not in caught.value.message


async def test_an_answer_that_drips_is_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with hostile(head, *[b" "] * 100, pause_s=0.05) as url:
        with pytest.raises(KafkaConnectionError, match="no token after 1 attempt"):
            await asking(url, connect_timeout_s=0.2, read_timeout_s=0.2).fetch()
    assert loop.time() - began < 3


async def test_an_answer_nested_too_deeply_is_no_token() -> None:
    body = b"[" * 100_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with hostile(head + body) as url:
        with pytest.raises(AuthenticationError, match="no access_token"):
            await asking(url).fetch()


async def test_the_query_of_a_token_endpoint_is_not_in_the_log_of_httpx(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    key = secret("query-key-1")
    with caplog.at_level("DEBUG"):
        assert (await endpoint(issuer, path=f"/token?key={key}").fetch()).value
    lines = [line for line in caplog.messages if line.startswith("HTTP Request: POST")]
    assert len(lines) == 1
    assert "/token?*** " in lines[0]
    assert key not in caplog.text


def answer(status: int, content: object) -> bytes:
    """An HTTP response with this JSON."""
    body = json.dumps(content).encode()
    return b"HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize("status", [200, 201, 299])
async def test_every_success_of_an_endpoint_has_a_token(status: int) -> None:
    async with hostile(answer(status, {"access_token": "abc"})) as url:
        token = await asking(url).fetch()
    assert (token.value, token.expires_at) == ("abc", None)


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (300, {"access_token": "abc"}, "HTTP 300"),
        (400, {"error": "bad", "error_description": "why"}, "HTTP 400 (bad: why)"),
        (428, {"error": 7, "error_description": "why"}, "HTTP 428 (why)"),
        (430, {"error": "bad"}, "HTTP 430 (bad)"),
        (499, ["error"], "HTTP 499"),
    ],
)
async def test_any_other_answer_of_an_endpoint_is_final(
    status: int, content: object, words: str
) -> None:
    async with hostile(answer(status, content)) as url:
        with pytest.raises(AuthenticationError) as caught:
            await asking(url).fetch()
    assert caught.value.message == f"the token endpoint answered {words}"


@pytest.mark.parametrize("content", [{}, {"access_token": ""}, {"access_token": 7}, "abc", None])
async def test_a_success_without_a_token_is_final(content: object) -> None:
    async with hostile(answer(200, content)) as url:
        with pytest.raises(AuthenticationError, match="the token endpoint gave no access_token"):
            await asking(url).fetch()


@pytest.mark.parametrize(("life", "life_s"), [(100, 100), (None, None), ("100", None), (0, None)])
async def test_the_life_of_an_opaque_token_begins_with_its_request(
    life: object, life_s: float | None
) -> None:
    began = time.time()
    async with hostile(answer(200, {"access_token": "abc", "expires_in": life})) as url:
        token = await asking(url).fetch()
    if life_s is None:
        assert token.expires_at is None
    else:
        assert token.expires_at is not None
        assert began + life_s <= token.expires_at <= time.time() + life_s


@pytest.mark.parametrize(("end_s", "life_s"), [(50, 50), (-3600, 100), (3600, 100)])
async def test_the_end_of_a_jwt_counts_unless_it_cannot_be_by_this_clock(
    end_s: float, life_s: float
) -> None:
    now = time.time()
    token = f"a.{encoded(json.dumps({'exp': now + end_s}).encode())}.c"
    async with hostile(answer(200, {"access_token": token, "expires_in": 100})) as url:
        expires_at = (await asking(url).fetch()).expires_at
    assert expires_at is not None
    assert now + life_s <= expires_at <= time.time() + life_s


@pytest.mark.parametrize("client_id", ["me", None])
async def test_the_client_of_an_assertion_is_named_if_it_has_an_id(
    issuer: Issuer, tmp_path: Path, client_id: str | None
) -> None:
    signed = signed_assertions(assertion(issuer, tmp_path))
    await endpoint(issuer, signed, client_id=client_id, scope="a").fetch()
    (form,) = issuer.requests
    assert (form.get("client_id"), form["scope"]) == (client_id, "a")


def test_an_assertion_has_no_id_unless_it_is_asked_for(issuer: Issuer, tmp_path: Path) -> None:
    made = make_assertion(assertion(issuer, tmp_path, audience=None), 1000)
    claims = json.loads(decoded(made.split(".")[1]))
    assert claims == {"iat": 1000, "exp": 1300, "nbf": 940, "iss": "me", "sub": "me"}


@pytest.mark.parametrize("content", ["[]", '"text"', '{"header": 7}', '{"payload": []}', "{", ""])
def test_a_template_of_another_shape_is_refused(
    issuer: Issuer, tmp_path: Path, content: str
) -> None:
    template = tmp_path / "template.json"
    template.write_text(content)
    with pytest.raises(AuthenticationError, match="must be a JSON object with header and payload"):
        make_assertion(assertion(issuer, tmp_path, template_file=str(template)), 0)


def test_the_reason_why_a_file_cannot_be_read_is_named(issuer: Issuer, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(AuthenticationError, match="missing cannot be read: No such file") as caught:
        make_assertion(assertion(issuer, tmp_path, template_file=str(missing)), 0)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("jwt_bearer", [True, False])
async def test_an_assertion_that_the_endpoint_quotes_is_not_shown(jwt_bearer: bool) -> None:
    async def signed() -> str:
        return "eyJ.assertion-0123456789.sig"

    refusal = {"error_description": "bad eyJ.assertion-0123456789.sig"}
    async with hostile(answer(400, refusal)) as url:
        settings = EndpointSettings(url, jwt_bearer=jwt_bearer)
        asked = TokenEndpoint(settings, extensions={}, assertions=signed, rng=Random(1))
        with pytest.raises(AuthenticationError, match=r"HTTP 400 \(bad \*\*\*\)"):
            await asked.fetch()
