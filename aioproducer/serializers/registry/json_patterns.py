"""JSON Schema's keywords that have regular expressions, checked within bounds.

They are those of the package jsonschema, but use `patterns` in place of `re`: schemas come from a
registry, and data from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aioproducer.serializers.registry.patterns import PatternError, pattern


def with_bounded_patterns(kind: Any) -> Any:
    """Return a class of validators with the keywords of this module."""
    from jsonschema.validators import extend

    return extend(
        kind,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )


def check_patterns(schemas: Iterable[Any]) -> None:
    """Refuse schemas whose patterns are malformed, or would be matched by other code than ours.

    Raises:
        PatternError: There is such a pattern.
    """
    waiting = list(schemas)
    of_properties: list[str] = []
    matched_elsewhere = False
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, list):
            waiting += schema
        elif isinstance(schema, dict):
            texts = schema.get("patternProperties")
            of_properties += texts if isinstance(texts, dict) else ()
            if isinstance(schema.get("pattern"), str):
                pattern(schema["pattern"])
            matched_elsewhere |= "unevaluatedProperties" in schema
            waiting += schema.values()
    for text in of_properties:
        if not pattern(text).is_linear and matched_elsewhere:
            raise PatternError(
                "unevaluatedProperties goes with simple patternProperties only: one of them cannot "
                "be matched within bounds"
            )


def _pattern(validator: Any, text: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not pattern(text).is_found_in(instance):
        yield _error(f"does not match {text!r}")


def _pattern_properties(
    validator: Any, properties: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for text, inner in properties.items():
        for name, value in instance.items():
            if pattern(text).is_found_in(name):
                yield from validator.descend(value, inner, path=name, schema_path=text)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    others = [
        name
        for name in instance
        if name not in known and not any(pattern(text).is_found_in(name) for text in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and others:
        yield _error("has properties that the schema does not allow")


def _error(message: str) -> Any:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)
