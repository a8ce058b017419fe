"""Protobuf, with a schema registry.

Encoding is done by the generated classes of the package protobuf.

Invariants
- A schema is sent to the registry as base64 of its `FileDescriptorProto`, as Confluent's Python
  client does; what it imports is there under the import's name.
- What is built in, Google's well-known and common types and Confluent's own, is not registered.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aioproducer._checks.extras import SCHEMA_REGISTRY, needed
from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.serializers.protocol import (
    SerializationContext,
    serialization_error,
    wrong_type_error,
)
from aioproducer.serializers.registry.base import (
    Encode,
    RegistrySerializer,
    SchemaIdPlace,
    SchemaUse,
    prepared,
)
from aioproducer.serializers.registry.client import SchemaRegistry
from aioproducer.serializers.registry.protobuf_names import path_in
from aioproducer.serializers.registry.schema import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    schema_error,
)
from aioproducer.serializers.registry.subjects import (
    ReferenceSubjectStrategy,
    SubjectStrategy,
    import_name,
    in_context_of,
    topic_name,
)
from aioproducer.serializers.registry.wire_format import message_indexes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.message import Message

_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Imports that Confluent's registry and serializers have themselves."""


class ProtobufSerializer(RegistrySerializer):
    """Messages of one generated class; None stays null.

    Imports of `google/protobuf/`, `google/type/` and `confluent/` are built in elsewhere, so they
    are neither looked up nor registered.

    Args:
        registry: the schema's registry.
        message_type: the generated class.
        subject: see `AvroSerializer`; the schema's name is the message's.
        auto_register: see `AvroSerializer`.
        use_latest_version: messages are still written by their class; the id is that of the newest
            schema, and the message's type is found there by its full name.
        normalize: see `AvroSerializer`.
        reference_subject: names the subjects of imported files, `(context, import) -> subject`; the
            import itself by default. It is in the context of the message's subject, unless it
            names one.
        ignore_rules: see `AvroSerializer`.
        schema_id_in: see `AvroSerializer`.

    Raises:
        ConfigError: protobuf is not installed, `message_type` is not a generated class, or options
            contradict.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Message],
        *,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = False,
        use_latest_version: bool = False,
        normalize: bool = False,
        reference_subject: ReferenceSubjectStrategy = import_name,
        ignore_rules: bool = False,
        schema_id_in: SchemaIdPlace = "payload",
    ) -> None:
        use = SchemaUse(
            subject, auto_register, use_latest_version, normalize, ignore_rules, schema_id_in
        )
        super().__init__(registry, use)
        with needed("protobuf", "for ProtobufSerializer", install=SCHEMA_REGISTRY):
            from google.protobuf.message import EncodeError
        if not hasattr(getattr(message_type, "DESCRIPTOR", None), "containing_type"):
            raise ConfigError(f"{message_type!r} is not a generated Protobuf class")
        self._reference_subject = reference_subject
        self._type = message_type
        self._descriptor: Descriptor = message_type.DESCRIPTOR
        self._refused = EncodeError
        self._path = message_indexes(index_path(self._descriptor))

    _format = "serialized"
    _schema_type = "PROTOBUF"

    def _name(self) -> str | None:
        return str(self._descriptor.full_name)

    async def _schema(self, context: SerializationContext, subject: str) -> Schema:
        *imported, main = _imports_first(self._descriptor.file)
        found: dict[str, SchemaReference] = {}
        for file in imported:
            found[file.name] = await self._reference(file, found, context, subject)
        return _schema_of(main, found)

    async def _reference(
        self,
        file: FileDescriptor,
        found: Mapping[str, SchemaReference],
        context: SerializationContext,
        parent: str,
    ) -> SchemaReference:
        """Return where an imported file is registered; `found` has what it imports itself."""
        subject = self._reference_subject(context, file.name)
        if not isinstance(subject, str):
            kind = type(subject).__name__
            raise schema_error(context, f"reference_subject returned {kind}, not str")
        ask = self._registry.ensure if self._use.auto_register else self._registry.lookup
        schema = _schema_of(file, found)
        place = in_context_of(parent, subject)
        registered = await ask(place, schema, normalize=self._use.normalize)
        return SchemaReference(file.name, subject, registered.version)

    async def _encoder(self, schema: Schema) -> Encode:
        del schema
        return self._encode

    async def _indexes(self, found: RegisteredSchema) -> bytes:
        if not self._use.use_latest_version:
            return self._path
        # The newest schema may have the type at another place than the generated class.
        text = found.schema.text
        path = await prepared(len(text), path_in, text, str(self._descriptor.full_name))
        if path is None:
            raise SchemaRegistryError(
                f"version {found.version} of subject {found.subject} has no message "
                f"{self._descriptor.full_name}",
                advice="register the schema of the message, or use another subject",
            )
        return message_indexes(path)

    def _encode(self, data: Any, context: SerializationContext) -> bytes:
        if not isinstance(data, self._type):
            raise wrong_type_error(context, f"a {self._descriptor.full_name}", data)
        try:
            payload: bytes = data.SerializeToString()
            return payload
        except self._refused:
            missing = data.FindInitializationErrors()
            path = missing[0] if missing else None
            raise serialization_error(context, "is required and not set", path=path) from None


def _imports_first(file: FileDescriptor) -> list[FileDescriptor]:
    """Return a file and all that it imports, each once and after its own imports.

    What is built in is left out.
    """
    done: dict[str, FileDescriptor] = {}
    opened: set[str] = set()
    waiting = [file]
    while waiting:
        each = waiting[-1]
        if each.name in done or each.name in opened:
            done.setdefault(each.name, waiting.pop())
            continue
        opened.add(each.name)
        waiting += [imported for imported in _own_imports(each)[::-1] if imported.name not in done]
    return list(done.values())


def _own_imports(file: FileDescriptor) -> list[FileDescriptor]:
    return [each for each in file.dependencies if not each.name.startswith(_BUILT_IN)]


def _schema_of(file: FileDescriptor, found: Mapping[str, SchemaReference]) -> Schema:
    """Return a file's schema; `found` has the references to what it imports."""
    text = base64.b64encode(file.serialized_pb).decode("ascii")
    return Schema(text, "PROTOBUF", tuple(found[each.name] for each in _own_imports(file)))


def index_path(descriptor: Descriptor) -> list[int]:
    """Return the position of a message's type in its file, from the outermost type inwards."""
    path = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = (
            descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
        )
        names = [sibling.full_name for sibling in siblings]
        path.append(names.index(descriptor.full_name))
        descriptor = outer
    return path[::-1]
