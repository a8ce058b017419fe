"""Lets Spark find the data source by itself: it imports top-level modules named `pyspark_*`.

Owns: the one name Spark asks for. Not here: anything else; this module is imported in the
first read or write of every session, also of those that never use aioproducer.
"""

from aioproducer.spark.source import AioproducerSource as DefaultSource

__all__ = ["DefaultSource"]
