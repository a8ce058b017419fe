"""Lets Spark find the data source by itself: it imports top-level modules named `pyspark_*`."""

from aioproducer.spark.source import AioproducerSource as DefaultSource

__all__ = ["DefaultSource"]
