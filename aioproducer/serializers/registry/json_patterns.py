"""JSON Schema's keywords, checked within bounds.

They are those of the package jsonschema, but use `patterns` in place of `re`: schemas come from a
registry, and data from anywhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import Any, Final

from aioproducer.serializers.registry.patterns import MAX_SIZE, Pattern, PatternError


class CheckError(Exception):
    """A check of data takes more time than fits its size."""


class _Check:
    """The CPU time until which a check may take, and its patterns; see `bounded_check`."""

    __slots__ = ("_steps", "_until", "patterns")

    def __init__(self, size: int, patterns: dict[str, Pattern]) -> None:
        self.patterns = patterns
        self._steps = 0
        self._until = time.thread_time() + min(_MOST_SECONDS, _SECONDS + _SECONDS_PER_BYTE * size)

    def count_step(self) -> None:
        self._steps += 1
        if self._steps % _STEPS_PER_LOOK == 0:
            self.check_time()

    def check_time(self) -> None:
        if time.thread_time() > self._until:
            raise CheckError("the schema takes too long")

    def is_found(self, text: str, data: str) -> bool:
        """Return whether a pattern matches anywhere in data."""
        self.check_time()
        found = self.patterns.get(text)
        if found is None:
            found = self.patterns[text] = Pattern(text)
        return found.is_found_in(data)


_check: ContextVar[_Check] = ContextVar("_check")
_STEPS_PER_LOOK: Final = 16
_SECONDS: Final = 1.0
_SECONDS_PER_BYTE: Final = 60e-6
_MOST_SECONDS: Final = 20.0


@contextmanager
def bounded_check(size: int, patterns: dict[str, Pattern]) -> Iterator[None]:
    """Limit the CPU time of checks within the block in proportion to `size`, the bytes of the data.

    Validators of `with_bounded_patterns` work only within, with the patterns of `check_patterns`.
    Schemas that refer to others twice, which do the same, take exponential time and memory, and so
    do `unevaluatedProperties` within one another.
    """
    token = _check.set(_Check(size, patterns))
    try:
        yield
    finally:
        _check.reset(token)


def check_schema(kind: Any, schema: Any, size: int, *, formats: bool = True) -> None:
    """Check a schema of so many bytes against its metaschema, within bounds."""
    from jsonschema.exceptions import SchemaError, best_match
    from jsonschema.validators import validator_for

    meta = with_bounded_patterns(validator_for(kind.META_SCHEMA, kind))
    checker = kind.FORMAT_CHECKER if formats else None
    validator = meta(kind.META_SCHEMA, format_checker=checker)
    try:
        with bounded_check(size, {}):
            error = best_match(validator.iter_errors(schema))
    except CheckError as reason:
        raise PatternError(str(reason)) from None
    if error is not None:
        raise SchemaError.create_from(error)


@cache
def with_bounded_patterns(kind: Any) -> Any:
    """Return a class of validators with the keywords of this module.

    Its validators of subschemas are of such a class, too, whatever their `$schema` says.
    """
    from jsonschema.validators import extend

    keywords = {
        **kind.VALIDATORS,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    keywords |= dict.fromkeys({"multipleOf", "divisibleBy"} & keywords.keys(), _multiple_of)
    made = extend(kind, {name: _counted(keyword) for name, keyword in keywords.items()})
    evolve = made.evolve

    def evolve_bounded(self: Any, **changes: Any) -> Any:
        _check.get().count_step()  # what is unevaluated is found without keywords
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
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _check.get().count_step()
        return follow(validator, value, instance, schema)

    return counted


def check_patterns(schemas: Iterable[Any]) -> dict[str, Pattern]:
    """Return the patterns of schemas.

    Refuse those that are malformed or too large, or would be matched by other code than ours.
    """
    waiting = list(schemas)
    of_properties: list[str] = []
    texts_seen: set[str] = set()
    matched_elsewhere = False
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, list):
            waiting += schema
        elif isinstance(schema, dict):
            texts = schema.get("patternProperties")
            of_properties += texts if isinstance(texts, dict) else ()
            if isinstance(schema.get("pattern"), str):
                texts_seen.add(schema["pattern"])
            matched_elsewhere |= "unevaluatedProperties" in schema
            waiting += schema.values()
    texts_seen.update(of_properties)
    patterns: dict[str, Pattern] = {}
    size = 0
    for text in texts_seen:
        patterns[text] = made = Pattern(text)
        size += max(len(text), made.size)
        if size > MAX_SIZE:
            raise PatternError(f"its patterns have more than {MAX_SIZE} characters together")
    if matched_elsewhere and not all(patterns[text].is_linear for text in of_properties):
        raise PatternError(
            "unevaluatedProperties goes with simple patternProperties only: one of them cannot "
            "be matched within bounds"
        )
    return patterns


def _pattern(validator: Any, text: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _check.get().is_found(text, instance):
        yield _error(f"does not match {text!r}")


def _pattern_properties(
    validator: Any, properties: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    check = _check.get()
    for text, inner in properties.items():
        for name, value in instance.items():
            if check.is_found(text, name):
                yield from validator.descend(value, inner, path=name, schema_path=text)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    check = _check.get()
    others = [
        name
        for name in instance
        if name not in known and not any(check.is_found(text, name) for text in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and others:
        yield _error("has properties that the schema does not allow")


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not wanted or not validator.is_type(instance, "array"):
        return
    texts = [json.dumps(_identity(each), sort_keys=True) for each in instance]
    if len(set(texts)) < len(texts):
        yield _error("has items that are equal")


def _identity(value: Any) -> Any:
    """Return what has the same JSON for values that are equal: 1 and 1.0, but not 1 and true.

    Texts are compared, as the author of data can choose numbers, or arrays of them, that all have
    the same hash.
    """
    if isinstance(value, dict):
        return {name: _identity(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_identity(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _multiple_of(validator: Any, factor: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Compare the numbers as they are written: as binary ones, 0.07 is no multiple of 0.01."""
    if not validator.is_type(instance, "number"):
        return
    if (_exact(instance) / _exact(factor)).denominator != 1:
        yield _error("is not a multiple")


def _exact(number: Any) -> Fraction:
    return Fraction(repr(number) if isinstance(number, float) else number)


def _error(message: str) -> Any:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)
