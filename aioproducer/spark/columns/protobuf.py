"""Protobuf of a schema registry from rows, without generated classes: `value.format=protobuf`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.serializers import ProtobufSerializer, SchemaRegistry
from aioproducer.serializers.protocol import SerializationContext, serialization_error
from aioproducer.serializers.registry.base import Encode, Plan, RegistrySerializer, SchemaUse
from aioproducer.serializers.registry.protobuf import index_path
from aioproducer.serializers.registry.protobuf_bounds import SchemaSize
from aioproducer.serializers.registry.schema import RegisteredSchema, Schema
from aioproducer.serializers.registry.subjects import SubjectStrategy
from aioproducer.serializers.registry.wire_format import message_indexes
from aioproducer.spark.columns.protobuf_fields import FieldError, RowWriter, struct_writer
from aioproducer.spark.columns.protobuf_files import file_of, files_in, message_in

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.message import Message


_MOST_PATHS: Final = 50
"""A subject's newest schema may change any number of times."""


class RowProtobufSerializer(RegistrySerializer):
    """Rows as messages of a schema; None stays null.

    A row is the struct `column`, or all columns if that is None. `schema` is a `FileDescriptorSet`
    in base64, None for the subject's newest; `message` is a full name, None for the first message.
    """

    _format = "serialized"
    _schema_type = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry,
        columns: pa.DataType,
        *,
        column: str | None,
        schema: str | None,
        message: str | None,
        subject: SubjectStrategy,
        auto_register: bool,
    ) -> None:
        use = SchemaUse(subject, auto_register, use_latest_version=schema is None)
        super().__init__(registry, use)
        self._columns, self._column, self._message_name = columns, column, message
        self._paths: dict[Schema, bytes] = {}
        self._given: ProtobufSerializer | None = None
        if schema is not None:
            *imports, main = files_in(schema)
            self._own_type = message_in(main, {each.name: each for each in imports}, message)
            self._given = ProtobufSerializer(
                registry, self._own_type, subject=subject, auto_register=auto_register
            )

    def _name(self) -> str | None:
        return None

    async def _schema(self, context: SerializationContext, subject: str) -> Schema:
        assert self._given is not None
        await asyncio.to_thread(self._writer, self._own_type)  # before anything is registered
        return await self._given._schema(context, subject)

    async def _encoder(self, schema: Schema) -> Encode:
        texts: list[tuple[str, str]] = []
        if self._given is None:
            if schema.type != "PROTOBUF":
                raise SchemaRegistryError(f"the registered schema is {schema.type}, not PROTOBUF")
            found = await self._registry.referenced(schema, schema_format=self._format)
            texts = [(reference.name, each.text) for reference, each in found]
        # A large schema takes a while.
        message, path, make = await asyncio.to_thread(self._prepared, schema.text, texts)
        if len(self._paths) >= _MOST_PATHS:
            self._paths.clear()
        self._paths[schema] = path
        # Of the class: a field of this name would hide the method of its messages.
        write = message.SerializeToString

        def encode(row: Mapping[str, Any], context: SerializationContext) -> bytes:
            try:
                payload: bytes = write(make(row))
            except FieldError as error:
                raise serialization_error(context, error.reason, path=error.path) from None
            return payload

        return encode

    def _prepared(
        self, text: str, references: Sequence[tuple[str, str]]
    ) -> tuple[type[Message], bytes, Callable[[Mapping[str, Any]], Message]]:
        """Return the type of the message, its index path in the schema, and its encoder."""
        if self._given is not None:
            message = self._own_type
        else:
            size = SchemaSize()
            main = file_of(text, size)
            imports = {name: file_of(each, size) for name, each in references}
            message = message_in(main, imports, self._message_name)
        path = message_indexes(index_path(message.DESCRIPTOR))
        return message, path, self._writer(message).message

    async def _plan_of(self, found: RegisteredSchema, good_until: float) -> Plan:
        try:
            return await super()._plan_of(found, good_until)
        except ConfigError as error:
            raise ConfigError(
                f"version {found.version} of subject {found.subject}: {error.message}",
                advice=error.advice,
            ) from None

    async def _indexes(self, found: RegisteredSchema) -> bytes:
        return self._paths[found.schema]

    def _writer(self, message: type[Message]) -> RowWriter:
        import pyarrow as pa

        if self._column is not None:
            return struct_writer(message, self._columns, self._column)
        assert isinstance(self._columns, pa.StructType)
        return RowWriter(message, self._columns)
