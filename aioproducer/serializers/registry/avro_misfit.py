"""Where data does not fit an Avro schema.

Owns: finding the first field that does not fit, once a record was refused. Must not know: the
registry. Nothing of the data's content is told, only types and names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastavro.validation import validate

Misfit = tuple[str, str]
"""The path to the data, `a.b[2]`, and what is wrong there."""


def find_misfit(data: Any, schema: Any, named: Mapping[str, Any]) -> Misfit | None:
    """The first thing that does not fit; None when it is nothing this can tell.

    Args:
        data: what was to be written.
        schema: as fastavro parsed it.
        named: schemas it refers to by name.
    """
    return next(_misfits(data, schema, dict(named), ""), None)


def _misfits(data: Any, schema: Any, named: dict[str, Any], path: str) -> Iterator[Misfit]:
    schema = _resolved(schema, named)
    if isinstance(schema, list):
        yield from _in_union(data, schema, named, path)
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in {"record", "error"}:
        yield from _in_record(data, schema, named, path)
    elif kind == "array" and isinstance(data, Sequence) and not isinstance(data, str | bytes):
        for index, item in enumerate(data):
            yield from _misfits(item, schema["items"], named, f"{path}[{index}]")
    elif kind == "map" and isinstance(data, Mapping):
        for key, item in data.items():
            yield from _misfits(item, schema["values"], named, f"{path}[{key!r}]")
    elif not _fits(data, schema, named):
        yield path, f"must be {_words(schema)}, not {_type_name(data)}"


def _in_record(data: Any, schema: Any, named: dict[str, Any], path: str) -> Iterator[Misfit]:
    if not isinstance(data, Mapping):
        yield path, f"must be {_words(schema)}, not {_type_name(data)}"
        return
    for field in schema["fields"]:
        place = f"{path}.{field['name']}" if path else field["name"]
        if field["name"] in data:
            yield from _misfits(data[field["name"]], field["type"], named, place)
        elif "default" not in field and not _fits(None, field["type"], named):
            yield place, "is missing and has no default"
    known = {field["name"] for field in schema["fields"]}
    for name in data:
        if name not in known and not str(name).startswith("-"):
            place = f"{path}.{name}" if path else str(name)
            yield place, f"is no field of {schema['name']}"


def _in_union(data: Any, schema: list[Any], named: dict[str, Any], path: str) -> Iterator[Misfit]:
    branches = [_resolved(branch, named) for branch in schema]
    if any(next(_misfits(data, branch, named, path), None) is None for branch in branches):
        return
    likely = [branch for branch in branches if branch not in ("null", {"type": "null"})]
    if len(likely) == 1:
        yield from _misfits(data, likely[0], named, path)
    yield path, f"must be one of {', '.join(map(_words, branches))}, not {_type_name(data)}"


def _resolved(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, dict):
        if "name" in schema:
            named.setdefault(schema["name"], schema)
        inner = schema["type"]
        if isinstance(inner, dict | list):
            return _resolved(inner, named)
    return schema


def _fits(data: Any, schema: Any, named: dict[str, Any]) -> bool:
    try:
        return bool(validate(data, _whole(schema, named), raise_errors=False))
    except Exception:
        return False


def _whole(schema: Any, named: dict[str, Any]) -> Any:
    """A union of names, with the names resolved; others as they are."""
    if isinstance(schema, list):
        return [_resolved(branch, named) for branch in schema]
    return _resolved(schema, named)


def _words(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if schema.get("name"):
        return f"{schema['type']} {schema['name']}"
    return (
        f"{schema['type']} ({schema['logicalType']})"
        if "logicalType" in schema
        else str(schema["type"])
    )


def _type_name(data: Any) -> str:
    return "null" if data is None else type(data).__name__
