"""Peers that quote the secrets that they were sent: none of their refusals shows one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest
from support.frames import shown_by

from aioproducer._util.secrets import without_secrets
from aioproducer.errors import (
    AuthenticationError,
    KafkaConnectionError,
    KafkaError,
    SchemaRegistryError,
)
from aioproducer.net.security.oidc import EndpointSettings, TokenEndpoint
from aioproducer.net.security.sasl.authentication import authenticate
from aioproducer.net.security.sasl.oauthbearer import OAuthBearer
from aioproducer.net.security.sasl.plain import Plain
from aioproducer.serializers import SchemaRegistry
from aioproducer.types import OAuthToken, SaslCredentials
from aioproducer.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeResponse

SECRET = 'hunter2 "4711"/ä?'
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJodW50ZXIyIn0.c2lnbmF0dXJl"
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "quoted": lambda text: quote(text, safe=""),
    "in a form": quote_plus,
    "in JSON": lambda text: json.dumps(text)[1:-1],
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
    "in base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", [SECRET, TOKEN, "s3cr"])
def test_a_secret_is_removed_from_a_text_in_every_form(form: str, secret: str) -> None:
    shown = FORMS[form](secret)
    assert shown.rstrip("=") not in without_secrets(f"bad '{shown}', and {shown}?", [secret])


def test_the_beginning_of_a_long_secret_is_removed() -> None:
    assert without_secrets(f"bad token {TOKEN[:30]}...", [TOKEN]) == "bad token ***"


def test_text_without_a_secret_stays_as_it_is() -> None:
    text = "user me is unknown to the database me"
    assert without_secrets(text, [None, "", "me", TOKEN]) == text


# -- peers -----------------------------------------------------------------------------------------


def is_shown(error: BaseException, *secrets: str) -> bool:
    text = shown_by(error)
    return any(form(each).rstrip("=") in text for each in secrets for form in FORMS.values())


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
@pytest.mark.parametrize(
    "options",
    [
        {"basic_auth": ("me", SECRET)},
        {"bearer_token": TOKEN},
        {"bearer_token": lambda: TOKEN},
        {"headers": {"X-Api-Key": TOKEN}},
    ],
)
async def test_no_refusal_of_a_registry_shows_what_it_was_sent(
    options: dict[str, Any], status: int
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        sent = dict(request.headers)
        return httpx.Response(status, json={"error_code": 1, "message": f"{sent} {SECRET}"})

    transport = httpx.MockTransport(answer)
    async with SchemaRegistry("http://r", transport=transport, retries=0, **options) as registry:
        with pytest.raises(SchemaRegistryError) as raised:
            await registry.latest("s")
    assert "***" in str(raised.value)
    secrets = [TOKEN, f"me:{SECRET}"] + [SECRET] * ("basic_auth" in options)
    assert not is_shown(raised.value, *secrets)


async def test_no_malformed_answer_of_a_registry_shows_what_it_was_sent() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError(f"illegal status line: {request.headers['authorization']}")

    transport = httpx.MockTransport(fail)
    async with SchemaRegistry(
        "http://r", transport=transport, retries=0, bearer_token=TOKEN
    ) as registry:
        with pytest.raises(SchemaRegistryError, match=r"illegal status line: \*\*\*") as it:
            await registry.latest("s")
    assert not is_shown(it.value, TOKEN)


@pytest.mark.parametrize(
    "start",
    [
        b'HTTP/1.1 401 No\r\n\r\n{"error":"',
        b"bad ",
        b'HTTP/1.1 400 No\r\n\r\n{"error":"x","error_description":"',
    ],
)
async def test_no_refusal_of_a_token_endpoint_shows_what_it_was_sent(start: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        login = head.partition("Authorization: ")[2].partition("\r\n")[0]
        quoted = f"{login} {json.dumps(SECRET)[1:-1]}"
        writer.write(start + quoted.encode() + b'"}\r\n\r\n')
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = EndpointSettings(f"http://127.0.0.1:{port}/", "me", SECRET, retry_s=0.1)
        endpoint = TokenEndpoint(settings, extensions={}, assertions=None, rng=Random(1))
        with pytest.raises((AuthenticationError, KafkaConnectionError)) as raised:
            await endpoint.fetch()
    assert "***" in str(raised.value)
    assert not is_shown(raised.value, SECRET, f"me:{SECRET}")


def session(mechanism: Any, quote: Callable[[bytes], str]) -> Any:
    """A connection to a broker that quotes the token in its refusal."""

    async def request(message: Any, version: int, kind: type) -> Any:
        if hasattr(message, "mechanism"):
            return SaslHandshakeResponse(error_code=0, mechanisms=[message.mechanism])
        return SaslAuthenticateResponse(
            error_code=58,
            error_message=f"bad login {quote(message.auth_bytes)}",
            auth_bytes=b"",
            session_lifetime_ms=0,
        )

    return SimpleNamespace(
        settings=SimpleNamespace(sasl=mechanism, principal=lambda: "user me"),
        host="localhost",
        deadline=inf,
        had_answered=False,
        version_of=lambda message: 1,
        request=request,
    )


async def plain() -> SaslCredentials:
    return SaslCredentials("me", SECRET)


class Tokens:
    async def token(self) -> OAuthToken:
        return OAuthToken(TOKEN, None, {"other": TOKEN[::-1]})

    def on_refused(self, token: OAuthToken) -> None:
        """Its tokens do not change."""


@pytest.mark.parametrize("mechanism", [Plain(plain), OAuthBearer(Tokens())])
@pytest.mark.parametrize(
    "form",
    [
        lambda token: token.decode(),
        lambda token: repr(token.decode()),
        quote,
        lambda token: base64.b64encode(token).decode(),
    ],
)
async def test_no_refusal_of_a_broker_shows_what_it_was_sent(
    mechanism: Any, form: Callable[[bytes], str]
) -> None:
    with pytest.raises(KafkaError, match=r"bad login .*\*\*\*") as raised:
        await authenticate(session(mechanism, form))
    assert not is_shown(raised.value, SECRET, TOKEN, TOKEN[::-1])


@pytest.mark.parametrize(("value", "shown"), [("x" * 18, False), ("x" * 17, True)])
async def test_a_short_part_of_a_token_may_be_quoted_one_of_20_bytes_may_not(
    value: str, shown: bool
) -> None:
    """Words such as `auth` and the name of a host help to understand a refusal."""

    class Extended(Tokens):
        async def token(self) -> OAuthToken:
            return OAuthToken(TOKEN, None, {"a": value})

    broker = session(OAuthBearer(Extended()), lambda token: f"at a={value}")
    with pytest.raises(KafkaError, match="bad login at ") as raised:
        await authenticate(broker)
    assert (value in str(raised.value)) is shown


async def test_no_status_of_a_refused_token_shows_it() -> None:
    exchange = OAuthBearer(Tokens()).exchange("localhost")
    await anext(exchange)
    await exchange.asend(json.dumps({"status": f"invalid_token {TOKEN}"}).encode())
    with pytest.raises(AuthenticationError, match=r"invalid_token \*\*\*"):
        await exchange.asend(b"")
