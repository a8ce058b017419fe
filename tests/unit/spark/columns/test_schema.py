"""Columns and their types, as Spark writes them."""

from __future__ import annotations

import pytest

from aioproducer.errors import SerializationError
from aioproducer.records.arrow_layout import ArrowColumns
from aioproducer.spark.columns.schema import plan_columns

VALUE = ("value", "binary")


def test_the_columns_of_sparks_own_sink_make_up_a_record() -> None:
    fields = [
        ("key", "string"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("timestamp", "timestamp"),
    ]
    names = ("value", "key", "headers", "partition", "timestamp")
    assert plan_columns(fields, None) == ArrowColumns(*names, "topic")
    assert plan_columns(fields, "orders") == ArrowColumns(*names, None)


@pytest.mark.parametrize(
    "field",
    [
        ("key", "string collate UTF8_LCASE"),
        ("key", "varchar(20)"),
        ("headers", "map<string,string>"),
        ("headers", "map<string,binary>"),
        ("headers", "array<struct<key:string,value:string>>"),
        ("timestamp", "bigint"),
        ("partition", "smallint"),
        ("key", "void"),
    ],
)
def test_types_that_can_be_sent_are_taken(field: tuple[str, str]) -> None:
    assert getattr(plan_columns([VALUE, field], "t"), field[0]) == field[0]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (("key", "int"), "column 'key' is int; it has to be binary or string"),
        (("partition", "string"), "column 'partition' is string; it has to be int"),
        (("timestamp", "date"), "column 'timestamp' is date"),
        (("timestamp", "timestamp_ntz"), "column 'timestamp' is timestamp_ntz"),
        (("headers", "array<string>"), "column 'headers' is array<string>"),
        (("headers", "map<string,int>"), "column 'headers' is map<string,int>"),
        (("topic", "binary"), "column 'topic' is binary; it has to be string"),
        (("Key", "string"), "column 'Key' has no place in a record; did you mean 'key'"),
        (("amount", "double"), "column 'amount' has no place"),
        (VALUE, "there are 2 columns 'value'"),
    ],
)
def test_a_column_that_cannot_be_sent_is_named(field: tuple[str, str], reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        plan_columns([VALUE, field], "t")


def test_there_has_to_be_a_value_and_a_topic() -> None:
    with pytest.raises(SerializationError, match="no column 'value'; the columns are: 'key'"):
        plan_columns([("key", "string")], "t")
    with pytest.raises(SerializationError, match="where the rows go"):
        plan_columns([VALUE], None)


@pytest.mark.parametrize("kind", ["struct<a:int>", "array<int>", "map<string,int>", "variant"])
def test_a_nested_value_is_to_become_json(kind: str) -> None:
    with pytest.raises(SerializationError) as caught:
        plan_columns([("value", kind)], "t")
    assert caught.value.advice == "make JSON of it: to_json(value)"
