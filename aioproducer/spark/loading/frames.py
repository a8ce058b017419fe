"""A step's files as a DataFrame, by Spark's readers; set so that rows are those of the loader.

    csv, tsv        Spark's reader, a file per task: values may hold line feeds; all values are text
    ndjson, lines   lines as bytes, parsed by the loader's own formats
    parquet, orc    Spark's readers, with the columns of all files
    avro            the files' paths: Spark's reader is no part of PySpark; fastavro reads them

Partition columns follow the others; Spark infers their types.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from aioproducer._util.arguments import utf8_size
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.chunks import Format
from aioproducer.loader.formats.text import CsvFormat, LinesFormat, NdjsonFormat, check_header
from aioproducer.loader.streams import not_text
from aioproducer.spark.loading.files import Step, unescaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


FILE: Final = "__file"
"""The column with a row's file."""
BROKEN: Final = "__broken"
"""The column with the text of a CSV row that is none."""

_MARK: Final = "\ufeff"
"""The mark of Unicode at the beginning of a file."""
_HEADER_LINES: Final = 20
"""Lines that a header may have, in which names are quoted."""
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Spark and Hive call the folder of a null."""

SETTINGS: Final[Mapping[str, str]] = {
    # The loader supports no time zone but this one.
    "spark.sql.session.timeZone": "UTC",
    # `a` and `A` are two columns to the loader.
    "spark.sql.caseSensitive": "true",
    # Else it takes seven encodings only.
    "spark.sql.legacy.javaCharsets": "true",
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
        frame = _csv(spark, reader, step, files.format)
    elif isinstance(files.format, LinesFormat | NdjsonFormat):
        lines = reader.option("lineSep", "\n").text(step.paths)
        frame = _with_file(lines.withColumn("value", lines["value"].cast("binary")))
    elif files.name in {"parquet", "orc"}:
        # Without it a column that only some files have would be left out.
        merged = reader.option("mergeSchema", "true").format(files.name).load(step.paths)
        frame = _with_file(merged)
        if files.name == "orc":
            frame = _without_zone(frame)
    else:
        raise SourceError(f"Spark does not read the format {files.name}")
    return frame


def _with_file(frame: DataFrame) -> DataFrame:
    return frame.select("*", frame["_metadata.file_path"].alias(FILE))


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


def _csv(spark: SparkSession, reader: DataFrameReader, step: Step, dialect: CsvFormat) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    names = dialect.columns or _header(spark, step, dialect)
    options: dict[str, Any] = {
        "header": dialect.columns is None,
        "sep": dialect.delimiter,
        "quote": dialect.quote or "",
        "escape": dialect.quote or "",
        "encoding": codecs.lookup(dialect.encoding).name,  # Java does not have `latin-1`
        "multiLine": True,
        "enforceSchema": False,
        "columnNameOfCorruptRecord": BROKEN,
        "maxCharsPerColumn": dialect.max_row_bytes,
    }
    schema = StructType([StructField(name, StringType()) for name in (*names, BROKEN)])
    return _with_file(reader.options(**options).schema(schema).csv(step.paths))


def _header(spark: SparkSession, step: Step, dialect: CsvFormat) -> Sequence[str]:
    """Return the columns' names, by the first file; Spark compares those of the others."""
    lines = spark.read.option("lineSep", "\n").text(step.paths[0])
    blank = lines["value"].isin("", "\r", _MARK, f"{_MARK}\r")
    found = lines.where(~blank).select(lines["value"].cast("binary")).take(_HEADER_LINES)
    if not found:
        raise SourceError(f"cannot read {step.files[0].path}: there is no header")
    if (reason := not_text(bytes(found[0][0]))) is not None:
        raise SourceError(
            f"cannot read {step.files[0].path}: {reason.message}", advice=reason.advice
        )
    # The text reader has no encodings: it takes all text for UTF-8.
    first = [bytes(line).decode(dialect.encoding, "surrogateescape") for (line,) in found]
    first[0] = first[0].removeprefix(_MARK)
    reader = csv.reader(
        [f"{line}\n" for line in first],
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
    )
    try:
        names = next(reader)
    except csv.Error as error:
        raise SourceError(
            f"cannot read {step.files[0].path}: the CSV header cannot be read: {error}"
        ) from error
    if utf8_size("".join(names)) < 0:
        raise SourceError(
            f"cannot read {step.files[0].path}: the CSV header is not {dialect.encoding}"
        )
    check_header(names)
    return names


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
