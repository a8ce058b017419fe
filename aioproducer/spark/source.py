"""The data source as PySpark sees it: start with `AioproducerSource`.

It is imported in every session that searches for data sources, so it imports PySpark's own module
and nothing else that costs.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aioproducer._checks.extras import required
from aioproducer._util.secrets import hides_arguments

with required(__name__, "spark"):
    from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
    )
    from pyspark.sql.types import StructType

_OPTION: Final = "option."
_SERVERS: Final = "kafka.bootstrap.servers"


class AioproducerSource(DataSource):
    """`format("aioproducer")`: DataFrames and streams into Kafka, and topics read back."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Options that hold unless a read, write or table has others."""
    reports: ClassVar[Any] = None
    """The accumulator that commits add their reports to; None for none."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: dict[str, str] = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "aioproducer"

    @hides_arguments
    def schema(self) -> str | StructType:
        """Return the columns of a read; Spark asks for those of a table when it is created."""
        from aioproducer.spark.options import TABLE, SourceOptions
        from aioproducer.spark.reader import columns_of_table, columns_read

        given = _of_new_table(self._given)
        if given is None:
            return columns_read(SourceOptions.parse(self._known("read"), "read"))
        options = SourceOptions.parse({**self.defaults, **given}, TABLE)
        options.refuse_secrets(given)
        return columns_of_table(options, given)

    @hides_arguments
    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a topic from some offsets to others; for verification and backfills."""
        from aioproducer.spark.options import SourceOptions
        from aioproducer.spark.reader import TopicReader, check_kinds

        check_kinds(_fields(schema))
        options = SourceOptions.parse(self._known("read", schema), "read")
        return TopicReader(options, schema.fieldNames())

    @hides_arguments
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Check options and columns; Spark calls it once per write, before any task.

        Raises:
            ConfigError: an option cannot work, or `mode("overwrite")` was asked for.
            SerializationError: a column cannot be sent.
            KafkaError: exactly once could not begin.
        """
        from aioproducer.spark.plan import SinkPlan
        from aioproducer.spark.task import freeze_modules
        from aioproducer.spark.writers import BatchWriter

        freeze_modules()
        given = self._known("write", schema)
        plan = SinkPlan.of_batch(given, _fields(schema), overwrite=overwrite)
        return BatchWriter(plan.begun(), self.reports)

    @hides_arguments
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """As `writer`; Spark calls it for each micro-batch, and again to commit or abort it.

        `overwrite` is `outputMode("complete")`: as in Spark's own Kafka sink, each micro-batch
        appends the whole result, and the newest record of a key counts.
        """
        from aioproducer.spark.plan import SinkPlan
        from aioproducer.spark.task import freeze_modules
        from aioproducer.spark.writers import StreamWriter

        freeze_modules()
        plan = SinkPlan.of_stream(self._known("stream", schema), _fields(schema))
        return StreamWriter(plan, self.reports)

    def _known(self, use: str, schema: StructType | None = None) -> dict[str, str]:
        """Return the options of this read or write, of the table, of `register`, in this order.

        Columns that were read from a table carry its options into other writes too: these name
        their servers themselves, and an insert into the table does not.
        """
        from aioproducer.spark.options import only_for
        from aioproducer.spark.reader import TABLE_OPTIONS

        table: dict[str, str] = {}
        if schema is not None and _SERVERS not in {name.lower() for name in self._given}:
            for field in schema.fields:
                table = table or (field.metadata or {}).get(TABLE_OPTIONS, {})
        return {**only_for(use, {**self.defaults, **table}), **self._given}


def _of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the OPTIONS of a table that is being created; None if there is no such table.

    Spark adds them to the table's properties, and repeats each of them as `option.NAME`.
    """
    if "provider" not in given:
        return None
    return {
        name.removeprefix(_OPTION): value
        for name, value in given.items()
        if name.startswith(_OPTION)
    }


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
