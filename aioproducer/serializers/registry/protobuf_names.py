"""The positions of message types in the file of a registered Protobuf schema.

Owns: the paths to types, by their full names. Not here: HTTP, messages.

A registry gives a schema as base64 of its `FileDescriptorProto` or, where it cannot, as the text of
the `.proto` file. Of a text only what makes types is read: packages, messages, groups, map fields.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

_TOKEN: Final = re.compile(
    r"""
    //[^\n]* | /\*.*?(?:\*/|\Z)
    | "(?:\\.|[^"\\])*+(?:"|\\?\Z) | '(?:\\.|[^'\\])*+(?:'|\\?\Z)
    | [\w.]+ | [^\s\w]
    """,
    re.VERBOSE | re.DOTALL,
)
"""Comments and strings without an end go to the end: so each text takes linear time."""

_LONGEST_NAME: Final = 500
_DEEPEST: Final = 100
"""As Protobuf's own parsers; deeper types and longer names are left out."""


def paths_in(text: str) -> dict[str, list[int]]:
    """Return the path to each message type, by full name, from the outermost type inwards.

    Args:
        text: the schema as a registry gives it.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return _paths_in_source(text)
    found: dict[str, list[int]] = {}
    _add(found, file.message_type, file.package, [])
    return found


def _add(
    found: dict[str, list[int]], types: Iterable[DescriptorProto], outer: str, path: list[int]
) -> None:
    for number, each in enumerate(types):
        name = _joined(outer, each.name)
        if name is not None:
            found[name] = [*path, number]
            _add(found, each.nested_type, name, found[name])


def _joined(outer: str | None, name: str) -> str | None:
    """Return the full name of a type, None where it is too long or that of the outer type is."""
    if outer is None or len(outer) + len(name) > _LONGEST_NAME:
        return None
    return f"{outer}.{name}" if outer else name


@dataclass(slots=True)
class _Scope:
    """A scope in braces: a message or the file; anything else counts for what it is in."""

    name: str | None
    path: list[int]
    count: int = 0


def _paths_in_source(text: str) -> dict[str, list[int]]:
    tokens = [each for each in _TOKEN.findall(text) if not each.startswith(("//", "/*"))]
    found: dict[str, list[int]] = {}
    scopes = [_Scope("", [])]
    opening: str | None = None  # the message whose brace comes next

    def enter(name: str) -> _Scope:
        outer = scopes[-1]
        full = None if len(scopes) > _DEEPEST else _joined(outer.name, name)
        number, outer.count = outer.count, outer.count + 1
        if full is None:
            return _Scope(None, [])
        found[full] = [*outer.path, number]
        return _Scope(full, found[full])

    for place, token in enumerate(tokens):
        after: Any = tokens[place + 1 : place + 9]
        if token == "package" and len(scopes) == 1 and len(after) > 1 and after[1] == ";":
            scopes[0].name = after[0]
        elif (token == "message" and after[1:2] == ["{"]) or (
            token == "group" and after[1:2] == ["="]
        ):
            opening = after[0]
        elif token == "map" and after[:1] == ["<"] and after[2:3] == [","] and ">" in after:
            rest = after[after.index(">") + 1 :]
            if rest[1:2] == ["="]:
                enter(_camel(rest[0]) + "Entry")
        elif token == "{":
            scopes.append(scopes[-1] if opening is None else enter(opening))
            opening = None
        elif token == "}" and len(scopes) > 1:
            scopes.pop()
        elif token == ";":
            opening = None
    return found


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
