"""Bearer tokens: what one is, and when the next one is fetched.

Owns: reading tokens as far as their end, the cache in front of whatever fetches them. Must not
know: HTTP, SASL.

    fetched ----- 0.8 of its life (sasl_login_refresh_window_factor) ----- end
             given out as it is      |  the next use fetches another one; |
                                     |  while that fails, the old one     |  must succeed

Tokens are fetched when a connection authenticates, not in the background: brokers end sessions with
their tokens, and re-authentication (KIP-368) comes at 0.85 of a session at the earliest.

Invariants: at most one fetch is under way; a token never shows in a repr.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from aioproducer._util import log
from aioproducer.errors import AuthenticationError, KafkaError
from aioproducer.types import OAuthToken

_logger = log.get("net")
_LAST_MOMENT = 253_402_300_799  # the end of the year 9999, in seconds


def as_token(given: object, extensions: Mapping[str, str] | None = None) -> OAuthToken:
    """A token from what a user's function returned: one, or the text of one.

    Raises:
        AuthenticationError: it is something else.
    """
    if isinstance(given, OAuthToken):
        return given
    if not isinstance(given, str):
        raise AuthenticationError(
            f"a token must be a str or an OAuthToken, not {type(given).__name__}"
        )
    return OAuthToken(given, seconds_in(claims_of(given).get("exp")), extensions or {})


def seconds_in(value: object) -> float | None:
    """A number of seconds that JSON gives, if it is one that a clock can reach; else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= _LAST_MOMENT else None


def claims_of(token: str) -> Mapping[str, object]:
    """The claims of a token that is a JWT, unverified; nothing for any other."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        body = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(body)
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """When a token is fetched anew; times in seconds (Java: `sasl.login.refresh.*`)."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    def moment(self, fetched_at: float, expires_at: float, rng: Random) -> float:
        """When a token of this life is to be replaced.

        As Java's ExpiringCredentialRefreshingLogin: not later than `buffer_s` before the end, not
        earlier than `min_period_s` after the beginning, unless its life is too short for both.
        """
        life = expires_at - fetched_at
        moment = fetched_at + life * (self.window_factor + self.window_jitter * rng.random())
        if life > self.min_period_s + self.buffer_s:
            earliest, latest = fetched_at + self.min_period_s, expires_at - self.buffer_s
            moment = max(earliest, min(moment, latest))
        return moment


class TokenSource(Protocol):
    """Gives the token to authenticate with."""

    async def token(self) -> OAuthToken:
        """A token that has not ended."""


class CachedTokens:
    """Tokens from a function, each used for as long as it is good."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[OAuthToken]],
        policy: RefreshPolicy,
        *,
        rng: Random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._policy = policy
        self._rng = rng
        self._clock = clock
        self._lock = asyncio.Lock()
        self._current: OAuthToken | None = None
        self._replace_at = 0.0

    async def token(self) -> OAuthToken:
        """The current token, or a new one where that is due.

        Raises:
            AuthenticationError: no token is to be had, or the one fetched has ended already.
            KafkaConnectionError: fetching failed for now, and the last token has ended.
        """
        async with self._lock:
            if self._current is not None and self._clock() < self._replace_at:
                return self._current
            try:
                return await self._renew()
            except KafkaError as error:
                current = self._current
                if current is None or self._clock() >= (current.expires_at or 0):
                    raise
                _logger.warning("keeping the OAuth token that ends soon: %s", error)
                return current

    async def _renew(self) -> OAuthToken:
        fetched_at = self._clock()
        token = await self._fetch()
        if token.expires_at is None:
            return token
        if token.expires_at <= self._clock():
            raise AuthenticationError(
                "the OAuth token that was fetched has expired already",
                advice="check the token's source, and this machine's clock",
            )
        self._replace_at = self._policy.moment(fetched_at, token.expires_at, self._rng)
        self._current = token
        return token
