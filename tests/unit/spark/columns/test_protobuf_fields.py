"""Columns and the fields of Protobuf messages: what fits, and what refusals say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from unit.spark.protobuf_files import COMMON, OLD, ORDERS, descriptor_set, file, serialized

from aioproducer.errors import ConfigError
from aioproducer.spark.columns.protobuf_fields import (
    FieldError,
    RowWriter,
    spark_name,
    struct_writer,
)
from aioproducer.spark.columns.protobuf_files import file_of, files_in, message_in

CITY = pa.struct([("city", pa.string())])
KINDS = {
    "id": pa.int32(),
    "small": pa.int64(),
    "note": pa.large_string(),
    "raw": pa.binary(),
    "paid": pa.bool_(),
    "weight": pa.float32(),
    "share": pa.float32(),
    "state": pa.string(),
    "address": CITY,
    "tags": pa.list_(pa.string()),
    "stops": pa.list_(CITY),
    "counts": pa.map_(pa.string(), pa.int64()),
    "at": pa.timestamp("us", "Europe/Berlin"),
    "took": pa.duration("us"),
    "comment": pa.string(),
    "rank": pa.int16(),
    "price": pa.decimal128(9, 2),
    "card": pa.string(),
    "cash": pa.int32(),
    "places": pa.map_(pa.int32(), CITY),
}
ROW = {
    "id": -5,
    "small": 2**32 - 1,
    "note": "n",
    "raw": b"\0\xff",
    "paid": True,
    "weight": 0.5,
    "share": 0.25,
    "state": "PAID",
    "address": {"city": "Ulm"},
    "tags": ["a", "b"],
    "stops": [{"city": "Bonn"}, {"city": None}],
    "counts": {"a": 1},
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "took": timedelta(days=-1, microseconds=5),
    "comment": "",
    "rank": 0,
    "price": Decimal("-1.28"),
    "card": "c",
    "cash": None,
    "places": {3: {"city": "Kiel"}},
}


def order() -> Any:
    return message_in(file(ORDERS), {"shop/common.proto": file(COMMON)}, None)


def written(row: dict[str, Any], **kinds: pa.DataType) -> Any:
    """A row that went through Arrow, as a message that went through bytes."""
    columns = pa.struct({name: KINDS.get(name) for name in row} | kinds)
    (arrived,) = pa.array([row], columns).to_pylist(maps_as_pydicts="strict")
    made = RowWriter(order(), columns).message(arrived)
    return type(made).FromString(made.SerializeToString())


def test_every_kind_of_field_is_written() -> None:
    made = written(ROW)
    assert (made.id, made.small, made.note, made.raw) == (-5, 2**32 - 1, "n", b"\0\xff")
    assert (made.paid, made.weight, made.share, made.state) == (True, 0.5, 0.25, 7)
    assert (made.address.city, list(made.tags)) == ("Ulm", ["a", "b"])
    assert [each.city for each in made.stops] == ["Bonn", ""]
    assert dict(made.counts) == {"a": 1}
    assert {key: each.city for key, each in made.places.items()} == {3: "Kiel"}
    assert made.at.ToDatetime(UTC) == ROW["at"]
    assert made.took.ToTimedelta() == ROW["took"]
    assert made.HasField("comment") and made.HasField("rank")
    assert made.WhichOneof("payment") == "card"


@pytest.mark.parametrize(
    "number", ["0.00", "1.27", "1.28", "-1.28", "-1.29", "9999999.99", "-9999999.99"]
)
def test_a_decimal_is_its_unscaled_number(number: str) -> None:
    price = written({"price": Decimal(number)}).price
    unscaled = int.from_bytes(price.value, "big", signed=True)
    assert (Decimal(unscaled).scaleb(-price.scale), price.precision) == (Decimal(number), 9)


def test_null_leaves_a_field_out() -> None:
    made = written(dict.fromkeys(ROW))
    assert made.ByteSize() == 0


@pytest.mark.parametrize(
    ("row", "path", "reason"),
    [
        ({"small": -1}, "small", "is out of range of uint32"),
        ({"small": 2**32}, "small", "is out of range of uint32"),
        ({"rank": 2**31}, "rank", r"is out of range of google\.protobuf\.Int32Value"),
        ({"counts": {"a": 2**31}}, "counts", "is out of range of map<string, int32>"),
        ({"state": "LOST"}, "state", r"is no value of shop\.State: UNKNOWN, PAID$"),
        ({"tags": ["a", None]}, "tags", "has a null, which a repeated field cannot hold"),
        ({"stops": [None]}, "stops", "has a null"),
        ({"counts": {"a": None}}, "counts", "has a null, which a map field cannot hold"),
        ({"card": "c", "cash": 1}, "cash", "one column of a oneof .* and 'card' has one"),
    ],
)
def test_a_row_that_does_not_fit_names_its_column(
    row: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(FieldError, match=reason) as caught:
        written(row, **({"rank": pa.int64()} if "rank" in row else {}))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("id", pa.string(), r"column 'id' is string, .*field shop\.Order\.id of type int64"),
        ("note", pa.binary(), "is binary, .* of type string cannot hold"),
        ("raw", pa.string(), "is string, .* of type bytes"),
        ("share", pa.float64(), "is double, .* of type float"),
        ("weight", pa.int32(), "is int, .* of type double"),
        ("state", pa.bool_(), r"is boolean, .* of type enum shop\.State"),
        ("tags", pa.string(), "is string, .* of type repeated string"),
        ("tags", pa.list_(pa.int64()), "is array<bigint>, .* of type repeated string"),
        ("note", pa.list_(pa.string()), "is array<string>, .* of type string"),
        ("counts", pa.list_(pa.string()), r"is array<string>, .* map<string, int32>"),
        ("counts", pa.map_(pa.string(), pa.string()), "is map<string,string>, .* map<"),
        ("at", pa.timestamp("us"), r"is timestamp_ntz, .* google\.protobuf\.Timestamp"),
        ("at", pa.int64(), r"is bigint, .* google\.protobuf\.Timestamp"),
        ("price", pa.float64(), r"is double, .* confluent\.type\.Decimal"),
        ("note", pa.decimal128(9, 2), r"is decimal\(9,2\), .* of type string"),
        ("rank", pa.string(), r"is string, .* google\.protobuf\.Int32Value"),
        ("address", pa.string(), r"is string, .* of type shop\.Address"),
        ("address", pa.struct([("town", pa.string())]), r"'address\.town' has no field in shop"),
        ("stops", pa.list_(pa.struct([("city", pa.int8())])), r"'stops\[\]\.city' is tinyint"),
        ("Note", pa.string(), "'Note' has no field in shop.Order; did you mean 'note'"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_before_any_row(
    name: str, kind: pa.DataType, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        RowWriter(order(), pa.struct([(name, kind)]))


def test_a_refused_column_says_what_to_cast_to() -> None:
    wanted = {
        "id": "int or bigint",
        "tags": "array<string>",
        "counts": "map<string,int or bigint>",
        "at": "timestamp",
        "took": "interval day to second",
        "price": "decimal",
        "comment": "string",
        "address": "struct",
        "state": "string",
        "raw": "binary",
        "paid": "boolean",
        "weight": "double",
    }
    for name, kind in wanted.items():
        with pytest.raises(ConfigError) as caught:
            RowWriter(order(), pa.struct([(name, pa.date32())]))
        assert caught.value.advice == f"cast the column first: {kind}"


def test_a_required_field_needs_a_column_with_values() -> None:
    old = message_in(file(OLD), {}, None)
    with pytest.raises(ConfigError, match=r"no column 'id' for a required field of shop\.Old"):
        RowWriter(old, pa.struct([("note", pa.string())]))
    writer = RowWriter(old, pa.struct([("id", pa.int32())]))
    with pytest.raises(FieldError, match="id: is required and null"):
        writer.message({"id": None})
    assert writer.message({"id": 1}).SerializeToString() == b"\x08\x01"


def test_a_message_of_one_column_is_a_struct() -> None:
    with pytest.raises(ConfigError, match=r"'value' is string; it has to be a struct .*shop\.Ord"):
        struct_writer(order(), pa.string(), "value")


def test_messages_are_chosen_by_their_full_names() -> None:
    imports = {"shop/common.proto": file(COMMON)}
    chosen = message_in(file(ORDERS), imports, "shop.Refund.Item")
    assert chosen.DESCRIPTOR.full_name == "shop.Refund.Item"
    with pytest.raises(ConfigError, match=r"no message 'Order'; it has shop\.Order, shop\.Refund"):
        message_in(file(ORDERS), imports, "Order")


def test_files_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"imports 'shop/common\.proto', which is not among"):
        message_in(file(ORDERS), {}, None)
    loop = {"shop/common.proto": file(COMMON + 'dependency: "shop/orders.proto"')}
    with pytest.raises(ConfigError, match="imports itself"):
        message_in(file(ORDERS), loop | {"shop/orders.proto": file(ORDERS)}, None)
    other = {"shop/common.proto": file(COMMON.replace("Address", "Place"))}
    with pytest.raises(ConfigError, match="this is no Protobuf schema"):
        message_in(file(ORDERS), other, None)
    with pytest.raises(ConfigError, match="the schema has no message"):
        message_in(file('name: "a.proto"'), {}, None)


@pytest.mark.parametrize("text", ["", "message A {}", "AAAA", serialized(ORDERS)])
def test_a_schema_that_is_no_set_of_files_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no FileDescriptorSet in base64") as caught:
        files_in(text)
    assert "protoc --include_imports" in str(caught.value.advice)


def test_files_of_a_set_keep_their_order() -> None:
    found = files_in(descriptor_set(COMMON, ORDERS))
    assert [each.name for each in found] == ["shop/common.proto", "shop/orders.proto"]


def test_the_source_of_a_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the text of a \.proto file"):
        file_of('syntax = "proto3"; message A {}')


def test_types_have_the_names_of_spark() -> None:
    pyspark = pytest.importorskip("pyspark.sql.pandas.types")
    kinds = [*KINDS.values(), pa.date32(), pa.timestamp("us"), pa.float64(), pa.null()]
    expected = [pyspark.from_arrow_type(each, True).simpleString() for each in kinds]
    assert [spark_name(each) for each in kinds] == expected
