"""Arrow data under observation: what was given out, what came back, and streams that fail."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from aioproducer.records._pure_arrow import _Array, _pointer_in, _Schema, _Stream

_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GET_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_TEXT = ctypes.create_string_buffer(b"the disk is gone")


def array_in(capsule: object) -> Any:
    """Return the structure in an array's capsule, to be changed in place."""
    return _Array.from_address(_pointer_in(capsule, b"arrow_array"))


class _Watched:
    """Structures whose releases are counted.

    Attributes:
        given: structures given out.
        released: calls of their release.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.given = 0
        self.released = 0
        self._originals: dict[int, int] = {}
        self._callbacks: list[Any] = []  # kept alive: C code calls them
        self._release_of = {
            kind: self._kept(_RELEASE(self._releaser(kind))) for kind in (_Schema, _Array, _Stream)
        }

    def _kept(self, callback: Any) -> Any:
        self._callbacks.append(callback)
        return callback

    def _releaser(self, kind: Any) -> Callable[[int], None]:
        def release(address: int) -> None:
            structure = kind.from_address(address)
            self.released += 1
            original = self._originals.pop(structure.private_data)
            structure.release = original
            _RELEASE(original)(address)

        return release

    def watch(self, structure: Any) -> None:
        """Count the release of a structure that is about to be given out."""
        if structure.release:
            self.given += 1
            self._originals[structure.private_data] = structure.release
            structure.release = ctypes.cast(self._release_of[type(structure)], ctypes.c_void_p)


class WatchedArray(_Watched):
    """A record batch by its `__arrow_c_array__`."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, array = self.data.__arrow_c_array__()
        self.watch(_Schema.from_address(_pointer_in(schema, b"arrow_schema")))
        self.watch(_Array.from_address(_pointer_in(array, b"arrow_array")))
        return schema, array


class WatchedStream(_Watched):
    """A table or reader by its `__arrow_c_stream__`.

    Args:
        data: the table.
        fails_at: the number of the chunk that cannot be read, from 0.
        on_next: called in `get_next`, in whatever thread that is.
    """

    def __init__(
        self,
        data: Any,
        *,
        fails_at: int | None = None,
        on_next: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(data)
        self._left = fails_at
        self._on_next = on_next

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        capsule = self.data.__arrow_c_stream__()
        stream = _Stream.from_address(_pointer_in(capsule, b"arrow_array_stream"))
        get_schema, get_next, get_last_error = (
            ctypes.cast(getattr(stream, name), ctypes.c_void_p).value
            for name in ("get_schema", "get_next", "get_last_error")
        )
        assert get_schema and get_next and get_last_error

        def schema(address: int, target: int) -> int:
            code = _GET(get_schema)(address, target)
            self.watch(_Schema.from_address(target))
            return code

        def following(address: int, target: int) -> int:
            self._on_next()
            if self._left == 0:
                return 5
            if self._left is not None:
                self._left -= 1
            code = _GET(get_next)(address, target)
            self.watch(_Array.from_address(target))
            return code

        def last_error(address: int) -> int | None:
            if self._left == 0:
                return ctypes.addressof(_TEXT)
            text: int | None = _GET_ERROR(get_last_error)(address)
            return text

        stream.get_schema = self._kept(type(stream.get_schema)(schema))
        stream.get_next = self._kept(type(stream.get_next)(following))
        stream.get_last_error = ctypes.cast(
            self._kept(_GET_ERROR(last_error)), type(stream.get_last_error)
        )
        self.watch(stream)
        return capsule
