"""Avro, with a schema registry.

`avro_schema` resolves names and references, `avro_writer` encodes and says what does not fit.

Invariant: as in Java's serializer, the payload of a schema that is only `"bytes"` is the bytes
themselves, without Avro's length in front.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aioproducer._checks.extras import SCHEMA_REGISTRY, needed
from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.serializers.protocol import (
    SerializationContext,
    serialization_error,
    wrong_type_error,
)
from aioproducer.serializers.registry import avro_schema
from aioproducer.serializers.registry.avro_leaves import SchemaMismatch
from aioproducer.serializers.registry.avro_values import Typed, class_of
from aioproducer.serializers.registry.avro_writer import AvroWriter
from aioproducer.serializers.registry.base import (
    Encode,
    RegistrySerializer,
    SchemaIdPlace,
    SchemaUse,
    prepared,
)
from aioproducer.serializers.registry.client import SchemaRegistry
from aioproducer.serializers.registry.schema import Schema, SchemaReference, decoded
from aioproducer.serializers.registry.subjects import SubjectStrategy, topic_name

_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_DEFINITIONS: Final = tuple(avro_schema.NAMED)
_WITHOUT_NAME: Final = avro_schema.PRIMITIVES | {"array", "map"}
_OF_FASTAVRO: Final = frozenset({"__fastavro_parsed", "__named_schemas"})


class AvroSerializer(RegistrySerializer):
    """Dicts and instances of classes with fields as Avro; None stays null.

    Such classes are dataclasses, and those of Pydantic, attrs and msgspec.

    In a union of several records the class's name decides, at any depth. A plain dict that fits
    several equally is refused: give `(name, value)` or a key `-type` with the branch's name.

    Args:
        registry: the schema's registry.
        schema: as text, or as Python has its JSON; None only with `use_latest_version`.
        references: schemas of the registry that it uses by name.
        to_dict: converts a value to a dict, instead of the default conversion.
        subject: names the subject: `topic_name`, `record_name`, `topic_record_name`, or a function.
        auto_register: whether a schema that the subject lacks is registered by the first record.
            Java's default is yes; here it is no: permission to write records should not imply
            permission to change what all readers have to understand.
        use_latest_version: whether records are written with the subject's newest schema, which is
            refreshed after the registry's `latest_cache_ttl_ms`.
        normalize: whether the registry treats schemas as equal that differ only in form.
        ignore_rules: whether records are written although the registered schema has rules for
            writers, such as the encryption of fields. No rule is executed here, so without this
            option such a schema is refused.
        schema_id_in: `payload` puts the schema's id in front of the payload; `header` puts its
            GUID into the header `__key_schema_id` or `__value_schema_id`, and the payload has
            nothing in front. That needs a registry with GUIDs (Confluent's from 8.0).
        ignore_unknown_fields: whether data without a field in the schema is left out; by default
            it is an error.

    Raises:
        ConfigError: fastavro is not installed, `schema` is not valid, or options contradict.
    """

    _schema_type = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        to_dict: Callable[[Any], Any] | None = None,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = False,
        use_latest_version: bool = False,
        normalize: bool = False,
        ignore_rules: bool = False,
        schema_id_in: SchemaIdPlace = "payload",
        ignore_unknown_fields: bool = False,
    ) -> None:
        use = SchemaUse(
            subject, auto_register, use_latest_version, normalize, ignore_rules, schema_id_in
        )
        super().__init__(registry, use)
        with needed("fastavro", "for AvroSerializer", install=SCHEMA_REGISTRY):
            import fastavro  # noqa: F401 - whether it is there
        self._to_dict = to_dict
        self._strict = not ignore_unknown_fields
        if schema is None:
            if not use_latest_version:
                raise ConfigError("AvroSerializer needs a schema, or use_latest_version")
            return
        text = _text(schema)
        self._own = Schema(text, "AVRO", tuple(references))
        if not references:  # others are parsed when what they refer to is known
            parsed(text)

    def _name(self) -> str | None:
        if self._own is None:
            return None
        schema = json.loads(self._own.text)
        while isinstance(schema, dict) and schema.get("type") not in _DEFINITIONS:
            schema = schema.get("type")
        if isinstance(schema, str):  # a reference has it, or it is not a named type
            return None if schema in _WITHOUT_NAME else schema
        if not isinstance(schema, dict) or "name" not in schema:
            return None
        name, namespace = schema["name"], schema.get("namespace")
        return f"{namespace}.{name}" if namespace and "." not in name else str(name)

    async def _encoder(self, schema: Schema) -> Encode:
        texts = [each.text for _, each in await self._registry.referenced(schema)]
        size = len(schema.text) + sum(map(len, texts))
        try:
            resolved, writer = await prepared(size, self._writer, schema.text, texts)
        except (avro_schema.AvroSchemaError, ValueError) as error:
            raise SchemaRegistryError(f"the registered schema is no Avro schema: {error}") from None
        except RecursionError:
            raise SchemaRegistryError(
                "the registered schema is no Avro schema: it is nested too deeply"
            ) from None
        except Exception as error:  # about JSON that is not expected
            raise SchemaRegistryError(
                f"the registered schema is no Avro schema: {type(error).__name__}"
            ) from error
        if resolved in ("bytes", {"type": "bytes"}):
            return _raw

        def encode(data: Any, context: SerializationContext) -> bytes:
            try:
                return writer.encode(data if self._to_dict is None else self._made_dict(data))
            except SchemaMismatch as mismatch:
                raise serialization_error(
                    context, mismatch.reason, path=mismatch.path or None
                ) from None

        return encode

    def _writer(self, text: str, referenced: Sequence[str]) -> tuple[Any, AvroWriter]:
        resolved = avro_schema.resolve(decoded(text), map(decoded, referenced))
        return resolved, AvroWriter(resolved, strict=self._strict, check_defaults=False)

    def _made_dict(self, data: Any) -> Any:
        assert self._to_dict is not None
        made = self._to_dict(data)
        # The class of the object still chooses the branch of a union.
        return Typed(made, type(data)) if type(made) is dict and class_of(data) else made


def parsed(
    text: str, references: Sequence[str] = (), *, strict: bool = True
) -> tuple[Any, AvroWriter]:
    """Return a user's schema with full names, and what writes by it."""
    import fastavro
    from fastavro.schema import UnknownType

    try:
        resolved = avro_schema.resolve(json.loads(text), map(json.loads, references))
        writer = AvroWriter(resolved, strict=strict, check_defaults=strict)
        if not references:
            with suppress(UnknownType):  # fastavro does not look up names without a namespace
                fastavro.parse_schema(avro_schema.without_defaults(json.loads(text)))
    except RecursionError:
        raise ConfigError("this is no Avro schema: it is nested too deeply") from None
    except Exception as error:
        raise ConfigError(f"this is no Avro schema: {error}") from error
    return resolved, writer


def _raw(data: Any, context: SerializationContext) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise wrong_type_error(context, "bytes", data)
    return bytes(data)


def _text(schema: str | Mapping[str, Any] | Sequence[Any]) -> str:
    """Return the schema as JSON, as the user wrote it where it was given as text."""
    if isinstance(schema, str) and _NAME.fullmatch(schema):
        return json.dumps(schema)  # a bare name such as `string`
    try:
        text = schema if isinstance(schema, str) else json.dumps(_as_written(schema))
        avro_schema.check_nesting(json.loads(text))
    except (avro_schema.AvroSchemaError, RecursionError):
        raise ConfigError("this is no Avro schema: it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        what = "it is no JSON: " if isinstance(schema, str) else ""
        raise ConfigError(f"this is no Avro schema: {what}{error}") from None
    return text


def _as_written(schema: Any) -> Any:
    """Return a schema without what `fastavro.parse_schema` adds, which registries would keep."""
    if isinstance(schema, list | tuple):
        return [_as_written(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {name: each for name, each in schema.items() if name not in _OF_FASTAVRO}
