"""The pure-Python fallback of `_arrow.pyx`: the Arrow C data interface through ctypes.

See `arrow.py` for the contract.

Invariant: a capsule's structure is moved into memory of ours and released exactly once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from aioproducer.errors import SerializationError
from aioproducer.records.arrow_layout import (
    ArrowColumns,
    Field,
    Kind,
    Layout,
    plan_columns,
    taken_error,
)
from aioproducer.records.bulk import UnfilledRows
from aioproducer.types import HeaderPairs

_INLINE_VIEW = 12
_VIEW_SIZE = 16


class _Schema(ctypes.Structure):
    """ArrowSchema."""


class _Array(ctypes.Structure):
    """ArrowArray."""


class _Stream(ctypes.Structure):
    """ArrowArrayStream."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype = ctypes.c_void_p
_pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]

_Cell = Callable[[int], bytes | None]


def _move(capsule: object, name: bytes, target: Any) -> None:
    """Take the structure out of a capsule, which then has nothing to release."""
    source = type(target).from_address(_pointer_in(capsule, name))
    if not source.release:
        raise taken_error()
    ctypes.pointer(target)[0] = source
    source.release = None


def _release(structure: Any) -> None:
    if structure.release:
        _RELEASE(structure.release)(ctypes.addressof(structure))
        structure.release = None


def _check(holds: object, what: str) -> None:
    if not holds:
        raise SerializationError(f"the Arrow data contradict their schema: {what}")


class ArrowChunk(UnfilledRows):
    """Rows of an Arrow source; see `aioproducer.records.bulk.Rows`."""

    def __init__(self, array: _Array, plan: Any) -> None:
        self._array = array
        self._length: int = array.length
        try:
            _check(array.n_children == plan.children, "another number of columns")
            self._absent = _nulls(array)
            needed = array.offset + array.length
            self._key = _cells(array, plan.key, needed)
            self._value = _cells(array, plan.value, needed)
            self._topic = _cells(array, plan.topic, needed)
            self._headers = _headers(array, plan.headers, needed)
            self._partition = _numbers(array, plan.partition, needed)
            self._time = _numbers(array, plan.timestamp, needed)
            self._per_second = plan.timestamp.per_second if plan.timestamp else 0
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return self._length

    def close(self) -> None:
        """Release the array; the rows are gone."""
        self._length = 0
        _release(self._array)

    def topics(self, start: int, stop: int, /) -> list[str | None]:
        """See `Rows`: nothing is filled in, so that no topic has to be known before its row."""
        del start, stop
        return [None]

    def record(
        self, row: int
    ) -> tuple[str | None, bytes | None, bytes | None, HeaderPairs, int | None, int | None]:
        """Topic, key, value, headers, partition, timestamp_ms."""
        if not 0 <= row < self._length:
            raise IndexError(row)
        row += self._array.offset
        if self._absent(row):
            return None, None, None, (), None, None
        time = self._time(row)
        return (
            _text(self._topic(row), "a topic"),
            self._key(row),
            self._value(row),
            tuple(self._headers(row)),
            self._partition(row),
            None if time is None else time * 1000 // self._per_second,
        )


class ArrowSource:
    """See `aioproducer.records.arrow`."""

    def __init__(self, data: Any, columns: ArrowColumns) -> None:
        self._stream = _Stream()
        self._schema = _Schema()
        self._array = _Array()
        self._busy = False
        self._closing = False
        self.streams: bool = not hasattr(data, "__arrow_c_array__")
        if not self.streams:
            schema, array = data.__arrow_c_array__()
            _move(schema, b"arrow_schema", self._schema)
            _move(array, b"arrow_array", self._array)
        elif hasattr(data, "__arrow_c_stream__"):
            _move(data.__arrow_c_stream__(), b"arrow_array_stream", self._stream)
            self._check(self._stream.get_schema(*self._addresses(self._schema)))
        else:
            raise TypeError(
                "send_arrow takes what has __arrow_c_stream__ or __arrow_c_array__ (tables of "
                f"pyarrow, polars, DuckDB, pandas ...), not {type(data).__name__}"
            )
        self._plan = plan_columns(_field(self._schema), columns)

    def __del__(self) -> None:
        self.close()

    def _addresses(self, target: Any) -> tuple[int, int]:
        return ctypes.addressof(self._stream), ctypes.addressof(target)

    def _check(self, code: int) -> None:
        if code:
            text = self._stream.get_last_error(ctypes.addressof(self._stream))
            reason = text.decode(errors="replace") if text else f"error {code}"
            raise SerializationError(f"the Arrow stream failed: {reason}")

    def next(self) -> ArrowChunk | None:
        """Return the next chunk; None when there are no more."""
        if self._busy:
            raise RuntimeError("an Arrow source gives one chunk at a time")
        array = _Array()
        if self._stream.release:
            self._busy = True
            try:
                self._check(self._stream.get_next(*self._addresses(array)))
            finally:
                self._busy = False
                if self._closing:
                    self.close()
        else:
            ctypes.pointer(array)[0] = self._array
            self._array.release = None
        return ArrowChunk(array, self._plan) if array.release else None

    def close(self) -> None:
        """Release what is not read; while `next` runs elsewhere, when that has ended."""
        if self._busy:
            self._closing = True
            return
        for structure in (self._array, self._schema, self._stream):
            _release(structure)


# -- reading ---------------------------------------------------------------------------------------


def _field(schema: Any) -> Field:
    return Field(
        (schema.name or b"").decode(),
        schema.format.decode(),
        tuple(_field(schema.children[at].contents) for at in range(schema.n_children)),
        _field(schema.dictionary.contents) if schema.dictionary else None,
    )


def _nulls(array: Any) -> Callable[[int], bool]:
    """Return whether the value at an index, offsets included, is null."""
    address = array.buffers[0] if array.null_count and array.n_buffers else None
    if not address:
        return lambda index: False
    return lambda index: not ctypes.string_at(address + (index >> 3), 1)[0] >> (index & 7) & 1


def _child(parent: Any, layout: Layout, needed: int) -> Any:
    _check(layout.position < parent.n_children, "a column is missing")
    array = parent.children[layout.position].contents
    _check(array.length >= needed, "a column is too short")
    return array


def _address(array: Any, number: int) -> int:
    _check(number < array.n_buffers, "a buffer is missing")
    return array.buffers[number] or 0


def _integers(address: int, width: int, signed: bool) -> Callable[[int], int]:
    def read(index: int) -> int:
        return int.from_bytes(
            ctypes.string_at(address + index * width, width), "little", signed=signed
        )

    return read


def _cells(parent: Any, layout: Layout | None, needed: int) -> _Cell:
    """Read bytes by row."""
    if layout is None or layout.kind is Kind.NULLS:
        return lambda row: None
    array = _child(parent, layout, needed)
    if layout.dictionary is None:
        return _plain_cells(array, layout)
    _check(array.dictionary, "a dictionary is missing")
    values = array.dictionary.contents
    value_at, length = _plain_cells(values, layout.dictionary), values.length
    place = _places(array, layout)

    def read(row: int) -> bytes | None:
        at = place(row)
        if at is None:
            return None
        if not 0 <= at < length:
            raise _contradiction()
        return value_at(at)

    return read


def _plain_cells(array: Any, layout: Layout) -> _Cell:
    is_null, offset = _nulls(array), array.offset
    main = _address(array, 1)
    if layout.kind is Kind.BYTES:
        bound, data = _integers(main, layout.width, True), _address(array, 2)

        def span(index: int) -> tuple[int, int]:
            begin = bound(index)
            return data + begin, bound(index + 1) - begin
    elif layout.kind is Kind.FIXED:

        def span(index: int) -> tuple[int, int]:
            return main + index * layout.width, layout.width
    else:

        def span(index: int) -> tuple[int, int]:
            return _view(array, main + index * _VIEW_SIZE)

    def read(row: int) -> bytes | None:
        index = row + offset
        if is_null(index):
            return None
        start, length = span(index)
        if length < 0:
            raise _contradiction()
        return ctypes.string_at(start, length)

    return read


def _view(array: Any, address: int) -> tuple[int, int]:
    """Start and length of what a view shows."""
    part = _integers(address, 4, True)
    length = part(0)
    if length <= _INLINE_VIEW:
        return address + 4, length
    # The last buffer has the sizes of those in between.
    block, offset = part(2), part(3)
    if not 0 <= block < array.n_buffers - 3:
        raise _contradiction()
    sizes = _address(array, array.n_buffers - 1)
    _check(sizes, "a buffer is missing")
    size = _integers(sizes, 8, True)(block)
    if not 0 <= offset <= size - length:
        raise _contradiction()
    return array.buffers[2 + block] + offset, length


def _places(array: Any, layout: Layout) -> Callable[[int], int | None]:
    is_null, offset = _nulls(array), array.offset
    number = _integers(_address(array, 1), layout.width, layout.kind is Kind.SIGNED)
    return lambda row: None if is_null(row + offset) else number(row + offset)


def _numbers(parent: Any, layout: Layout | None, needed: int) -> Callable[[int], int | None]:
    if layout is None or layout.kind is Kind.NULLS:
        return lambda row: None
    return _places(_child(parent, layout, needed), layout)


def _headers(
    parent: Any, layout: Layout | None, needed: int
) -> Callable[[int], Iterator[tuple[str, bytes | None]]]:
    if layout is None or layout.pair is None:
        return lambda row: iter(())
    array = _child(parent, layout, needed)
    _check(array.n_children == 1, "a list without its entries")
    entries = array.children[0].contents
    is_null, is_null_entry = _nulls(array), _nulls(entries)
    key, value = (_cells(entries, part, entries.offset + entries.length) for part in layout.pair)
    if layout.kind is Kind.LIST:
        bound = _integers(_address(array, 1), layout.width, True)
    else:
        bound = layout.width.__mul__

    def read(row: int) -> Iterator[tuple[str, bytes | None]]:
        index = row + array.offset
        if is_null(index):
            return
        begin, end = bound(index), bound(index + 1)
        if not 0 <= begin <= end <= entries.length:
            raise SerializationError("the headers' offsets make no sense")
        for entry in range(begin + entries.offset, end + entries.offset):
            name = None if is_null_entry(entry) else _text(key(entry), "a header's name")
            if name is None:
                raise SerializationError("a header, or its name, is null")
            yield name, value(entry)

    return read


def _text(found: bytes | None, what: str) -> str | None:
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"{what} is not UTF-8: {found!r}") from error


def _contradiction() -> SerializationError:
    return SerializationError("a cell cannot be read: the Arrow data contradict themselves")
