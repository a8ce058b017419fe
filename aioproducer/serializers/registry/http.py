"""HTTP requests to a schema registry, with retries.

Invariants
- A request ends within `request_timeout` each try, and after `retries` more tries; more addresses
  than that are each tried once. A `Retry-After` of up to `request_timeout` is waited for; a longer
  one ends the tries. No request is sent before that of all addresses is over.
- No more of an answer is read than `_LARGEST_ANSWER`; no redirect is followed.
- Credentials are in no error, repr or log; those in an address are removed from it.
- Nothing is taken from the environment, such as proxies.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from aioproducer._checks.extras import SCHEMA_REGISTRY, needed
from aioproducer._util import bounded_http, log
from aioproducer._util.arguments import utf8_size
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer._util.bounded_json import JsonLimitError, decoded_json
from aioproducer._util.hosts import is_exposed
from aioproducer._util.paths import version_of
from aioproducer._util.printable import printable, repr_of
from aioproducer._util.secrets import (
    Unpicklable,
    cleared,
    hides_arguments,
    without_login,
    without_secrets,
)
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation
from aioproducer._util.threads import in_thread
from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.errors.advice import ADVICE
from aioproducer.serializers.registry.answers import RETRIABLE_STATUSES, registry_error

if TYPE_CHECKING:
    import httpx

_log = log.get("producer")

TokenFunction = Callable[[], str | Awaitable[str]]
"""Gives the bearer token for one request."""
Login = tuple[str, str]
"""User and password."""

_LARGEST_ANSWER: Final = 2 << 20
"""Decoded, JSON may take thirty times as much; registries keep a schema in a record of 1 MB."""
_LONGEST_PAUSE: Final = 60.0
"""Seconds of `Retry-After` for later requests: a registry may ask for days by mistake."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_SECRET_HEADER: Final = re.compile("(?i)auth|key|token|secret|cookie")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class RegistrySettings(Unpicklable):
    """The checked arguments of a `SchemaRegistry`; times in seconds.

    Attributes:
        logins: user and password of the addresses that have others than `basic_auth`.
    """

    urls: tuple[str, ...]
    basic_auth: Login | None = field(repr=False)
    bearer_token: str | TokenFunction | None = field(repr=False)
    ssl_context: ssl.SSLContext | None
    headers: dict[str, str] = field(repr=False)
    request_timeout: float
    retries: int
    backoff: ExponentialBackoff
    logins: dict[str, Login] = field(repr=False)


@hides_arguments
def addresses(
    given: object, basic_auth: Login | None
) -> tuple[tuple[str, ...], Login | None, dict[str, Login]]:
    """Return the registry's addresses, the credentials, and those of single addresses."""
    texts = given.split(",") if isinstance(given, str) else given
    urls: list[str] = []
    logins: dict[str, Login] = {}
    for text in texts if isinstance(texts, Iterable) else [texts]:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise ConfigError(
                f"a schema registry's url is a text, not {kind}", advice="give str(url)"
            )
        parts = _parts_of(text)
        place = parts.netloc.rpartition("@")[2]
        urls.append(urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")))
        if parts.username is not None and basic_auth is None:
            logins[urls[-1]] = (unquote(parts.username), unquote(parts.password or ""))
    if not urls:
        raise ConfigError("a schema registry needs at least one url")
    return tuple(urls), next(iter(logins.values()), basic_auth), logins


def _parts_of(text: str) -> SplitResult:
    try:
        parts = urlsplit(text.strip())
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        is_url = is_url and utf8_size(text) >= 0
    except ValueError:
        is_url = False
    # A password that is not encoded may end the host early, at one of / ? and #.
    if not is_url or "@" in parts.path or parts.query or parts.fragment:
        raise ConfigError(
            "a schema registry's url must be like https://host:port/path",
            advice="in user name and password, encode / ? # , and @ (%2F %3F %23 %2C %40)",
        )
    return parts


class RegistryConnection:
    """Sends requests to a registry."""

    def __init__(
        self,
        settings: RegistrySettings,
        transport: httpx.AsyncBaseTransport | None,
        rng: random.Random,
    ) -> None:
        with needed("httpx", "to talk to a schema registry", install=SCHEMA_REGISTRY):
            import httpx
        for url in settings.urls:
            if not bounded_http.has_usable_host(url):
                raise ConfigError(f"the host in a schema registry's url {printable(url)!r} is none")
        self._httpx = httpx
        self._settings = settings
        self._transport = transport
        self.owns_connections: bool = transport is None
        """Whether a new client has its own connections; those of a given transport stay."""
        self._rng = rng
        self._first = 0
        self._free_at = 0.0
        """The loop time before which all addresses want no request."""
        self._warn_of_exposure()
        self._client: httpx.AsyncClient | None = None
        self._own_context: ssl.SSLContext | None = None
        self._authorities: object = None

    def _warn_of_exposure(self) -> None:
        settings = self._settings
        has_login = settings.basic_auth or settings.bearer_token
        exposed = [url for url in settings.urls if is_exposed(url)]
        if exposed and (has_login or any(map(_SECRET_HEADER.search, settings.headers))):
            _log.warning(
                "the credentials for the schema registry can be read on the way to %s, since the "
                "connection is not encrypted: use https",
                without_login(exposed[0]),
            )

    async def close(self) -> None:
        """Close the connections; another request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def drop_client(self) -> None:
        """Drop the connections of a loop that has ended, without closing them properly."""
        self._client = None
        self._free_at = 0.0  # another loop may have another clock

    @hides_arguments
    async def request(
        self, method: str, path: str, what: str, body: dict[str, Any] | None = None
    ) -> Any:
        """Return one request's answer, decoded; errors say what is asked, `what`."""
        settings = self._settings
        await self._wait_until_free(what)
        retries = max(settings.retries, len(settings.urls) - 1)  # each address is tried
        attempt, first = 0, self._first  # which other requests may change
        limits: list[float] = []
        sent: list[str] = []  # other requests run meanwhile, with other tokens
        while True:
            url = settings.urls[(first + attempt) % len(settings.urls)]
            wait = 0.0
            try:
                status, answer, headers = await self._ask(method, url, path, body, sent)
            except (self._httpx.RequestError, TimeoutError) as error:
                failure = self._failure(what, url, error, sent)
                if not failure.retriable:
                    raise failure from None
            else:
                if 200 <= status < 300:
                    self._first = settings.urls.index(url)
                    return _decoded(answer, what)
                leads_to = without_secrets(headers.get("Location", ""), sent)
                failure = registry_error(status, answer, what, leads_to)
                if status not in RETRIABLE_STATUSES:
                    raise failure
                limits.append(bounded_http.retry_after(headers))
            attempt += 1
            if limits and attempt % len(settings.urls) == 0:  # no other address is left to try
                wait = min(limits)
                if len(limits) == len(settings.urls):
                    self._free_at = _now() + min(wait, _LONGEST_PAUSE)
                limits = []
            if attempt > retries or wait > settings.request_timeout:
                raise failure
            await asyncio.sleep(max(wait, settings.backoff.delay(attempt - 1, self._rng)))

    async def _wait_until_free(self, what: str) -> None:
        """Wait for the `Retry-After` of earlier requests; raise if it is too long."""
        pause = self._free_at - _now()
        if pause > self._settings.request_timeout:
            failure = SchemaRegistryError(
                f"{what}: the schema registry is busy and wants no request for {pause:.0f} s"
            )
            failure.retriable = True
            raise failure
        if pause > 0:
            await asyncio.sleep(pause)

    def _failure(
        self, what: str, url: str, error: Exception, sent: Sequence[str]
    ) -> SchemaRegistryError:
        """Return the error for a request without an answer."""
        if isinstance(error, self._httpx.LocalProtocolError):
            # Its text quotes what was to be sent, such as credentials.
            return SchemaRegistryError(f"{what}: the request cannot be sent to {url}")
        reason = without_secrets(str(error) or type(error).__name__, sent)
        if isinstance(error, TimeoutError | self._httpx.TimeoutException):
            reason = f"no answer within {self._settings.request_timeout:g} s"
        failure = SchemaRegistryError(
            f"{what}: the schema registry at {url} does not answer: {reason}",
            advice=ADVICE["registry-unreachable"],
        )
        failure.retriable = True
        if reason in (str(error), type(error).__name__):
            failure.__cause__ = error
        return failure

    async def _ask(
        self, method: str, url: str, path: str, body: dict[str, Any] | None, sent: list[str]
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status, body and headers; `sent` gets what errors must not quote."""
        client = await self._open()
        async with asyncio.timeout(self._settings.request_timeout):
            login = self._settings.logins.get(url, self._settings.basic_auth)
            headers = await self._headers(login)
            sent[:] = _secrets_in(headers, login)
            try:
                status, answer, received = await bounded_http.exchange(
                    client,
                    method,
                    url + path,
                    headers=headers,
                    content=None if body is None else json.dumps(body).encode(),
                    longest=_LARGEST_ANSWER,
                )
            except bounded_http.UnboundedAnswerError as error:
                raise SchemaRegistryError(
                    f"the answer of the schema registry is refused: {error}"
                ) from None
        if not 200 <= status < 300:
            answer = without_secrets(answer.decode("utf-8", "replace"), sent).encode()
        return status, answer, received

    async def _open(self) -> httpx.AsyncClient:
        settings, seen = self._settings, _authorities()
        if (client := self._client) is not None:
            if self._own_context is not None and self._authorities != seen:
                self._authorities = seen
                await in_thread(self._own_context.load_default_certs)
            return client
        own: ssl.SSLContext | None = None
        if settings.ssl_context is None and any(url.startswith("https:") for url in settings.urls):
            # The system's authorities, read off the loop.
            own = await in_thread(ssl.create_default_context)
        if self._client is None:  # still, after the wait
            self._own_context, self._authorities = own, seen
            self._client = self._httpx.AsyncClient(
                verify=settings.ssl_context or own or False,
                timeout=settings.request_timeout,
                transport=self._transport,
                trust_env=False,
            )
        return self._client

    async def _headers(self, login: Login | None) -> dict[str, str]:
        settings = self._settings
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Content-Type": _MEDIA_TYPE}
        # Confluent's registry leaves newer fields out of its answers without this.
        headers["Confluent-Accept-Unknown-Properties"] = "true"
        headers |= settings.headers
        token = settings.bearer_token
        if callable(token):
            try:
                made = token()
                token = await made if inspect.isawaitable(made) else made
            except HOOK_ERRORS as error:
                if is_cancellation(error):
                    raise
                cleared(error)
                failure = SchemaRegistryError(f"the bearer_token function raised {repr_of(error)}")
                # A service that gives tokens may be down for a while.
                failure.retriable = isinstance(error, OSError | self._httpx.RequestError)
                raise failure from error
        if token is not None:
            if not is_header_value(token):
                raise SchemaRegistryError(
                    "the bearer token cannot be sent: it is not text of printable ASCII characters",
                    advice="strip line ends and blanks from what bearer_token gives",
                )
            headers["Authorization"] = f"Bearer {token}"
        elif login is not None:
            pair = ":".join(login).encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
        return headers


def _now() -> float:
    return asyncio.get_running_loop().time()


def _authorities() -> object:
    """Return what changes with the system's file of authorities, or `SSL_CERT_FILE`."""
    return version_of(ssl.get_default_verify_paths().cafile or "")


def _secrets_in(headers: Mapping[str, str], login: Login | None) -> list[str]:
    """Return what a refusal must not quote of a request."""
    sent = [value for name, value in headers.items() if _SECRET_HEADER.search(name)]
    sent += [value.partition(" ")[2] for value in sent]
    return sent if login is None else [*sent, login[1]]


def is_header_value(given: object) -> bool:
    """Return whether this is a text that HTTP can carry in a header as it is."""
    return isinstance(given, str) and _HEADER_VALUE.fullmatch(given) is not None


def check_login(basic_auth: Any, bearer_token: object) -> None:
    """Refuse credentials that would fail only when they are sent; the error has no values."""
    is_pair = isinstance(basic_auth, tuple | list) and len(basic_auth) == 2
    if basic_auth is not None and not (
        is_pair and all(isinstance(each, str) for each in basic_auth)
    ):
        raise ConfigError(
            "basic_auth of a schema registry is a pair of texts, (user, password)",
            advice="of a SecretStr give get_secret_value()",
        )
    if any(utf8_size(each) < 0 for each in basic_auth or ()):
        raise ConfigError("basic_auth of a schema registry is not valid UTF-8 text")
    if bearer_token is not None and not (isinstance(bearer_token, str) or callable(bearer_token)):
        raise ConfigError(
            "bearer_token of a schema registry is a text or a function, not "
            f"{type(bearer_token).__name__}",
            advice="of a SecretStr give get_secret_value()",
        )


def check_headers(headers: Mapping[Any, str], bearer_token: object) -> None:
    """Refuse headers that cannot be sent; the error has no values."""
    for place, (name, value) in enumerate(headers.items(), 1):
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"the name of header {place} for the schema registry is malformed")
        if not is_header_value(value):
            raise ConfigError(
                f"the header {name} for the schema registry is not text of printable ASCII "
                "characters",
                advice="strip line ends and blanks from it",
            )
    if isinstance(bearer_token, str) and not is_header_value(bearer_token):
        raise ConfigError(
            "the bearer_token for the schema registry is not text of printable ASCII characters",
            advice="strip line ends and blanks from it",
        )


def _decoded(answer: bytes, what: str) -> Any:
    try:
        return decoded_json(answer, _LARGEST_ANSWER)
    except JsonLimitError as error:
        raise SchemaRegistryError(f"{what}: the answer is refused: {error}") from None
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryError(
            f"{what}: the answer is no JSON", advice=ADVICE["registry-elsewhere"]
        ) from error
