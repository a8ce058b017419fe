"""The positions of message types in the file of a registered Protobuf schema.

A registry gives a schema as base64 of its `FileDescriptorProto` or, where it cannot, as the text of
the `.proto` file. Of a text only what makes types is read: packages, messages, groups, map fields.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aioproducer.serializers.registry.protobuf_bounds import LONGEST_NAME, SchemaSize, check_file

_TOKEN: Final = re.compile(
    r"""
    //[^\n]* | /\*.*?(?:\*/|\Z)
    | "(?:\\.|[^"\\])*+(?:"|\\?\Z) | '(?:\\.|[^'\\])*+(?:'|\\?\Z)
    | [\w.]+ | [^\s\w]
    """,
    re.VERBOSE | re.DOTALL,
)
"""Comments and strings without an end go to the end: so each text takes linear time."""

_DEEPEST: Final = 100
"""The limit of Protobuf's parsers; deeper types and longer names are left out."""


def path_in(text: str, wanted: str) -> list[int] | None:
    """Return the path to a message type, from the outermost type inwards; None without the type."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        content = base64.b64decode(text, validate=True)
        check_file(content, SchemaSize())
        file = FileDescriptorProto.FromString(content)
    except (ValueError, DecodeError):
        return _path_in_source(text, wanted)
    path: list[int] = []
    outer, types = file.package, file.message_type
    while True:
        names = [_joined(outer, each.name) for each in types]
        around = (n for n, name in enumerate(names) if f"{wanted}.".startswith(f"{name}."))
        number = next(around, None)
        if number is None:
            return None
        path.append(number)
        if names[number] == wanted:
            return path
        outer, types = names[number], types[number].nested_type


# -- the text --------------------------------------------------------------------------------------


def _joined(outer: str | None, name: str) -> str | None:
    """Return the full name of a type, None where it is too long or that of the outer type is."""
    if outer is None or len(outer) + len(name) > LONGEST_NAME:
        return None
    return f"{outer}.{name}" if outer else name


@dataclass(slots=True)
class _Scope:
    """A scope in braces: a message or the file; anything else counts for what it is in."""

    name: str | None
    path: list[int]
    count: int = 0


def _path_in_source(text: str, wanted: str) -> list[int] | None:
    scopes = [_Scope("", [])]
    opening: str | None = None  # the message whose brace comes next

    def enter(name: str) -> _Scope:
        outer = scopes[-1]
        full = None if len(scopes) > _DEEPEST else _joined(outer.name, name)
        number, outer.count = outer.count, outer.count + 1
        return _Scope(None, []) if full is None else _Scope(full, [*outer.path, number])

    for token, after in _tokens_in(text):
        entered: _Scope | None = None
        if token == "package" and len(scopes) == 1 and len(after) > 1 and after[1] == ";":
            scopes[0].name = after[0]
        elif (token == "message" and after[1:2] == ["{"] and after[0].isidentifier()) or (
            token == "group" and after[1:2] == ["="]
        ):
            opening = after[0]
        elif token == "map" and after[:1] == ["<"] and after[2:3] == [","] and ">" in after:
            rest = after[after.index(">") + 1 :]
            if rest[1:2] == ["="]:
                words = rest[0].split("_")
                entered = enter("".join(each[:1].upper() + each[1:] for each in words) + "Entry")
        elif token == "{":
            entered = None if opening is None else enter(opening)
            scopes.append(entered or scopes[-1])
            opening = None
        elif token == "}" and len(scopes) > 1:
            scopes.pop()
        elif token == ";":
            opening = None
        if entered is not None and entered.name == wanted:
            return entered.path
    return None


def _tokens_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each token but comments, with those after it."""
    tokens = (found[0] for found in _TOKEN.finditer(text) if not found[0].startswith(("//", "/*")))
    window = deque(islice(tokens, 1 + _LOOKAHEAD))
    while window:
        token = window.popleft()
        yield token, list(window) if token in _WITH_MORE else []
        window.extend(islice(tokens, 1))


_LOOKAHEAD: Final = 8
_WITH_MORE: Final = frozenset({"package", "message", "group", "map"})
