"""The stub of a registry compares Avro schemas by the rules of schema resolution."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioproducer.testing import StubSchemaRegistry

POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
WIDER = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
LONGER = {"type": "record", "name": "P", "fields": [*POINT["fields"], {"name": "y", "type": "int"}]}
COLOURS = {"type": "enum", "name": "E", "symbols": ["red"]}
MORE_COLOURS = {"type": "enum", "name": "E", "symbols": ["red", "blue"]}


def status(old: Any, new: Any) -> int:
    """Return the answer to a new type of a field whose subject has the old one."""
    stub = StubSchemaRegistry()
    for each in (old, new):
        schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": each}]}
        answer, _ = stub.answer("POST", "/subjects/s/versions", {"schema": json.dumps(schema)})
    return answer


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("string", ["null", "string"]),
        (["null", "int"], ["null", "long", "string"]),
        ("int", "double"),
        ("bytes", "string"),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}),
        ("int", {"type": {"type": "long"}}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
        ({"type": "map", "values": POINT}, {"type": "map", "values": WIDER}),
        (LONGER, POINT),
        (COLOURS, MORE_COLOURS),
        (MORE_COLOURS, {**COLOURS, "default": "red"}),
    ],
)
def test_types_that_can_read_the_old_one_are_compatible(old: Any, new: Any) -> None:
    assert status(old, new) == 200


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["null", "string"], "string"),
        (["int", "string"], ["null", "string"]),
        ("long", "int"),
        ("string", "long"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
        (WIDER, POINT),
        (POINT, LONGER),
        (POINT, {**POINT, "name": "Q"}),
        (MORE_COLOURS, COLOURS),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}),
    ],
)
def test_types_that_cannot_read_the_old_one_are_refused(old: Any, new: Any) -> None:
    assert status(old, new) == 409
