"""SchemaRegistry: the client of a registry with Confluent's API.

Invariants
- What never changes (the id of a schema in a subject, a version, a schema by its id) is requested
  once and cached, up to `cache_capacity`; the latest version is cached for a time.
- Several equal calls wait for one request; a cancelled call does not end it.
- An error is not cached.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

from aioproducer._checks.event_loop import running_loop
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer._util.printable import printable
from aioproducer._util.secrets import hides_arguments
from aioproducer._util.tasks import start_later
from aioproducer.errors import (
    ConfigError,
    IncompatibleSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    WrongLoopError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.serializers.registry.answers import details_in, write_rules_in
from aioproducer.serializers.registry.http import (
    RegistryConnection,
    RegistrySettings,
    TokenFunction,
    addresses,
    check_headers,
    check_login,
)
from aioproducer.serializers.registry.schema import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaType,
)
from aioproducer.serializers.registry.subjects import in_context_of

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_MOST_REFERENCES: Final = 500
_MOST_IN_ANSWER: Final = _MOST_REFERENCES + 1
_LONGEST_NAME: Final = 1_000
_MOST_CHARACTERS: Final = 32 * 1024 * 1024
"""Limit of all cached schemas of one kind of request together, in characters."""
_MOST_REFERENCED: Final = 4 * 1024 * 1024
_UNSAID: Final = ("the registry does not say how they differ",)
_TYPES: Final[dict[str, SchemaType]] = {"AVRO": "AVRO", "JSON": "JSON", "PROTOBUF": "PROTOBUF"}


class SchemaRegistry:
    """A client of Confluent's Schema Registry, or of one with the same API.

    Constructing one needs no running loop and connects to nothing; it belongs to the loop of its
    first request. Several serializers and producers of that loop may share one. Use it as an async
    context manager around them, or call `close()`. A request that is refused or not answered raises
    `SchemaRegistryError`.

    Args:
        url: the registry's address; several as a sequence or separated by commas. Without
            `basic_auth`, credentials in an address are for it and for addresses without any.
        basic_auth: user and password.
        bearer_token: a token, or a function, asynchronous or not, that returns one per request.
        ssl_context: TLS for `https:`, for example with a client certificate. Default: the
            system's authorities. Host names are verified.
        headers: sent with every request.
        request_timeout_ms: time limit of one try of a request.
        retries: tries after the first one, if another may help. Each address is tried at least
            once.
        retry_backoff_ms: the first pause between tries; the pauses grow.
        retry_backoff_max_ms: the longest pause.
        cache_capacity: the number of cached responses of each kind.
        latest_cache_ttl_ms: age after which the latest version of a subject is refreshed in the
            background; records use the old one meanwhile. With 0 every record waits for a response.
        transport: replaces the network, such as `aioproducer.testing.StubSchemaRegistry`; or
            `httpx.AsyncHTTPTransport(proxy=...)`, since no proxy is taken from the environment.

    Attributes:
        latest_ttl: `latest_cache_ttl_ms` in seconds.

    Raises:
        ConfigError: httpx is not installed, an address is not a URL, both kinds of credentials are
            given or one is not text, or a number is too small.
    """

    @hides_arguments
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        bearer_token: str | TokenFunction | None = None,
        ssl_context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        request_timeout_ms: int = 10_000,
        retries: int = 3,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 2_000,
        cache_capacity: int = 1_000,
        latest_cache_ttl_ms: int = 60_000,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        check_login(basic_auth, bearer_token)
        urls, basic_auth, logins = addresses(url, basic_auth)
        if basic_auth is not None and bearer_token is not None:
            raise ConfigError("a schema registry takes basic_auth or bearer_token, not both")
        _at_least(1, request_timeout_ms=request_timeout_ms, cache_capacity=cache_capacity)
        _at_least(
            0,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            latest_cache_ttl_ms=latest_cache_ttl_ms,
        )
        headers = dict(headers or {})
        check_headers(headers, bearer_token)
        settings = RegistrySettings(
            urls,
            basic_auth,
            bearer_token,
            ssl_context,
            headers,
            request_timeout_ms / 1000,
            retries,
            ExponentialBackoff(retry_backoff_ms / 1000, retry_backoff_max_ms / 1000),
            logins,
        )
        self._urls = urls
        self._rng = random.Random()
        self._connection = RegistryConnection(settings, transport, self._rng)
        self._settings = settings
        self._capacity = cache_capacity
        self.latest_ttl: float = latest_cache_ttl_ms / 1000
        self._known: dict[tuple[Any, ...], Any] = {}
        self._under_way: dict[tuple[Any, ...], asyncio.Task[Any]] = {}
        self._in_background: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        """The process of the loop."""
        self._left_behind: object = None
        """Tasks of another loop or process, which their end would harm."""

    def __repr__(self) -> str:
        return f"<SchemaRegistry {', '.join(getattr(self, '_urls', ()))}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End what is under way and close the connections; what is known stays known.

        A client whose loop has ended may be closed in another one.

        Raises:
            WrongLoopError: its loop is another one, which still runs.
        """
        if self._loop is not None:
            self._check_loop()
        tasks = [*self._in_background, *self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connection.close()
        self._loop = None

    # -- schemas ---------------------------------------------------------------------------------

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the schema's id in a subject, to which it is added if it is new there.

        Raises:
            IncompatibleSchemaError: readers of an earlier version would break; `details` says why.
        """
        return int((await self._register(subject, schema, normalize))["id"])

    async def ensure(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema; it is added if it is new there.

        Raises:
            IncompatibleSchemaError: readers of an earlier version would break; `details` says why.
        """

        async def ask() -> RegisteredSchema:
            answer = await self._register(subject, schema, normalize)
            if "schema" in answer and "version" in answer:
                what = f"registering a schema for subject {subject}"
                return _registered(answer, subject, schema, what)
            # Registries before Confluent's 8.0 answer with nothing but the id.
            found = await self._look_up_registered(subject, schema, normalize)
            return replace(found, id=answer["id"])

        return await self._once(("ensure", subject, schema, normalize), ask)

    async def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema.

        Raises:
            SchemaNotFoundError: it has none, and the text says how the latest one differs if the
                two are not compatible.
        """

        async def ask() -> RegisteredSchema:
            path = f"/subjects/{_quoted(subject)}{_normalized(normalize)}"
            what = f"looking up a schema in subject {subject}"
            try:
                answer = await self._connection.request("POST", path, what, schema.as_json())
            except SchemaNotFoundError as error:
                raise await self._not_found(error, subject, schema) from None
            return _registered(answer, subject, schema, what)

        return await self._once(("lookup", subject, schema, normalize), ask)

    async def latest(self, subject: str, *, schema_format: str | None = None) -> RegisteredSchema:
        """Return the newest version of a subject, believed for `latest_cache_ttl_ms`.

        Args:
            subject: where it is registered.
            schema_format: the form of its text, such as `serialized` for Protobuf, which is base64
                of a `FileDescriptorProto`; registries without it return the usual one.

        Raises:
            SchemaNotFoundError: there is no such subject.
        """
        key = ("latest", subject, schema_format)
        known = self._known.get(key)
        if known is not None and time.monotonic() >= known[1]:
            del self._known[key]

        async def ask() -> tuple[RegisteredSchema, float]:
            newest = await self._version(subject, "latest", schema_format)
            return newest, time.monotonic() + self.latest_ttl

        found, _ = await self._once(key, ask)
        return found

    async def version(
        self, subject: str, version: int, *, schema_format: str | None = None
    ) -> RegisteredSchema:
        """Return one version of a subject; see `latest` for `schema_format`.

        Raises:
            SchemaNotFoundError: there is no such version.
        """
        return await self._once(
            ("version", subject, version, schema_format),
            lambda: self._version(subject, version, schema_format),
        )

    async def schema(self, schema_id: int) -> Schema:
        """Return the schema of an id.

        Raises:
            SchemaNotFoundError: there is no such id.
        """

        async def ask() -> Schema:
            what = f"getting schema {schema_id}"
            answer = await self._connection.request("GET", f"/schemas/ids/{schema_id}", what)
            return _schema(answer, what)

        return await self._once(("schema", schema_id), ask)

    async def incompatibilities(self, subject: str, schema: Schema) -> tuple[str, ...]:
        """Return why a schema cannot become the subject's next version; empty if it can.

        Raises:
            SchemaNotFoundError: there is no such subject.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        what = f"comparing a schema with subject {subject}"
        self._check_loop()
        answer = await self._connection.request("POST", path, what, schema.as_json())
        if not isinstance(answer, dict) or answer.get("is_compatible") is not False:
            return ()
        messages = answer.get("messages")
        texts = [str(text) for text in messages[:50]] if isinstance(messages, list) else []
        return tuple(detail for text in texts for detail in details_in(text)) or _UNSAID

    async def referenced(
        self, schema: Schema, *, schema_format: str | None = None
    ) -> list[tuple[SchemaReference, Schema]]:
        """Return every schema this one builds on, each after those it builds on itself.

        `schema_format` is that of `latest`.

        Raises:
            SchemaRegistryError: one is missing, or there are too many.
        """
        found: dict[tuple[str, int], tuple[SchemaReference, Schema]] = {}
        await self._collect(schema, found, {}, schema_format)
        return list(found.values())

    def in_background(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `work()` in a task of the registry's loop, until `close()`; for serializers.

        Call it in any thread. Returns False where no loop runs the registry's requests.
        """
        loop = self._loop
        if loop is None or loop.is_closed() or self._process != os.getpid():
            return False
        if asyncio._get_running_loop() is loop:
            self._begin(loop, work)
            return True
        try:
            loop.call_soon_threadsafe(self._begin, loop, work)
        except RuntimeError:  # closed meanwhile
            return False
        return True

    async def shared(self, key: tuple[Any, ...], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work()`, which runs once for all calls of a time; for serializers.

        A cancelled call does not end it.

        Raises:
            SchemaRegistryError: the client was closed meanwhile.
        """
        self._check_loop()
        task = self._under_way.get(key)
        if task is None:
            loop = asyncio.get_running_loop()
            task = start_later(loop, work(), name="aioproducer-registry")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._on_done(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not task.cancelled() or (caller is not None and caller.cancelling()):
                raise
            closed = SchemaRegistryError("the schema registry's client was closed meanwhile")
            closed.retriable = True  # the next request opens it again
            raise closed from None

    async def _register(self, subject: str, schema: Schema, normalize: bool) -> dict[str, Any]:
        """Return the registry's answer, which has an `id`."""

        async def ask() -> dict[str, Any]:
            path = f"/subjects/{_quoted(subject)}/versions{_normalized(normalize)}"
            what = f"registering a schema for subject {subject}"
            try:
                answer = await self._connection.request("POST", path, what, schema.as_json())
            except IncompatibleSchemaError as error:
                await self._explain(error, subject, schema)
                raise
            _number(answer, "id", what)
            return dict(answer)

        return await self._once(("register", subject, schema, normalize), ask)

    async def _look_up_registered(
        self, subject: str, schema: Schema, normalize: bool
    ) -> RegisteredSchema:
        """Look up what was registered just now, which a follower may not have read yet."""
        attempt = 0
        while True:
            try:
                return await self.lookup(subject, schema, normalize=normalize)
            except SchemaNotFoundError as error:
                if attempt == self._settings.retries:
                    error.retriable = True
                    raise
            await asyncio.sleep(self._settings.backoff.delay(attempt, self._rng))
            attempt += 1

    def _begin(
        self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        if self._loop is loop:  # it was not closed meanwhile
            task = start_later(loop, work(), name="aioproducer-registry")
            self._in_background.add(task)
            task.add_done_callback(self._in_background.discard)

    async def _collect(
        self,
        schema: Schema,
        found: dict[tuple[str, int], tuple[SchemaReference, Schema]],
        lengths: dict[tuple[str, int], int],
        schema_format: str | None,
    ) -> None:
        for reference in schema.references:
            place = (reference.subject, reference.version)
            if place in lengths:
                continue
            if len(lengths) >= _MOST_REFERENCES:
                raise SchemaRegistryError(f"a schema refers to more than {_MOST_REFERENCES} others")
            lengths[place] = 0
            # It may be deleted as long as it is not erased; as Java's client.
            version = await self._once(
                ("version", *place, schema_format, "deleted"),
                partial(self._version, *place, schema_format, "deleted=true"),
            )
            lengths[place] = len(version.schema.text)
            if sum(lengths.values()) > _MOST_REFERENCED:
                raise SchemaRegistryError(
                    f"a schema refers to others of more than {_MOST_REFERENCED} characters"
                )
            await self._collect(version.schema, found, lengths, schema_format)
            found[place] = (reference, version.schema)

    async def _version(
        self, subject: str, version: int | str, schema_format: str | None, *query: str
    ) -> RegisteredSchema:
        what = f"getting version {version} of subject {subject}"
        if schema_format is not None:
            query = (f"format={_quoted(schema_format)}", *query)
        path = f"/subjects/{_quoted(subject)}/versions/{version}?{'&'.join(query)}".rstrip("?")
        answer = await self._connection.request("GET", path, what)
        return _registered(answer, subject, _schema(answer, what), what)

    async def _explain(self, error: IncompatibleSchemaError, subject: str, schema: Schema) -> None:
        """Older registries only say that a schema is not compatible; asked, they say how."""
        if error.details != (error.message.partition(": ")[2],):
            return
        try:
            details = await self.incompatibilities(subject, schema)
        except SchemaRegistryError:
            return
        if details and details != _UNSAID:
            error.details = details
            error.args = (f"{error.message}: {'; '.join(details)}",)

    async def _not_found(
        self, error: SchemaNotFoundError, subject: str, schema: Schema
    ) -> SchemaNotFoundError:
        try:
            details = await self.incompatibilities(subject, schema)
        except SchemaRegistryError:
            details = ()
        differs = f"; it is not compatible with the latest one: {'; '.join(details)}"
        better = SchemaNotFoundError(
            error.message + (differs if details else ""), advice=ADVICE["schema-missing"]
        )
        better.status, better.error_code = error.status, error.error_code
        return better

    async def _once(self, key: tuple[Any, ...], ask: Callable[[], Awaitable[T]]) -> T:
        """Return the cached answer, or that of one request shared by all callers."""
        if key in self._known:
            return self._known[key]  # type: ignore[no-any-return]

        async def work() -> T:
            answer = await ask()
            self._remember(key, answer)
            return answer

        return await self.shared(key, work)

    def _on_done(self, key: tuple[Any, ...], task: asyncio.Task[Any]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]
        if not task.cancelled():
            task.exception()  # all callers may have given up

    def _remember(self, key: tuple[Any, ...], answer: object) -> None:
        same_kind = [known for known in self._known if known[0] == key[0] and known != key]
        sizes = [_size_of(known, self._known[known]) for known in same_kind]
        size = sum(sizes) + _size_of(key, answer)
        for old, freed in zip(same_kind, sizes, strict=True):
            if len(same_kind) < self._capacity and size <= _MOST_CHARACTERS:
                break
            del self._known[old]
            same_kind = same_kind[1:]
            size -= freed
        self._known[key] = answer

    def _check_loop(self) -> None:
        loop, process = running_loop(), os.getpid()
        is_forked = self._process != process and self._connection.owns_connections
        if self._loop is None or self._loop.is_closed() or is_forked:
            # The end of a parent process's tasks would close sockets that it uses.
            self._left_behind = self._under_way, self._in_background
            self._under_way, self._in_background = {}, set()
            self._connection.drop_client()
            self._loop, self._process = loop, process
        elif self._loop is not loop:
            raise WrongLoopError(
                "this SchemaRegistry belongs to another event loop",
                advice="make one per loop and process, or close() it first",
            )


def _size_of(key: tuple[Any, ...], answer: object) -> int:
    """Return the characters of the schemas in a request and its answer."""
    if isinstance(answer, tuple):  # with the time until which it is believed
        answer = answer[0]
    found = answer.schema if isinstance(answer, RegisteredSchema) else answer
    text = len(found.text) if isinstance(found, Schema) else 0
    return text + sum(len(part.text) for part in key if isinstance(part, Schema))


def _at_least(least: int, **options: int) -> None:
    for name, value in options.items():
        if not isinstance(value, int | float):
            kind = type(value).__name__
            raise ConfigError(f"{name} of a schema registry is a number, not {kind}")
        if not least <= value < inf:
            raise ConfigError(f"{name} of a schema registry is at least {least}, not {value}")


def _quoted(subject: str) -> str:
    try:
        return quote(subject, safe="")
    except UnicodeEncodeError:
        raise SchemaRegistryError(
            f"{printable(subject)!r} cannot be a subject: it is not valid UTF-8 text"
        ) from None


def _normalized(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _number(answer: Any, name: str, what: str) -> int:
    number = answer.get(name) if isinstance(answer, dict) else None
    if type(number) is not int or not 0 <= number < 2**32:
        raise SchemaRegistryError(f"{what}: the answer has no {name} of up to 32 bits")
    return number


def _registered(answer: Any, subject: str, schema: Schema, what: str) -> RegisteredSchema:
    schema_id, version = _number(answer, "id", what), _number(answer, "version", what)
    rules = write_rules_in(answer, what)
    # Not by `replace()`: the constructors of subclasses may have other arguments.
    references = (
        SchemaReference(each.name, in_context_of(subject, each.subject), each.version)
        for each in schema.references
    )
    schema = Schema(schema.text, schema.type, tuple(references))
    return RegisteredSchema(schema_id, subject, version, schema, _guid(answer, what), rules)


def _guid(answer: Any, what: str) -> UUID | None:
    guid = answer.get("guid")
    try:
        return None if guid is None else UUID(guid)
    except (AttributeError, TypeError, ValueError) as error:
        raise SchemaRegistryError(f"{what}: the guid in the answer is none") from error


def _schema(answer: Any, what: str) -> Schema:
    try:
        references = tuple(map(_reference, (answer.get("references") or ())[:_MOST_IN_ANSWER]))
        text, kind = answer["schema"], _TYPES[answer.get("schemaType") or "AVRO"]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise SchemaRegistryError(f"{what}: the answer is not a schema") from error
    if not isinstance(text, str):
        raise SchemaRegistryError(f"{what}: the answer is not a schema")
    if len(references) > _MOST_REFERENCES:
        raise SchemaRegistryError(f"{what}: the schema refers to more than {_MOST_REFERENCES}")
    return Schema(text, kind, references)


def _reference(given: Any) -> SchemaReference:
    name, subject, version = given["name"], given["subject"], int(given["version"])
    if not isinstance(name, str) or not isinstance(subject, str):
        raise TypeError("a reference names a subject by text")
    if len(name) > _LONGEST_NAME or len(subject) > _LONGEST_NAME or not 0 < version < 2**31:
        raise ValueError("a reference is to no version of a subject")
    return SchemaReference(name, subject, version)
