"""A sink of Spark's that takes every row and keeps none: what no Python sink can cost less than.

Owns: reading record batches in a worker. Must not know: Kafka, how anything is measured. Spark
imports it in its workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Discard(DataSource):
    """`format("discard")`."""

    @classmethod
    def name(cls) -> str:
        """What `format()` is given."""
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For any columns."""
        return _Writer()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was written."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was written."""
