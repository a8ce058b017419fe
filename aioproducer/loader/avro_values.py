"""Rows as Avro, by a schema of a registry.

Avro itself is done by fastavro (the extra `schema-registry`).

Invariants
- Columns that the schema has no field for are left out; a row that lacks one rejects that row,
  unless the field has a default.
- Texts become what the schema wants, since CSV has nothing else, and numbers become decimals, which
  JSON has not; nothing else is converted.
- A time without an offset is UTC, as everywhere in the loader; to fastavro it is local time.
- It pickles: other processes can use a schema that one has fetched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from aioproducer._util.times import is_no_time
from aioproducer.errors import ConfigError
from aioproducer.loader.values import WrittenNumber, number_text
from aioproducer.serializers.registry.avro import parsed
from aioproducer.serializers.registry.avro_leaves import SchemaMismatch
from aioproducer.serializers.registry.avro_writer import AvroWriter
from aioproducer.serializers.registry.client import SchemaRegistry
from aioproducer.serializers.registry.schema import Schema, refuse_rules
from aioproducer.serializers.registry.wire_format import prefix

_NUMBER: Final = re.compile(r"-?[0-9]+")
_DIGITS_OF_DATE: Final = 8


def _time_or_number(text: str) -> datetime | int:
    """Convert a text to a time, or digits to a number; of digits only `20240131` is a date.

    `datetime.fromisoformat` takes 1712010112345 for 23:45 on 1 January 1712.
    """
    if _NUMBER.fullmatch(text) and len(text) != _DIGITS_OF_DATE:
        return int(text)
    return datetime.fromisoformat(text)


def _floating(text: str) -> float:
    """Convert a text to a float; refuse `1e400`, which Python reads as infinity."""
    number = float(number_text(text))
    if math.isinf(number) and "inf" not in text.lower():
        raise ValueError("it is too large")
    return number


_TEXTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": lambda text: int(number_text(text)),
    "long": lambda text: int(number_text(text)),
    "float": _floating,
    "double": _floating,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "bytes": str.encode,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": _time_or_number,
    "timestamp-micros": _time_or_number,
    "local-timestamp-millis": _time_or_number,
    "local-timestamp-micros": _time_or_number,
    "decimal": lambda text: Decimal(number_text(text)),
}
"""What a text becomes, by Avro's types and logical types."""


@dataclass(frozen=True, slots=True)
class AvroValues:
    """Makes values of rows.

    Attributes:
        schema_id: the schema's id in the registry.
        schema: its text; a record.
        references: the texts of the schemas it builds on, each after those that it uses.
    """

    schema_id: int
    schema: str
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind = _parsed(self.schema, self.references)[0]
        if not isinstance(kind, dict) or kind.get("type") != "record":
            raise ConfigError("rows become Avro records, and this schema is none")

    def __call__(self, row: Mapping[str, Any]) -> bytes:
        """Return the value of a row."""
        schema, writer = _parsed(self.schema, self.references)
        datum = _fitted(row, schema, "")
        try:
            return prefix(self.schema_id) + writer.encode(datum)
        except SchemaMismatch as mismatch:
            reason = f"{mismatch.path} {mismatch.reason}".strip()
            raise ValueError(f"does not fit the schema: {reason}") from None


async def avro_values(
    registry: SchemaRegistry,
    topic: str,
    schema: str | None,
    *,
    register: bool = False,
    ignore_rules: bool = False,
) -> AvroValues:
    """Return an encoder with the registry's schema for the values of a topic.

    Args:
        registry: the client to use.
        topic: the subject is `<topic>-value`.
        schema: the schema's text; None for the newest one.
        register: whether it is registered if the subject does not have it.
        ignore_rules: whether a schema is used although it has rules for writers, such as the
            encryption of fields; none is executed.

    Raises:
        ConfigError: it is no schema of a record, or fastavro is not installed.
        SchemaRegistryError: the registry has no such schema, or cannot be reached; or it has rules.
    """
    subject = f"{topic}-value"
    if schema is None:
        found = await registry.latest(subject)
    elif register:
        found = await registry.ensure(subject, Schema(schema))
    else:
        found = await registry.lookup(subject, Schema(schema))
    known = found.schema
    if not ignore_rules:
        refuse_rules(found, "`ignore_rules=True` (command line: `--ignore-schema-rules`)")
    if known.type != "AVRO":
        raise ConfigError(f"the schema of {subject} is {known.type}, not AVRO")
    references = tuple(each.text for _, each in await registry.referenced(known))
    return AvroValues(found.id, known.text, references)


@lru_cache(maxsize=16)
def _parsed(schema: str, references: tuple[str, ...]) -> tuple[Any, AvroWriter]:
    try:
        return parsed(schema, references, strict=False)
    except ImportError as error:
        raise ConfigError(
            "Avro values need the package fastavro",
            advice="pip install 'aioproducer[schema-registry]'",
        ) from error


def _fitted(value: Any, schema: Any, path: str) -> Any:
    """Return a value with texts as the schema wants them, and with times in UTC."""
    if isinstance(value, datetime):
        return _in_utc(value)
    if isinstance(value, WrittenNumber) and math.isinf(value):
        raise ValueError(f"field {path}: the number is too large")
    if isinstance(schema, list):
        return _fitted_to_one(value, schema, path)
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind == "record" and isinstance(value, Mapping):
        fields = {each["name"]: each["type"] for each in schema["fields"]}
        return {
            name: _fitted(value[name], fields[name], f"{path}.{name}".lstrip("."))
            for name in fields
            if name in value
        }
    if kind == "array" and isinstance(value, list | tuple):
        return [_fitted(each, schema["items"], f"{path}[]") for each in value]
    if kind == "map" and (isinstance(value, Mapping) or _is_pairs(value)):
        return {key: _fitted(each, schema["values"], path) for key, each in dict(value).items()}
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and type(value) in (int, float, WrittenNumber):
        return Decimal(value.text if isinstance(value, WrittenNumber) else repr(value))
    if not isinstance(value, str):
        return value
    parse = _TEXTS.get(logical or "") or _TEXTS.get(str(kind))
    try:
        found = value if parse is None else parse(value)
    except (ValueError, KeyError, ArithmeticError):
        raise ValueError(f"field {path}: the text is no {logical or kind}") from None
    return _in_utc(found) if isinstance(found, datetime) else found


def _in_utc(value: datetime) -> datetime | None:
    if is_no_time(value):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _is_pairs(value: Any) -> bool:
    """Return whether it is a map as pyarrow gives it."""
    return isinstance(value, list) and all(
        isinstance(each, tuple) and len(each) == 2 for each in value
    )


def _fitted_to_one(value: Any, schemas: list[Any], path: str) -> Any:
    """Return a value of a union: an empty text is null where the other types are no texts."""
    others = [each for each in schemas if each != "null"]
    if isinstance(value, str) and "string" in others:
        return value
    if value is None or (value == "" and len(others) < len(schemas)):
        return None
    return _fitted(value, others[0], path) if len(others) == 1 else value
