"""A broker whose answers are well formed, and now and then have one wrong value.

Owns: the choice of the value and its replacement. Not here: what a producer does with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing.broker.dispatch import Reply
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader, encode_response
from aioproducer.wire.framing import SIZE_BYTES, decode_response

_NUMBERS: Final = (
    -2,
    -1,
    0,
    1,
    3,
    7,
    *(sign * (1 << bits) - (sign > 0) for bits in (15, 31, 63) for sign in (-1, 1)),
)
_TEXTS: Final = ("", "x", " ", "\0", "\u202e", "a" * 300, "127.0.0.1", "fe80::1%eth0", "[::1]")
_BYTES: Final = (b"", b"\0" * 16, b"\xff" * 9)
Path = tuple[str | int, ...]


class ChangedAnswers:
    """Changes a share of the answers of a cluster, from `begin` to `end`.

    Attributes:
        changes: What was changed: the request, the path in its answer, and the new value.
    """

    def __init__(self, cluster: Any, rng: random.Random) -> None:
        self.changes: list[tuple[str, Path, object]] = []
        self._rng = rng
        self._share = 0.0
        self._respond: Callable[..., Reply] = cluster.respond
        cluster.respond = self._changed

    def begin(self, share: float) -> None:
        """Change this share of the answers."""
        self._share = share

    def end(self) -> None:
        """Change no more."""
        self._share = 0.0

    def _changed(self, node_id: int, header: RequestHeader, *arguments: Any, **more: Any) -> Reply:
        reply = self._respond(node_id, header, *arguments, **more)
        if reply.frame is None or self._rng.random() >= self._share:
            return reply
        request = REQUEST_TYPES[header.api_key]  # type: ignore[index]
        version = header.api_version
        _, answer = decode_response(request, version, bytes(reply.frame)[SIZE_BYTES:])
        path, found = self._rng.choice([*_values(answer)])
        changed = self._other(found)
        try:
            made = _with(answer, path, changed)
            frame = encode_response(made, version, header.correlation_id)
        except (ValueError, UnsupportedVersionError):  # the value does not fit its field
            return reply
        self.changes.append((request.__name__, path, changed))
        return replace(reply, frame=frame)

    def _other(self, value: object) -> object:
        if isinstance(value, bool):
            return not value
        if isinstance(value, tuple | list):
            kept = list(value)
            return type(value)(self._rng.choice(([], kept[:-1], 2 * kept, 50 * kept)))
        if value is None:
            return self._rng.choice(("", "x", 0, -1, b""))
        for kind, others in ((int, _NUMBERS), (str, _TEXTS)):
            if isinstance(value, kind):
                return self._rng.choice(others)
        return self._rng.choice(_BYTES)


def _values(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield every field and item within a message, and where it is."""
    if is_dataclass(value):
        parts: Any = [(each.name, getattr(value, each.name)) for each in fields(value)]
    elif isinstance(value, tuple | list):
        parts = enumerate(value)
    else:
        return
    for name, part in parts:
        yield (*path, name), part
        yield from _values(part, (*path, name))


def _with(value: Any, path: Path, new: object) -> Any:
    """Return a message with another value at a path."""
    if not path:
        return new
    first, *rest = path
    if isinstance(first, str):
        return replace(value, **{first: _with(getattr(value, first), tuple(rest), new)})
    items = list(value)
    items[first] = _with(items[first], tuple(rest), new)
    return type(value)(items)
