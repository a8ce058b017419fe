"""Keys and values in a format of a schema registry, made of columns of any type.

`encoded_parts` decides on the driver which columns become a key or value; `encode_batches` runs in
a task and puts a binary column in their place. Schemas are asked for once per worker process.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal

from aioproducer import errors
from aioproducer._checks.extras import SCHEMA_REGISTRY as EXTRA
from aioproducer._checks.extras import needed
from aioproducer._util.forks import at_fork
from aioproducer._util.secrets import hides_arguments
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.core.metadata.cluster import check_topic_name, missing_topic_error
from aioproducer.loader.formats.arrow_rows import UNREADABLE, UTC, text_of, with_known_zones
from aioproducer.spark.columns.schema import RECORD_COLUMNS
from aioproducer.spark.pool import Pool
from aioproducer.spark.rows import RefusedRow, RowError, read_row
from aioproducer.spark.wording import without_values

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.records.arrow_layout import ArrowColumns
    from aioproducer.serializers import SchemaRegistry, Serializer
    from aioproducer.serializers.protocol import SerializationContext
    from aioproducer.serializers.registry.subjects import SubjectStrategy
    from aioproducer.spark.options import SourceOptions

_PARTS: Final[tuple[Literal["key", "value"], ...]] = ("key", "value")
_WITHOUT_VALUE: Final = re.compile(
    r"(?<![^<:,])(?:variant|interval (?:year|month)(?: to month)?)(?![^>,])"
)
"""Types that Arrow does not have, within others too: a variant comes as its bytes."""


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """A key or value that is encoded.

    Attributes:
        part: Which of the two, and the name of the column that is made.
        format: `avro`, `json-schema` or `protobuf`.
        subject: Where the registry has the schema; None for `<topic>-key` or `<topic>-value`.
        schema: The schema's text; None for the subject's newest one.
        columns: The columns it is made of; empty where that is the column `part`.
        message: The full name of the message for Protobuf; None for the schema's first one.
    """

    part: Literal["key", "value"]
    format: str
    subject: str | None
    schema: str | None
    columns: tuple[str, ...] = ()
    message: str | None = None


def encoded_parts(
    fields: Sequence[tuple[str, str]], options: SourceOptions
) -> tuple[list[tuple[str, str]], tuple[EncodedPart, ...]]:
    """Return the columns after encoding, and the parts to encode.

    Without a column `value` all columns that are not part of a record make up the value.
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
            if twice := [each for each, count in Counter(columns).items() if count > 1]:
                raise errors.SerializationError(f"there are several columns {twice[0]!r}")
        for column, kind in fields:
            if column in (columns or (part,)) and (found := _WITHOUT_VALUE.search(kind)):
                raise errors.SerializationError(
                    f"column {column!r} is {kind}: values of type {found[0]} cannot be encoded",
                    advice="cast the column first; to_json makes a string of a variant",
                )
        if columns:
            fields = [field for field in fields if field[0] not in columns]
            fields = [*fields, (part, "binary")]
        fields = [(name, "binary") if name == part else (name, kind) for name, kind in fields]
        subject, schema = own.get(f"{part}.subject"), own.get(f"{part}.schema")
        message = own.get(f"{part}.message")
        parts.append(EncodedPart(part, name.lower(), subject, schema, columns, message))
    return list(fields), tuple(parts)


def encode_batches(
    batches: Iterator[pa.RecordBatch],
    parts: Sequence[EncodedPart],
    options: SourceOptions,
    spark_partition: int,
    columns: ArrowColumns,
) -> Iterator[pa.RecordBatch | RefusedRow]:
    """Yield the batches with binary columns for the encoded parts.

    With a `dead.letter.topic` or `dead.letter.path`, a row that does not fit the schema is yielded
    by itself, between the rows around it; `columns` are those of the encoded batches.
    """
    first = 0
    for batch in batches:
        encoded = batch
        refused: dict[int, list[tuple[EncodedPart, errors.KafkaError]]] = {}
        for part in parts:
            encoded, failed = _encoded(encoded, part, options, (spark_partition, first))
            for number, error in failed.items():
                refused.setdefault(number, []).append((part, error))
        first += batch.num_rows
        begin = 0
        for end in sorted(refused):
            if end > begin:
                yield encoded.slice(begin, end - begin)
            yield _refused_row(batch, encoded, end, refused[end], columns)
            begin = end + 1
        if begin < batch.num_rows:
            yield encoded.slice(begin)


def _refused_row(
    batch: pa.RecordBatch,
    encoded: pa.RecordBatch,
    number: int,
    failed: Sequence[tuple[EncodedPart, errors.KafkaError]],
    columns: ArrowColumns,
) -> RefusedRow:
    """Return a row with the refused parts as JSON, and the reason of the first one."""
    row = read_row(encoded, number, columns)
    size = 0
    for part, _ in failed:
        content = _as_json(_shown(_column(batch.slice(number, 1), part)))
        text = json.dumps(content, ensure_ascii=False).encode()
        size += len(text)
        row = row._replace(key=text) if part.part == "key" else row._replace(value=text)
    first, error = failed[0]
    return RefusedRow(error, row, f"{first.part.upper()}_CONVERTER", size)


def _shown(column: pa.Array) -> Any:
    """Return the only value of a column, with text for what Python has not."""
    import pyarrow as pa

    try:
        return _rows(column)[0]
    except UNREADABLE:
        if not pa.types.is_struct(column.type):
            return text_of(column)
        names = (field.name for field in column.type)
        return {name: _shown(each) for name, each in zip(names, column.flatten(), strict=True)}


def _as_json(content: Any) -> Any:
    """Return a value with text for what JSON has no type for: bytes in base64, dates, NaN."""
    if isinstance(content, Mapping):
        return {_as_key(name): _as_json(each) for name, each in content.items()}
    if isinstance(content, list):
        return [_as_json(each) for each in content]
    if isinstance(content, float):
        return content if math.isfinite(content) else str(content)
    if content is None or isinstance(content, str | int):
        return content
    return base64.b64encode(content).decode() if isinstance(content, bytes) else str(content)


def _as_key(name: Any) -> str:
    text = _as_json(name)
    return text if isinstance(text, str) else json.dumps(text)


def _encoded(
    batch: pa.RecordBatch, part: EncodedPart, options: SourceOptions, place: tuple[int, int]
) -> tuple[pa.RecordBatch, dict[int, errors.KafkaError]]:
    """Return the batch with a part encoded, and which rows of it could not be."""
    import pyarrow as pa

    column = _column(batch, part)
    topics: Sequence[str | None] = [options.topic] * len(column)
    if options.topic is None and "topic" in batch.schema.names:
        topics = batch.column("topic").to_pylist()
    encoder = _encoder(part, options, column.type)
    try:
        work = encoder.encode(_readable(column), topics, place, tolerant=options.keeps_refused)
        contents, refused = encoder.thread.call(work)
    finally:
        ENCODERS.put(encoder.kind, encoder)
    made = pa.array(contents, pa.binary())
    kept = [name for name in batch.schema.names if name not in (*part.columns, part.part)]
    encoded = pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in kept), made], [*kept, part.part]
    )
    return encoded, refused


def _column(batch: pa.RecordBatch, part: EncodedPart) -> pa.Array:
    """Return the columns of a part as one column."""
    # To fastavro a time without zone is in the zone of its process.
    zone = UTC if part.format == "avro" else None
    if part.columns:
        packed = batch.select(list(part.columns)).to_struct_array()
        return with_known_zones(packed, default=zone)
    return with_known_zones(batch.column(part.part), default=zone)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A row with a value that Python has not; `path` is its field in a struct."""

    path: str | None
    reason: str


def _readable(column: pa.Array) -> list[Any]:
    """Return the values of a column, with `_Unreadable` where there are none in Python.

    Such are times after the year 9999, and maps whose keys are structs.
    """
    try:
        return _rows(column)
    except UNREADABLE:
        return [_readable_row(column.slice(number, 1)) for number in range(len(column))]


def _readable_row(column: pa.Array) -> Any:
    import pyarrow as pa

    try:
        return _rows(column)[0]
    except UNREADABLE as error:
        reason = f"cannot be read: {error}"
    if pa.types.is_struct(column.type):
        for field, each in zip(column.type, column.flatten(), strict=True):
            if isinstance(found := _readable_row(each), _Unreadable):
                path = field.name if found.path is None else f"{field.name}.{found.path}"
                return _Unreadable(path, found.reason)
    return _Unreadable(None, reason)


def _rows(column: pa.Array) -> list[Any]:
    """Return the values of a column; a struct's field by field, which takes a third of the time."""
    import pyarrow as pa

    rows: list[Any]
    if not pa.types.is_struct(column.type) or not column.type.num_fields:
        rows = column.to_pylist(maps_as_pydicts="strict")
        return rows
    names = [field.name for field in column.type]
    rows = pa.RecordBatch.from_arrays(column.flatten(), names).to_pylist(maps_as_pydicts="strict")
    if not column.null_count:
        return rows
    valid = column.is_valid().to_pylist()
    return [row if there else None for row, there in zip(rows, valid, strict=True)]


class _Encoder:
    """A serializer and its registry client in a loop thread; pooled by `kind`."""

    def __init__(
        self,
        part: EncodedPart,
        registry: Mapping[str, Any],
        columns: pa.DataType | None,
        kind: Hashable,
    ) -> None:
        self.kind: Hashable = kind
        self._part = part
        self._columns = columns
        self.thread: LoopThread = LoopThread("aioproducer encoder")
        self.thread.start()
        self._registry: SchemaRegistry | None = None
        try:
            self._serializer: Serializer = self.thread.call(self._made(registry))
        except BaseException:
            self.thread.stop()
            raise

    async def _made(self, registry: Mapping[str, Any]) -> Serializer:
        from aioproducer.serializers import SchemaRegistry, topic_name

        part, settings = self._part, dict(registry)
        auto_register = settings.pop("auto_register")
        self._registry = SchemaRegistry(**settings)
        subject = topic_name if part.subject is None else partial(_named, part.subject)
        try:
            if part.format == "protobuf":
                # A large schema takes a while.
                return await asyncio.to_thread(
                    self._protobuf, self._registry, subject, auto_register
                )
            from aioproducer.serializers import AvroSerializer, JsonSchemaSerializer

            make = AvroSerializer if part.format == "avro" else JsonSchemaSerializer
            return make(
                self._registry,
                part.schema,
                subject=subject,
                auto_register=auto_register and part.schema is not None,
                use_latest_version=part.schema is None,
            )
        except errors.ConfigError as error:
            if part.schema is None:
                raise
            message = without_values(error.message, [part.schema])
            raise errors.ConfigError(
                f"{part.part}.schema: {message}", advice=error.advice
            ) from None

    def _protobuf(
        self, registry: SchemaRegistry, subject: SubjectStrategy, auto_register: bool
    ) -> Serializer:
        with needed("protobuf", f"for {self._part.part}.format=protobuf", install=EXTRA):
            from google.protobuf import message  # noqa: F401 - whether it is there
        from aioproducer.spark.columns.protobuf import RowProtobufSerializer

        assert self._columns is not None
        part = self._part
        return RowProtobufSerializer(
            registry,
            self._columns,
            column=None if part.columns else part.part,
            schema=part.schema,
            message=part.message,
            subject=subject,
            auto_register=auto_register and part.schema is not None,
        )

    async def encode(
        self,
        rows: Sequence[Any],
        topics: Sequence[str | None],
        place: tuple[int, int],
        *,
        tolerant: bool,
    ) -> tuple[list[bytes | None], dict[int, errors.KafkaError]]:
        """Return the contents, and the errors of rows that do not fit; raise unless `tolerant`.

        Call it in `thread`. `place` is the Spark partition and the number of the first row.
        """
        from aioproducer.serializers import SerializationContext
        from aioproducer.serializers.protocol import serialization_error

        refused: dict[int, errors.KafkaError] = {}
        made: list[bytes | None] = []
        for topic, row in zip(topics, rows, strict=True):
            try:
                if topic is None:
                    raise missing_topic_error()
                check_topic_name(topic)  # else the registry refuses its subject for all rows
                context = SerializationContext(topic, self._part.part)
                if isinstance(row, _Unreadable):
                    raise serialization_error(context, row.reason, path=row.path)
                found = self._serializer.serialize(row, context)
                made.append(await found if isawaitable(found) else found)
            except (errors.InvalidTopicError, errors.SerializationError) as error:
                if tolerant and not isinstance(error, errors.SchemaRegistryError):
                    refused[len(made)] = error
                    made.append(None)
                    continue
                raise RowError(
                    f"Spark partition {place[0]}, row {place[1] + len(made)}: "
                    f"{type(error).__name__}: {error.message}",
                    topic=topic,
                    persistence=error.persistence,
                    advice=error.advice,
                ) from error
        return made, refused

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._registry is not None:
            with suppress(errors.KafkaError):  # the thread has ended
                self.thread.call(self._registry.close())
        self.thread.stop()


class EncoderPool(Pool[_Encoder]):
    """Idle encoders; a process may write many tables, one after the other."""

    most_idle = 16


ENCODERS: Final = EncoderPool()


@hides_arguments
def _encoder(part: EncodedPart, options: SourceOptions, kind: pa.DataType) -> _Encoder:
    """Return an idle encoder of this kind, which has the schema already, or a new one."""
    registry = options.registry()
    columns = kind if part.format == "protobuf" else None
    key = (part, columns, *sorted(registry.items()))
    return ENCODERS.take(key) or _Encoder(part, registry, columns, key)


def _named(subject: str, _context: SerializationContext, _name: str | None) -> str:
    return subject


at_fork(after_in_child=ENCODERS.after_fork_in_child)
atexit.register(ENCODERS.close)
