"""The batch reader: a topic, from some offsets to others, as a DataFrame.

For verification and backfills: there is no streaming, no pushed filter, and one task per partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.records.batch import DecodedRecord
from aioproducer.records.committed import EARLIEST, LATEST
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.topic_range import Fetched, TopicRange
from aioproducer.spark.wording import option_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_T = TypeVar("_T")

TABLE_OPTIONS: Final = "aioproducer.options"
"""The key of a table's options in the metadata of its columns."""
_HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_COLUMNS: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": _HEADERS,
}
_TEXT: Final = r"(?:string(?: collate \w+)?|varchar\(\d+\)|char\(\d+\))"
_INTEGER: Final = "tinyint|smallint|int|bigint"
_ALLOWED: Final = {
    "BINARY": "binary",
    "STRING": _TEXT,
    "INT": _INTEGER,
    "BIGINT": _INTEGER,
    "TIMESTAMP": "timestamp",
    _HEADERS: rf"array<struct<key:{_TEXT},value:binary>>",
}
"""Types that a schema of the user's may name for each type, as `simpleString()` writes them."""
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def columns_read(options: SourceOptions) -> str:
    """Return the columns of a read, as DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in _named_columns(options).items())


def _named_columns(options: SourceOptions) -> dict[str, str]:
    left_out = set() if options.include_headers else {"headers"}
    return {name: kind for name, kind in _COLUMNS.items() if name not in left_out}


def check_kinds(fields: Sequence[tuple[str, str]]) -> None:
    """Refuse types that Spark would make of records without a word: `b'...'` for text."""
    for name, kind in fields:
        wanted = _COLUMNS.get(name)
        if wanted is not None and not re.fullmatch(_ALLOWED[wanted], kind):
            raise ConfigError(
                f"column {name!r} of a read is {wanted.lower()}, not {kind}",
                advice=f"leave out schema(...), and cast the column: col({name!r}).cast(...)",
            )


def columns_of_table(options: SourceOptions, kept: Mapping[str, str]) -> StructType:
    """Return the same columns for a table, each of which carries the table's options.

    Spark keeps columns with their metadata in its catalog, and hands no other options of a table to
    a Python data source that reads it or inserts into it.
    """
    from pyspark.sql import types

    kinds: dict[str, str | types.DataType] = {
        "BINARY": "binary",
        "STRING": "string",
        "INT": "integer",
        "BIGINT": "long",
        "TIMESTAMP": "timestamp",
        _HEADERS: types.ArrayType(types.StructType().add("key", "string").add("value", "binary")),
    }
    columns = types.StructType()
    for name, kind in _named_columns(options).items():
        columns.add(name, kinds[kind], metadata={TABLE_OPTIONS: dict(kept)})
    return columns


class TopicReader(DataSourceReader):
    """Reads a topic."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        if options.topic is None:
            raise ConfigError("the option topic must be given")
        unknown = [name for name in columns if name not in _COLUMNS]
        if unknown:
            raise ConfigError(
                f"there is no column {unknown[0]!r} in Kafka; there are {', '.join(_COLUMNS)}"
            )
        isolation = options.own.get("isolation.level", "read_committed")
        if isolation not in {"read_committed", "read_uncommitted"}:
            raise ConfigError("isolation.level must be read_committed or read_uncommitted")
        self._options = options
        self._topic: str = options.topic
        self._committed = isolation == "read_committed"
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task per partition that has anything to read; on the driver."""
        with option_errors(self._options.kafka), _running() as run:
            earliest, latest = run(self._limits())
        starts = self._chosen("startingoffsets", "earliest", earliest, latest)
        ends = self._chosen("endingoffsets", "latest", earliest, latest)
        beyond = [each for each in sorted(latest) if ends[each] > latest[each]]
        if beyond:
            raise ConfigError(
                f"endingOffsets: partition {beyond[0]} of {self._topic!r} ends at "
                f"{latest[beyond[0]]}"
            )
        return [
            InputPartition((each, starts[each], ends[each]))
            for each in sorted(latest)
            if starts[each] < ends[each]
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one task."""
        if partition.value is None:  # Spark runs a task even if there is nothing to read
            return
        number, start, end = partition.value
        with option_errors(self._options.kafka), _running() as run:
            source = self._range()
            run(source.__aenter__())
            try:
                found = source.records(number, start, end)
                while (fetched := run(_next(found))) is not None:
                    for record in fetched.records:
                        yield self._row(number, fetched, record)
            finally:
                run(source.__aexit__())

    def _range(self) -> TopicRange:
        config: ProducerConfig = self._options.config()
        return TopicRange(config, self._topic, committed=self._committed)

    async def _limits(self) -> tuple[dict[int, int], dict[int, int]]:
        async with self._range() as source:
            return await source.offsets(EARLIEST), await source.offsets(LATEST)

    def _chosen(
        self, option: str, default: str, earliest: Mapping[int, int], latest: Mapping[int, int]
    ) -> dict[int, int]:
        text = self._options.own.get(option, default)
        if text.lower() in _WORDS:
            chosen: Mapping[int, int] = dict.fromkeys(latest, _WORDS[text.lower()])
        else:
            chosen = _parsed(option, text, self._topic)
            if chosen.keys() != latest.keys():
                raise ConfigError(
                    f"{option} names the partitions {sorted(chosen)} of {self._topic!r}, which has "
                    f"{sorted(latest)}"
                )
        special = {EARLIEST: earliest, LATEST: latest}
        return {
            partition: special[offset][partition] if offset < 0 else offset
            for partition, offset in chosen.items()
        }

    def _row(self, partition: int, fetched: Fetched, record: DecodedRecord) -> tuple[Any, ...]:
        values = {
            "key": record.key,
            "value": record.value,
            "topic": self._topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": _moment(record.timestamp_ms),
            "timestampType": fetched.timestamp_type.value,
            "headers": list(record.headers) or None,
        }
        return tuple(values[name] for name in self._columns)


def _moment(timestamp_ms: int) -> datetime | None:
    """Return a record's time; None for one that is not of the years 1 to 9999.

    Any producer may write such a record, and it would end every read of its topic.
    """
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def _parsed(option: str, text: str, topic: str) -> dict[int, int]:
    try:
        offsets = {int(each): index(offset) for each, offset in json.loads(text)[topic].items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        raise ConfigError(
            f'{option} must be earliest, latest or {{"{topic}":{{"0":17}}}}'
        ) from None
    if min(offsets.values(), default=0) < EARLIEST:
        raise ConfigError(f"{option}: there are no offsets below {EARLIEST}")
    return offsets


async def _next(found: AsyncIterator[Fetched]) -> Fetched | None:
    return await anext(found, None)


@contextmanager
def _running() -> Iterator[Callable[[Coroutine[Any, Any, _T]], _T]]:
    """Yield a runner of coroutines, in a loop in a thread for as long as the block lasts."""
    thread = LoopThread("aioproducer Spark reader")
    thread.start()
    try:
        yield thread.call
    finally:
        thread.stop()
