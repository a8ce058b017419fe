from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.loader import BadRow, CsvFormat, MappingError, RecordMapping, RowBatch
from aioproducer.loader.mapping import MappedRecord, RowMapper, row_text
from aioproducer.loader.rows import Dialect
from aioproducer.loader.values import to_bytes
from aioproducer.records import murmur2
from loader.fakes import batch_of, read_format


def mapped(batch: RowBatch, partitions: int = 6, **options: object) -> list[MappedRecord | BadRow]:
    return RowMapper(RecordMapping(**options), partitions).map(batch)  # type: ignore[arg-type]


def only(batch: RowBatch, **options: object) -> MappedRecord:
    (record,) = mapped(batch, **options)
    assert isinstance(record, MappedRecord)
    return record


def test_row_is_compact_json_in_column_order_by_default() -> None:
    record = only(batch_of(["1", "é"]))
    assert record == MappedRecord('{"a":"1","b":"é"}'.encode(), None, None, None, None)


@given(st.dictionaries(st.text(), st.none() | st.text() | st.integers(), min_size=1))
def test_row_of_any_columns_is_the_same_json_as_its_mapping(row: dict[str, object]) -> None:
    table = batch_of(list(row.values()), columns=tuple(row))
    assert only(table).value == only(batch_of(row, columns=None)).value == to_bytes(row)


def test_key_columns_are_joined() -> None:
    assert only(batch_of(["UA", "15"]), key=("a", "b")).key == b"UA+15"
    assert only(batch_of(["UA", "15"]), key=("b", "a"), key_join="/").key == b"15/UA"
    assert only(batch_of(["UA", 15]), key=("a", "b")).key == b"UA+15"
    assert only(batch_of(["UA", "15"]), key=("b",)).key == b"15"


def test_key_is_null_only_if_all_its_columns_are() -> None:
    assert only(batch_of([None, None]), key=("a", "b")).key is None
    assert only(batch_of([None, "x"]), key=("a", "b")).key == b"+x"
    assert only(batch_of([None, "x"]), key=("a",)).key is None
    assert only(batch_of(["", "x"]), key=("a",)).key == b""


def test_one_column_can_be_the_value_and_null_is_a_tombstone() -> None:
    assert only(batch_of(["1", "payload"]), value="b").value == b"payload"
    assert only(batch_of(["1", None]), value="b").value is None


def test_raw_value_is_the_row_as_it_was() -> None:
    table = batch_of(["1", 'a "b", c'], dialect=Dialect())
    assert only(table, value_format="raw").value == b'1,"a ""b"", c"'
    line = batch_of({"a": 1}, columns=None, lines=[b'{"a":  1}'], lines_are_json=True)
    assert only(line, value_format="raw").value == b'{"a":  1}'


@pytest.mark.parametrize(
    ("format_", "content"),
    [
        (CsvFormat(delimiter="\t"), b'1,5\tx y\r\n"q\tr"\t\n'),
        (CsvFormat(delimiter=";"), b'1,5;"x;y"\n"a\nb";"c\rd"\n'),
        (CsvFormat(quote=None), b'say "hi",2\n",\n'),
        (CsvFormat(quote="'"), b"'a,b',\"\n"),
        (CsvFormat(null="NULL"), b"1,NULL\nNULL,\n"),
        (CsvFormat(encoding="latin-1"), b"\xe9,1\n"),
    ],
)
def test_raw_rows_of_csv_keep_its_dialect(format_: CsvFormat, content: bytes) -> None:
    format_ = replace(format_, columns=("a", "b"))
    (chunk,) = read_format(format_, content)
    batch = RowBatch("f", None, 1, chunk.fields, chunk.columns, dialect=chunk.dialect)
    raw = b"\n".join(row.value or b"" for row in mapped(batch, value_format="raw"))
    expected = content.decode(format_.encoding).replace("\r\n", "\n").removesuffix("\n")
    assert raw.decode() == expected


def test_the_text_of_a_rejected_row_keeps_the_dialect() -> None:
    batch = batch_of(["1,5", "x"], ["2", None], dialect=Dialect(";", '"', "NULL"))
    bad = mapped(batch, partition="b")
    assert [row.raw for row in bad if isinstance(row, BadRow)] == [b"1,5;x"]
    assert row_text(batch, 1) == b"2;NULL"


def test_rows_without_a_text_are_json_as_raw_values() -> None:
    assert only(batch_of([1, None]), value_format="raw").value == b'{"a":1,"b":null}'


def test_ndjson_line_is_passed_on_as_it_is() -> None:
    line = b'{"n": 1.000000000000000000001}'
    batch = batch_of(json.loads(line), columns=None, lines=[line], lines_are_json=True)
    assert only(batch).value == line


def test_plain_line_is_the_value() -> None:
    assert only(batch_of((b"text",), columns=("line",), lines=[b"text"])).value == b"text"


def test_headers_come_from_the_caller_and_from_columns() -> None:
    record = only(
        batch_of(["1", None]), headers=(("h", b"v"),), header_columns=(("x", "a"), ("y", "b"))
    )
    assert record.headers == (("h", b"v"), ("x", b"1"), ("y", None))


def test_timestamp_and_partition_come_from_columns() -> None:
    record = only(batch_of(["1970-01-01T00:00:01Z", "4"]), timestamp="a", partition="b")
    assert (record.timestamp_ms, record.partition) == (1000, 4)


def test_partition_by_hashes_like_a_key() -> None:
    for text in ("JFK", "LGA", "EWR", ""):
        record = only(batch_of([text, "x"]), partition_by=("a",), key=("b",))
        assert record.partition == (murmur2(text.encode()) & 0x7FFFFFFF) % 6
    assert only(batch_of([None, "x"]), partition_by=("a",)).partition is None


def test_unknown_column_is_an_error_that_names_the_known_ones() -> None:
    for options in ({"key": ("c",)}, {"value": "c"}, {"header_columns": (("h", "c"),)}):
        with pytest.raises(MappingError, match="no column 'c'; the columns are a, b"):
            mapped(batch_of(["1", "2"]), **options)


def test_missing_field_of_one_json_row_rejects_that_row_alone() -> None:
    lines = [b'{"a":1}', b"{}"]
    batch = batch_of({"a": 1}, {}, columns=None, lines=lines, lines_are_json=True)
    good, bad = mapped(batch, key=("a",))
    assert isinstance(good, MappedRecord)
    assert bad == BadRow("no field 'a'", b"{}")


def test_row_whose_value_cannot_be_made_is_rejected_with_its_text() -> None:
    undecodable = b"\xff".decode("utf-8", "surrogateescape")
    bad = mapped(batch_of([undecodable, "x"]))
    assert bad == [BadRow("not valid UTF-8", b"\xff,x")]
    (late,) = mapped(batch_of(["soon", "x"]), timestamp="a")
    assert late == BadRow("'soon' is no timestamp", b"soon,x")


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_row_that_is_nested_too_deeply_is_rejected_alone(depth: int) -> None:
    nested: object = float("inf")
    for _ in range(depth):
        nested = [nested]
    batch = batch_of({"a": nested}, {"a": 1}, columns=None)
    bad, good = mapped(batch, key=("a",))
    assert isinstance(bad, BadRow)
    assert bad.reason == "nested too deeply"
    assert isinstance(good, MappedRecord)


def test_bad_rows_stay_bad() -> None:
    bad = BadRow("why", b"text")
    assert mapped(batch_of(bad)) == [bad]


def test_batches_with_other_columns_are_mapped_by_name() -> None:
    mapper = RowMapper(RecordMapping(key=("a",)), 1)
    first = mapper.map(batch_of(["1", "2"]))
    second = mapper.map(batch_of(["2", "1"], columns=("b", "a")))
    assert [record.key for record in (*first, *second)] == [b"1", b"1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options",
    [
        {"partition": "a", "partition_by": ("b",)},
        {"value": "a", "value_format": "raw"},
        {"timestamp_unit": "days"},
        {"value_format": "xml"},
    ],
)
def test_contradictory_mappings_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(MappingError):
        RecordMapping(**options)  # type: ignore[arg-type]


def test_a_text_in_place_of_columns_is_refused() -> None:
    for name in ("key", "partition_by"):
        with pytest.raises(MappingError, match=rf"{name} takes a tuple of columns: \('id',\)"):
            RecordMapping(**{name: "id"})


def test_headers_may_be_a_list() -> None:
    record = only(batch_of(["1", "2"]), headers=[("h", b"x")], header_columns=[("b", "b")])
    assert record.headers == (("h", b"x"), ("b", b"2"))
