from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shlex
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from aioproducer.errors import ConfigError
from aioproducer.loader import (
    CsvFormat,
    FileSource,
    Position,
    RowsSource,
    SourceError,
)
from aioproducer.loader.sources import FORMATS
from aioproducer.loader.streams import open_input
from loader.fakes import rows_of

CSV = b"a,b\n1,one\n2,two\n3,three\n"
ROWS = [["1", "one"], ["2", "two"], ["3", "three"]]


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def zip_of(path: Path, **members: bytes) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return str(path)


def parquet_bytes(rows: int, group: int) -> bytes:
    table = pa.table({"n": range(rows), "text": [str(n) for n in range(rows)]})
    out = io.BytesIO()
    parquet.write_table(table, out, row_group_size=group)
    return out.getvalue()


def fields_of(source: FileSource, after: Position | None = None) -> list[object]:
    return [fields for _, fields in rows_of(source, after)]


def test_plain_file_gives_rows_with_positions(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", CSV)
    assert rows_of(FileSource(file)) == [
        (Position(file, None, number), row) for number, row in enumerate(ROWS, 1)
    ]


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    named = write(tmp_path / "t.csv.gz", gzip.compress(CSV, mtime=0))
    unnamed = write(tmp_path / "t.csv", gzip.compress(CSV, mtime=0))
    assert fields_of(FileSource([named, unnamed])) == ROWS + ROWS


def test_members_of_a_zip_are_read_in_order_with_their_own_positions(tmp_path: Path) -> None:
    file = zip_of(
        tmp_path / "t.zip",
        b_csv=CSV,
        folder__a_csv_gz=gzip.compress(CSV, mtime=0),
        readme_txt=b"not data",
        __MACOSX__b_csv=b"junk",
    )
    found = rows_of(FileSource(file))
    assert [(p.member, p.row) for p, _ in found] == [
        *(("b.csv", n) for n in (1, 2, 3)),
        *(("folder/a.csv.gz", n) for n in (1, 2, 3)),
    ]


def test_member_pattern_and_named_format_choose_members(tmp_path: Path) -> None:
    file = zip_of(tmp_path / "t.zip", a_csv=CSV, b_dat=b"x;y\n1;2\n")
    source = FileSource(file, format=CsvFormat(delimiter=";"), member="*.dat")
    assert fields_of(source) == [["1", "2"]]


def test_zip_without_known_members_says_so(tmp_path: Path) -> None:
    file = zip_of(tmp_path / "t.zip", readme_txt=b"hello")
    with pytest.raises(SourceError, match=r"no format is known for.*any member.*name the format"):
        fields_of(FileSource(file))


@pytest.mark.parametrize("format_", [None, "csv"])
def test_a_pattern_that_no_member_fits_is_named(tmp_path: Path, format_: str | None) -> None:
    file = zip_of(tmp_path / "t.zip", a_csv=CSV)
    with pytest.raises(SourceError, match=r"the archive has no file that fits '\*\.tsv'$"):
        fields_of(FileSource(file, format=format_, member="*.tsv"))
    only_hidden = zip_of(tmp_path / "u.zip", folder___hidden_csv=CSV)
    with pytest.raises(SourceError, match=r"the archive has no file$"):
        fields_of(FileSource(only_hidden, format=format_))


@pytest.mark.parametrize("after", range(7))
def test_reading_goes_on_after_any_position(tmp_path: Path, after: int) -> None:
    archive = zip_of(tmp_path / "t.zip", a_csv=CSV, b_csv=CSV)
    plain = write(tmp_path / "t.csv", CSV)
    everything = rows_of(FileSource([archive, plain]))
    rest = rows_of(FileSource([archive, plain]), everything[after][0])
    assert rest == everything[after + 1 :]


def test_position_in_an_unknown_file_or_member_is_refused(tmp_path: Path) -> None:
    plain = write(tmp_path / "t.csv", CSV)
    with pytest.raises(SourceError, match="not among the inputs"):
        fields_of(FileSource(plain), Position("other.csv", None, 1))
    archive = zip_of(tmp_path / "t.zip", a_csv=CSV)
    with pytest.raises(SourceError, match="no such member"):
        fields_of(FileSource(archive), Position(archive, "b.csv", 1))


def test_parquet_rows_come_across_row_groups_and_from_any_row(tmp_path: Path) -> None:
    file = write(tmp_path / "t.parquet", parquet_bytes(2500, 1100))
    everything = rows_of(FileSource(file))
    assert [fields for _, fields in everything] == [(n, str(n)) for n in range(2500)]
    for row in (1, 999, 1000, 1100, 2499, 2500):
        rest = rows_of(FileSource(file), Position(file, None, row))
        assert rest == everything[row:]
    with pytest.raises(SourceError, match="2,500 rows where at least 2,501"):
        rows_of(FileSource(file), Position(file, None, 2501))


def test_zipped_parquet_is_read_through_a_temporary_file(tmp_path: Path) -> None:
    file = zip_of(tmp_path / "t.zip", t_parquet=parquet_bytes(10, 5))
    assert len(rows_of(FileSource(file))) == 10


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv.gz", gzip.compress(CSV * 1000, mtime=0)[:-20], "damaged or cut off"),
        ("t.csv.gz", gzip.compress(CSV, mtime=0)[:-8] + b"\0" * 8, "crc check failed"),
        ("t.zip", b"PK\x03\x04 no archive", "damaged or cut off"),
        ("t.parquet", b"no parquet at all", "not readable as Parquet"),
        ("t.unknown", b"", "no format is known for its name"),
    ],
)
def test_damaged_file_is_named_with_the_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(SourceError, match=reason) as caught:
        fields_of(FileSource(file))
    assert name in str(caught.value)


def test_missing_file_and_directory_are_errors(tmp_path: Path) -> None:
    missing = FileSource(tmp_path / "missing.csv")
    with pytest.raises(SourceError, match="no such file"):
        missing.check()
    with pytest.raises(SourceError, match="no such file"):
        fields_of(missing)
    with pytest.raises(SourceError, match="is a directory"):
        fields_of(FileSource(tmp_path, format="csv"))


def test_impossible_inputs_are_refused() -> None:
    for files, format_ in (([], None), (["a.csv", "a.csv"], None), ("-", None), ("a.csv", "xml")):
        with pytest.raises(ConfigError):
            FileSource(files, format=format_)


def test_an_input_by_several_names_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    (tmp_path / "latest.csv").symlink_to("rows.csv")
    monkeypatch.chdir(tmp_path)
    again = {
        "rows.csv": "rows.csv",
        "./rows.csv": r"\./rows\.csv, which is rows\.csv,",
        "latest.csv": r"latest\.csv, which is rows\.csv,",
    }
    for name, shown in again.items():
        with pytest.raises(ConfigError, match=f"the input {shown} is given more than once"):
            FileSource(["rows.csv", name])


def test_progress_ends_at_the_size_of_all_files(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a.csv", CSV),
        write(tmp_path / "b.csv.gz", gzip.compress(CSV, mtime=0)),
    ]
    source = FileSource(files)
    *_, last = source.batches()
    assert last.progress == source.total_bytes == sum(Path(file).stat().st_size for file in files)


def test_rows_of_a_pipe_come_as_they_are_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = FileSource(pipe, format="lines")
    assert source.total_bytes is None
    batches = source.batches()
    with open_writer(pipe) as writer:
        writer.write(b"one\ntwo\nha")
        writer.flush()
        assert next(batches).fields == [(b"one",), (b"two",)]
        writer.write(b"lf\n")
        writer.flush()
        assert next(batches).fields == [(b"half",)]
    assert next(batches, None) is None


def open_writer(pipe: Path) -> io.FileIO | io.BufferedWriter:
    # Reading and writing: opening for writing alone would wait for the reader.
    return os.fdopen(os.open(pipe, os.O_RDWR), "wb")


ZSTD = bytes.fromhex("28b52ffd")


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (bz2.compress(CSV), "bzip2"),
        (bz2.compress(b""), "bzip2"),
        (lzma.compress(CSV), "xz"),
        (ZSTD, "zstd"),
        (bytes.fromhex("502a4d1804000000") + ZSTD, "zstd"),
        (bytes.fromhex("04224d18"), "lz4"),
    ],
)
@pytest.mark.parametrize("format_", ["lines", "csv", "ndjson"])
def test_other_compressions_are_not_taken_for_text(
    tmp_path: Path, content: bytes, command: str, format_: str
) -> None:
    for file in (write(tmp_path / "t", content), zip_of(tmp_path / "t.zip", a_csv=content)):
        with pytest.raises(SourceError, match=f"compressed with {command}") as caught:
            rows_of(FileSource(file, format=format_))
        assert caught.value.advice is not None
        assert f"{command} -dc" in caught.value.advice


@pytest.mark.parametrize("name", ["t.csv.xz", "T.NDJSON.XZ", "t.parquet.xz"])
def test_a_file_with_the_name_of_another_compression_is_refused_because_of_that(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(SourceError, match="compressed with xz"):
        rows_of(FileSource(write(tmp_path / name, lzma.compress(CSV))))


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(
    tmp_path: Path, kind: str
) -> None:
    lines = b"".join(b"%x\n" % (number * 2654435761 % 2**32) for number in range(200_000))
    file = write(tmp_path / "t.txt", lines if kind == "plain" else gzip.compress(lines))
    batches = FileSource(file).batches()
    next(batches)
    os.truncate(file, 0)
    with pytest.raises(SourceError, match=r"t\.txt: it became shorter while it was read"):
        list(batches)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    file = write(tmp_path / "t.txt", b"1234567\n" * 20_000)
    batches = FileSource(file).batches()
    count = len(next(batches).fields)
    with Path(file).open("ab") as more:
        more.write(b"1\n")
    assert count + sum(len(batch.fields) for batch in batches) == 20_001


@pytest.mark.parametrize("content", [gzip.compress(CSV, mtime=0), b"PK\x03\x04", ZSTD])
@pytest.mark.parametrize("format_", ["lines", "csv", "ndjson"])
def test_a_file_that_is_packed_twice_is_not_taken_for_text(
    tmp_path: Path, content: bytes, format_: str
) -> None:
    packed = gzip.compress(content, mtime=0)
    for file in (write(tmp_path / "t", packed), zip_of(tmp_path / "t.zip", a_csv=packed)):
        with pytest.raises(SourceError, match=r"packed twice|compressed with zstd"):
            rows_of(FileSource(file, format=format_))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_two_members_of_one_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", CSV)
        archive.writestr("b.csv", CSV)
        archive.writestr("a.csv", CSV)
    with pytest.raises(SourceError, match=r"t\.zip: the archive has several members 'a\.csv'"):
        rows_of(FileSource(file))
    assert rows_of(FileSource(file, member="b*"))


def test_a_closed_standard_input_is_refused() -> None:
    program = (
        "import os\n"
        "from aioproducer.loader import FileSource, SourceError\n"
        "others = os.pipe()  # one of them gets the number 0\n"
        "try:\n"
        "    next(FileSource('-', format='lines').batches())\n"
        "except SourceError as error:\n"
        "    print(error.message)\n"
    )
    command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)} <&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=60)
    assert ended.stdout.decode().strip() == "cannot read standard input: it is closed"


@pytest.mark.parametrize("name", ["t.csv.gz", "T.CSV.GZ"])
def test_the_format_of_a_gzipped_file_is_that_of_its_name(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, gzip.compress(CSV, mtime=0))
    assert [row for _, row in rows_of(FileSource(file))] == ROWS


def test_a_position_is_in_the_file_that_another_spelling_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", CSV)
    found = rows_of(FileSource("a.csv"), Position("./a.csv", None, 2))
    assert found == [(Position("a.csv", None, 3), ROWS[2])]


def test_a_name_that_is_too_long_is_not_there() -> None:
    source = FileSource(300 * "a", format="csv")
    assert source.total_bytes is None
    with pytest.raises(SourceError, match="no such file"):
        source.check()


def test_a_pipe_that_another_process_reads_too_is_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)

    class OtherReader(threading.Event):
        """Reads what is there after the poll and before the read, once."""

        reads = 0

        def is_set(self) -> bool:
            self.reads += 1
            if self.reads == 1:
                assert os.read(writer, 100) == b"for another"
            elif self.reads == 2:
                os.write(writer, b"for this one")
            return False

    with open_input(str(pipe), OtherReader()) as file:
        os.write(writer, b"for another")
        assert file.read(100) == b"for this one"
    os.close(writer)


def test_interrupt_ends_a_waiting_read_and_takes_no_half_line(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = FileSource(pipe, format="lines")
    batches = source.batches()
    with open_writer(pipe) as writer:
        writer.write(b"one\nhalf")
        writer.flush()
        assert next(batches).fields == [(b"one",)]
        timer = threading.Timer(0.01, source.interrupt)
        timer.start()
        assert next(batches, None) is None
        timer.join()


def test_rows_in_memory_are_numbered_and_skipped() -> None:
    rows = [{"n": number} for number in range(1200)]
    everything = rows_of(RowsSource(rows, name="mine"))
    assert everything[0] == (Position("mine", None, 1), {"n": 0})
    assert len(everything) == 1200
    assert rows_of(RowsSource(rows, name="mine"), Position("mine", None, 700)) == everything[700:]


def test_every_known_suffix_has_a_format(tmp_path: Path) -> None:
    contents = {
        "csv": CSV,
        "tsv": b"a\tb\n1\t2\n",
        "jsonl": b"{}\n",
        "ndjson": b"{}\n",
        "txt": b"x",
    }
    for suffix, content in contents.items():
        assert rows_of(FileSource(write(tmp_path / f"t.{suffix}", content)))
    assert set(FORMATS) == {"csv", "tsv", "ndjson", "parquet", "orc", "avro", "lines"}


def test_rows_that_come_slowly_are_passed_on_before_a_batch_is_full() -> None:
    now = 0.0

    class Source(RowsSource):
        _clock = staticmethod(lambda: now)

    def rows() -> Iterator[dict[str, int]]:
        nonlocal now
        for number in range(1010):
            now += 1.0 if number < 5 else 0.001
            yield {"n": number}

    batches = list(Source(rows()).batches())
    assert [each["n"] for batch in batches for each in batch.fields] == list(range(1010))
    sizes = [len(batch.fields) for batch in batches]
    assert sizes[:5] == [1] * 5
    assert max(sizes) <= 102
    assert [batch.first_row for batch in batches[:7]] == [1, 2, 3, 4, 5, 6, 6 + sizes[5]]
    now = 0.0
    fast = list(Source({"n": number} for number in range(1010)).batches())
    assert [len(batch.fields) for batch in fast] == [500, 500, 10]
