"""Turns a declared struct into an encoder and a decoder for one version, compiled once.

Shape of the generated code, for a broker of MetadataResponse v9:

    def decode(data, pos):                          def encode(out, m):
        size = len(data)                                out += pack_0(m.node_id)
        v_node_id, = unpack_0(data, pos)                write_compact_string(out, m.host)
        pos += 4                                        ...
        n = data[pos] - 1                               out.append(0)
        ...
        return Struct(node_id=v_node_id, ...), pos

Invariants: a decoder compares a length with the bytes left before it uses it, and a count times the
smallest element; unknown tagged fields are skipped.
"""

from __future__ import annotations

import linecache
import struct as structs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from aioproducer.errors import UnsupportedVersionError
from aioproducer.wire import primitives
from aioproducer.wire.fields import (
    Array,
    Field,
    Primitive,
    Struct,
    WireType,
    record_set,
    string,
    uuid,
)
from aioproducer.wire.primitives import Buffer, ElementBudget


class Codec(NamedTuple):
    """The compiled form of one struct in one version."""

    encode: Callable[[bytearray, Any], None]
    decode: Callable[[Buffer, int, ElementBudget], tuple[Any, int]]
    min_size: int


_COMPILED: dict[tuple[type[Struct], int, bool], Codec] = {}


def compile_struct(cls: type[Struct], version: int, flexible: bool) -> Codec:
    """Return the codec of a struct; compiled on first use, then remembered."""
    key = (cls, version, flexible)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(cls, version, flexible)
    return _COMPILED[key]


def _compile(cls: type[Struct], version: int, flexible: bool) -> Codec:
    layout = _Layout(cls, version, flexible)
    source = _Source()
    _emit_encoder(source, layout)
    _emit_decoder(source, layout)
    text = "\n".join(source.lines) + "\n"
    filename = f"<{cls.__name__} v{version}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), source.names)
    return Codec(source.names["encode"], source.names["decode"], layout.min_size)


class _Layout:
    """The fields of a struct in a version, and the encoding of each."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        present = [field for field in cls.FIELDS if version in field.versions]
        self.plain = [field for field in present if field.tag is None]
        self.tagged = sorted(
            (field for field in present if field.tag is not None), key=lambda field: field.tag or 0
        )
        self.refused = [
            field for field in cls.FIELDS if version not in field.versions and not field.ignorable
        ]

    @property
    def fields(self) -> list[Field]:
        return self.plain + self.tagged

    @property
    def min_size(self) -> int:
        """The fewest bytes an instance can take; at least one, so that counts stay bounded."""
        sizes = [
            1 if _is_struct(field.type) and self.nullable(field) else self.size_of(field.type)
            for field in self.plain
        ]
        return max(1, sum(sizes) + self.flexible)

    def size_of(self, wire_type: WireType) -> int:
        """Return the fewest bytes a value can take when it is not null."""
        if _is_struct(wire_type):
            return self.nested(wire_type).min_size
        if isinstance(wire_type, Primitive) and wire_type.code:
            return structs.calcsize(f">{wire_type.code}")
        return 1 if self.flexible else 2 if wire_type is string else 4

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def nested(self, cls: type[Struct]) -> Codec:
        return compile_struct(cls, self.version, self.flexible)

    def runs(self) -> Iterator[tuple[bool, list[Field]]]:
        """Yield the plain fields in order, neighbours of fixed size together."""
        for fixed, run in groupby(self.plain, key=lambda field: _is_fixed(field.type)):
            yield fixed, list(run)


def _is_struct(wire_type: WireType) -> TypeGuard[type[Struct]]:
    return isinstance(wire_type, type)


def _is_fixed(wire_type: WireType) -> bool:
    return isinstance(wire_type, Primitive) and bool(wire_type.code)


class _Source:
    """Lines of generated source, and the objects that their names refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            **vars(primitives),
            "UUID": UUID,
            "pack": structs.pack,
            "unpack_from": structs.unpack_from,
        }
        self._indent = ""

    def add(self, *lines: str) -> None:
        self.lines.extend(self._indent + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def bind(self, hint: str, value: Any) -> str:
        """Return a fresh global name for `value`."""
        name = f"{hint}_{len(self.names)}"
        self.names[name] = value
        return name


# --- decoding -----------------------------------------------------------------------------------


def _emit_decoder(src: _Source, layout: _Layout) -> None:
    with src.block("def decode(data, pos, budget):"):
        src.add("size = len(data)")
        for fixed, run in layout.runs():
            if fixed:
                _decode_fixed(src, run)
            else:
                for field in run:
                    _decode_variable(src, layout, field)
        if layout.tagged:
            _decode_tagged(src, layout)
        elif layout.flexible:
            src.add("pos = skip_tags(data, pos, budget) if data[pos] else pos + 1")
        arguments = ", ".join(f"{field.name}=v_{field.name}" for field in layout.fields)
        src.add(f"return {src.bind('Struct', layout.cls)}({arguments}), pos")


def _decode_fixed(src: _Source, run: list[Field]) -> None:
    """Decode a whole run of fixed-size fields by one `unpack_from`."""
    packer = _packer(run)
    targets = "".join(f"v_{field.name}, " for field in run)
    src.add(f"{targets}= {src.bind('unpack', packer.unpack_from)}(data, pos)")
    src.add(f"pos += {packer.size}")
    for field in run:
        if field.type is uuid:
            src.add(f"v_{field.name} = UUID(bytes=v_{field.name})")


def _packer(run: list[Field]) -> structs.Struct:
    return structs.Struct(">" + "".join(_code(field.type) for field in run))


def _code(wire_type: WireType) -> str:
    return wire_type.code if isinstance(wire_type, Primitive) else ""


def _decode_variable(src: _Source, layout: _Layout, field: Field) -> None:
    """Decode a string, bytes, records, array or struct field into its local variable."""
    target = f"v_{field.name}"
    nullable = layout.nullable(field)
    if isinstance(field.type, Primitive):
        _decode_length(src, field.type, layout.flexible)
        with _unless_null(src, field, target, nullable):
            _decode_content(src, field.type, target)
    elif isinstance(field.type, Array):
        _decode_array(src, layout, field, field.type.element, target)
    elif nullable:
        src.add("absent = data[pos] > 127", "pos += 1")
        with src.block("if absent:"):
            src.add(f"{target} = None")
        with src.block("else:"):
            _decode_struct(src, layout, field.type, target)
    else:
        _decode_struct(src, layout, field.type, target)


@contextmanager
def _unless_null(src: _Source, field: Field, target: str, nullable: bool) -> Iterator[None]:
    """`n` is -1 for null; what is emitted inside runs for anything else."""
    with src.block("if n < 0:"):
        if nullable:
            src.add(f"{target} = None")
        else:
            src.add(f"raise unexpected_null({field.name!r}, pos)")
    with src.block("else:"):
        yield


def _decode_length(src: _Source, wire_type: Primitive, compact: bool) -> None:
    if not compact:
        src.add(
            f"n, pos = {'read_length16' if wire_type is string else 'read_length32'}(data, pos)"
        )
        return
    src.add("n = data[pos] - 1", "pos += 1")
    with src.block("if n > 126 or n > size - pos:"):
        read = "read_compact_string_length" if wire_type is string else "read_compact_length"
        src.add(f"n, pos = {read}(data, pos - 1)")


def _decode_content(src: _Source, wire_type: Primitive, target: str) -> None:
    src.add("stop = pos + n")
    if wire_type is string:
        src.add(f"{target} = str(data[pos:stop], 'utf-8')")
    elif wire_type is record_set:
        src.add(f"{target} = memoryview(data)[pos:stop]")
    else:
        src.add(f"{target} = bytes(data[pos:stop])")
    src.add("pos = stop")


def _decode_struct(src: _Source, layout: _Layout, cls: type[Struct], target: str) -> None:
    src.add(f"{target}, pos = {src.bind('decode', layout.nested(cls).decode)}(data, pos, budget)")


def _decode_array(
    src: _Source, layout: _Layout, field: Field, element: Primitive | type[Struct], target: str
) -> None:
    size = layout.size_of(element)
    if layout.flexible:
        src.add("n = data[pos] - 1", "pos += 1")
        with src.block(f"if n > 126 or n * {size} > size - pos:"):
            src.add(f"n, pos = read_compact_count(data, pos - 1, {size})")
    else:
        src.add(f"n, pos = read_count(data, pos, {size})")
    with _unless_null(src, field, target, layout.nullable(field)):
        src.add(f"budget.left -= n * {_weight(element)}")
        with src.block("if budget.left < 0:"):
            src.add("raise too_many_elements(pos)")
        if element is uuid:
            src.add(f"stop = pos + n * {size}")
            src.add(
                f"{target} = [UUID(bytes=bytes(data[i : i + {size}])) "
                f"for i in range(pos, stop, {size})]"
            )
            src.add("pos = stop")
            return
        if _is_fixed(element):
            # A count in the format keeps the formats that `struct` remembers small.
            src.add(f"{target} = list(unpack_from(f'>{{n}}{_code(element)}', data, pos))")
            src.add(f"pos += n * {size}")
            return
        src.add(f"{target} = []")
        with src.block("for _ in range(n):"):
            if isinstance(element, Primitive):
                _decode_length(src, element, layout.flexible)
                with src.block("if n < 0:"):
                    src.add(f"raise unexpected_null({field.name!r}, pos)")
                _decode_content(src, element, "item")
            else:
                _decode_struct(src, layout, element, "item")
            src.add(f"{target}.append(item)")


def _weight(element: Primitive | type[Struct]) -> int:
    if _is_struct(element):
        return primitives.STRUCT_WEIGHT
    return 1 if _is_fixed(element) and element is not uuid else primitives.OBJECT_WEIGHT


def _decode_tagged(src: _Source, layout: _Layout) -> None:
    for field in layout.tagged:
        src.add(f"v_{field.name} = {src.bind('default', field.make_default)}()")
    src.add("tags, pos = read_tag_count(data, pos, budget)")
    with src.block("for _ in range(tags):"):
        src.add("tag, end, pos = read_tag(data, pos)")
        for index, field in enumerate(layout.tagged):
            with src.block(f"{'el' if index else ''}if tag == {field.tag}:"):
                if _is_fixed(field.type):
                    _decode_fixed(src, [field])
                else:
                    _decode_variable(src, layout, field)
        with src.block("else:"):
            src.add("pos = end")
        with src.block("if pos != end:"):
            src.add("raise tag_size_mismatch(tag, end, pos)")


# --- encoding -----------------------------------------------------------------------------------


def _emit_encoder(src: _Source, layout: _Layout) -> None:
    with src.block("def encode(out, m):"):
        for field in layout.refused:
            default = src.bind("default", field.make_default())
            refuse = src.bind("refuse", _refusal(layout.cls, field.name, layout.version))
            with src.block(f"if m.{field.name} != {default}:"):
                src.add(f"raise {refuse}()")
        for fixed, run in layout.runs():
            if fixed:
                _encode_fixed(src, run)
            else:
                for field in run:
                    _encode_variable(src, layout, field, "out")
        if layout.tagged:
            _encode_tagged(src, layout)
        elif layout.flexible:
            src.add("out.append(0)")
        src.add("return")  # the body of a message without fields


def _refusal(cls: type[Struct], field: str, version: int) -> Callable[[], Exception]:
    message = f"{cls.__name__}.{field} is set, but version {version} cannot carry it"
    return lambda: UnsupportedVersionError(message)


def _encode_fixed(src: _Source, run: list[Field], out: str = "out") -> None:
    values = ", ".join(
        f"m.{field.name}" + (".bytes" if field.type is uuid else "") for field in run
    )
    src.add(f"{out} += {src.bind('pack', _packer(run).pack)}({values})")


def _encode_variable(src: _Source, layout: _Layout, field: Field, out: str) -> None:
    """Encode a string, bytes, records, array or struct field of `m` into the buffer named `out`."""
    is_struct = _is_struct(field.type)
    src.add(f"value = m.{field.name}")
    if not layout.nullable(field):
        _encode_value(src, layout, field.type, out)
        return
    with src.block("if value is None:"):
        size = 1 if is_struct else layout.size_of(field.type)
        null = b"\0" if layout.flexible and not is_struct else b"\xff" * size
        src.add(f"{out} += {null!r}")
    with src.block("else:"):
        if is_struct:
            src.add(f"{out}.append(1)")
        _encode_value(src, layout, field.type, out)


def _encode_value(src: _Source, layout: _Layout, wire_type: WireType, out: str) -> None:
    """Encode the non-null local `value`."""
    write_length = "write_compact_length" if layout.flexible else "write_length32"
    if isinstance(wire_type, Array):
        src.add(f"{write_length}({out}, len(value))")
        _encode_elements(src, layout, wire_type.element, out)
    elif wire_type is string:
        src.add(f"{'write_compact_string' if layout.flexible else 'write_string'}({out}, value)")
    elif isinstance(wire_type, Primitive):
        src.add(f"{write_length}({out}, len(value))", f"{out} += value")
    else:
        src.add(f"{src.bind('encode', layout.nested(wire_type).encode)}({out}, value)")


def _encode_elements(
    src: _Source, layout: _Layout, element: Primitive | type[Struct], out: str
) -> None:
    if element is uuid:
        src.add(f"{out} += b''.join([item.bytes for item in value])")
    elif _is_fixed(element):
        src.add(f"{out} += pack(f'>{{len(value)}}{_code(element)}', *value)")
    else:
        with src.block("for value in value:"):
            _encode_value(src, layout, element, out)


def _encode_tagged(src: _Source, layout: _Layout) -> None:
    """Tagged fields go out only when they hold more than their default (KIP-482)."""
    src.add("tags = 0", "section = bytearray()")
    for field in layout.tagged:
        with src.block(f"if m.{field.name} != {src.bind('default', field.make_default())}:"):
            src.add("tags += 1", "content = bytearray()")
            if _is_fixed(field.type):
                _encode_fixed(src, [field], "content")
            else:
                _encode_variable(src, layout, field, "content")
            src.add(f"write_tag(section, {field.tag}, content)")
    src.add("write_uvarint(out, tags)", "out += section")
