"""Archives and headers of some hundred bytes take neither memory nor time without bound."""

from __future__ import annotations

import gzip
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from aioproducer.loader import FileSource, streams
from aioproducer.loader.errors import SourceError


def read(path: Path) -> list[Any]:
    return [row for batch in FileSource(path).batches() for row in batch.fields]


def packed(path: Path, *parts: bytes, packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive, archive.open("a.csv", "w") as member:
        for part in parts:
            member.write(part)
    return path


def test_a_member_is_unpacked_a_piece_at_a_time(tmp_path: Path) -> None:
    long = [b"x" * 1_000_000] * 48
    path = packed(tmp_path / "bomb.zip", b'a,b\n"', *long, b'"\n')
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24_000_000


def test_members_are_read_whole(tmp_path: Path) -> None:
    lines = [f"{number},{number * 7919 % 10007}\n".encode() for number in range(30_000)]
    path = packed(tmp_path / "good.zip", b"a,b\n", *lines)
    rows = read(path)
    assert (len(rows), list(rows[-1])) == (30_000, ["29999", str(29_999 * 7919 % 10007)])
    assert read(packed(tmp_path / "empty.zip")) == []


def test_a_damaged_member_is_no_whole_one(tmp_path: Path) -> None:
    lines = [f"{number},{number * 7919 % 10007}\n".encode() for number in range(30_000)]
    path = packed(tmp_path / "bad.zip", b"a,b\n", *lines)
    whole = path.read_bytes()
    for place in (len(whole) // 2, len(whole) - 150):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        with pytest.raises(SourceError, match=r"bad\.zip"):
            read(path)


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_is_packed_in_another_way_is_refused(tmp_path: Path, packing: int) -> None:
    path = packed(tmp_path / "other.zip", b"a,b\n1,2\n", packing=packing)
    with pytest.raises(SourceError, match=r"other\.zip: a\.csv .* other than deflate") as caught:
        read(path)
    assert caught.value.advice == "unpack the archive, and load the files themselves"


def test_a_header_of_a_million_columns_takes_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "columns.csv.gz"
    path.write_bytes(gzip.compress(b"a," * 500_000 + b"\n"))
    assert path.stat().st_size < 2_000
    with pytest.raises(SourceError, match="names a more than once"):
        read(path)


@pytest.mark.parametrize("packing", ["gzip", "zip"])
def test_a_copy_on_disk_is_bounded(
    tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_COPY", 1_000_000)
    content = b"PAR1" + bytes(5_000_000)
    path = tmp_path / ("a.parquet.gz" if packing == "gzip" else "a.zip")
    if packing == "gzip":
        path.write_bytes(gzip.compress(content))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.parquet", content)
    with pytest.raises(SourceError, match="more than 1000000 bytes unpacked"):
        list(FileSource(path).batches())


@pytest.mark.parametrize("place", [b"PK\x03\x04", b"PK\x01\x02"])
def test_a_name_in_an_archive_that_is_no_text_is_refused(tmp_path: Path, place: bytes) -> None:
    path = tmp_path / "names.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("\u00e4.csv", "a\n1\n")
    content = bytearray(path.read_bytes())
    at = content.index("\u00e4".encode(), content.index(place))
    content[at : at + 2] = b"\xff\xff"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"names\.zip"):
        read(path)


def test_an_archive_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "later.zip", b"a\n1\n", packing=zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 99
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"later\.zip.*version 9\.9"):
        read(path)


def test_a_text_of_parquet_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "text.parquet"
    table = pyarrow.table({"a": ["good text"]})
    parquet.write_table(table, path, compression="none", write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"good text", b"\xff\xfe" + b"x" * 7))
    with pytest.raises(SourceError, match=r"text\.parquet"):
        read(path)
