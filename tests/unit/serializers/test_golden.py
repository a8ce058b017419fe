"""Byte for byte what confluent-kafka's serializers make of the same data, recorded in `golden/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aioproducer.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
    SerializationContext,
)
from aioproducer.testing.schema_registry import StubSchemaRegistry

from .messages import Money, Order, Second

GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))
MADE: dict[str, str] = json.loads((GOLDEN / "confluent.json").read_text(encoding="utf-8"))["made"]


@pytest.mark.parametrize("name", CASES)
async def test_bytes_are_those_of_confluent_kafka(name: str) -> None:
    case = CASES[name]
    registry = SchemaRegistry("http://registry", transport=StubSchemaRegistry().transport)
    data: Any = case["data"]
    serializer: Any
    if case["format"] == "avro":
        serializer = AvroSerializer(registry, case["schema"], auto_register=True)
    elif case["format"] == "json":
        serializer = JsonSchemaSerializer(registry, case["schema"], auto_register=True)
    else:
        kind = {"Money": Money, "Order": Order, "Second": Second}[case["message"]]
        serializer = ProtobufSerializer(registry, kind, auto_register=True)
        data = kind(**data)
    made = await serializer.serialize(data, SerializationContext("orders", "value"))
    assert made.hex() == MADE[name]
