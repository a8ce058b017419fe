"""The PySpark data source `aioproducer`: DataFrames and streams into Kafka, and topics read back.

Owns: the public names, imported when first used. Must not know: how records are sent; PySpark is
imported by `source.py`, `streaming.py` and `reader.py` alone.

    spark.dataSource.register(AioproducerSource), that is aioproducer.spark.register(spark)
    driver    options.py, schema.py    refuse what cannot work, before any task starts
    executor  pool.py                  producers that outlive tasks
              sending.py               record batches into `send_arrow`'s encoder
              task.py                  one task: what it sends, what it reports
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioproducer.spark.foreach import batch_writer as batch_writer
    from aioproducer.spark.rows import RowError as RowError
    from aioproducer.spark.source import AioproducerSource as AioproducerSource

_HOMES = {"AioproducerSource": "source", "RowError": "rows", "batch_writer": "foreach"}

__all__ = ["AioproducerSource", "RowError", "batch_writer", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("aioproducer")` known to a session, Spark Connect's too.

    Spark finds the installed package by itself as well, unless one of all modules named `pyspark_*`
    cannot be imported; this call works always.
    """
    from aioproducer.spark.source import AioproducerSource

    spark.dataSource.register(AioproducerSource)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found
