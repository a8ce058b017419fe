"""The gate in front of a broker's requests: closed until the client has authenticated.

Its sessions end (KIP-368).

    state     let through                        next
    --------  ---------------------------------  -----------------------------------------------
    waiting   ApiVersions, SaslHandshake         bare (v0), tokens (v1)
    bare      frames that are tokens             open, or the connection is closed
    tokens    SaslAuthenticate                   open, or an error and the end
    open      everything                         tokens at SaslHandshake, where sessions end

Invariant: a session that is over takes nothing but SaslHandshake; anything else closes the
connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from aioproducer import errors
from aioproducer.testing.broker import Reply
from aioproducer.testing.framing import RequestHeader, encode_response
from aioproducer.testing.security.mechanisms import (
    SCRAM_HASHES,
    DeniedError,
    Exchange,
    oauthbearer,
    plain,
    scram,
)
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    import ssl


@dataclass(slots=True)
class ListenerSecurity:
    """The requirements of the brokers' listeners; may be changed while they run.

    Attributes:
        ssl_context: Makes connections use TLS.
        mechanisms: The SASL mechanisms offered; none: no SASL.
        users: Passwords by user name, for PLAIN and SCRAM.
        check_token: Gives a token's remaining life in ms, None for a token that is no good.
        max_reauth_ms: How long a session lasts (`connections.max.reauth.ms`); 0: for ever.
        scram_iterations: The iterations of SCRAM.
    """

    ssl_context: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    check_token: Callable[[str], int | None] = lambda _token: None
    max_reauth_ms: int = 0
    scram_iterations: int = 4096
    authentications: int = 0
    """How many have succeeded."""
    refusals: int = 0
    """How many have failed."""

    def exchange(self, mechanism: str) -> Exchange:
        """Return the server's half of a mechanism."""
        if mechanism == "PLAIN":
            return plain(self.users)
        if mechanism in SCRAM_HASHES:
            return scram(mechanism, self.users, self.scram_iterations)
        return oauthbearer(self.check_token)


class _State(Enum):
    WAITING = "waiting"
    BARE = "bare"
    TOKENS = "tokens"
    OPEN = "open"


class SaslGate:
    """One connection's authentication."""

    def __init__(self, security: ListenerSecurity) -> None:
        self._security = security
        self._state = _State.WAITING if security.mechanisms else _State.OPEN
        self._exchange: Exchange | None = None
        self._session_ends_ms: int | None = None

    @property
    def expects_token(self) -> bool:
        """Whether the next frame is a bare token, not a request."""
        return self._state is _State.BARE

    def take_token(self, token: bytes, now_ms: int) -> Reply:
        """Return a bare token (SaslHandshake v0)."""
        try:
            answer, _ = self._step(token, now_ms)
        except DeniedError as error:
            return Reply(close=f"authentication failed: {error}")
        return Reply(len(answer).to_bytes(4, "big") + answer)

    def take_request(self, header: RequestHeader, now_ms: int) -> Reply | None:
        """Return the gate's response to a request; None lets it through."""
        if not self._security.mechanisms:
            return None
        key = header.api_key
        if key == ApiKey.SASL_HANDSHAKE and self._may_begin:
            return self._begin(header)
        if key == ApiKey.SASL_AUTHENTICATE and self._state is _State.TOKENS:
            return self._authenticate(header, now_ms)
        if self._state is _State.WAITING and key == ApiKey.API_VERSIONS:
            return None
        if self._state is not _State.OPEN:
            return Reply(close=f"API {key} came during authentication")
        if self._session_ends_ms is not None and now_ms >= self._session_ends_ms:
            return Reply(close="the session has ended")
        return None

    @property
    def _may_begin(self) -> bool:
        renewable = self._state is _State.OPEN and self._security.max_reauth_ms > 0
        return self._state is _State.WAITING or renewable

    def _begin(self, header: RequestHeader) -> Reply:
        request = SaslHandshakeRequest.decode(header.body, header.api_version)
        offered = list(self._security.mechanisms)
        if request.mechanism not in offered:
            code = errors.UnsupportedSaslMechanismError.code
            refusal = SaslHandshakeResponse(error_code=code, mechanisms=offered)
            return _reply(header, refusal, close="mechanism not offered")
        self._exchange = self._security.exchange(request.mechanism)
        next(self._exchange)
        self._state = _State.BARE if header.api_version == 0 else _State.TOKENS
        return _reply(header, SaslHandshakeResponse(mechanisms=offered))

    def _authenticate(self, header: RequestHeader, now_ms: int) -> Reply:
        request = SaslAuthenticateRequest.decode(header.body, header.api_version)
        try:
            answer, lifetime_ms = self._step(request.auth_bytes, now_ms)
        except DeniedError as error:
            code = errors.SaslAuthenticationFailedError.code
            refusal = SaslAuthenticateResponse(error_code=code, error_message=str(error))
            return _reply(header, refusal, close="authentication failed")
        response = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        return _reply(header, response)

    def _step(self, token: bytes, now_ms: int) -> tuple[bytes, int]:
        """Return the response to a token, and the session's lifetime if one begins."""
        exchange = self._exchange
        if exchange is None:
            raise DeniedError("no mechanism was chosen")
        try:
            answer = exchange.send(token)
            if answer.startswith((b"r=", b"{")):
                return answer, 0
            next(exchange)
        except StopIteration as end:
            return answer, self._open(end.value, now_ms)
        except (DeniedError, ValueError, KeyError) as error:
            self._security.refusals += 1
            raise DeniedError(str(error)) from error
        raise DeniedError("a mechanism went on too long")

    def _open(self, proof_ms: int | None, now_ms: int) -> int:
        self._state, self._exchange = _State.OPEN, None
        self._security.authentications += 1
        bounds = [ms for ms in (self._security.max_reauth_ms or None, proof_ms) if ms is not None]
        if not self._security.max_reauth_ms:
            return 0
        lifetime_ms = min(bounds)
        self._session_ends_ms = now_ms + lifetime_ms
        return lifetime_ms


def _reply(header: RequestHeader, response: Message, close: str | None = None) -> Reply:
    frame = encode_response(response, header.api_version, header.correlation_id)
    return Reply(frame, close=close)
