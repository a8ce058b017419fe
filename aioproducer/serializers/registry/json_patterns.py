"""JSON Schema's keywords that have regular expressions, checked within bounds.

They are those of the package jsonschema, but use `patterns` in place of `re`: schemas come from a
registry, and data from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from aioproducer.serializers.registry.patterns import PatternError, pattern


class ReferencesError(Exception):
    """A check of data follows more references than fit its size."""


_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)
_REFERENCES: Final = 10_000
_REFERENCES_PER_BYTE: Final = 10


@contextmanager
def bounded_references(size: int) -> Iterator[None]:
    """Within, a check follows references in proportion to the size of the data in bytes.

    Schemas that refer to others twice, which do the same, take exponential time and memory.
    """
    token = _left.set([_REFERENCES + _REFERENCES_PER_BYTE * size])
    try:
        yield
    finally:
        _left.reset(token)


@cache
def with_bounded_patterns(kind: Any) -> Any:
    """Return a class of validators with the keywords of this module.

    Its validators of subschemas are of such a class, too, whatever their `$schema` says.
    """
    from jsonschema.validators import extend

    references = ("$ref", "$dynamicRef", "$recursiveRef")
    made = extend(
        kind,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            **{
                name: _counted(kind.VALIDATORS[name])
                for name in references
                if name in kind.VALIDATORS
            },
        },
    )
    evolve = made.evolve

    def evolve_bounded(self: Any, **changes: Any) -> Any:
        other = evolve(self, **changes)
        if type(other) is made:
            return other
        other_kind: Any = type(other)
        return with_bounded_patterns(other_kind)(
            other.schema,
            format_checker=other.format_checker,
            registry=other._registry,
            _resolver=other._resolver,
        )

    made.evolve = evolve_bounded
    return made


def _counted(follow: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, reference: Any, instance: Any, schema: Any) -> Any:
        left = _left.get()
        if left is not None:
            left[0] -= 1
            if left[0] < 0:
                raise ReferencesError("the schema refers to schemas too often")
        return follow(validator, reference, instance, schema)

    return counted


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
