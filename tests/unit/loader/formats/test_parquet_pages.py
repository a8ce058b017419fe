"""The sizes that Parquet's page headers name, against files whose headers lie."""

from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from aioproducer._util.varints import varint, zigzag
from aioproducer.loader import FileSource
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.parquet_pages import check_pages

START = b"PAR1"
PAGE_TYPE = b"\x15\x00"
SIZE = b"\x15"
"""The head of the field of a number whose id is one above that of the field before."""


def number(value: int) -> bytes:
    return varint(zigzag(value))


def header(uncompressed: int, compressed: int = 0, values: int = 1) -> bytes:
    data_page = SIZE + number(values) + b"\0"
    sizes = SIZE + number(uncompressed) + SIZE + number(compressed)
    return PAGE_TYPE + sizes + b"\x2c" + data_page + b"\0"


def group_of(*columns: bytes, values: int = 1) -> tuple[io.BytesIO, Any]:
    """A file of the columns' bytes, and what the metadata says of it."""
    found = []
    for each in columns:
        found.append(
            SimpleNamespace(
                data_page_offset=sum(column.total_compressed_size for column in found),
                dictionary_page_offset=None,
                total_compressed_size=len(each),
                num_values=values,
                path_in_schema="a",
            )
        )
    group = SimpleNamespace(num_columns=len(found), column=found.__getitem__)
    return io.BytesIO(b"".join(columns)), group


def test_a_page_that_decompresses_to_gigabytes_is_refused_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    table = pyarrow.table({"text": ["x" * 100]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    content = path.read_bytes()
    begin = len(START + PAGE_TYPE + SIZE)
    assert content.startswith(START + PAGE_TYPE + SIZE)
    end = next(at for at in range(begin, len(content)) if content[at] < 0x80) + 1
    path.write_bytes(content[:begin] + number(2**31 - 1) + content[end:])
    with pytest.raises(SourceError, match=r"large\.parquet.*'text' has a page of 2147483647 bytes"):
        list(FileSource(path).batches())


def test_the_largest_pages_of_all_columns_are_bounded_together() -> None:
    page = header(256 << 20)
    check_pages(*group_of(*[page] * 4))
    with pytest.raises(SourceError, match="in all columns"):
        check_pages(*group_of(*[page] * 5))


def test_every_page_of_a_column_is_checked() -> None:
    pages = header(100, 3) + b"abc" + header(1 << 30)
    check_pages(*group_of(pages))  # what the metadata does not count is not read either
    with pytest.raises(SourceError, match="has a page of 1073741824 bytes"):
        check_pages(*group_of(pages, values=2))


def test_the_last_of_two_fields_of_one_name_counts() -> None:
    twice = PAGE_TYPE + SIZE + number(1) + b"\x05" + number(2) + number(1 << 30)
    with pytest.raises(SourceError, match="has a page of 1073741824 bytes"):
        check_pages(*group_of(twice + SIZE + number(0) + b"\0"))


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"\0",
        b"\xff" * 100,
        header(-1),
        header(1, -1),
        header(1, 0, -1),
        b"\x1c" * 1000,
        b"\x19\xf9" * 1000,
        PAGE_TYPE + b"\x1b\x01\x55\x02\x02" + b"\0",
    ],
    ids=["none", "empty", "endless", "size", "compressed", "values", "structs", "lists", "map"],
)
def test_a_page_without_a_valid_header_is_refused(page: bytes) -> None:
    with pytest.raises(SourceError, match="the page at 0 has no valid header"):
        check_pages(*group_of(page + b"\x55"))


@given(st.binary(max_size=200))
def test_any_bytes_are_checked_or_refused(content: bytes) -> None:
    try:
        check_pages(*group_of(content, values=100))
    except SourceError as error:
        assert "Parquet" in str(error)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_files_of_many_small_pages_are_read(tmp_path: Path, compression: str, version: str) -> None:
    path = tmp_path / "small.parquet"
    rows = [
        {"id": each, "text": random.Random(each).choice("abc") * 900, "list": [each, None]}
        for each in range(2000)
    ]
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(
        table,
        path,
        compression=compression,
        data_page_version=version,
        data_page_size=1000,
        row_group_size=700,
        use_dictionary=["text"],
        write_page_checksum=True,
    )
    found = [row for batch in FileSource(path).batches() for row in batch.fields]
    assert [row[0] for row in found] == list(range(2000))
    assert [row[1] for row in found] == [row["text"] for row in rows]
