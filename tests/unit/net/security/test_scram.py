"""SCRAM against the RFCs' own examples and against brokers that cheat."""

from __future__ import annotations

import asyncio
import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import AuthenticationError
from aioproducer.net.security.sasl import fixed
from aioproducer.net.security.sasl.scram import Scram
from aioproducer.testing.security.mechanisms import DeniedError, scram
from aioproducer.types import SaslCredentials

# RFC 7677, section 3.
RFC_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_FIRST = f"n,,n=user,r={RFC_NONCE}"
RFC_CHALLENGE = f"r={RFC_NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_FINAL = (
    f"c=biws,r={RFC_NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SIGNATURE = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_client() -> Scram:
    user = SaslCredentials("user", "pencil")
    return Scram("SCRAM-SHA-256", fixed(user), new_nonce=lambda: RFC_NONCE)


async def converse(challenge: str, signature: str) -> str:
    """One exchange with these answers of the broker; gives our last message."""
    exchange = rfc_client().exchange("broker")
    assert (await anext(exchange)).decode() == RFC_FIRST
    final = await exchange.asend(challenge.encode())
    with pytest.raises(StopAsyncIteration):
        await exchange.asend(signature.encode())
    return final.decode()


async def test_the_example_of_rfc_7677_comes_out() -> None:
    assert await converse(RFC_CHALLENGE, RFC_SIGNATURE) == RFC_FINAL


async def test_a_mandatory_looking_extension_at_the_end_is_left_alone() -> None:
    with pytest.raises(AuthenticationError, match="server signature"):
        # The signature covers the extension, so that the RFC's no longer fits.
        await converse(f"{RFC_CHALLENGE},x=1", RFC_SIGNATURE)


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (RFC_CHALLENGE.replace("i=4096", "i=4095"), "asks for 4095 SCRAM iterations"),
        (RFC_CHALLENGE.replace("i=4096", "i=1000001"), "asks for 1000001 SCRAM iterations"),
        (RFC_CHALLENGE.replace("i=4096", "i=99999999999"), "malformed"),
        (RFC_CHALLENGE.replace(RFC_NONCE, "another"), "does not extend ours"),
        (f"r={RFC_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not extend ours"),
        (RFC_CHALLENGE.replace("s=W22Z", "s=====W22Z"), "not proper base64"),
        (f"m=must-know,{RFC_CHALLENGE}", "malformed"),
        ("", "malformed"),
        ("\udcff\udcff", "malformed"),
    ],
)
async def test_a_challenge_that_is_not_right_is_refused(challenge: str, text: str) -> None:
    exchange = rfc_client().exchange("broker")
    await anext(exchange)
    with pytest.raises(AuthenticationError, match=text):
        await exchange.asend(challenge.encode(errors="surrogateescape"))


@pytest.mark.parametrize(
    ("final", "text"),
    [
        ("v=" + base64.b64encode(bytes(32)).decode(), "could not prove that it has"),
        ("v=AAAA", "could not prove that it has"),
        ("v=A", "not proper base64"),
        ("e=invalid-proof", "refused the SCRAM proof: invalid-proof"),
        ("", "last SCRAM message is malformed"),
    ],
)
async def test_a_broker_without_the_password_is_refused(final: str, text: str) -> None:
    with pytest.raises(AuthenticationError, match=text):
        await converse(RFC_CHALLENGE, final)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "Jürgen \u2468"])
async def test_client_and_server_agree_whatever_the_name(mechanism: str, name: str) -> None:
    server = scram(mechanism, {name: "pass=word,ß"}, 4096)
    next(server)
    client = Scram(mechanism, fixed(SaslCredentials(name, "pass=word,ß"))).exchange("broker")
    token = await anext(client)
    token = await client.asend(server.send(token))
    with pytest.raises(StopAsyncIteration):
        await client.asend(server.send(token))


async def test_the_password_is_not_prepared_because_java_does_not() -> None:
    """SASLprep would make "IX" of the Roman numeral, and Java's verifier would not fit."""
    server = scram("SCRAM-SHA-256", {"me": "IX"}, 4096)
    next(server)
    client = Scram("SCRAM-SHA-256", fixed(SaslCredentials("me", "\u2168"))).exchange("broker")
    final = await client.asend(server.send(await anext(client)))
    with pytest.raises(DeniedError):
        server.send(final)


async def test_extensions_follow_the_nonce() -> None:
    token = SaslCredentials("id", "hmac", {"tokenauth": "true"})
    client = Scram("SCRAM-SHA-256", fixed(token), new_nonce=lambda: "abc").exchange("broker")
    assert await anext(client) == b"n,,n=id,r=abc,tokenauth=true"
    await client.aclose()


MESSAGES = (
    st.binary()
    | st.text().map(str.encode)
    | st.from_regex(rb"\A(r=[!-~]{0,30},s=[A-Za-z0-9+/=]{0,12},i=[0-9]{1,4}|v=[A-Za-z0-9+/=]*)\Z")
)


@given(MESSAGES, st.booleans())
def test_whatever_a_broker_says_only_ends_in_an_authentication_error(
    message: bytes, first: bool
) -> None:
    async def run() -> None:
        exchange = rfc_client().exchange("broker")
        await anext(exchange)
        if not first:
            await exchange.asend(RFC_CHALLENGE.encode())
        with pytest.raises(AuthenticationError):
            await exchange.asend(message)

    asyncio.run(run())
