"""Parquet files with many pages, and with a page whose header is wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from aioproducer._util.varints import varint, zigzag
from aioproducer.loader import FileSource
from aioproducer.loader.errors import SourceError

START = b"PAR1"
PAGE_TYPE = b"\x15\x00"
SIZE = b"\x15"
"""The head of the field of a number whose id is one above that of the field before."""


def test_a_page_that_decompresses_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    table = pyarrow.table({"text": ["x" * 100]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    content = path.read_bytes()
    begin = len(START + PAGE_TYPE + SIZE)
    assert content.startswith(START + PAGE_TYPE + SIZE)
    end = next(at for at in range(begin, len(content)) if content[at] < 0x80) + 1
    path.write_bytes(content[:begin] + varint(zigzag(2**31 - 1)) + content[end:])
    with pytest.raises(SourceError, match=r"large\.parquet.*not readable as Parquet"):
        list(FileSource(path).batches())


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
