"""Protobuf of a schema registry from rows, without generated classes: `value.format=protobuf`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aioproducer.errors import SchemaRegistryError
from aioproducer.serializers import ProtobufSerializer, SchemaRegistry
from aioproducer.serializers.protocol import SerializationContext, refusal
from aioproducer.serializers.registry.base import Encode, RegistrySerializer, SchemaUse
from aioproducer.serializers.registry.protobuf import index_path
from aioproducer.serializers.registry.schema import RegisteredSchema, Schema
from aioproducer.serializers.registry.subjects import SubjectStrategy
from aioproducer.serializers.registry.wire_format import message_indexes
from aioproducer.spark.protobuf_fields import FieldError, RowWriter, struct_writer
from aioproducer.spark.protobuf_files import file_of, files_in, message_in

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.message import Message


class RowProtobufSerializer(RegistrySerializer):
    """Rows as messages of a schema; None stays null.

    Args:
        registry: The schema's registry.
        columns: The type of the rows.
        column: The column that is a row; None where all columns are.
        schema: A `FileDescriptorSet` in base64; None for the subject's newest schema.
        message: The full name of the message; None for the schema's first one.
        subject: Names the subject.
        auto_register: Whether `schema` is registered.

    Raises:
        ConfigError: The schema is none, or the columns do not fit it.
    """

    _format = "serialized"

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
        self._own: ProtobufSerializer | None = None
        if schema is not None:
            *imports, main = files_in(schema)
            self._own_type = message_in(main, {each.name: each for each in imports}, message)
            self._own = ProtobufSerializer(
                registry, self._own_type, subject=subject, auto_register=auto_register
            )

    def _name(self) -> str | None:
        return None

    async def _schema(self, context: SerializationContext) -> Schema:
        assert self._own is not None
        self._writer(self._own_type)  # before anything is registered
        return await self._own._schema(context)

    async def _encoder(self, schema: Schema) -> Encode:
        if self._own is not None:
            message = self._own_type
        else:
            message = await self._registered(schema)
        self._paths[schema] = message_indexes(index_path(message.DESCRIPTOR))
        make = self._writer(message).message

        def encode(row: Mapping[str, Any], context: SerializationContext) -> bytes:
            try:
                payload: bytes = make(row).SerializeToString()
            except FieldError as error:
                raise refusal(context, error.reason, path=error.path) from None
            return payload

        return encode

    async def _registered(self, schema: Schema) -> type[Message]:
        """Return the type of a schema that the registry gave, with what it refers to."""
        if schema.type != "PROTOBUF":
            raise SchemaRegistryError(f"the registered schema is {schema.type}, not PROTOBUF")
        found = await self._registry.referenced(schema, schema_format=self._format)
        imports = {reference.name: file_of(each.text) for reference, each in found}
        # A large schema takes a while.
        return await asyncio.to_thread(
            message_in, file_of(schema.text), imports, self._message_name
        )

    def _indexes(self, found: RegisteredSchema) -> bytes:
        return self._paths[found.schema]

    def _writer(self, message: type[Message]) -> RowWriter:
        import pyarrow as pa

        if self._column is not None:
            return struct_writer(message, self._columns, self._column)
        assert isinstance(self._columns, pa.StructType)
        return RowWriter(message, self._columns)
