"""The process in which pyarrow reads files: its answers, its end, and files that end it."""

from __future__ import annotations

import gzip
import multiprocessing
import multiprocessing.spawn
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import orc, parquet
from support.windows import output_without_posix

from aioproducer.loader import BadRow, FileSource
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_process import ArrowProcess
from aioproducer.loader.formats.orc import OrcFormat
from aioproducer.loader.formats.parquet import ParquetFormat
from aioproducer.loader.rows import RowBatch

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="lists processes in /proc")


@pytest.fixture
def process() -> Iterator[ArrowProcess]:
    with ArrowProcess() as process:
        yield process


def children() -> set[int]:
    """Return the processes that this thread has started."""
    found = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return {int(each) for each in found.split()}


def file_of(path: Path, rows: int) -> Path:
    table = pyarrow.table({"a": pyarrow.array(range(rows), pyarrow.int64())})
    write = orc.write_table if path.suffix == ".orc" else parquet.write_table
    write(table, path)
    return path


def chunks(process: ArrowProcess, path: Path, skip: int = 0) -> Iterator[RowBatch]:
    name = "ORC" if path.suffix == ".orc" else "Parquet"
    with path.open("rb") as stream, ExitStack() as stack:
        yield from process.read(name, stream, skip, stack)


def rows(process: ArrowProcess, path: Path, skip: int = 0) -> list[tuple[int, Any]]:
    """Return each row with its number."""
    return [
        (chunk.first_row + place, row)
        for chunk in chunks(process, path, skip)
        for place, row in enumerate(chunk.fields)
    ]


@on_linux
def test_one_process_reads_all_files_and_ends_with_the_load(
    tmp_path: Path, process: ArrowProcess
) -> None:
    before = children()
    assert rows(process, file_of(tmp_path / "a.parquet", 2)) == [(1, (0,)), (2, (1,))]
    started = children() - before
    assert len(started) == 1
    assert rows(process, file_of(tmp_path / "b.orc", 3), skip=2) == [(3, (2,))]
    assert children() - before == started
    process.close()
    assert children() == before


@on_linux
@pytest.mark.parametrize("format_", [ParquetFormat(), OrcFormat()])
def test_a_format_alone_ends_its_process_with_the_stack(
    tmp_path: Path, format_: ParquetFormat | OrcFormat
) -> None:
    before = children()
    path = file_of(tmp_path / f"a.{format_.name.lower()}", 3)
    with path.open("rb") as stream, ExitStack() as stack:
        assert sum(len(chunk.fields) for chunk in format_.read(stream, 0, stack)) == 3
        assert children() != before
    assert children() == before


@on_linux
def test_a_source_starts_one_process_for_its_files(tmp_path: Path) -> None:
    before = children()
    files = [file_of(tmp_path / f"{number}.parquet", 1) for number in range(3)]
    seen = [children() - before for _ in FileSource(files).batches()]
    assert len(seen) == 3
    assert len(set.union(*seen)) == 1
    assert children() == before


@on_linux
def test_a_read_that_is_left_ends_the_process(tmp_path: Path, process: ArrowProcess) -> None:
    before = children()
    reading = chunks(process, file_of(tmp_path / "a.parquet", 5000))
    assert next(reading).first_row == 1
    assert children() != before
    del reading
    assert children() == before
    assert len(rows(process, tmp_path / "a.parquet")) == 5000


@on_linux
def test_a_process_that_is_killed_is_an_error_with_its_signal(
    tmp_path: Path, process: ArrowProcess
) -> None:
    before = children()
    reading = chunks(process, file_of(tmp_path / "a.parquet", 1_000_000))
    next(reading)
    for each in children() - before:
        os.kill(each, signal.SIGKILL)
    with pytest.raises(SourceError, match="ended with SIGKILL"):
        list(reading)


@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_a_file_without_rows_has_none(tmp_path: Path, suffix: str, process: ArrowProcess) -> None:
    path = file_of(tmp_path / f"a.{suffix}", 0)
    assert rows(process, path) == []
    with pytest.raises(SourceError, match="0 rows where at least 1 were read"):
        rows(process, path, skip=1)


READING_ALL = """
from aioproducer.loader import FileSource, SourceError
for name in sys.argv[1:]:
    try:
        print(*(row for batch in FileSource(name).batches() for row in batch.fields))
    except SourceError as error:
        print("not readable" in str(error))
"""


def test_files_are_read_in_this_process_on_windows(tmp_path: Path) -> None:
    broken, packed = tmp_path / "broken.parquet", tmp_path / "packed.parquet.gz"
    files = [file_of(tmp_path / "a.parquet", 2), file_of(tmp_path / "b.orc", 1), packed, broken]
    packed.write_bytes(gzip.compress(files[0].read_bytes()))
    broken.write_bytes(b"PAR1" * 10)
    read = output_without_posix(READING_ALL, *map(str, files))
    assert read.splitlines() == ["(0,) (1,)", "(0,)", "(0,) (1,)", "True"]


def test_an_error_is_that_of_the_reader_and_the_process_goes_on(
    tmp_path: Path, process: ArrowProcess
) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1" * 10)
    with pytest.raises(SourceError, match="not readable as Parquet"):
        rows(process, broken)
    assert len(rows(process, file_of(tmp_path / "a.parquet", 7))) == 7


def test_texts_that_are_not_utf8_are_an_error(tmp_path: Path, process: ArrowProcess) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"a": ["abcd"]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xff\xff"))
    with pytest.raises(SourceError, match=r"not readable as Parquet.*UTF"):
        rows(process, path)


def test_values_that_python_does_not_have_make_bad_rows(
    tmp_path: Path, process: ArrowProcess
) -> None:
    path = tmp_path / "a.parquet"
    times = pyarrow.array([2**62, 0], pyarrow.timestamp("us"))
    parquet.write_table(pyarrow.table({"a": times}), path)
    (_, bad), (number, _) = rows(process, path)
    assert (type(bad), number) == (BadRow, 2)


@pytest.mark.parametrize(
    ("executable", "reason"),
    [
        ("/none/python", "cannot start"),
        ("/bin/false", "ended with exit status 1"),
        ("", "no i"),
    ],
)
def test_an_interpreter_that_cannot_read_is_named(
    tmp_path: Path, process: ArrowProcess, executable: str, reason: str
) -> None:
    path = file_of(tmp_path / "a.parquet", 1)
    usual = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(executable)
    try:
        with pytest.raises(SourceError, match=reason):
            rows(process, path)
    finally:
        multiprocessing.set_executable(usual)


def test_progress_counts_what_the_process_reads(tmp_path: Path) -> None:
    files = [file_of(tmp_path / f"{number}.parquet", 100_000) for number in range(2)]
    progress = [batch.progress or 0 for batch in FileSource(files).batches()]
    assert progress == sorted(progress)
    assert progress[0] > 0
    assert files[0].stat().st_size < progress[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_file_that_takes_more_memory_than_is_allowed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    zeros = pyarrow.nulls(40_000_000, pyarrow.int64()).fill_null(0)
    row = pyarrow.ListArray.from_arrays(pyarrow.array([0, 40_000_000], pyarrow.int32()), zeros)
    parquet.write_table(pyarrow.table({"a": row}), path, compression="zstd")
    code = (
        "import resource, sys\n"
        "from aioproducer.loader import FileSource, SourceError\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({300 << 20}, {300 << 20}))\n"
        "try:\n"
        "    list(FileSource(sys.argv[1]).batches())\n"
        "except SourceError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert "large.parquet" in done.stdout
    assert "memory" in done.stdout


@on_linux
def test_the_process_ends_when_that_which_started_it_is_killed(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.parquet", 1_000_000)
    code = (
        "import sys, threading\n"
        "from aioproducer.loader import FileSource\n"
        "batches = FileSource(sys.argv[1]).batches()\n"
        "next(batches)\n"
        "print(open(f'/proc/self/task/{threading.get_native_id()}/children').read(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        reader = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
    try:
        ended, _, _ = select.select([reader], [], [], 30)
        assert ended
    finally:
        os.close(reader)
