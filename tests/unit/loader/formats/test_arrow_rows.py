"""Rows out of Arrow's record batches."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from aioproducer.loader import BadRow, FileSource, Position, RecordMapping, SourceError
from aioproducer.loader.formats.arrow_rows import rows_of, with_known_zones
from aioproducer.loader.mapping import MappedRecord, RowMapper
from loader.fakes import rows_of as rows_with_positions


def batch_of_times(*micros: int | None) -> pa.RecordBatch:
    columns = {
        "id": pa.array(range(len(micros)), pa.int64()),
        "raw": pa.array([b"\xff"] * len(micros), pa.binary()),
        "at": pa.array(micros, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_a_row_with_a_time_that_python_has_not_is_bad_and_the_others_are_read() -> None:
    first, bad, last = rows_of(batch_of_times(0, 2**62, None))
    assert not isinstance(first, BadRow)
    assert not isinstance(last, BadRow)
    assert (next(iter(first)), list(last)) == (0, [2, b"\xff", None])
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("column 'at' cannot be read: ")
    assert bad.raw.startswith(b'{"id":1,"raw":"')
    assert str(2**62).encode() in bad.raw


def test_a_row_with_nanoseconds_of_a_time_of_day_is_bad_and_the_others_are_read() -> None:
    kind = pa.time64("ns")
    nanos = pa.array([3_600_000_001_000, 1, None], pa.int64()).cast(kind)
    nested = pa.array([[1000], [1000], [1]], pa.list_(pa.int64())).cast(pa.list_(kind))
    good, *bad = rows_of(pa.RecordBatch.from_pydict({"at": nanos, "list": nested}))
    assert not isinstance(good, BadRow)
    assert list(good) == [time(1, 0, 0, 1), [time(0, 0, 0, 1)]]
    assert all(isinstance(each, BadRow) for each in bad)
    assert isinstance(bad[0], BadRow)
    assert bad[0].reason.startswith("column 'at' cannot be read: ")
    assert b"00:00:00.000000001" in bad[0].raw


def test_a_parquet_file_with_such_a_row_is_read_to_its_end(tmp_path: Path) -> None:
    file = str(tmp_path / "t.parquet")
    parquet.write_table(pa.Table.from_batches([batch_of_times(*[0] * 1500, 2**62, 0)]), file)
    found = rows_with_positions(FileSource(file))
    assert [position.row for position, _ in found] == list(range(1, 1503))
    assert [position.row for position, row in found if isinstance(row, BadRow)] == [1501]
    rest = rows_with_positions(FileSource(file), Position(file, None, 1500))
    assert rest == found[1500:]


@pytest.mark.parametrize("zone", ["GMT+8", "+08", "Z", "UTC+08:00", "Asia/Nowhere"])
def test_times_in_a_zone_that_python_has_not_are_read_in_utc(tmp_path: Path, zone: str) -> None:
    kind = pa.timestamp("us", zone)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    nested = {
        "struct": (pa.struct([("at", kind), ("n", pa.int32())]), {"at": at, "n": 1}),
        "list": (pa.list_(kind), [at, None]),
        "large": (pa.large_list(kind), [at]),
        "fixed": (pa.list_(kind, 1), [at]),
        "map": (pa.map_(pa.string(), kind), [("a", at)]),
        "plain": (kind, at),
    }
    columns = {name: pa.array([value, None], kind) for name, (kind, value) in nested.items()}
    columns["dictionary"] = columns["plain"].dictionary_encode()
    batch = pa.RecordBatch.from_pydict(columns)
    first, second = rows_of(batch)
    expected = {name: value for name, (_, value) in nested.items()} | {"map": {"a": at}}
    assert list(first) == [*expected.values(), at]
    assert list(second) == [None] * len(columns)
    file = str(tmp_path / "t.parquet")
    parquet.write_table(pa.Table.from_batches([batch.select(["plain", "list"])]), file)
    assert [list(row) for _, row in rows_with_positions(FileSource(file))] == [
        [at, [at, None]],
        [None, None],
    ]


def test_times_in_a_zone_that_python_has_keep_it() -> None:
    kind = pa.timestamp("us", "Asia/Tokyo")
    (row,) = rows_of(pa.RecordBatch.from_pydict({"at": pa.array([0], kind)}))
    (at,) = row
    assert at.isoformat() == "1970-01-01T09:00:00+09:00"


def test_columns_without_other_zones_are_not_converted() -> None:
    for _ in range(2):
        kind = pa.struct([("at", pa.timestamp("us", "Asia/Tokyo")), ("n", pa.list_(pa.int32()))])
        column = pa.array([{"at": None, "n": [1]}], kind)
        assert with_known_zones(column) is column


def test_empty_maps_without_a_type_of_keys_are_read() -> None:
    # Spark's `map()`; pyarrow reads the type, and makes it in no other way.
    empty = pa.MapArray.from_arrays([0, 0], pa.nulls(0), pa.nulls(0))
    nested = pa.StructArray.from_arrays([empty], ["map"])
    assert rows_of(pa.RecordBatch.from_arrays([empty, nested], ["map", "nested"])) == [
        ({}, {"map": {}})
    ]


def test_maps_become_objects(tmp_path: Path) -> None:
    by_date = pa.map_(pa.date32(), pa.list_(pa.map_(pa.string(), pa.int32())))
    twice = pa.map_(pa.string(), pa.int32())
    table = pa.table(
        {
            "by_date": pa.array([[(date(2026, 1, 2), [[("a", 1)]])], [], None], by_date),
            "twice": pa.array([None, [("a", 1), ("a", 2)], []], twice),
        }
    )
    parquet.write_table(table, file := str(tmp_path / "t.parquet"))
    mapper = RowMapper(RecordMapping(), 1)
    first, second, third = (row for each in FileSource(file).batches() for row in mapper.map(each))
    assert isinstance(first, MappedRecord)
    assert first.value == b'{"by_date":{"2026-01-02":[{"a":1}]},"twice":null}'
    assert isinstance(second, BadRow)
    assert second.reason.startswith("column 'twice' cannot be read: ")
    assert isinstance(third, MappedRecord)
    assert third.value == b'{"by_date":null,"twice":{}}'


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    table = pa.Table.from_arrays([pa.array([each]) for each in range(4)], ["b", "a", "b", "a"])
    parquet.write_table(table, file)
    with pytest.raises(SourceError, match="it has several columns 'a', 'b'"):
        rows_with_positions(FileSource(str(file)))
