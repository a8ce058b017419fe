"""Avro schemas made self-contained: full names everywhere, referenced types defined at first use.

Start with `resolve`. Names are resolved as Java's Avro does: a bare name is looked up in the
enclosing namespace first, then among the names without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_MOST_LEVELS: Final = 300
"""Limit of nested JSON; a type within a type takes one to three levels."""
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


class AvroSchemaError(Exception):
    """The JSON is no Avro schema; the message says why."""


def resolve(schema: Any, references: Iterable[Any] = ()) -> Any:
    """Return the schema with full names.

    `references` are the schemas that it uses by name, each after those that it uses itself.
    """
    named: dict[str, Any] = {}
    try:
        for reference in references:
            _resolved_one(reference, named)
        return _resolved_one(schema, named)
    except RecursionError:
        raise AvroSchemaError("its types are nested too deeply") from None


def _resolved_one(schema: Any, named: dict[str, Any]) -> Any:
    check_nesting(schema)
    own: dict[str, Any] = {}
    resolved = _resolved(schema, "", named, own)
    compared: set[tuple[int, int]] = set()
    for name, before in own.items():
        if before is not None and not _is_same(before, named[name], compared):
            raise AvroSchemaError(
                f"the type {name!r} is defined in two ways, such as by two versions of a reference"
            )
    return resolved


def _is_same(one: Any, other: Any, compared: set[tuple[int, int]]) -> bool:
    """Return whether two types are equal; they may contain themselves."""
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_is_same(*pair, compared) for pair in pairs)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return bool(one == other)
    place = id(one), id(other)
    if one is other or place in compared:
        return True
    compared.add(place)
    keys = one.keys() - {ATTRIBUTES}
    return keys == other.keys() - {ATTRIBUTES} and all(
        _is_same(one[key], other[key], compared) for key in keys
    )


def check_nesting(schema: Any) -> None:
    """Refuse what native code would need too much of its stack for."""
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > _MOST_LEVELS:
            raise AvroSchemaError("its types are nested too deeply")
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner


def without_defaults(schema: Any) -> Any:
    """Return a schema's JSON without the defaults of fields.

    Native code gets this one, where defaults are of no use: they may be without end.
    """
    if isinstance(schema, list):
        return [without_defaults(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = without_defaults(kept[name])
    if isinstance(kept.get("fields"), list):
        fields = [{k: v for k, v in field.items() if k != "default"} for field in kept["fields"]]
        kept["fields"] = [without_defaults(field) for field in fields]
    return kept


def _name_of(schema: Mapping[str, Any], namespace: str) -> str:
    """Return the full name of a named type."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise AvroSchemaError(f"a {schema.get('type')} has no name")
    if "." in name:
        return name
    space = schema.get("namespace")
    space = namespace if space is None else space
    return f"{space}.{name}" if space else name


def _resolved(schema: Any, namespace: str, named: dict[str, Any], own: dict[str, Any]) -> Any:
    if isinstance(schema, str):
        return _by_name(schema, namespace, named)
    if isinstance(schema, list):
        union = [_resolved(branch, namespace, named, own) for branch in schema]
        if any(isinstance(branch, list) for branch in union):
            raise AvroSchemaError("a union is directly within another one")
        return union
    if not isinstance(schema, dict) or "type" not in schema:
        raise AvroSchemaError("a type must be a name, a union or an object with `type`")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _resolved(kind, namespace, named, own)
    if kind in NAMED:
        return _definition(schema, kind, namespace, named, own)
    if kind in ("array", "map"):
        inside = "items" if kind == "array" else "values"
        if inside not in schema:
            raise AvroSchemaError(f"a type {kind} lacks `{inside}`")
        items = _resolved(schema[inside], namespace, named, own)
        return {"type": kind, inside: items, **_logical(schema)}
    if kind in PRIMITIVES:
        return {"type": kind, **_logical(schema)}
    return _resolved(kind, namespace, named, own)


def _logical(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logical type of a schema, whose writers may need any attribute."""
    if not isinstance(schema.get("logicalType"), str):  # as Java, which ignores others
        return {}
    made = {key: schema[key] for key in _LOGICAL if key in schema}
    others = {
        key: each for key, each in schema.items() if key not in _STRUCTURE and key not in made
    }
    return {**made, ATTRIBUTES: others} if others else made


ATTRIBUTES: Final = "attributes"
"""Where a resolved schema with a logical type has its other attributes."""
_LOGICAL: Final = ("logicalType", "precision", "scale")
_STRUCTURE: Final = frozenset(
    {"type", "name", "namespace", "aliases", "doc", "default", "order"}
    | {"fields", "symbols", "size", "items", "values"}
)


def _by_name(name: str, namespace: str, named: Mapping[str, Any]) -> Any:
    if name in PRIMITIVES:
        return name
    full = f"{namespace}.{name}" if namespace and "." not in name else name
    for candidate in (full, name):
        if candidate in named:
            return named[candidate]
    raise AvroSchemaError(f"the type {name!r} is not defined, and no reference defines it")


def _definition(
    schema: Mapping[str, Any], kind: str, namespace: str, named: dict[str, Any], own: dict[str, Any]
) -> Any:
    name = _name_of(schema, namespace)
    if name in own:
        raise AvroSchemaError(f"the type {name!r} is defined twice")
    made: dict[str, Any] = {"type": kind, "name": name, **_logical(schema)}
    own[name] = named.get(name)
    named[name] = made
    if kind == "enum":
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise AvroSchemaError(f"the enum {name!r} lacks `symbols`")
        made["symbols"] = symbols
        return made
    if kind == "fixed":
        size = schema.get("size")
        if not isinstance(size, int) or not 0 <= size < 1 << 31:
            raise AvroSchemaError(f"the fixed {name!r} lacks `size`")
        made["size"] = size
        return made
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise AvroSchemaError(f"the record {name!r} lacks `fields`")
    space = name.rpartition(".")[0]
    made["fields"] = []
    for field in fields:
        if not isinstance(field, dict) or "type" not in field or "name" not in field:
            raise AvroSchemaError(f"a field of {name!r} lacks `name` or `type`")
        if not isinstance(field["name"], str):
            raise AvroSchemaError(f"a field of {name!r} has a name that is not text")
        one = {"name": field["name"], "type": _resolved(field["type"], space, named, own)}
        if "default" in field:
            one["default"] = field["default"]
        made["fields"].append(one)
    return made
