"""Schemas in a registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from aioproducer._util.bounded_json import decoded_json
from aioproducer.errors import SchemaRegistryError
from aioproducer.serializers.protocol import SerializationContext
from aioproducer.types import Persistence

_LONGEST_SCHEMA: Final = 4 << 20
_MOST_VALUES: Final = 300_000

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
"""The registry's names of the formats."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one builds on.

    Attributes:
        name: what it is called there: Avro's full name, JSON Schema's `$ref`, Protobuf's import.
        subject: where it is registered.
        version: which version of it.
    """

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """Return the reference as JSON of the registry's API."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema to be registered or looked up.

    Attributes:
        text: the schema itself; a Protobuf one may be base64 of its `FileDescriptorProto`.
        type: its format.
        references: what it builds on.
    """

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def __post_init__(self) -> None:
        # Schemas are keys of caches; other clients take a list here.
        object.__setattr__(self, "references", tuple(self.references))

    def as_json(self) -> dict[str, Any]:
        """Return the schema as JSON of the registry's API, without fields that have the default."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [reference.as_json() for reference in self.references]
        return body


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """A rule of a registered schema, such as the encryption of a field.

    Attributes:
        name: its name in the schema.
        type: what executes it, such as `ENCRYPT`, `ENCRYPT_PAYLOAD` or `CEL`.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject.

    Attributes:
        id: the number in front of every record; the same schema has it in every subject.
        subject: where it is registered.
        version: its number there, from 1.
        schema: the schema.
        guid: the schema's identity in a header; None if the registry gives none.
        write_rules: the active rules that a serializer has to execute before it writes a record.
    """

    id: int
    subject: str
    version: int
    schema: Schema
    guid: UUID | None = None
    write_rules: tuple[SchemaRule, ...] = ()


def decoded(text: str) -> Any:
    """Return the JSON of a schema's text, which may be a registry's; raise ValueError for others.

    JSON that is nested too deeply is a RecursionError.
    """
    return decoded_json(text, _LONGEST_SCHEMA, _MOST_VALUES)


def schema_error(
    context: SerializationContext, reason: str, advice: str | None = None
) -> SchemaRegistryError:
    """Return the error of a record that fails because of its schema, not its content."""
    return SchemaRegistryError(
        f"{context.part}: {reason}",
        part=context.part,
        topic=context.topic,
        persistence=Persistence.NOT_PERSISTED,
        advice=advice,
    )


def refuse_rules(found: RegisteredSchema, option: str) -> None:
    """Refuse a schema with rules for writers: nothing here executes them; `option` allows it."""
    if not found.write_rules:
        return
    rules = ", ".join(f"{rule.name!r} ({rule.type})" for rule in found.write_rules)
    raise SchemaRegistryError(
        f"version {found.version} of subject {found.subject} has rules that must be executed on "
        f"write and cannot be executed here: {rules}",
        advice=f"write with a client that executes them, or set {option} to write without them",
        persistence=Persistence.NOT_PERSISTED,
    )
