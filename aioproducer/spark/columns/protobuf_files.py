"""Protobuf message types from a registry's schema, without generated code.

`file_of` reads a file of a registry's schema, `files_in` those of the option `value.schema`, both
within the limits of `protobuf_bounds`; `message_in` builds the type. Imports of `google/protobuf/`
come from the package protobuf, and `confluent/type/decimal.proto` from here.
"""

from __future__ import annotations

import base64
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.serializers.registry.protobuf_bounds import (
    MOST_BYTES,
    SchemaLimitError,
    SchemaSize,
    check_file,
    files_in_set,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

DECIMAL: Final = "confluent.type.Decimal"
_DECIMAL_FILE: Final = "confluent/type/decimal.proto"
OWN_FILES: Final = frozenset(
    {
        _DECIMAL_FILE,
        "google/protobuf/duration.proto",
        "google/protobuf/timestamp.proto",
        "google/protobuf/wrappers.proto",
    }
)
"""Files of types that are written in a special way; they are never taken from a schema."""
_GOOGLE_FILE: Final = re.compile(
    r"google/(?:protobuf|type)/[a-z][a-z0-9_]{0,60}\.proto|google/protobuf/compiler/plugin\.proto"
)
"""Files with a generated module; no other name reaches the import system."""
_UNNAMED: Final = "schema.proto"
_MOST_NAMED: Final = 20
_ONLY_OPTIONS: Final = ("confluent/meta.proto",)
"""Imports that define options of a schema and no type of a field."""
_ADVICE: Final = (
    "give value.schema the output of "
    "`protoc --include_imports --descriptor_set_out=/dev/stdout FILE.proto | base64 -w0`"
)


def files_in(text: str) -> list[FileDescriptorProto]:
    """Return the files of a `FileDescriptorSet` in base64; the last one has the message."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    files: list[FileDescriptorProto] = []
    try:
        contents, size = files_in_set(_decoded(text)), SchemaSize()
        for each in contents:
            check_file(each, size)
        files = [FileDescriptorProto.FromString(each) for each in contents]
        is_set = all(each.name for each in files) and bool(files and files[-1].message_type)
    except SchemaLimitError as error:
        raise ConfigError(f"the Protobuf schema is refused: {error}") from None
    except (ValueError, DecodeError):
        is_set = False
    if not is_set:
        raise ConfigError(
            "this is no FileDescriptorSet in base64 whose last file has a message", advice=_ADVICE
        )
    return files


def file_of(text: str, size: SchemaSize | None = None) -> FileDescriptorProto:
    """Return the file of a schema as a registry gives it with `format=serialized`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        content = _decoded(text)
        check_file(content, SchemaSize() if size is None else size)
        return FileDescriptorProto.FromString(content)
    except SchemaLimitError as error:
        raise ConfigError(f"the Protobuf schema is refused: {error}") from None
    except (ValueError, DecodeError):
        raise ConfigError(
            "the registry gives the schema as the text of a .proto file, which cannot be read here",
            advice=_ADVICE,
        ) from None


def _decoded(text: str) -> bytes:
    if len(text) > 2 * MOST_BYTES:
        raise SchemaLimitError(f"the schema has more than {MOST_BYTES} bytes")
    return base64.b64decode(text, validate=True)


def message_in(
    file: FileDescriptorProto, imports: Mapping[str, FileDescriptorProto], name: str | None
) -> type[Message]:
    """Return the class of a message in a file; of the first one if `name` is None.

    `imports` has other files by the names of imports. All files have passed `files_in` or
    `file_of`. Google's own files and Confluent's decimal are built in, whatever `imports` has.
    """
    try:
        return _message_in(file, imports, name)
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(
            "this is not a usable Protobuf schema: its types refer to each other in too long a "
            "chain"
        ) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Of the package protobuf, about files that contradict themselves.
        raise ConfigError(f"this is no Protobuf schema: {error}") from None


def _message_in(
    file: FileDescriptorProto, imports: Mapping[str, FileDescriptorProto], name: str | None
) -> type[Message]:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    main = _renamed(file, _UNNAMED if file.name in OWN_FILES else file.name or _UNNAMED)
    for each in _in_order(main, imports):
        pool.Add(each)
    outermost = pool.FindFileByName(main.name).message_types_by_name.values()
    types = _all_types(outermost)
    first = next(types, None)
    if first is None:
        raise ConfigError("the schema has no message")
    if name is None:
        chosen = first
    else:
        found = next((each for each in chain([first], types) if each.full_name == name), None)
        if found is None:
            names = sorted(each.full_name for each in islice(_all_types(outermost), _MOST_NAMED))
            more = ", ..." if len(names) == _MOST_NAMED else ""
            raise ConfigError(
                f"the schema has no message {name!r}; it has {', '.join(names)}{more}"
            )
        chosen = found
    made: type[Message] = GetMessageClass(chosen)
    return made


def _all_types(outer: Iterable[Any]) -> Iterator[Any]:
    """Yield types and those inside them; the number of levels is limited."""
    for each in outer:
        if not each.GetOptions().map_entry:
            yield each
            yield from _all_types(each.nested_types)


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
    main: FileDescriptorProto, imports: Mapping[str, FileDescriptorProto]
) -> list[FileDescriptorProto]:
    """Return a file and all that it imports, each after its own imports."""
    files = {main.name: main}
    order = TopologicalSorter[str]()
    waiting = [main]
    while waiting:
        file = waiting.pop()
        order.add(file.name, *file.dependency)
        for name in file.dependency:
            if name not in files:
                files[name] = _imported(name, imports)
                waiting.append(files[name])
    try:
        return [files[name] for name in order.static_order()]
    except CycleError as error:
        raise ConfigError(
            f"this is no Protobuf schema: {error.args[1][0]!r} imports itself"
        ) from None


def _imported(name: str, imports: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    """Return an imported file: what is built in is taken from here, whatever the schema gives."""
    if name == _DECIMAL_FILE:
        return _decimal_file()
    if (file := _built_in(name)) is not None:
        return file
    if name in imports:
        return _renamed(imports[name], name)
    raise ConfigError(f"the schema imports {name!r}, which is not among its references")


def _built_in(name: str) -> FileDescriptorProto | None:
    """Return a file that a package on this machine has, such as Google's own."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not _GOOGLE_FILE.fullmatch(name):
        return None
    try:
        found = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    file = FileDescriptorProto()
    found.DESCRIPTOR.CopyToProto(file)
    return file


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
