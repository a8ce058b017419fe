"""Tokens from an OAuth token endpoint (KIP-768, KIP-1139, KIP-1258) or from a file.

    2xx with access_token         the token
    408, 429, 5xx, no connection  retry after a backoff, or after `Retry-After`, for `retry_s`; then
                                  a connection error, and no request until `Retry-After` is over
    anything else                 `AuthenticationError`, at once, and no request for 10 s

Invariants: every wait is bounded; errors contain the endpoint's `error` and `error_description`,
never the request. HTTP is done by `httpx`, imported when first needed.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, urlencode

from aioproducer._checks.extras import needed
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer._util.bounded_http import (
    UnboundedAnswerError,
    exchange,
    has_usable_host,
    retry_after,
)
from aioproducer._util.bounded_json import decoded_object
from aioproducer._util.printable import printable
from aioproducer._util.secrets import Unpicklable, hides_arguments, without_login, without_secrets
from aioproducer._util.threads import in_thread
from aioproducer.errors import AuthenticationError, ConfigError, KafkaConnectionError, KafkaError
from aioproducer.net.security.tls import TlsSettings, make_context
from aioproducer.net.security.tokens import as_token, seconds_in
from aioproducer.types import OAuthToken

if TYPE_CHECKING:
    import httpx

_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ADVICE = "check the sasl_oauthbearer_* options against the token endpoint"
_LONGEST_TEXT = 200
_BUSY = (408, 429)
_LONGEST_ANSWER = 1024 * 1024
_LONGEST_PAUSE_S = 60.0
"""The longest `Retry-After` that is obeyed: an endpoint may ask for days by mistake."""
_PAUSE_AFTER_REFUSAL_S = 10.0
"""From Java's ExpiringCredentialRefreshingLogin; else each connection would ask every second."""

Assertions = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class EndpointSettings(Unpicklable):
    """Settings of a token endpoint; times in seconds.

    `jwt_bearer`: the assertion is the grant itself (RFC 7523, 2.1); otherwise it, or the secret,
    authenticates the client of a client credentials grant.
    """

    url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    urlencode_header: bool = False
    jwt_bearer: bool = False
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    retry_backoff_s: float = 0.1
    retry_s: float = 10.0
    ca_location: str | None = None


class TokenEndpoint:
    """Client of a token endpoint."""

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        extensions: dict[str, str],
        assertions: Assertions | None,
        rng: Random,
    ) -> None:
        with needed("httpx", "to ask a token endpoint", install="aioproducer[oauth]"):
            import httpx  # noqa: F401
        if not has_usable_host(settings.url):
            raise ConfigError("the host in sasl_oauthbearer_token_endpoint_url is none")
        if settings.ca_location is not None:
            _tls_context(settings.ca_location)  # a file that is not there is refused at once
        self._settings = settings
        self._extensions = extensions
        self._assertions = assertions
        self._sent: tuple[str | None, ...] = (settings.client_secret,)
        self._rng = rng
        self._free_at = 0.0
        """The time of the monotonic clock before which calls fail as the last one did."""
        self._failure: KafkaError | None = None

    @hides_arguments
    async def fetch(self) -> OAuthToken:
        """Fetch a new token."""
        if self._failure is not None and time.monotonic() < self._free_at:
            raise self._failure.with_context()
        try:
            return await self._fetched()
        except KafkaError as error:
            if isinstance(error, AuthenticationError):
                self._free_at = time.monotonic() + _PAUSE_AFTER_REFUSAL_S
            self._failure = error.with_context()
            raise

    async def _fetched(self) -> OAuthToken:
        import httpx

        settings = self._settings
        backoff = ExponentialBackoff(settings.retry_backoff_s, settings.retry_s)
        timeout = httpx.Timeout(settings.read_timeout_s, connect=settings.connect_timeout_s)
        deadline = time.monotonic() + settings.retry_s
        attempt = 0
        # The certificates of authorities are read in a thread; not needed without TLS.
        secure = settings.url.lower().startswith("https:")
        verify = await in_thread(_tls_context, settings.ca_location) if secure else False
        async with httpx.AsyncClient(timeout=timeout, verify=verify, trust_env=False) as client:
            while True:
                try:
                    return await self._ask(client)
                except (httpx.TransportError, TimeoutError, _UnableError) as error:
                    asked_for = error.wait_s if isinstance(error, _UnableError) else 0.0
                    delay = max(backoff.delay(attempt, self._rng), asked_for)
                    self._free_at = time.monotonic() + min(asked_for, _LONGEST_PAUSE_S)
                    attempt += 1
                    if time.monotonic() + delay >= deadline:
                        raise KafkaConnectionError(
                            f"no token after {attempt} attempt(s): {self._reason(error)}"
                        ) from None
                    await asyncio.sleep(delay)

    async def _ask(self, client: httpx.AsyncClient) -> OAuthToken:
        settings, asked_at = self._settings, time.time()
        headers, form = await self._request()
        credentials = headers.get("Authorization", "").removeprefix("Basic ")
        assertion = form.get("assertion") or form.get("client_assertion")
        self._sent = (settings.client_secret, credentials, assertion)
        try:
            async with asyncio.timeout(settings.connect_timeout_s + settings.read_timeout_s):
                status, body, received = await exchange(
                    client,
                    "POST",
                    settings.url,
                    headers=headers,
                    content=urlencode(form).encode(),
                    longest=_LONGEST_ANSWER,
                )
        except UnboundedAnswerError as error:
            raise AuthenticationError(
                f"the token endpoint's answer is refused: {error}", advice=_ADVICE
            ) from None
        if status in _BUSY or status >= 500:
            raise _UnableError(f"the token endpoint answered HTTP {status}", retry_after(received))
        answer = decoded_object(body, _LONGEST_ANSWER)
        if not 200 <= status < 300:
            reasons = [
                value
                for key in ("error", "error_description")
                if isinstance(value := answer.get(key), str)
            ]
            leads_to = received.get("Location", "") if 300 <= status < 400 else ""
            if leads_to:
                reasons = [f"a redirect to {printable(without_login(leads_to))}"]
            text = without_secrets(": ".join(reasons), self._sent)[:_LONGEST_TEXT]
            raise AuthenticationError(
                f"the token endpoint answered HTTP {status}" + (f" ({text})" if text else ""),
                advice=_ADVICE,
            )
        value = answer.get("access_token")
        if not isinstance(value, str) or not value:
            raise AuthenticationError("the token endpoint gave no access_token", advice=_ADVICE)
        token = as_token(value, self._extensions)
        life = seconds_in(answer.get("expires_in"))
        if life is None or life <= 0:
            return token
        end, latest = token.expires_at, asked_at + life
        if end is not None and asked_at < end <= latest:
            return token
        # There is no other end, or it is by a clock that differs from this machine's.
        return OAuthToken(value, latest, self._extensions)

    def _reason(self, error: Exception) -> str:
        return without_secrets(str(error) or type(error).__name__, self._sent)[:_LONGEST_TEXT]

    async def _request(self) -> tuple[dict[str, str], dict[str, str]]:
        settings = self._settings
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form: dict[str, str] = {}
        if self._assertions is None:
            headers["Authorization"] = _basic(settings)
            form["grant_type"] = "client_credentials"
        elif settings.jwt_bearer:
            form |= {"grant_type": _JWT_BEARER, "assertion": await self._assertions()}
        else:
            form |= {
                "grant_type": "client_credentials",
                "client_assertion_type": _CLIENT_ASSERTION,
                "client_assertion": await self._assertions(),
            }
            if settings.client_id is not None:
                form["client_id"] = settings.client_id
        if settings.scope is not None:
            form["scope"] = settings.scope
        return headers, form


class _UnableError(Exception):
    """The endpoint is not available now; a retry may help, after `wait_s` at the earliest."""

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s = wait_s


def _tls_context(ca_location: str | None) -> ssl.SSLContext:
    """Return a context with the authorities of a file, or of the system."""
    if ca_location is None:
        return ssl.create_default_context()
    return make_context(TlsSettings(truststore_location=ca_location))


def _basic(settings: EndpointSettings) -> str:
    pair = [settings.client_id or "", settings.client_secret or ""]
    if settings.urlencode_header:
        pair = [quote_plus(part) for part in pair]
    return "Basic " + b64encode(":".join(pair).encode()).decode()


def token_file(path: str, extensions: dict[str, str]) -> Callable[[], Awaitable[OAuthToken]]:
    """Return a function that reads a token from a file, which another process renews."""

    async def read() -> OAuthToken:
        try:
            text = await in_thread(Path(path).read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise KafkaConnectionError(
                f"the token file {path} cannot be read: {type(error).__name__}"
            ) from None
        return as_token(text.strip(), extensions)

    return read
