"""Limits on data of an Avro schema: its depth, and what takes memory but no bytes.

Start with `bounds_of`. Schemas come from registries and files: a short one may describe values that
are nested without end, or arrays of which a few bytes make billions of items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aioproducer.serializers.registry.avro_schema import AvroSchemaError

MAX_DEPTH: Final = 100
_MAX_VALUES: Final = 100_000
_MAX_VALUES_PER_ITEM: Final = 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest and the largest possible data of a schema.

    Attributes:
        min_bytes: The size of the shortest value.
        values: How many Python values a value without arrays and maps has at most.
        values_per_byte: How many an item of an array or map may have for each of its bytes; 0
            where there are no arrays and maps.
        recursive: Whether a type contains itself, so that values can be nested without end.
    """

    min_bytes: int
    values: int
    values_per_byte: int
    recursive: bool


@dataclass(slots=True)
class _Size:
    """Bytes at least, values at most, and those among them that take no byte; the height."""

    min_bytes: int
    values: int = 1
    free: int = 0
    height: int = 0


def bounds_of(schema: Any) -> Bounds:
    """Return the bounds of a schema, as `resolve` returned it."""
    measurement = _Measurement()
    size = measurement.size_of(schema, 0)
    return Bounds(size.min_bytes, size.values, measurement.per_byte, measurement.recursive)


class _Measurement:
    def __init__(self) -> None:
        self.per_byte = 0
        self.recursive = False
        self._known: dict[str, _Size | None] = {}

    def size_of(self, schema: Any, depth: int) -> _Size:
        if isinstance(schema, list):
            return self._union(schema, depth)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error"):
            return self._record(schema, depth)
        if kind in ("array", "map"):
            return self._collection(schema["items" if kind == "array" else "values"], kind, depth)
        if kind == "null":
            return _Size(0, 1, 1)
        if kind == "fixed":
            return _Size(schema["size"], 1, 0 if schema["size"] > 0 else 1)
        return _Size({"float": 4, "double": 8}.get(kind, 1))

    def _record(self, schema: Mapping[str, Any], depth: int) -> _Size:
        name = schema["name"]
        if name in self._known:
            known = self._known[name]
            if known is None:  # it is being measured
                self.recursive = True
                return _Size(1)
            _check_depth(depth + known.height)
            return known
        _check_depth(depth)
        self._known[name] = None
        total = _Size(0, 1, 1)
        for field in schema["fields"]:
            size = self.size_of(field["type"], depth + 1)
            total.min_bytes += size.min_bytes
            total.values += size.values
            total.free += size.free
            total.height = max(total.height, size.height + 1)
            if total.values > _MAX_VALUES:
                raise AvroSchemaError(f"a value of {name} has more than {_MAX_VALUES} parts")
        self._known[name] = total
        return total

    def _union(self, branches: list[Any], depth: int) -> _Size:
        _check_depth(depth)
        sizes = [self.size_of(branch, depth + 1) for branch in branches]
        if not sizes:
            return _Size(1)
        return _Size(
            1 + min(size.min_bytes for size in sizes),
            1 + max(size.values for size in sizes),
            max(size.free for size in sizes),
            1 + max(size.height for size in sizes),
        )

    def _collection(self, items: Any, kind: str, depth: int) -> _Size:
        _check_depth(depth)
        item = self.size_of(items, depth + 1)
        if kind == "array" and item.min_bytes == 0:
            raise AvroSchemaError("an array of items that take no bytes has no bound")
        if item.free > _MAX_VALUES_PER_ITEM:
            raise AvroSchemaError(
                f"an item of a type {kind} has more than {_MAX_VALUES_PER_ITEM} parts without bytes"
            )
        self.per_byte = max(self.per_byte, item.free + 1)
        return _Size(1, 1, 0, item.height + 1)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise AvroSchemaError(f"its types are nested more than {MAX_DEPTH} deep")
