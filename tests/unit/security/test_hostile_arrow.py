"""Parquet and ORC files of which a few bytes become any number of rows or values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import orc, parquet

from aioproducer.loader import FileSource
from aioproducer.loader.errors import SourceError


def read(path: Path) -> list[Any]:
    return [row for batch in FileSource(path).batches() for row in batch.fields]


def test_parquet_with_a_row_of_millions_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    row = pyarrow.array([[0] * 6_000_000], pyarrow.list_(pyarrow.int8()))
    parquet.write_table(pyarrow.table({"a": row}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    with pytest.raises(SourceError, match=r"long\.parquet.*a row has more than"):
        read(path)


def test_a_column_of_too_many_list_values_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.loader.formats import parquet as module

    monkeypatch.setattr(module, "_MAX_LIST_VALUES", 1000)
    path = tmp_path / "many.parquet"
    parquet.write_table(pyarrow.table({"a": [[0] * 1001], "b": [1]}), path)
    with pytest.raises(SourceError, match=r"many\.parquet.*1001 values"):
        read(path)
    flat = tmp_path / "flat.parquet"
    parquet.write_table(pyarrow.table({"a": list(range(2000))}), flat)
    assert len(read(flat)) == 2000


def test_rows_without_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    parquet.write_table(pyarrow.table({"a": [1, 2, 3]}).select([]), path)
    with pytest.raises(SourceError, match=r"none\.parquet.*no columns"):
        read(path)


def test_lists_structs_and_maps_are_read_in_parts_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.loader.formats import arrow_rows

    kinds = {
        "l": pyarrow.list_(pyarrow.int64()),
        "f": pyarrow.list_(pyarrow.int64(), 2),
        "m": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
        "s": pyarrow.struct([("x", pyarrow.list_(pyarrow.int64()))]),
        "t": pyarrow.string(),
    }
    given = [
        {"l": [n] * (n % 7), "f": [n, n], "m": [("k", n)], "s": {"x": [n] * (n % 3)}, "t": str(n)}
        for n in range(3000)
    ]
    table = pyarrow.Table.from_pylist(given, pyarrow.schema(kinds.items()))
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    expected = read(path)
    monkeypatch.setattr(arrow_rows, "_MAX_VALUES", 500)
    assert read(path) == expected
    assert [dict(zip(kinds, row, strict=True)) for row in expected] == given


def test_orc_of_more_rows_than_its_bytes_account_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.loader.formats import orc as module

    path = tmp_path / "equal.orc"
    orc.write_table(pyarrow.table({"a": pyarrow.array([0] * 2_000_000)}), path)
    monkeypatch.setattr(module, "_MAX_ROWS_PER_BYTE", 10)
    with pytest.raises(SourceError, match=r"equal\.orc.*2000000 rows"):
        read(path)
