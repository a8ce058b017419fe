"""JSON: the three libraries write the same, and Pydantic's refusals name the field."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pydantic
import pytest
from support.no_time import NoTime

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers import JsonSerializer, PydanticSerializer, SerializationContext
from aioproducer.serializers.json_text import JsonLibrary

LIBRARIES: list[JsonLibrary] = ["msgspec", "orjson", "json"]
VALUE = SerializationContext("orders", "value")


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_time_is_null(library: JsonLibrary) -> None:
    made = JsonSerializer(library).serialize({"at": [NoTime(2026, 1, 2)]}, VALUE)
    assert made == b'{"at":[null]}'


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float | None


@dataclass
class Entry:
    _id: int

    def __post_init__(self) -> None:
        self.cached = True


class Pair(NamedTuple):
    left: int
    right: int


class Label(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "shown"


class Count(int):
    pass


class Share(float):
    pass


class Customer(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(alias="years", ge=0)


class Order(pydantic.BaseModel):
    id: int
    customer: Customer


NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)

AGREED = [
    ({"a": [1, 2.5, True, None, "é"]}, {"a": [1, 2.5, True, None, "é"]}),
    ({1: (2,)}, {"1": [2]}),
    ([MappingProxyType({"a": {3}})], [{"a": [3]}]),
    (Point(1, None), {"x": 1, "y": None}),
    ([Point(1, 2.0)], [{"x": 1, "y": 2.0}]),
    (Colour.RED, "red"),
    (
        UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    ),
    (Decimal("1.10"), "1.10"),
    (NOON, "2026-01-02T12:00:00Z"),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    ({3}, [3]),
    (b"\x00\xff", "AP8="),
    (Customer(name="a", years=3), {"name": "a", "age": 3}),
    (Entry(1), {"_id": 1}),
    ([Pair(1, 2), Label("a"), Count(2), Share(0.5)], [[1, 2], "a", 2, 0.5]),
    ({"at": NOON.timetz(), "on": NOON}, {"at": "12:00:00Z", "on": "2026-01-02T12:00:00Z"}),
]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("data", "expected"), AGREED)
def test_libraries_agree(library: JsonLibrary, data: Any, expected: Any) -> None:
    made = JsonSerializer(library).serialize(data, VALUE)
    assert made is not None
    assert json.loads(made) == expected
    assert b" " not in made


def test_an_offset_with_seconds_is_no_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(seconds=30))
    made = JsonSerializer("json").serialize(NOON.astimezone(zone), VALUE)
    assert made == b'"2026-01-02T12:00:30+00:00:30"'


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_has_no_form_is_refused(library: JsonLibrary) -> None:
    with pytest.raises(SerializationError, match="value: is no JSON: TypeError"):
        JsonSerializer(library).serialize({"a": object()}, VALUE)
    assert JsonSerializer(library).serialize(None, VALUE) is None


def test_libraries_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "orjson", None)
    with pytest.raises(ConfigError, match="orjson is needed"):
        JsonSerializer("orjson")
    monkeypatch.setitem(__import__("sys").modules, "msgspec", None)
    assert JsonSerializer().serialize({"a": 1}, VALUE) == b'{"a":1}'
    with pytest.raises(ConfigError, match="no JSON library 'simplejson'"):
        JsonSerializer("simplejson")  # type: ignore[arg-type]


def test_pydantic_checks_what_is_not_checked_yet() -> None:
    serializer = PydanticSerializer(Order)
    made = serializer.serialize({"id": "7", "customer": {"name": "a", "years": 3}}, VALUE)
    assert made == b'{"id":7,"customer":{"name":"a","years":3}}'
    assert serializer.serialize(None, VALUE) is None
    order = Order(id=1, customer=Customer(name="b", years=4))
    plain = PydanticSerializer(Order, by_alias=False)
    assert plain.serialize(order, VALUE) == b'{"id":1,"customer":{"name":"b","age":4}}'
    assert PydanticSerializer(list[Point]).serialize([{"x": 1, "y": 2}], VALUE) == (
        b'[{"x":1,"y":2.0}]'
    )


def test_pydantic_names_the_field_and_not_the_content() -> None:
    serializer = PydanticSerializer(Order)
    with pytest.raises(SerializationError) as caught:
        serializer.serialize({"id": 1, "customer": {"name": 5, "years": "secret"}}, VALUE)
    assert caught.value.path == "customer.name"
    assert "and 1 more" in str(caught.value)
    assert "secret" not in str(caught.value)
