"""Steps of a load, and what file names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.loader import SourceError
from aioproducer.spark.loading.errors import SparkLoadError, error_of
from aioproducer.spark.loading.files import (
    InputFile,
    Step,
    _root,
    _split,
    absolute,
    digest,
    format_of,
    has_file,
    is_remote,
    refuse_same,
)
from aioproducer.spark.loading.frames import _folder_values


def step(*paths: str, root: str = "file:/in") -> Step:
    return Step(root, tuple(InputFile(path, 10, 0) for path in paths))


def test_a_step_ends_after_the_file_that_fills_it() -> None:
    files = [InputFile(f"file:/in/{number}", 10, 0) for number in range(5)]
    steps = _split("file:/in", files, 20)
    assert [len(each.files) for each in steps] == [2, 2, 1]
    assert [file for each in steps for file in each.files] == files
    assert [each.size for each in steps] == [20, 20, 10]


def test_files_whose_folders_name_other_columns_are_in_another_step() -> None:
    def steps(*paths: str) -> list[list[str]]:
        found = _split("file:/in", [InputFile(f"file:/in/{each}", 10, 0) for each in paths], 25)
        return [[file.path.removeprefix("file:/in/") for file in each.files] for each in found]

    assert steps("a", "day=1/x", "day=2/x", "day=3/x", "z") == [
        ["a", "z"],
        ["day=1/x", "day=2/x", "day=3/x"],
    ]
    assert steps("day=1/h=2/x", "day=1/x", "month=1/x") == [
        ["day=1/h=2/x"],
        ["day=1/x"],
        ["month=1/x"],
    ]
    assert steps("p/day=1/x", "q/day=1/x") == [["p/day=1/x"], ["q/day=1/x"]]
    assert steps("day=1/p/x", "day=1/y", "day=2/z") == [["day=1/p/x", "day=1/y", "day=2/z"]]
    assert steps("p/x", "q/r/x") == [["p/x", "q/r/x"]]


def test_other_sizes_times_and_names_are_other_files() -> None:
    first = InputFile("file:/in/a", 10, 0)
    others = [
        InputFile("file:/in/b", 10, 0),
        InputFile("file:/in/a", 11, 0),
        InputFile("file:/in/a", 10, 1),
    ]
    digests = {digest([Step("file:/in", (each,))]) for each in [first, *others]}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("name", "paths", "root"),
    [
        ("file:/in", ["file:/in/a.csv"], "file:/in"),
        ("file:/in/", ["file:/in/a.csv"], "file:/in"),
        ("file:/in/a.csv", ["file:/in/a.csv"], "file:/in"),
        ("file:///in/a.csv", ["file:/in/a.csv"], "file:///in"),
        ("s3a://b/in/*/x.csv", ["s3a://b/in/y=1/x.csv"], "s3a://b/in"),
    ],
)
def test_the_root_is_the_folder_that_was_asked_for(name: str, paths: list[str], root: str) -> None:
    assert _root(name, [InputFile(path, 1, 0) for path in paths]) == root


def test_a_path_has_a_scheme_only_before_a_slash() -> None:
    for name in ("s3a://bucket/day", "file:/in/a.csv", "dbfs:/in"):
        assert absolute(name) == name
    local = "dump-2026-01-31T12:30:00.csv"
    assert absolute(local) == f"file:{Path(local).absolute()}"


@pytest.mark.parametrize(
    "name", ["C:/rows.csv", r"C:\rows.csv", "c:/days/*.csv", "file:///C:/rows"]
)
def test_a_path_with_a_drive_letter_is_of_this_machine(name: str) -> None:
    assert not is_remote(name)


def test_folders_below_the_root_name_columns() -> None:
    found = step("file:/y=0/in/year=2013/a%20b=1/x.csv", root="file:/y=0/in")
    assert found.partition_columns == ("year", "a b")


def test_the_folder_of_a_null_is_a_null_for_files_that_spark_does_not_read() -> None:
    paths = [f"file:/in/day={day}/a%20b=1/x.avro" for day in ("2026", "__HIVE_DEFAULT_PARTITION__")]
    found = step(*paths)
    assert [_folder_values(each, found) for each in paths] == [["2026", "1"], [None, "1"]]


def test_paths_are_no_patterns() -> None:
    assert step("file:/in/a[1]*.csv").paths == [r"file:/in/a\[1\]\*.csv"]


def test_names_show_the_format_of_all_files() -> None:
    assert format_of([step("a.snappy.parquet", "b.pq")]) == "parquet"
    assert format_of([step("a.csv.gz"), step("b.csv")]) == "csv"
    for paths, reason in ((("a.csv", "b.orc"), "several"), (("README",), "no format is known")):
        with pytest.raises(SourceError, match=reason):
            format_of([step(*paths)])


def test_what_a_task_raised_is_found_in_javas_exception() -> None:
    text = (
        "An exception was thrown from the Python worker.\n"
        "Traceback (most recent call last):\n"
        "aioproducer.loader.errors.SourceError: cannot read a.avro: no Avro -> check it\n"
    )
    found = error_of(RuntimeError(text))
    assert isinstance(found, SourceError)
    assert (found.message, found.advice) == ("cannot read a.avro: no Avro", "check it")
    other = error_of(
        RuntimeError("An error occurred while calling o1.save.\n: Java is out of memory")
    )
    assert type(other) is SparkLoadError
    assert other.message == "Java is out of memory"


def test_a_file_that_a_link_leads_to_is_not_loaded_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n")
    (tmp_path / "b.csv").write_text("id\n")
    (tmp_path / "self").symlink_to(tmp_path)
    known: dict[str, str] = {}
    refuse_same([InputFile(f"file:{tmp_path}/{name}.csv", 3, 0) for name in "ab"], known)
    with pytest.raises(SourceError, match=r"/a.csv and \S+/self/a.csv are the same file"):
        refuse_same([InputFile(f"file:{tmp_path}/self/a.csv", 3, 0)], known)


@pytest.mark.parametrize("path", ["file:/nowhere/a.csv", "s3a://bucket/a.csv"])
def test_a_file_of_several_inputs_is_refused(path: str) -> None:
    known: dict[str, str] = {}
    refuse_same([InputFile(path, 3, 0)], known)
    with pytest.raises(SourceError, match=r"a\.csv is in more than one of the inputs"):
        refuse_same([InputFile(path, 3, 0)], known)


def test_the_end_of_a_workers_traceback_is_shown() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
        "Traceback (most recent call last):\n"
        '  File "<frozen runpy>", line 112, in _get_module_details\n'
        "ModuleNotFoundError: No module named 'pyspark'\n"
        "SQLSTATE: 38000\n"
    )
    assert error_of(RuntimeError(text)).message == (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
        "ModuleNotFoundError: No module named 'pyspark'"
    )


def test_the_cause_that_java_gives_is_shown() -> None:
    failed = "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Error in b.csv."
    text = (
        f"An error occurred while calling o152.save.\n: {failed}  SQLSTATE: KD001\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(Q.scala:1)\n"
        "Caused by: org.apache.spark.SparkIllegalArgumentException: CSV header does not conform.\n"
        " Header: b, a\n"
        " Schema: a, b\n"
        "\tat org.apache.spark.sql.catalyst.csv.CSVHeaderChecker.check(C.scala:1)\n"
        "\t... 1 more\n"
        "Caused by: java.lang.Exception: another one\n"
    )
    assert error_of(RuntimeError(text)).message == (
        f"{failed}  SQLSTATE: KD001: CSV header does not conform. Header: b, a Schema: a, b"
    )
    known = "Job aborted: java.io.EOFException: Unexpected end"
    repeated = f"{known}\n\tat a\nCaused by: java.io.EOFException: Unexpected end\n\tat b\n"
    assert error_of(RuntimeError(repeated)).message == known
    long = f"Failed\n\tat a\nCaused by: java.lang.Exception: {'x' * 5000}\n"
    assert error_of(RuntimeError(long)).message == f"Failed: {'x' * 300}"


def test_an_exception_of_java_that_only_waits_for_another_is_left_out() -> None:
    waits = (
        "org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat a.b(C.scala:1)\n"
    )
    text = (
        f"An error occurred while calling o3.getResult.\n: {waits}\t... 1 more\nCaused by: {waits}"
        "Caused by: org.apache.spark.SparkException: [FAILED] Error in  b.csv.\n\tat d\n"
        "Caused by: java.lang.Exception: CSV header does not conform.\n\tat e\n"
    )
    assert error_of(RuntimeError(text)).message == (
        "org.apache.spark.SparkException: [FAILED] Error in  b.csv.: CSV header does not conform."
    )


def test_nanoseconds_have_advice() -> None:
    text = "[PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,false))."
    found = error_of(RuntimeError(text))
    assert (found.message, "--engine local" in (found.advice or "")) == (text, True)
    assert error_of(RuntimeError("out of memory")).advice is None


@pytest.mark.parametrize("name", ["file:///in/a%20b.csv", "file:/in/a b.csv", "/in/a b.csv"])
def test_a_file_of_a_load_is_found_by_each_form_of_its_name(name: str) -> None:
    steps = [step("file:/in/a b.csv")]
    assert has_file(steps, name)
    assert not has_file(steps, "file:/in/b.csv")
