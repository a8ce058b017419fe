"""Protobuf message types from a registry's schema, without generated code.

`message_in` builds the type from the files of a schema, `files_in` reads the files of the option
`value.schema`. Imports of `google/protobuf/` come from the package protobuf, and
`confluent/type/decimal.proto` from here.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

DECIMAL: Final = "confluent.type.Decimal"
_DECIMAL_FILE: Final = "confluent/type/decimal.proto"
_ONLY_OPTIONS: Final = ("confluent/meta.proto",)
"""Imports that define options of a schema and no type of a field."""
_ADVICE: Final = (
    "give value.schema the output of "
    "`protoc --include_imports --descriptor_set_out=/dev/stdout FILE.proto | base64 -w0`"
)


def files_in(text: str) -> list[FileDescriptorProto]:
    """Return the files of a `FileDescriptorSet` in base64; the last one has the message.

    Raises:
        ConfigError: This is no such set.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file)
    except (ValueError, DecodeError):
        files = []
    if not files or not all(each.name for each in files) or not files[-1].message_type:
        raise ConfigError(
            "this is no FileDescriptorSet in base64 whose last file has a message", advice=_ADVICE
        )
    return files


def file_of(text: str) -> FileDescriptorProto:
    """Return the file of a schema as a registry gives it with `format=serialized`.

    Raises:
        ConfigError: It is the source text of a `.proto` file.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise ConfigError(
            "the registry gives the schema as the text of a .proto file, which cannot be read here",
            advice=_ADVICE,
        ) from None


def message_in(
    file: FileDescriptorProto, imports: Mapping[str, FileDescriptorProto], name: str | None
) -> type[Message]:
    """Return the class of a message in a file.

    Args:
        file: Has the message.
        imports: Other files, by the names that imports have; each after those that it imports.
        name: The message's full name; None for the first one.

    Raises:
        ConfigError: The files contradict each other, one is missing, or there is no such message.
    """
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    known = {_DECIMAL_FILE: _decimal_file()} | {
        each: _renamed(found, each) for each, found in imports.items()
    }
    main = _renamed(file, file.name or "schema.proto")
    try:
        for each in _in_order(main, known):
            pool.Add(each)
        descriptor = pool.FindFileByName(main.name)
    except (TypeError, KeyError) as error:
        raise ConfigError(f"this is no Protobuf schema: {error}") from None
    types = _all_types(descriptor.message_types_by_name.values())
    if not types:
        raise ConfigError("the schema has no message")
    chosen = next(iter(types)) if name is None else name
    if chosen not in types:
        raise ConfigError(
            f"the schema has no message {chosen!r}; it has {', '.join(sorted(types))}"
        )
    made: type[Message] = GetMessageClass(types[chosen])
    return made


def _all_types(outer: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in outer:
        if not each.GetOptions().map_entry:
            found[each.full_name] = each
            found |= _all_types(each.nested_types)
    return found


def _renamed(file: FileDescriptorProto, name: str) -> FileDescriptorProto:
    """Return a copy with this name, without imports that define no type."""
    copy = type(file)()
    copy.CopyFrom(file)
    copy.name = name
    kept = [each for each in file.dependency if each not in _ONLY_OPTIONS]
    del copy.dependency[:], copy.public_dependency[:], copy.weak_dependency[:]
    copy.dependency.extend(kept)
    public = {file.dependency[number] for number in file.public_dependency}
    copy.public_dependency.extend(n for n, each in enumerate(kept) if each in public)
    return copy


def _in_order(
    main: FileDescriptorProto, known: Mapping[str, FileDescriptorProto]
) -> list[FileDescriptorProto]:
    """Return a file and all that it imports, each after its own imports."""
    done: dict[str, FileDescriptorProto] = {}
    opened: set[str] = set()

    def visit(file: FileDescriptorProto) -> None:
        if file.name in opened:
            raise ConfigError(f"this is no Protobuf schema: {file.name!r} imports itself")
        opened.add(file.name)
        for name in file.dependency:
            if name not in done:
                visit(known[name] if name in known else _built_in(name))
        done[file.name] = file

    visit(main)
    return list(done.values())


def _built_in(name: str) -> FileDescriptorProto:
    """Return a file that a package on this machine has, such as Google's own."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name.startswith(("google/protobuf/", "google/type/")) and name.endswith(".proto"):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            found = importlib.import_module(module)
        except ImportError:
            pass
        else:
            file = FileDescriptorProto()
            found.DESCRIPTOR.CopyToProto(file)
            return file
    raise ConfigError(f"the schema imports {name!r}, which is not among its references")


def _decimal_file() -> FileDescriptorProto:
    """Return Confluent's decimal, which its registry has built in."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name=_DECIMAL_FILE, package="confluent.type", syntax="proto3")
    message = file.message_type.add(name="Decimal")
    kinds = {"value": Field.TYPE_BYTES, "precision": Field.TYPE_UINT32, "scale": Field.TYPE_INT32}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    return file
