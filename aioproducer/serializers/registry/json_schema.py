"""JSON Schema, with a schema registry.

Validation is done by the package jsonschema, which is given every schema that is referred to: it
fetches none by itself.

Invariant: what is validated is what is written, read back from its JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

from aioproducer._checks.extras import SCHEMA_REGISTRY, needed
from aioproducer._util.printable import printable
from aioproducer.errors import ConfigError, KafkaError, SchemaRegistryError
from aioproducer.serializers.json_text import JsonLibrary, JsonSerializer, json_by_alias
from aioproducer.serializers.protocol import SerializationContext, serialization_error
from aioproducer.serializers.registry import json_patterns
from aioproducer.serializers.registry.base import (
    Encode,
    RegistrySerializer,
    SchemaIdPlace,
    SchemaUse,
    prepared,
)
from aioproducer.serializers.registry.client import SchemaRegistry
from aioproducer.serializers.registry.json_references import REFERRING, Place, linked
from aioproducer.serializers.registry.patterns import Pattern, PatternError
from aioproducer.serializers.registry.schema import Schema, SchemaReference, schema_error
from aioproducer.serializers.registry.subjects import SubjectStrategy, topic_name

_LONGEST_SHOWN: Final = 200
_MOST_NAMED: Final = 20
_OWN_DEFINITION: Final = re.compile(r"#/\$defs/(\w+)")


class JsonSchemaSerializer(RegistrySerializer):
    """Values as JSON that a registered JSON Schema describes; None stays null.

    Args:
        registry: the schema's registry.
        schema: as text, as a dict, or a Pydantic model whose instances it then describes as they
            are written; None only with `use_latest_version`.
        references: schemas of the registry that it refers to by `$ref`; a relative name is
            resolved against the schema's `$id`.
        validate: whether values are checked against the schema.
        library: the JSON library, see `JsonSerializer`.
        subject: see `AvroSerializer`; the schema's name is its `title`.
        auto_register: see `AvroSerializer`.
        use_latest_version: see `AvroSerializer`.
        normalize: see `AvroSerializer`.
        ignore_rules: see `AvroSerializer`.
        schema_id_in: see `AvroSerializer`.

    Raises:
        ConfigError: jsonschema is not installed, `schema` is not valid, or options contradict.
    """

    _schema_type = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | type | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        validate: bool = True,
        library: JsonLibrary | None = None,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = False,
        use_latest_version: bool = False,
        normalize: bool = False,
        ignore_rules: bool = False,
        schema_id_in: SchemaIdPlace = "payload",
    ) -> None:
        use = SchemaUse(
            subject, auto_register, use_latest_version, normalize, ignore_rules, schema_id_in
        )
        super().__init__(registry, use)
        with needed("jsonschema", "for JsonSchemaSerializer", install=SCHEMA_REGISTRY):
            import jsonschema
        with needed("regex", "for JsonSchemaSerializer", install=SCHEMA_REGISTRY):
            import regex  # noqa: F401 - whether it is there
        # The schema of a model has the aliases that its fields are written by.
        is_model = hasattr(schema, "model_json_schema")
        self._json = json_by_alias(library) if is_model else JsonSerializer(library)
        self._validate = validate
        if schema is None:
            if not use_latest_version:
                raise ConfigError("JsonSchemaSerializer needs a schema, or use_latest_version")
            return
        text = _text(schema)
        with _refusal(ConfigError, "this"):
            content = json.loads(text)
            kind = jsonschema.validators.validator_for(content, _default_dialect())
            json_patterns.check_schema(kind, content, len(text), formats=validate)
            if validate:  # others may have patterns that Python does not understand
                json_patterns.check_patterns([content])
        self._own = Schema(text, "JSON", tuple(references))

    def _name(self) -> str | None:
        if self._own is None:
            return None
        schema = json.loads(self._own.text)
        if not isinstance(schema, dict):
            return None
        title = schema.get("title")
        if title is None and (found := _OWN_DEFINITION.fullmatch(str(schema.get("$ref")))):
            # So Pydantic describes a model that contains itself.
            definitions = schema.get("$defs")
            inner = definitions.get(found[1]) if isinstance(definitions, dict) else None
            title = inner.get("title") if isinstance(inner, dict) else None
        return title if isinstance(title, str) else None

    async def _encoder(self, schema: Schema) -> Encode:
        write = self._json.encode
        if not self._validate:
            return write
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        referenced = {
            (reference.subject, reference.version): each
            for reference, each in await self._registry.referenced(schema)
        }
        size = len(schema.text) + sum(len(each.text) for each in referenced.values())
        validator, patterns, originals = await prepared(size, _validator, schema, referenced)

        def encode(data: Any, context: SerializationContext) -> bytes:
            made = write(data, context)
            try:
                with json_patterns.bounded_check(len(made), patterns):
                    error = best_match(validator.iter_errors(json.loads(made)))
            except (PatternError, json_patterns.CheckError) as reason:
                raise serialization_error(context, f"cannot be checked: {reason}") from None
            except RecursionError:
                raise serialization_error(context, "is nested too deeply") from None
            except Unresolvable as unknown:
                wanted = str(unknown.ref)
                shown = printable(originals.get(wanted, wanted), _LONGEST_SHOWN)
                raise schema_error(
                    context,
                    f"the schema refers to {shown!r}, unknown",
                    "register what it refers to, and name that in `references`",
                ) from None
            except Exception as failed:
                # Of jsonschema or a library below it, which a metaschema does not keep from all.
                raise schema_error(
                    context, f"the schema cannot be applied: {type(failed).__name__}"
                ) from None
            if error is not None:
                # Its message shows the data, so it is not passed on.
                path = error.json_path.removeprefix("$").removeprefix(".")
                raise serialization_error(context, _words(error, originals), path=path or None)
            return made

        return encode


def _validator(
    schema: Schema, referenced: Mapping[Place, Schema]
) -> tuple[Any, dict[str, Pattern], dict[str, str]]:
    """Return what validates by a schema, its patterns, and the original text of its references."""
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    with _refusal(SchemaRegistryError, "the registered schema"):
        found = linked(schema, referenced)
        kind = validator_for(found.content, _default_dialect())
        json_patterns.check_schema(kind, found.content, len(schema.text))
        patterns = json_patterns.check_patterns(found.documents.values())
        # What schemas refer to is given; the only others that it finds are JSON Schema's own. The
        # registry is searched for inner schemas now, and not again at each reference.
        known: Registry[Any] = REGISTRY.with_resources(
            (uri, Resource.from_contents(each, default_specification=DRAFT7))
            for uri, each in found.documents.items()
        ).crawl()
        # Drafts before 2019-09 have no `$defs`, in which Java's validator finds schemas as well.
        known = known.with_resources(
            (uri, DRAFT7.create_resource(each))
            for uri, each in found.inner.items()
            if uri not in known
        )
    validator = json_patterns.with_bounded_patterns(kind)(found.content, registry=known)
    return validator, patterns, found.originals


@contextmanager
def _refusal(kind: type[KafkaError], what: str) -> Iterator[None]:
    """Raise `kind` for whatever is wrong with a schema in this block."""
    from jsonschema.exceptions import SchemaError

    advice = None
    try:
        yield
        return
    except (ValueError, TypeError, PatternError, SchemaError) as error:
        reason = error.message if isinstance(error, SchemaError) else str(error)
        if isinstance(error, PatternError) or getattr(error, "validator_value", None) == "regex":
            advice = "write its patterns as Python's `re` takes them, or set validate=False"
    except RecursionError:
        reason = "it is nested too deeply"
    except Exception as error:  # of a library, about JSON that it does not expect
        reason = type(error).__name__
    raise kind(f"{what} is no JSON Schema: {printable(reason, _LONGEST_SHOWN)}", advice=advice)


def _words(error: Any, originals: Mapping[str, str]) -> str:
    if error.validator is None:  # the schema `false`
        return f"is not allowed; given is {_kind_of(error.instance)}"
    if error.validator == "required" and isinstance(error.validator_value, list):
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"lacks {_named(missing)}"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {})
        more = [name for name in error.instance if name not in known]
        return f"has fields that the schema lacks: {_named(more)}"
    rule = json.dumps(_beginning(error.validator_value, originals, [_LONGEST_SHOWN]))
    shown = rule[:_LONGEST_SHOWN]
    return f"violates {error.validator}: {shown}; given is {_kind_of(error.instance)}"


def _named(names: Sequence[object]) -> str:
    shown = ", ".join(repr(name)[:_LONGEST_SHOWN] for name in names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def _beginning(value: Any, originals: Mapping[str, str], left: list[int]) -> Any:
    """Return the part of a schema that is shown, with its references as they were written.

    Each value has one character at least, so as many values are enough as characters are shown.
    """
    left[0] -= 1
    if isinstance(value, str):
        return value[:_LONGEST_SHOWN]
    if isinstance(value, list):
        few = takewhile(lambda _: left[0] > 0, value)
        return [_beginning(each, originals, left) for each in few]
    if not isinstance(value, dict):
        return value
    made = {}
    for name, each in takewhile(lambda _: left[0] > 0, value.items()):
        text = originals.get(each) if name in REFERRING and isinstance(each, str) else None
        made[name[:_LONGEST_SHOWN]] = _beginning(each if text is None else text, originals, left)
    return made


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string of {} characters",
    list: "an array of {} items",
    dict: "an object with {} properties",
}


def _kind_of(value: Any) -> str:
    """Return the JSON type of a value; not the value, which is the application's."""
    kind = _KINDS[type(value)]
    return kind.format(len(value)) if "{}" in kind else kind


def _default_dialect() -> Any:
    """Return the dialect of a schema without `$schema`: draft 7, as in Confluent's serializers."""
    from jsonschema import Draft7Validator

    return Draft7Validator


def _text(schema: str | Mapping[str, Any] | type) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, Mapping):
        try:
            return json.dumps(schema, default=_as_dict)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"this is no JSON Schema: {error}") from error
    described = getattr(schema, "model_json_schema", None)
    if described is None:
        raise ConfigError(f"{schema!r} is no JSON Schema, and no Pydantic model to take it of")
    # What instances are written as: other aliases, types and fields than those they are made of.
    return json.dumps(described(mode="serialization"))


def _as_dict(part: Any) -> dict[str, Any]:
    if isinstance(part, Mapping):
        return dict(part)
    raise TypeError(f"Object of type {type(part).__name__} is not JSON serializable")
