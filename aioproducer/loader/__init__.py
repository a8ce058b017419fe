"""Batch loading as a public async API: files and tables into topics.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        source = FileSource("flights.csv.zip")
        options = LoadOptions(mapping=RecordMapping(key=("carrier", "flight")))
        result = await Loader(producer, source, "flights", options).run()

Delivery is at least once, or exactly once in transactions; every row read ends as acknowledged,
failed or rejected.
"""

from aioproducer.loader.avro_values import AvroValues, avro_values
from aioproducer.loader.errors import (
    DeadLetterError,
    LoaderError,
    MappingError,
    RejectedRowError,
    SourceError,
    StateError,
)
from aioproducer.loader.formats.avro import AvroFormat
from aioproducer.loader.formats.format import Format
from aioproducer.loader.formats.orc import OrcFormat
from aioproducer.loader.formats.parquet import ParquetFormat
from aioproducer.loader.formats.text import CsvFormat, LinesFormat, NdjsonFormat
from aioproducer.loader.loader import Loader
from aioproducer.loader.mapping import RecordMapping
from aioproducer.loader.options import LoadOptions, ProducerLike
from aioproducer.loader.progress import LoadResult, Progress
from aioproducer.loader.rows import BadRow, Position, RowBatch, Source
from aioproducer.loader.sources import FORMATS, FileSource, RowsSource
from aioproducer.loader.state import LoadState, Settled

__all__ = [
    "FORMATS",
    "AvroFormat",
    "AvroValues",
    "BadRow",
    "CsvFormat",
    "DeadLetterError",
    "FileSource",
    "Format",
    "LinesFormat",
    "LoadOptions",
    "LoadResult",
    "LoadState",
    "Loader",
    "LoaderError",
    "MappingError",
    "NdjsonFormat",
    "OrcFormat",
    "ParquetFormat",
    "Position",
    "ProducerLike",
    "Progress",
    "RecordMapping",
    "RejectedRowError",
    "RowBatch",
    "RowsSource",
    "Settled",
    "Source",
    "SourceError",
    "StateError",
    "avro_values",
]
