"""The sizes of Parquet's pages, checked before pyarrow allocates what their headers say.

A few hundred kilobytes may decompress to a page of two gigabytes, and a reader of a row group holds
one page of each column.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from aioproducer._util.varints import read_varint, unzigzag
from aioproducer.loader.errors import SourceError

_MAX_PAGE_BYTES = 256 << 20
"""Writers make pages of 1 MiB, some of 100 MB."""
_MAX_GROUP_BYTES = 1 << 30
"""Limit for the sum of the largest pages of all columns."""
_HEADER_BYTES = (1 << 10, 1 << 16, 16 << 20)
"""Bytes to read for a header, increased until it is complete; pyarrow has the same limit."""
_MAX_DEPTH = 8

_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_PAGE, _DATA_PAGE_V2 = 2, 3, 5, 8
_NUM_VALUES = 1
# The kinds of values of Thrift's compact protocol; maps (11) do not occur.
_STOP, _TRUE, _FALSE, _BYTE = 0, 1, 2, 3
_INTEGERS = frozenset({4, 5, 6})
_DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 7, 8, 9, 10, 12


def check_pages(file: io.BufferedIOBase, group: Any) -> None:
    """Check the pages of a row group."""
    together = 0
    for index in range(group.num_columns):
        column = group.column(index)
        largest = max(_page_sizes(file, column), default=0)
        together += largest
        if largest > _MAX_PAGE_BYTES or together > _MAX_GROUP_BYTES:
            raise SourceError(
                f"not readable as Parquet: column {column.path_in_schema!r} has a page of {largest}"
                f" bytes; {_MAX_PAGE_BYTES} are allowed, and {_MAX_GROUP_BYTES} in all columns"
            )


def _page_sizes(file: io.BufferedIOBase, column: Any) -> Iterator[int]:
    """Yield the uncompressed size of each page that pyarrow reads."""
    offset = column.data_page_offset
    if column.dictionary_page_offset is not None:
        offset = min(offset, column.dictionary_page_offset)
    end = offset + column.total_compressed_size
    values = 0
    while values < column.num_values and offset < end:
        header, size = _header_at(file, offset)
        uncompressed = header.get(_UNCOMPRESSED_SIZE, -1)
        compressed = header.get(_COMPRESSED_SIZE, -1)
        data_page = header.get(_DATA_PAGE, header.get(_DATA_PAGE_V2, {}))
        count = data_page.get(_NUM_VALUES, 0) if isinstance(data_page, dict) else -1
        numbers = (uncompressed, compressed, count)
        if not all(isinstance(each, int) and each >= 0 for each in numbers):
            raise SourceError(f"not readable as Parquet: the page at {offset} has no valid header")
        yield uncompressed
        values += count
        offset += size + compressed


def _header_at(file: io.BufferedIOBase, offset: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the header at an offset, and its size."""
    for size in _HEADER_BYTES:
        file.seek(offset)
        data = file.read(size)
        reader = _CompactReader(data)
        try:
            return reader.struct(), reader.position
        except IndexError:
            if len(data) < size:
                break
        except ValueError:
            break
    raise SourceError(f"not readable as Parquet: the page at {offset} has no valid header")


class _CompactReader:
    """Reads a struct of Thrift's compact protocol.

    An IndexError says that the data ends too early, a ValueError that it is no struct.

    Attributes:
        position: How much is read.
    """

    def __init__(self, data: bytes) -> None:
        self.position: int = 0
        self._data = data

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields by their ids; of one that comes twice, the last."""
        fields: dict[int, Any] = {}
        field = 0
        while (head := self._byte()) & 0x0F != _STOP:
            delta = head >> 4
            field = field + delta if delta else self._integer()
            fields[field] = self._value(head & 0x0F, depth, is_field=True)
        return fields

    def _value(self, kind: int, depth: int, *, is_field: bool = False) -> Any:
        """Return a number or struct; None for the others, which are skipped."""
        if depth > _MAX_DEPTH:
            raise ValueError
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _BINARY:
            self._skip(self._varint())
        elif kind in {_TRUE, _FALSE}:
            self._skip(0 if is_field else 1)  # of a field, the kind is the value
        elif kind == _BYTE:
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind in {_LIST, _SET}:
            self._skip_list(depth)
        else:  # also maps, which headers do not have
            raise ValueError
        return None

    def _skip_list(self, depth: int) -> None:
        head = self._byte()
        count = head >> 4
        for _ in range(self._varint() if count == 15 else count):
            self._value(head & 0x0F, depth + 1)

    def _byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return value

    def _skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        value, self.position = read_varint(self._data, self.position)
        return value

    def _integer(self) -> int:
        return unzigzag(self._varint())
