"""Python objects as Avro sees them: instances of classes with declared fields, enumerations.

A value is converted where its type is known, so that the class of a nested object can choose the
branch of a union.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any


class Typed(dict[str, Any]):
    """The fields of an object, with the class that the object has."""

    __slots__ = ("of",)

    def __init__(self, fields: Mapping[str, Any], of: type) -> None:
        super().__init__(fields)
        self.of: type = of


def as_fields(data: Any) -> Mapping[str, Any] | None:
    """Return an object's fields by name; None if it has none."""
    if isinstance(data, Mapping):
        return data
    if isinstance(data, type):
        return None
    pairs = _fields_of(data.__class__)
    if pairs is not None:
        return {name: getattr(data, attribute) for name, attribute in pairs}
    return dumped(data) if is_model(data) else None


def is_model(data: Any) -> bool:
    """Return whether this is an instance of a Pydantic model."""
    return callable(getattr(data, "model_dump", None)) and not isinstance(data, type)


def is_wrapper(data: Any) -> bool:
    """Return whether this is a member of an enumeration or a Pydantic `RootModel`."""
    return isinstance(data, Enum) or getattr(type(data), "__pydantic_root_model__", False)


def inner(data: Any) -> Any:
    """Return what an enumeration's member or a `RootModel` holds."""
    return data.value if isinstance(data, Enum) else dumped(data)


def class_of(data: Any) -> type | None:
    """Return the class whose name chooses a branch of a union; None for plain data."""
    if isinstance(data, Typed):
        return data.of
    if not isinstance(data, type) and (_fields_of(data.__class__) is not None or is_model(data)):
        return type(data)
    return None


def dumped(model: Any) -> Any:
    """Return what a Pydantic model serializes to, in which nested models keep their classes."""
    return _paired(model, model.model_dump())


def _paired(original: Any, made: Any) -> Any:
    if is_model(original):
        if getattr(type(original), "__pydantic_root_model__", False):
            return _paired(original.root, made)
        if not isinstance(made, dict):
            return made
        fields = type(original).model_fields
        keys = {name: _key(name, field, made) for name, field in fields.items()}
        if any(key is None and not fields[name].exclude for name, key in keys.items()):
            # The field that holds it is of a base class, whose fields alone were written.
            own = original.model_dump()
            if isinstance(own, dict) and len(own) > len(made):
                return _paired(original, own)
        pairs = {key: getattr(original, name, None) for name, key in keys.items() if key}
        return Typed(
            {
                key: _paired(pairs[key], item) if key in pairs else item
                for key, item in made.items()
            },
            type(original),
        )
    if dataclasses.is_dataclass(original) and isinstance(made, dict):
        return Typed(
            {key: _paired(getattr(original, key, None), item) for key, item in made.items()},
            type(original),
        )
    if isinstance(original, Mapping) and isinstance(made, dict) and len(original) == len(made):
        return {
            key: _paired(source, item)
            for source, (key, item) in zip(original.values(), made.items(), strict=True)
        }
    if (
        isinstance(original, list | tuple)
        and isinstance(made, list | tuple)
        and len(original) == len(made)
    ):
        return [_paired(source, item) for source, item in zip(original, made, strict=True)]
    return made


def _key(name: str, field: Any, made: Mapping[str, Any]) -> str | None:
    for key in (name, field.serialization_alias, field.alias):
        if key is not None and key in made:
            return str(key)
    return None


@lru_cache(maxsize=1024)
def _fields_of(kind: type) -> tuple[tuple[str, str], ...] | None:
    """Return the names and attributes of a class of dataclasses, attrs or msgspec; None of others.

    A `msgspec.Struct` may be written by other names than those of its attributes.
    """
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif isinstance(declared := getattr(kind, "__attrs_attrs__", None), tuple):
        names = [field.name for field in declared]
    elif isinstance(declared := getattr(kind, "__struct_encode_fields__", None), tuple):
        return tuple(zip(declared, kind.__struct_fields__, strict=True))  # type: ignore[attr-defined]
    else:
        return None
    return tuple((name, name) for name in names)
