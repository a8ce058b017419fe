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
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from support.security.issuer import Issuer, decoded, encoded, serving
from support.security.leaks import Evidence, secret

from aioproducer import OAuthToken
from aioproducer.errors import AuthenticationError, KafkaConnectionError
from aioproducer.net.security.assertions import (
    AssertionSettings,
    assertion_file,
    make_assertion,
    signed_assertions,
)
from aioproducer.net.security.oidc import EndpointSettings, TokenEndpoint, token_file
from aioproducer.net.security.sasl.oauthbearer import OAuthBearer
from aioproducer.net.security.tokens import CachedTokens, RefreshPolicy, as_token

CLIENT_SECRET = secret("cl1ent:secret 55 ü")
WRONG = secret("wr0ng one")
PASSPHRASE = secret("passphrase 0815")
DRY = Random(1)


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
        self.count = 0

    async def __call__(self) -> OAuthToken:
        await asyncio.sleep(0)
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


async def test_a_token_that_has_ended_already_is_refused() -> None:
    _, _, tokens = cached(-1)
    with pytest.raises(AuthenticationError, match="expired already"):
        await tokens.token()


@pytest.mark.parametrize(
    ("life_s", "expected"),
    [(3600, 2880), (1000, 700), (100, 80), (365, 65)],
)
def test_the_moment_of_a_refresh_keeps_javas_bounds(life_s: float, expected: float) -> None:
    """0.8 of the life; 300 s before the end; after 60 s; short lives have no bounds."""
    policy = RefreshPolicy(window_jitter=0.0)
    assert policy.moment(0, life_s, DRY) == expected


def test_a_jwt_says_itself_when_it_ends() -> None:
    claims = encoded(json.dumps({"exp": 1234.5}).encode())
    assert as_token(f"a.{claims}.c").expires_at == 1234.5
    for other in ("opaque", "a.!!!.c", f"a.{encoded(b'[]')}.c", f"a.{encoded(b'{')}.c"):
        assert as_token(other).expires_at is None
    assert as_token(f"a.{encoded(json.dumps({'exp': True}).encode())}.c").expires_at is None
    with pytest.raises(AuthenticationError, match="must be a str or an OAuthToken, not bytes"):
        as_token(b"token")


@pytest.mark.parametrize("filler", ["", "x", "xx", "xxx"])
def test_the_end_of_a_jwt_is_read_whatever_its_length(filler: str) -> None:
    """Base64 without padding has any length but one more than a multiple of four."""
    claims = encoded(json.dumps({"exp": 1234.5, "sub": filler}).encode())
    assert as_token(f"a.{claims.rstrip('=')}.c").expires_at == 1234.5


def test_a_token_of_the_user_is_used_as_it_is() -> None:
    token = OAuthToken("opaque", 1234.5, {"a": "b"})
    assert as_token(token, {"c": "d"}) is token


# -- the message -----------------------------------------------------------------------------------


class Fixed:
    def __init__(self, token: OAuthToken) -> None:
        self._token = token

    async def token(self) -> OAuthToken:
        return self._token


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
    issuer.failures = [500, 503, 429]
    assert (await endpoint(issuer).fetch()).value
    assert len(issuer.requests) == 4


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
async def hostile(*parts: bytes, pause_s: float = 0.0) -> AsyncIterator[str]:
    """The address of a token endpoint that answers with these bytes, whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/token"


def asking(url: str, **settings: Any) -> TokenEndpoint:
    chosen = EndpointSettings(url, "me", CLIENT_SECRET, retry_s=0.2, **settings)
    return TokenEndpoint(chosen, extensions={}, assertions=None, rng=Random(1))


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
