"""Keys and values in a format of a schema registry, made of columns of any type.

`encoded_parts` decides on the driver which columns become a key or value; `encode_batches` runs in
a task and puts a binary column in their place. Schemas are asked for once per worker process.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal

from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.errors import ConfigError, SerializationError
from aioproducer.spark.rows import RowError
from aioproducer.spark.schema import RECORD_COLUMNS
from aioproducer.spark.wording import without_values

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.serializers import SchemaRegistry, Serializer
    from aioproducer.serializers.protocol import SerializationContext
    from aioproducer.spark.options import SourceOptions

_PARTS: Final[tuple[Literal["key", "value"], ...]] = ("key", "value")
_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """A key or value that is encoded.

    Attributes:
        part: Which of the two, and the name of the column that is made.
        format: `avro` or `json-schema`.
        subject: Where the registry has the schema; None for `<topic>-key` or `<topic>-value`.
        schema: The schema's text; None for the subject's newest one.
        columns: The columns it is made of; empty where that is the column `part`.
    """

    part: Literal["key", "value"]
    format: str
    subject: str | None
    schema: str | None
    columns: tuple[str, ...] = ()


def encoded_parts(
    fields: Sequence[tuple[str, str]], options: SourceOptions
) -> tuple[list[tuple[str, str]], tuple[EncodedPart, ...]]:
    """Return the columns as they are after encoding, and what is encoded.

    Without a column `value` all columns that are no part of a record make up the value.
    """
    names = [name for name, _ in fields]
    parts = []
    for part in _PARTS:
        own = options.own
        if (name := own.get(f"{part}.format")) is None:
            continue
        columns: tuple[str, ...] = ()
        if part == "value" and part not in names:
            columns = tuple(each for each in names if each not in RECORD_COLUMNS)
            fields = [field for field in fields if field[0] not in columns]
            if columns:
                fields = [*fields, (part, "binary")]
        fields = [(name, "binary") if name == part else (name, kind) for name, kind in fields]
        subject, schema = own.get(f"{part}.subject"), own.get(f"{part}.schema")
        parts.append(EncodedPart(part, name.lower(), subject, schema, columns))
    return list(fields), tuple(parts)


def encode_batches(
    batches: Iterator[pa.RecordBatch],
    parts: Sequence[EncodedPart],
    options: SourceOptions,
    spark_partition: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with binary columns for the encoded parts.

    Raises:
        RowError: A row does not fit the schema.
        SchemaRegistryError: The schema is not in the registry, or the registry cannot be reached.
    """
    first = 0
    for batch in batches:
        encoded = batch
        for part in parts:
            encoded = _encoded(encoded, part, options, (spark_partition, first))
        first += batch.num_rows
        yield encoded


def _encoded(
    batch: pa.RecordBatch, part: EncodedPart, options: SourceOptions, place: tuple[int, int]
) -> pa.RecordBatch:
    import pyarrow as pa

    rows: list[Any]
    if part.columns:
        rows = batch.select(list(part.columns)).to_pylist(maps_as_pydicts="strict")
    else:
        rows = batch.column(part.part).to_pylist(maps_as_pydicts="strict")
    topics: Sequence[str | None] = [options.topic] * len(rows)
    if options.topic is None and "topic" in batch.schema.names:
        topics = batch.column("topic").to_pylist()
    encoder = _encoder(part, options)
    made = pa.array(encoder.encode(rows, topics, place), pa.binary())
    kept = [name for name in batch.schema.names if name not in (*part.columns, part.part)]
    return pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in kept), made], [*kept, part.part]
    )


class _Encoder:
    """Return a serializer and its registry client, in their own loop."""

    def __init__(self, part: EncodedPart, registry: Mapping[str, Any]) -> None:
        self._part = part
        self._thread = LoopThread("aioproducer encoder")
        self._thread.start()
        self._registry: SchemaRegistry | None = None
        try:
            self._serializer: Serializer = self._thread.call(self._made(registry))
        except BaseException:
            self._thread.stop(_JOIN_S)
            raise

    async def _made(self, registry: Mapping[str, Any]) -> Serializer:
        from aioproducer.serializers import (
            AvroSerializer,
            JsonSchemaSerializer,
            SchemaRegistry,
            topic_name,
        )

        part, settings = self._part, dict(registry)
        auto_register = settings.pop("auto_register")
        self._registry = SchemaRegistry(**settings)
        make = AvroSerializer if part.format == "avro" else JsonSchemaSerializer
        try:
            return make(
                self._registry,
                part.schema,
                subject=topic_name if part.subject is None else partial(_named, part.subject),
                auto_register=auto_register,
                use_latest_version=part.schema is None,
            )
        except ConfigError as error:
            if part.schema is None:
                raise
            message = without_values(error.message, [part.schema])
            raise ConfigError(f"{part.part}.schema: {message}", advice=error.advice) from None

    def encode(
        self, rows: Sequence[Any], topics: Sequence[str | None], place: tuple[int, int]
    ) -> list[bytes | None]:
        """Encode rows; `place` is the Spark partition and the number of the first row."""
        return self._thread.call(self._encode(rows, topics, place))

    async def _encode(
        self, rows: Sequence[Any], topics: Sequence[str | None], place: tuple[int, int]
    ) -> list[bytes | None]:
        from aioproducer.serializers import SerializationContext

        made: list[bytes | None] = []
        for topic, row in zip(topics, rows, strict=True):
            try:
                context = SerializationContext(topic or "", self._part.part)
                found = self._serializer.serialize(row, context)
                made.append(await found if isawaitable(found) else found)
            except SerializationError as error:
                raise RowError(
                    f"Spark partition {place[0]}, row {place[1] + len(made)}: "
                    f"{type(error).__name__}: {error.message}",
                    topic=topic,
                    persistence=error.persistence,
                    advice=error.advice,
                ) from error
        return made

    def close(self) -> None:
        """End the thread; the process ends."""
        self._thread.stop(_JOIN_S)


_encoders: dict[tuple[Any, ...], _Encoder] = {}


def _encoder(part: EncodedPart, options: SourceOptions) -> _Encoder:
    """Return this process's encoder for a part and a registry."""
    registry = options.registry()
    key = (part, *sorted(registry.items()))
    if key not in _encoders:
        _encoders[key] = _Encoder(part, registry)
    return _encoders[key]


def _named(subject: str, _context: SerializationContext, _name: str | None) -> str:
    return subject


def _close() -> None:
    for each in _encoders.values():
        each.close()


os.register_at_fork(after_in_child=_encoders.clear)
atexit.register(_close)
