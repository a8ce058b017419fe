"""Serializers: what turns keys and values into bytes.

Modules:

    protocol     what a serializer is                json_text    JSON
    calling      how the producer calls it           models       Pydantic's models
    primitives   bytes, text, numbers, UUIDs         threads      blocking ones, in a thread
    registry/    Avro, JSON Schema, Protobuf with a schema registry
"""

from typing import TYPE_CHECKING

from aioproducer._util.lazy import lazy_names

if TYPE_CHECKING:
    from aioproducer.serializers.json_text import JsonSerializer as JsonSerializer
    from aioproducer.serializers.models import PydanticSerializer as PydanticSerializer
    from aioproducer.serializers.primitives import BooleanSerializer as BooleanSerializer
    from aioproducer.serializers.primitives import BytesSerializer as BytesSerializer
    from aioproducer.serializers.primitives import DoubleSerializer as DoubleSerializer
    from aioproducer.serializers.primitives import FloatSerializer as FloatSerializer
    from aioproducer.serializers.primitives import IntegerSerializer as IntegerSerializer
    from aioproducer.serializers.primitives import LongSerializer as LongSerializer
    from aioproducer.serializers.primitives import ShortSerializer as ShortSerializer
    from aioproducer.serializers.primitives import StringSerializer as StringSerializer
    from aioproducer.serializers.primitives import UuidSerializer as UuidSerializer
    from aioproducer.serializers.protocol import SerializationContext as SerializationContext
    from aioproducer.serializers.protocol import Serializer as Serializer
    from aioproducer.serializers.registry.avro import AvroSerializer as AvroSerializer
    from aioproducer.serializers.registry.client import SchemaRegistry as SchemaRegistry
    from aioproducer.serializers.registry.json_schema import (
        JsonSchemaSerializer as JsonSchemaSerializer,
    )
    from aioproducer.serializers.registry.protobuf import ProtobufSerializer as ProtobufSerializer
    from aioproducer.serializers.registry.schema import RegisteredSchema as RegisteredSchema
    from aioproducer.serializers.registry.schema import Schema as Schema
    from aioproducer.serializers.registry.schema import SchemaReference as SchemaReference
    from aioproducer.serializers.registry.schema import SchemaRule as SchemaRule
    from aioproducer.serializers.registry.subjects import record_name as record_name
    from aioproducer.serializers.registry.subjects import topic_name as topic_name
    from aioproducer.serializers.registry.subjects import topic_record_name as topic_record_name
    from aioproducer.serializers.threads import in_thread as in_thread

_NAMES = {
    "json_text": "JsonSerializer",
    "models": "PydanticSerializer",
    "primitives": "BooleanSerializer BytesSerializer DoubleSerializer FloatSerializer "
    "IntegerSerializer LongSerializer ShortSerializer StringSerializer UuidSerializer",
    "protocol": "SerializationContext Serializer",
    "registry.avro": "AvroSerializer",
    "registry.client": "SchemaRegistry",
    "registry.json_schema": "JsonSchemaSerializer",
    "registry.protobuf": "ProtobufSerializer",
    "registry.schema": "RegisteredSchema Schema SchemaReference SchemaRule",
    "registry.subjects": "record_name topic_name topic_record_name",
    "threads": "in_thread",
}

__all__ = [name for names in _NAMES.values() for name in names.split()]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = lazy_names(__name__, _NAMES)
