"""Bearer tokens: expiry and cache.

    fetched --- 0.8 of its lifetime (sasl_login_refresh_window_factor) --- expiry
             the token is reused     |  the next use fetches a new token; |  the fetch
                                     |  if that fails or takes more than  |  must succeed
                                     |  10 s, the old is used for 10 s    |

A token that a broker has refused is replaced at its next use, whatever its age is by this clock.
Tokens are fetched when a connection authenticates, not in the background: brokers end sessions with
their tokens, and re-authentication (KIP-368) comes at 0.85 of a session at the earliest.

Invariants: at most one fetch is in progress; a token is never in a repr.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import inf
from random import Random

from aioproducer._util import log
from aioproducer._util.bounded_json import decoded_object
from aioproducer.errors import AuthenticationError, KafkaError
from aioproducer.types import OAuthToken

_logger = log.get("net")
_BASE64URL = re.compile(r"[\w-]*", re.ASCII)
_LONGEST_CLAIMS = 1024 * 1024
_LAST_MOMENT = 253_402_300_799  # the end of the year 9999, in seconds
_LONGEST_REFRESH_S = 10.0
"""Limit of a fetch while the last token can be used."""
_REFRESH_AGAIN_S = 10.0
"""Pause after a fetch that failed, as in Java's ExpiringCredentialRefreshingLogin."""


def as_token(given: object, extensions: Mapping[str, str] | None = None) -> OAuthToken:
    """Return the token from a user's function, which may return an OAuthToken or a str."""
    if isinstance(given, OAuthToken):
        if given.expires_at not in (None, inf) and seconds_in(given.expires_at) is None:
            raise AuthenticationError(
                f"expires_at of an OAuthToken is {given.expires_at!r}, which is not a time in "
                "seconds since the epoch",
                advice="milliseconds have to be divided by 1000; leave out an end that is unknown",
            )
        if not extensions or given.extensions:
            return given
        # Not by `replace()`: the constructor of a subclass may have other arguments.
        return OAuthToken(given.value, given.expires_at, extensions)
    if not isinstance(given, str):
        raise AuthenticationError(
            f"a token must be a str or an OAuthToken, not {type(given).__name__}"
        )
    return OAuthToken(given, seconds_in(claims_of(given).get("exp")), extensions or {})


def seconds_in(value: object) -> float | None:
    """Return a number from JSON as seconds, or None if it is not a possible time."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= _LAST_MOMENT else None


def claims_of(token: str) -> Mapping[str, object]:
    """Return the unverified claims of a JWT; empty for any other token."""
    parts = token.split(".")
    if len(parts) != 3 or not _BASE64URL.fullmatch(parts[1]):
        return {}
    try:
        body = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return {}
    return decoded_object(body, _LONGEST_CLAIMS)


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """Schedule for new tokens; times in seconds (Java: `sasl.login.refresh.*`)."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    def moment(self, fetched_at: float, expires_at: float, rng: Random) -> float:
        """Return the time at which a token is to be replaced.

        As Java's ExpiringCredentialRefreshingLogin: not later than `buffer_s` before the expiry,
        not earlier than `min_period_s` after the fetch, unless its lifetime is too short for both.
        """
        life = expires_at - fetched_at
        moment = fetched_at + life * (self.window_factor + self.window_jitter * rng.random())
        if life > self.min_period_s + self.buffer_s:
            earliest, latest = fetched_at + self.min_period_s, expires_at - self.buffer_s
            moment = max(earliest, min(moment, latest))
        return min(moment, expires_at)


class CachedTokens:
    """Cache of tokens from a function."""

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
        self._fetched_at = 0.0

    async def token(self) -> OAuthToken:
        """Return the current token, or a new one if that is due."""
        async with self._lock:
            current = self._current
            if current is None or self._has_ended(current):
                return await self._renew()
            if self._clock() < self._replace_at:
                return current
            try:
                async with asyncio.timeout(_LONGEST_REFRESH_S):
                    return await self._renew()
            except BaseException as error:
                # Connections that authenticate meanwhile do not wait for the next failure.
                self._replace_at = self._clock() + _REFRESH_AGAIN_S
                if not isinstance(error, KafkaError | TimeoutError) or self._has_ended(current):
                    raise
                why = error if isinstance(error, KafkaError) else "its source does not answer"
                _logger.warning("keeping the OAuth token that ends soon: %s", why)
                return current

    def _has_ended(self, token: OAuthToken) -> bool:
        return self._clock() >= (token.expires_at or 0)

    def on_refused(self, token: OAuthToken) -> None:
        """Replace a token that a broker has refused at the next use, once in `min_period_s`.

        It may have been revoked, or this machine's clock is slow.
        """
        age = self._clock() - self._fetched_at
        if token is self._current and not 0 <= age < self._policy.min_period_s:
            self._replace_at = -inf

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
        self._fetched_at = fetched_at
        self._current = token
        return token
