"""Parquet and ORC files of which a few bytes become any number of rows or values."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import orc, parquet

from aioproducer._util.varints import varint
from aioproducer.loader import FileSource
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_rows import fields_of


def read(path: Path) -> list[Any]:
    return [row for batch in FileSource(path).batches() for row in batch.fields]


def read_here(reader: Callable[..., Iterator[Any]], path: Path) -> list[Any]:
    """Read a file in this process, so that a test can lower the bounds."""
    with path.open("rb") as file:
        return [row for part in reader(file, 0) for row in fields_of(part)]


def read_in_little_memory(path: Path) -> int:
    """Read a file in a separate process; return how many rows it has."""
    code = (
        "import resource, sys\n"
        "import pyarrow.compute, pyarrow.dataset, pyarrow.orc, pyarrow.parquet\n"
        "from aioproducer.loader import FileSource\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"most = used + {600 << 20}\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
        "print(sum(len(batch.fields) for batch in FileSource(sys.argv[1]).batches()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("kind", ["dictionary", "dictionary in the schema", "lists", "beginnings"])
def test_parquet_with_one_long_text_for_many_rows_is_read_in_little_memory(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "texts.parquet"
    indices = pyarrow.array([0] * 1000, pyarrow.int32())
    column: Any = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * 2_000_000]))
    options: dict[str, Any] = {"store_schema": kind == "dictionary in the schema"}
    if kind == "lists":
        column = pyarrow.ListArray.from_arrays(pyarrow.array(range(1001), pyarrow.int32()), column)
    elif kind == "beginnings":
        column = pyarrow.array(["x" * 1_000_000 + str(number) for number in range(500)])
        options = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    parquet.write_table(pyarrow.table({"a": column}), path, compression="zstd", **options)
    assert path.stat().st_size < 10_000
    assert read_in_little_memory(path) == len(column)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_orc_with_one_long_text_for_many_rows_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "texts.orc"
    table = pyarrow.table({"a": pyarrow.array(["y" * 400_000] * 2000)})
    orc.write_table(table, path, compression="zstd", dictionary_key_size_threshold=1.0)
    assert path.stat().st_size < 10_000
    assert read_in_little_memory(path) == 2000


def test_a_row_of_lists_that_use_a_long_text_often_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "often.parquet"
    indices = pyarrow.array([0] * 1000, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * 2_000_000]))
    row = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1000], pyarrow.int32()), texts)
    parquet.write_table(pyarrow.table({"a": row}), path, compression="zstd", store_schema=False)
    with pytest.raises(SourceError, match=r"often\.parquet.*a row has more than \d+ bytes"):
        read(path)


def test_texts_of_each_encoding_are_read_as_they_were_written(tmp_path: Path) -> None:
    texts = [None if number % 7 == 0 else f"text {number % 50}" for number in range(5000)]
    kinds = {
        "dictionary": {},
        "plain": {"use_dictionary": False},
        "delta": {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
        "both": {"dictionary_pagesize_limit": 100, "data_page_size": 100},
    }
    for name, options in kinds.items():
        path = tmp_path / f"{name}.parquet"
        column = pyarrow.array(texts)
        table = pyarrow.table({"a": column, "b": pyarrow.array([[text] for text in texts])})
        if name == "delta":
            table = table.select(["a"])
        parquet.write_table(table, path, row_group_size=2000, **options)
        found = read(path)
        assert [row[0] for row in found] == texts
        assert all(row[1] == [row[0]] for row in found if len(row) == 2)


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
    with pytest.raises(SourceError, match="1001 values"):
        read_here(module.read_parquet, path)
    flat = tmp_path / "flat.parquet"
    parquet.write_table(pyarrow.table({"a": list(range(2000))}), flat)
    assert len(read_here(module.read_parquet, flat)) == 2000


def test_rows_without_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    parquet.write_table(pyarrow.table({"a": [1, 2, 3]}).select([]), path)
    with pytest.raises(SourceError, match=r"none\.parquet.*no columns"):
        read(path)


def test_lists_structs_and_maps_are_read_in_parts_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.loader.formats import arrow_rows
    from aioproducer.loader.formats.parquet import read_parquet

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
    expected = read_here(read_parquet, path)
    monkeypatch.setattr(arrow_rows, "_MAX_VALUES", 500)
    assert read_here(read_parquet, path) == expected
    wanted = [row | {"m": {"k": number}} for number, row in enumerate(given)]
    assert [dict(zip(kinds, row, strict=True)) for row in expected] == wanted


def test_orc_of_more_rows_than_its_bytes_account_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.loader.formats import orc as module

    path = tmp_path / "equal.orc"
    orc.write_table(pyarrow.table({"a": pyarrow.array([0] * 2_000_000)}), path)
    monkeypatch.setattr(module, "_MAX_ROWS_PER_BYTE", 10)
    with pytest.raises(SourceError, match="2000000 rows"):
        read_here(module.read_orc, path)


def test_orc_of_blocks_that_decompress_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "blocks.orc"
    table = pyarrow.table({"a": list(range(100))})
    orc.write_table(table, path, compression="zstd", compression_block_size=1 << 20)
    assert len(read(path)) == 100
    content = path.read_bytes()
    postscript = content[-1 - content[-1] : -1]
    field = b"\x18"  # the size of a block
    lying = postscript.replace(field + varint(1 << 20), field + varint(1 << 31))
    assert lying != postscript
    path.write_bytes(content[: -1 - content[-1]] + lying + bytes([len(lying)]))
    with pytest.raises(SourceError, match=r"blocks\.orc.*blocks of 2147483648 bytes"):
        read(path)


def test_a_file_that_makes_native_code_abort_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "abort.parquet"
    column = pyarrow.array([[1, 2], [3]], pyarrow.list_(pyarrow.int32()))
    parquet.write_table(pyarrow.table({"a": column}), path, store_schema=False)
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    four_levels, three_levels = b"\x19\x46\x00\x00\x00\x06", b"\x19\x36\x00\x00\x06"
    assert four_levels in footer  # how often each definition level occurs
    footer = footer.replace(four_levels, three_levels)
    path.write_bytes(content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(SourceError, match=r"abort\.parquet.*not readable as Parquet"):
        read(path)


def test_a_file_that_makes_native_code_read_foreign_memory_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "fault.orc"
    texts = [f"t{number % 3}" for number in range(40)]
    orc.write_table(pyarrow.table({"a": texts}), path, compression="uncompressed")
    content = path.read_bytes()
    equal_lengths, growing_lengths = b"\xc0\x27\x02\x00", b"\xc0\x27\x02\x01"
    assert equal_lengths in content
    path.write_bytes(content.replace(equal_lengths, growing_lengths, 1))
    with pytest.raises(SourceError, match=r"fault\.orc.*not readable as ORC"):
        read(path)


def test_keys_of_equal_hashes_take_linear_time(tmp_path: Path) -> None:
    from aioproducer.loader.formats.parquet import read_parquet

    entries = [(Decimal(number * (2**61 - 1)), 1) for number in range(20_000)]
    column = pyarrow.array([entries], pyarrow.map_(pyarrow.decimal128(38), pyarrow.int8()))
    parquet.write_table(pyarrow.table({"m": column}), path := tmp_path / "a.parquet")
    began = time.process_time()
    ((row,),) = read_here(read_parquet, path)
    assert len(row) == 20_000
    assert time.process_time() - began < 3
