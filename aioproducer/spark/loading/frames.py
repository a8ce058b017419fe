"""A step's files as a DataFrame, by Spark's readers; set so that rows are those of the loader.

    csv, tsv        lines as bytes, all lines of a file in one task: values may hold line feeds
    ndjson, lines   lines as bytes, too, parsed by the loader's own formats
    parquet, orc    Spark's readers, with the columns of all files
    avro            the files' paths: Spark's reader is not part of PySpark; fastavro reads them

Partition columns follow the others; Spark infers their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.format import Format
from aioproducer.loader.formats.text import CsvFormat, LinesFormat, NdjsonFormat
from aioproducer.spark.loading.files import Step, unescaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


FILE: Final = "__file"
"""The column with a row's file."""
_WHOLE_FILE: Final = (
    "if(_metadata.file_block_start = 0, _metadata.file_path, "
    "raise_error('Spark has divided a CSV file, whose first line is the header'))"
)
_TASK_BYTES: Final = 128 * 1024 * 1024
_MOST_TASKS: Final = 200
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Spark and Hive call the folder of a null."""

SETTINGS: Final[Mapping[str, str]] = {
    # The loader supports no time zone but this one.
    "spark.sql.session.timeZone": "UTC",
    # `a` and `A` are two columns to the loader.
    "spark.sql.caseSensitive": "true",
}
"""What a session needs for these readers."""


@dataclass(frozen=True, slots=True)
class Input:
    """A way to read files; `name` is one of the loader's `FORMATS`."""

    name: str
    format: Format


def rows_of(spark: SparkSession, step: Step, files: Input) -> DataFrame:
    """Return the rows of a step."""
    if files.name == "avro":
        return _paths(spark, step)
    reader = spark.read.option("basePath", step.root)
    if isinstance(files.format, CsvFormat):
        _keep_files_whole(spark, step)
        frame = _with_file(_lines(reader, step), _WHOLE_FILE)
    elif isinstance(files.format, LinesFormat | NdjsonFormat):
        frame = _with_file(_lines(reader, step))
    elif files.name in {"parquet", "orc"}:
        # Without it a column that only some files have would be left out.
        merged = reader.option("mergeSchema", "true").format(files.name).load(step.paths)
        frame = _with_file(merged)
        if files.name == "orc":
            frame = _without_zone(frame)
    else:
        raise SourceError(f"Spark does not read the format {files.name}")
    return frame


def _lines(reader: DataFrameReader, step: Step) -> DataFrame:
    lines = reader.option("lineSep", "\n").text(step.paths)
    return lines.withColumn("value", lines["value"].cast("binary"))


def _with_file(frame: DataFrame, file: str = "_metadata.file_path") -> DataFrame:
    from pyspark.sql import functions

    return frame.select("*", functions.expr(file).alias(FILE))


def _keep_files_whole(spark: SparkSession, step: Step) -> None:
    """Let Spark read each file in one task, and small ones together.

    A task gets at most `maxPartitionBytes`, and no more than all files have for each of
    `minPartitionNum`; larger files would be divided.
    """
    largest = max(1, *(file.size for file in step.files))
    tasks = min(max(1, step.size // largest), _MOST_TASKS)
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(max(largest, _TASK_BYTES)))
    spark.conf.set("spark.sql.files.minPartitionNum", str(tasks))


def _without_zone(frame: DataFrame) -> DataFrame:
    """ORC's timestamps have no zone; Spark reads them as if they were in the session's."""
    kinds = dict(frame.dtypes)
    columns = [
        frame[_quoted(name)].cast("timestamp_ntz").alias(name)
        if kinds[name] == "timestamp"
        else frame[_quoted(name)]
        for name in frame.columns
    ]
    return frame.select(*columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _paths(spark: SparkSession, step: Step) -> DataFrame:
    """Return one row per file, with the values of its folders."""
    rows = [(file.path, *_folder_values(file.path, step)) for file in step.files]
    names = [FILE, *step.partition_columns]
    schema = ", ".join(f"{_quoted(name)} string" for name in names)
    return spark.createDataFrame(rows, schema).repartition(len(rows))


def _folder_values(path: str, step: Step) -> list[str | None]:
    found = dict(part.split("=", 1) for part in PurePosixPath(path).parts[:-1] if "=" in part)
    values = {
        unescaped(name): None if value == _NULL_FOLDER else unescaped(value)
        for name, value in found.items()
    }
    return [values[name] for name in step.partition_columns]
