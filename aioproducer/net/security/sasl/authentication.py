"""The handshake's SASL step: chooses the mechanism and exchanges tokens.

    SaslHandshake v1   -> SaslAuthenticate per token (KIP-152), lifetime in v1 and v2 (KIP-368)
    SaslHandshake v0   -> tokens and responses are bare frames (brokers before 1.0, KIP-43); the
                          last token of GSSAPI has no response

Invariants: it ends within the session's deadline; an error contains the broker's text and advice,
never a token.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from aioproducer._util.hosts import is_this_machine
from aioproducer._util.secrets import hides_arguments, without_secrets
from aioproducer.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    NodeDisconnectedError,
    UnsupportedSaslMechanismError,
    error_for_code,
    error_from_code,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.security.disconnect_hints import in_authentication
from aioproducer.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from aioproducer.net.security.sasl import Mechanism
    from aioproducer.net.session import Session

_KNOWN_MECHANISMS = (
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "GSSAPI",
    "AWS_MSK_IAM",
    "OAUTHBEARER",
    "PLAIN",
)
_READABLE = {
    "PLAIN": "user name and password",
    "OAUTHBEARER": "the token",
    "AWS_MSK_IAM": "a signed request with the session token",
}
"""Reusable secrets that these mechanisms send in plain text."""
_TOO_MANY_CONNECTIONS = "Too many connects"
"""Amazon MSK refuses connections above its rate with the code of wrong credentials and this."""
_DIVIDERS = re.compile(rb"[\0\x01\" ,]")
_SHORTEST_SECRET = 20
NO_MECHANISM = "?"
"""An unknown mechanism: a listener with SASL answers with its mechanisms."""

_Carry = Callable[[bytes], Awaitable[bytes]]


@hides_arguments
async def authenticate(session: Session) -> None:
    """Authenticate, if the settings have a mechanism."""
    mechanism = session.settings.sasl
    if mechanism is None:
        return
    carry = await _choose(session, mechanism.name)
    try:
        async with asyncio.timeout_at(session.deadline):
            await _exchange(mechanism, session.host, carry)
    except TimeoutError as error:
        connection = session.connection
        waits_for_broker = connection.in_flight > 0 or not connection.is_open
        raise KafkaConnectionError(
            f"authentication by {mechanism.name} was not finished in time",
            advice=ADVICE["no-answer" if waits_for_broker else "credentials-unavailable"],
        ) from error
    except NodeDisconnectedError as error:
        if session.had_answered:
            raise
        raise in_authentication(error, mechanism.name) from error.__cause__
    except KafkaConnectionError as error:
        if error.advice is not None or not session.connection.is_open:
            raise
        # Not of the broker but of a token endpoint, for example.
        advice = ADVICE["credentials-unavailable"]
        raise error.with_context(advice=advice) from error.__cause__
    except KafkaError:
        raise
    except UnicodeEncodeError:
        raise AuthenticationError(
            "user name or password cannot be sent: they are not valid UTF-8 text"
        ) from None
    except Exception as error:
        # Its text stays in the cause: it comes from the user's code and may contain secrets.
        raise KafkaConnectionError(
            f"{mechanism.name} cannot be used now: {type(error).__name__} in the code or library "
            "that provides the credentials",
            advice=ADVICE["credentials-unavailable"],
        ) from error


async def _exchange(mechanism: Mechanism, host: str, carry: _Carry) -> None:
    """Carry tokens and answers until the mechanism has no more."""
    async with aclosing(mechanism.exchange(host)) as exchange:
        token = await anext(exchange)
        while True:
            try:
                answer = await carry(token)
            except AuthenticationError as error:
                await exchange.athrow(error)
                raise
            try:
                token = await exchange.asend(answer)
            except StopAsyncIteration:
                return


def exposed_to(
    mechanism: Mechanism | None, host: str, *, uses_tls: bool, via: object = None
) -> str | None:
    """Return the part of the login that can be read on the network; None for nothing.

    With a proxy `via` another address, `localhost` is that machine.
    """
    if mechanism is None or uses_tls or (via is None and is_this_machine(host)):
        return None
    return _READABLE.get(mechanism.name)


def _other_mechanism(offered: Sequence[str], wanted: str, session: Session) -> str:
    """Return advice for a mechanism that is not offered.

    The server may be hostile, so no mechanism that sends the password itself is recommended.
    """
    known = [name for name in _KNOWN_MECHANISMS if name in offered and name != wanted]
    safe = [name for name in known if name not in _READABLE]
    readable = [name for name in known if name in _READABLE]
    words = []
    if safe:
        words.append(f"set sasl_mechanism to one of those it offers: {', '.join(safe)}")
    if readable:
        given = " and ".join(readable)
        on = "this broker" if session.connection.uses_tls else "all on the network (no TLS)"
        words.append(
            f"it offers {given}, which would give the password or token to {on}: "
            "change to it only if the broker's operator says so"
        )
    return "; ".join(words) or "ask the broker's operator: it offers no mechanism known here"


async def _choose(session: Session, name: str) -> _Carry:
    """Send the mechanism to the broker; return the function that exchanges tokens."""
    version = session.version_of(SaslHandshakeRequest)
    request = SaslHandshakeRequest(mechanism=name)
    response = await session.request(request, version, SaslHandshakeResponse)
    if response.error_code == UnsupportedSaslMechanismError.code:
        raise UnsupportedSaslMechanismError(
            f"the broker does not offer {name} here",
            advice=_other_mechanism(response.mechanisms, name, session),
        )
    if response.error_code == IllegalSaslStateError.code:
        raise IllegalSaslStateError("the broker wants no SASL on this port")
    login = f"{name}, {session.settings.principal()}"
    if response.error_code:
        raise _refused(response.error_code, "the broker refused SaslHandshake", login)
    if version == 0:
        session.lifetime_s = None
        return session.exchange_frames
    version = session.version_of(SaslAuthenticateRequest)

    async def carry(token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        response = await session.request(request, version, SaslAuthenticateResponse)
        if response.error_code:
            text = response.error_message
            if text:
                text = without_secrets(text, _secrets_in(name, token))
            raise _refused(response.error_code, text, login)
        lifetime_ms = response.session_lifetime_ms
        session.lifetime_s = lifetime_ms / 1000 if lifetime_ms > 0 else None
        return response.auth_bytes

    return carry


def _secrets_in(mechanism: str, token: bytes) -> list[str]:
    """Return what a broker's error must not quote of a token, apart from the user name."""
    if mechanism == "PLAIN":
        parts = [token.rpartition(b"\0")[2]]
    else:
        parts = [part for part in _DIVIDERS.split(token) if len(part) >= _SHORTEST_SECRET]
    return [part.decode("utf-8", "replace") for part in (token, *parts)]


def wants_sasl(mechanisms: Sequence[str], session: Session) -> AuthenticationError:
    """Return the error for a listener that requires SASL, while the options have none."""
    protocol = "SSL" if session.connection.uses_tls else "PLAINTEXT"
    choices = "SASL_SSL" if session.connection.uses_tls else "SASL_SSL or SASL_PLAINTEXT"
    return AuthenticationError(
        f"the broker wants SASL on this port and offers {', '.join(mechanisms[:20])}; "
        f"security_protocol={protocol} has none",
        advice=f"set security_protocol to {choices}; {_other_mechanism(mechanisms, '', session)}",
    )


def _refused(code: int, text: str | None, login: str) -> KafkaError:
    if text is not None and _TOO_MANY_CONNECTIONS in text:
        return KafkaConnectionError(f"{text} ({login})", advice=ADVICE["too-many-connections"])
    error = error_from_code(code, f"{text or error_for_code(code).default_message} ({login})")
    if isinstance(error, AuthenticationError) or error.retriable:
        return error
    return AuthenticationError("the broker refused authentication").because_of(error)
