"""The SASL step of the handshake with scripted brokers, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from support.hostile import SANE_RANGES, Peer, obedient

from aioproducer.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.security.sasl import UnansweredToken
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeResponse
from net.harness import harness
from net.virtual import MemoryDialer, virtual_time

RANGES = {**SANE_RANGES, ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
TOKEN = b"n,,\x01auth=Bearer a-token-of-20-bytes-or-more\x01\x01"


class Mechanism:
    """Sends these tokens, then raises the error, if there is one."""

    name = "OAUTHBEARER"

    def __init__(self, *tokens: bytes, error: Exception | None = None, name: str = name) -> None:
        self.tokens = tokens
        self.error = error
        self.name = name
        self.answers: list[bytes] = []

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        for token in self.tokens:
            self.answers.append((yield token))
        if self.error is not None:
            raise self.error


async def outcome(
    mechanism: Any,
    *answers: SaslAuthenticateResponse,
    handshake: SaslHandshakeResponse | None = None,
) -> tuple[KafkaError | None, list[bytes]]:
    """The error of a connection, and the tokens that the broker got and answered with these."""
    received: list[bytes] = []

    async def behave(peer: Peer) -> None:
        await peer.handshake(RANGES)
        header = await peer.expect(ApiKey.SASL_HANDSHAKE)
        peer.respond(header, handshake or SaslHandshakeResponse(mechanisms=[mechanism.name]))
        for answer in answers:
            header = await peer.expect(ApiKey.SASL_AUTHENTICATE)
            request = SaslAuthenticateRequest.decode(header.body, header.api_version)
            received.append(request.auth_bytes)
            peer.respond(header, answer)
        await obedient(peer)

    async with harness(MemoryDialer({"broker": behave}), sasl=mechanism) as it:
        error = await it.connect()
        if error is None:
            assert await it.ask() is not None
        return error, received


@virtual_time
async def test_tokens_and_answers_are_exchanged_until_the_mechanism_has_no_more() -> None:
    mechanism = Mechanism(b"one", b"two")
    answers = [SaslAuthenticateResponse(auth_bytes=data) for data in (b"1", b"2")]
    assert await outcome(mechanism, *answers) == (None, [b"one", b"two"])
    assert mechanism.answers == [b"1", b"2"]


@virtual_time
async def test_brokers_before_1_0_do_not_answer_the_last_token_of_a_mechanism_like_gssapi() -> None:
    received: list[bytes] = []

    async def behave(peer: Peer) -> None:
        await peer.handshake({**SANE_RANGES, ApiKey.SASL_HANDSHAKE: (0, 0)})
        header = await peer.expect(ApiKey.SASL_HANDSHAKE)
        peer.respond(header, SaslHandshakeResponse(mechanisms=["GSSAPI"]))
        for answer in (b"1", b"", None):
            size = int.from_bytes(await peer.reader.readexactly(4))
            received.append(await peer.reader.readexactly(size))
            if answer is not None:
                peer.raw(len(answer).to_bytes(4) + answer)
        await obedient(peer)

    mechanism = Mechanism(b"one", b"", UnansweredToken(b"three"), name="GSSAPI")
    async with harness(MemoryDialer({"broker": behave}), sasl=mechanism) as it:
        began = it.now
        assert await it.connect() is None
        assert await it.ask() is not None
        assert it.now == began
    assert received == [b"one", b"", b"three"]
    assert mechanism.answers == [b"1", b"", b""]


@virtual_time
async def test_a_mechanism_gets_the_refusal_of_its_token() -> None:
    seen: list[Exception] = []

    class Observed(Mechanism):
        async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
            try:
                yield b"one"
            except AuthenticationError as refusal:
                seen.append(refusal)
                raise

    answer = SaslAuthenticateResponse(error_code=58, error_message="no")
    error, _ = await outcome(Observed(), answer)
    assert isinstance(error, SaslAuthenticationFailedError)
    assert [type(each) for each in seen] == [SaslAuthenticationFailedError]


@virtual_time
async def test_refusal_for_too_many_connections_is_retriable() -> None:
    """Amazon MSK's text; its code is that of wrong credentials, which end a start."""
    answer = SaslAuthenticateResponse(error_code=58, error_message="[74909301]: Too many connects")
    error, _ = await outcome(Mechanism(b"one", name="AWS_MSK_IAM"), answer)
    assert type(error) is KafkaConnectionError
    assert error.retriable
    assert error.advice == ADVICE["too-many-connections"]
    assert "Too many connects" in str(error)


@pytest.mark.parametrize("tokens", [(), (b"one",)])
@virtual_time
async def test_an_error_of_the_code_that_gives_the_credentials_is_retriable(
    tokens: tuple[bytes, ...],
) -> None:
    mistake = ZeroDivisionError("with the password in its text")
    mechanism = Mechanism(*tokens, error=mistake)
    error, _ = await outcome(mechanism, *[SaslAuthenticateResponse()] * len(tokens))
    assert type(error) is KafkaConnectionError
    assert error.message == (
        "OAUTHBEARER cannot be used now: ZeroDivisionError in the code or library that provides "
        "the credentials"
    )
    assert error.__cause__ is mistake
    assert error.advice == ADVICE["credentials-unavailable"]


@virtual_time
async def test_credentials_that_cannot_be_had_now_do_not_put_the_blame_on_the_broker() -> None:
    unreachable = OSError("no route")
    failure = KafkaConnectionError("no token after 3 attempt(s)")
    failure.__cause__ = unreachable
    error, _ = await outcome(Mechanism(error=failure))
    assert type(error) is KafkaConnectionError
    assert error.message == "no token after 3 attempt(s)"
    assert error.__cause__ is unreachable
    assert error.advice == ADVICE["credentials-unavailable"]
    known = KafkaConnectionError("no token", advice="ask the operator")
    error, _ = await outcome(Mechanism(error=known))
    assert error is not None
    assert error.advice == "ask the operator"


@virtual_time
async def test_the_advice_for_a_login_in_time_depends_on_what_it_waited_for() -> None:
    class Slow(Mechanism):
        async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
            await asyncio.sleep(1000)
            yield b"one"

    for mechanism, advice in ((Slow(), "credentials-unavailable"), (Mechanism(b"1"), "no-answer")):

        async def is_silent(peer: Peer) -> None:
            await peer.handshake(RANGES)
            header = await peer.expect(ApiKey.SASL_HANDSHAKE)
            peer.respond(header, SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
            await peer.until_closed()

        async with harness(MemoryDialer({"broker": is_silent}), sasl=mechanism) as it:
            error = await it.connect()
            assert type(error) is KafkaConnectionError
            assert error.message == "authentication by OAUTHBEARER was not finished in time"
            assert error.advice == ADVICE[advice]


@virtual_time
async def test_an_error_of_the_mechanism_is_raised_as_it_is() -> None:
    refusal = AuthenticationError("no")
    error, _ = await outcome(Mechanism(error=refusal))
    assert isinstance(error, AuthenticationError)
    assert error.message == "no"


@virtual_time
async def test_credentials_that_are_not_unicode_are_refused() -> None:
    class Surrogates(Mechanism):
        async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
            yield "\ud800".encode()

    error, _ = await outcome(Surrogates())
    assert type(error) is AuthenticationError
    assert "they are not valid UTF-8 text" in error.message


# -- refusals of the broker ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (33, UnsupportedSaslMechanismError, "the broker does not offer OAUTHBEARER here"),
        (34, IllegalSaslStateError, "the broker wants no SASL on this port"),
        (58, SaslAuthenticationFailedError, "the broker refused SaslHandshake (OAUTHBEARER, "),
        (29, AuthenticationError, "the broker refused authentication"),
        (42, AuthenticationError, "the broker refused authentication"),
    ],
)
@virtual_time
async def test_a_refused_mechanism_is_final(code: int, kind: type[KafkaError], words: str) -> None:
    answer = SaslHandshakeResponse(error_code=code)
    error, _ = await outcome(Mechanism(TOKEN), handshake=answer)
    assert type(error) is kind
    assert words in str(error)


@virtual_time
async def test_a_refusal_that_a_retry_may_resolve_stays_so() -> None:
    answer = SaslHandshakeResponse(error_code=7)
    error, _ = await outcome(Mechanism(TOKEN), handshake=answer)
    assert error is not None
    assert error.retriable
    assert "the broker refused SaslHandshake" in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no such user", "no such user (OAUTHBEARER, "),
        ("", "The broker refused the credentials"),
        (None, "The broker refused the credentials"),
        ("wrong a-token-of-20-bytes-or-more", "wrong *** (OAUTHBEARER, "),
    ],
)
@virtual_time
async def test_the_words_of_the_broker_are_shown_without_the_token(
    text: str | None, words: str
) -> None:
    answer = SaslAuthenticateResponse(error_code=58, error_message=text)
    error, received = await outcome(Mechanism(TOKEN), answer)
    assert type(error) is SaslAuthenticationFailedError
    assert received == [TOKEN]
    assert words in str(error)


@pytest.mark.parametrize(("length", "is_hidden"), [(20, True), (19, False)])
@virtual_time
async def test_a_part_of_a_token_with_20_characters_is_a_secret(
    length: int, is_hidden: bool
) -> None:
    part = "s" * length
    answer = SaslAuthenticateResponse(error_code=58, error_message=f"refused {part}")
    error, _ = await outcome(Mechanism(f"auth={part}\x01".encode().replace(b"=", b" ")), answer)
    assert (part not in str(error)) is is_hidden


@virtual_time
async def test_of_plain_only_the_password_is_a_secret() -> None:
    words = "user-with-a-long-long-name has another password than pa55"
    answer = SaslAuthenticateResponse(error_code=58, error_message=words)
    token = b"\0user-with-a-long-long-name\0pa55"
    error, _ = await outcome(Mechanism(token, name="PLAIN"), answer)
    assert "user-with-a-long-long-name has another password than ***" in str(error)


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        (["SCRAM-SHA-256", "SCRAM-SHA-512"], "it offers: SCRAM-SHA-512, SCRAM-SHA-256"),
        (["OAUTHBEARER", "GSSAPI"], "it offers: GSSAPI"),
        (["PLAIN", "AWS_MSK_IAM"], "it offers AWS_MSK_IAM and PLAIN, which would give"),
        (["PLAIN"], "give the password or token to all on the network (no TLS): change"),
        (["X", "OAUTHBEARER"], "it offers no mechanism known here"),
        ([], "it offers no mechanism known here"),
    ],
)
@virtual_time
async def test_the_mechanisms_that_the_broker_offers_are_advised_by_their_safety(
    offered: list[str], words: str
) -> None:
    answer = SaslHandshakeResponse(error_code=33, mechanisms=offered)
    error, _ = await outcome(Mechanism(TOKEN), handshake=answer)
    assert error is not None
    assert words in (error.advice or "")
    assert ("set sasl_mechanism to" in (error.advice or "")) is ("it offers:" in words)
