"""The common part of a registry's serializers: how a schema gets its id.

    serialize(data) -- plan known ----> bytes at once
                    -- plan is old ---> bytes at once; the registry is asked in the background
                    -- none ----------> an awaitable: asks the registry, then bytes

The subject is named for every record, before anything is awaited: it may depend on the headers. A
registry that cannot be reached for the latest version does not stop a producer; one that refuses it
(no such subject, no permission) does. A schema whose rules are to be executed on write is refused.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, Final, Literal, ParamSpec, TypeVar

from aioproducer._util import log
from aioproducer._util.threads import in_thread
from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.serializers.protocol import SerializationContext
from aioproducer.serializers.registry.client import SchemaRegistry
from aioproducer.serializers.registry.schema import (
    RegisteredSchema,
    Schema,
    SchemaType,
    refuse_rules,
    schema_error,
)
from aioproducer.serializers.registry.subjects import SubjectStrategy, topic_name
from aioproducer.serializers.registry.wire_format import header_content, prefix

T = TypeVar("T")
P = ParamSpec("P")

Encode = Callable[[Any, SerializationContext], bytes]
"""Writes the payload: what follows the schema's id and Protobuf's message indexes."""

SchemaIdPlace = Literal["payload", "header"]
"""The place of the schema's id in a record."""

_MOST_PLANS: Final = 10_000
_MOST_PREPARED: Final = 100
_LARGE: Final = 64 * 1024
"""Schemas of more characters are prepared in a thread; 2 MiB take some seconds."""
_SHORTEST_REFRESH_S: Final = 1.0
"""The shortest time between two requests for a new plan, while the old one is used."""
_log = log.get("producer")


@dataclass(frozen=True, slots=True)
class SchemaUse:
    """Options of a serializer's registry; see `AvroSerializer` for each."""

    subject: SubjectStrategy = topic_name
    auto_register: bool = False
    use_latest_version: bool = False
    normalize: bool = False
    ignore_rules: bool = False
    schema_id_in: SchemaIdPlace = "payload"

    def __post_init__(self) -> None:
        if self.schema_id_in not in ("payload", "header"):
            raise ConfigError(f"schema_id_in is 'payload' or 'header', not {self.schema_id_in!r}")
        if self.auto_register and self.use_latest_version:
            raise ConfigError("auto_register and use_latest_version contradict each other")


@dataclass(frozen=True, slots=True)
class Plan:
    """The way to write the records of one subject; `good_until` in seconds of the clock."""

    prefix: bytes
    header: bytes | None
    encode: Encode
    good_until: float


class RegistrySerializer(ABC):
    """A serializer whose payloads begin with a schema's id."""

    _schema_type: SchemaType
    """The type of the schemas that it writes by."""
    _format: str | None = None
    """In which form the registry gives the latest schema, where it has several."""

    def __init__(self, registry: SchemaRegistry, use: SchemaUse) -> None:
        self._registry = registry
        self._use = use
        self._plans: dict[str, Plan] = {}
        self._encoders: dict[Schema, tuple[Encode, bytes]] = {}
        self._own: Schema | None = None

    def serialize(
        self, data: Any, context: SerializationContext
    ) -> bytes | Awaitable[bytes | None] | None:
        """See `Serializer`; it waits when the registry has to be asked."""
        if data is None:
            return None
        subject = self._use.subject(context, self._full_name)
        if not isinstance(subject, str):
            kind = type(subject).__name__
            raise schema_error(context, f"the subject function returned {kind}, not str")
        plan = self._plans.get(subject)
        if plan is None:
            return self._serialize_later(data, context, subject)
        is_old = plan.good_until != inf and time.monotonic() >= plan.good_until
        if is_old and not self._refresh_soon(plan, context, subject):
            return self._serialize_later(data, context, subject)
        return _written(plan, data, context)

    def _refresh_soon(self, plan: Plan, context: SerializationContext, subject: str) -> bool:
        """Ask for a new plan in the background; False when that cannot be or is not wanted."""
        registry = self._registry
        if not registry.latest_ttl or not registry.in_background(
            lambda: self._refresh(context, subject)
        ):
            return False
        good_until = time.monotonic() + max(registry.latest_ttl, _SHORTEST_REFRESH_S)
        self._plans[subject] = replace(plan, good_until=good_until)
        return True

    async def _refresh(self, context: SerializationContext, subject: str) -> None:
        try:
            self._plans[subject] = await self._plan(context, subject)
        except Exception as error:
            if isinstance(error, SchemaRegistryError) and error.retriable:
                _log.warning("the schema of %s is not asked for anew: %s", subject, error)
            else:
                self._plans.pop(subject, None)  # the next record asks, and raises what is wrong

    async def _serialize_later(
        self, data: Any, context: SerializationContext, subject: str
    ) -> bytes:
        try:
            plan = await self._plan(context, subject)
        except SchemaRegistryError as error:
            old = self._plans.get(subject)
            if old is None or not error.retriable:
                raise
            _log.warning("the schema of %s is not asked for anew: %s", subject, error)
            plan = replace(old, good_until=time.monotonic() + self._registry.latest_ttl)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[subject] = plan
        return _written(plan, data, context)

    @cached_property
    def _full_name(self) -> str | None:
        return self._name()

    async def _plan(self, context: SerializationContext, subject: str) -> Plan:
        use, registry = self._use, self._registry
        if use.use_latest_version:
            latest = await registry.latest(subject, schema_format=self._format)
            if latest.schema.type != self._schema_type:
                raise schema_error(
                    context,
                    f"the registered schema is {latest.schema.type}, not {self._schema_type}: "
                    f"version {latest.version} of subject {subject}",
                )
            return await self._plan_of(latest, time.monotonic() + registry.latest_ttl)
        schema = await self._schema(context, subject)
        if use.auto_register:
            found = await registry.ensure(subject, schema, normalize=use.normalize)
        else:
            found = await registry.lookup(subject, schema, normalize=use.normalize)
        return await self._plan_of(found, inf)

    async def _plan_of(self, found: RegisteredSchema, good_until: float) -> Plan:
        if not self._use.ignore_rules:
            refuse_rules(found, "`ignore_rules=True`")
        encode, indexes = await self._encoder_for(found)
        if self._use.schema_id_in == "payload":
            return Plan(prefix(found.id) + indexes, None, encode, good_until)
        if found.guid is None:
            raise SchemaRegistryError(
                f"the registry gives no GUID for version {found.version} of subject "
                f"{found.subject}, which `schema_id_in='header'` needs",
                advice="use Confluent Schema Registry 8.0 or later, or `schema_id_in='payload'`",
            )
        return Plan(b"", header_content(found.guid) + indexes, encode, good_until)

    async def _encoder_for(self, found: RegisteredSchema) -> tuple[Encode, bytes]:
        """Return the encoder of a schema; it is made once for all records that wait for it."""
        known = self._encoders.get(found.schema)
        if known is not None:
            return known

        async def prepare() -> tuple[Encode, bytes]:
            return await self._encoder(found.schema), await self._indexes(found)

        made = await self._registry.shared(("prepared", id(self), found.schema), prepare)
        if len(self._encoders) >= _MOST_PREPARED:
            del self._encoders[next(iter(self._encoders))]
        self._encoders[found.schema] = made
        return made

    @abstractmethod
    def _name(self) -> str | None:
        """Return the full name of the serializer's own schema; None if it has none."""

    async def _schema(self, context: SerializationContext, subject: str) -> Schema:
        """Return the serializer's own schema, with what it refers to registered."""
        del context, subject
        assert self._own is not None  # the constructor has seen to it
        return self._own

    @abstractmethod
    async def _encoder(self, schema: Schema) -> Encode:
        """Return the encoder for payloads of a schema."""

    async def _indexes(self, found: RegisteredSchema) -> bytes:
        """Return the bytes after the schema's id: Protobuf's path to the message's type."""
        del found
        return b""


async def prepared(
    characters: int, prepare: Callable[P, T], *arguments: P.args, **named: P.kwargs
) -> T:
    """Return the result of `prepare()`, called in a thread if the schemas have many characters."""
    if characters > _LARGE:
        return await in_thread(prepare, *arguments, **named)
    return prepare(*arguments, **named)


def _written(plan: Plan, data: Any, context: SerializationContext) -> bytes:
    payload = plan.encode(data, context)
    headers, name = context.headers, f"__{context.part}_schema_id"
    if headers:
        # Readers prefer the header: one of a record that was read elsewhere names another schema.
        headers[:] = [header for header in headers if header[0] != name]
    if plan.header is not None:
        headers.append((name, plan.header))
    return plan.prefix + payload
