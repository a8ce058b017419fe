"""Members of zip archives that are packed with bzip2 or LZMA, unpacked a piece at a time.

`zipfile` unpacks all that it has read of such a member at once, and some hundred bytes may become
gigabytes. Start with `open_packed`.
"""

from __future__ import annotations

import bz2
import copy
import io
import lzma
import struct
import zipfile
import zlib
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, Final

from aioproducer.loader.errors import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PACKED: Final = (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_PIECE: Final = 16 * 1024
_MAX_DICTIONARY: Final = 128 * 1024 * 1024
"""Twice what the highest usual levels of LZMA take."""


def open_packed(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, stack: ExitStack
) -> io.BufferedReader[Any]:
    """Open a member whose compression is one of `PACKED`; the stack closes it."""
    stored = copy.copy(info)  # read as what it is in the archive
    stored.compress_type = zipfile.ZIP_STORED
    stored.file_size = info.compress_size
    del stored.CRC
    packed = stack.enter_context(archive.open(stored))
    is_lzma = info.compress_type == zipfile.ZIP_LZMA
    decompressor = _lzma(packed) if is_lzma else bz2.BZ2Decompressor()
    return stack.enter_context(io.BufferedReader(_Member(packed, decompressor, info)))


class _Member(io.RawIOBase):
    """The content of a member; no more is unpacked than is requested."""

    def __init__(
        self,
        packed: IO[bytes],
        decompressor: bz2.BZ2Decompressor | lzma.LZMADecompressor,
        info: zipfile.ZipInfo,
    ) -> None:
        self._packed = packed
        self._decompressor = decompressor
        self._left = info.file_size
        self._expected = info.CRC
        self._crc = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Unpack into a buffer."""
        view = memoryview(buffer).cast("B")
        data = self._unpacked(min(len(view), self._left))
        view[: len(data)] = data
        self._left -= len(data)
        self._crc = zlib.crc32(data, self._crc)
        if not data and len(view) and (self._left or self._crc != self._expected):
            raise zipfile.BadZipFile("a member of the archive is damaged: its checksum is wrong")
        return len(data)

    def _unpacked(self, most: int) -> bytes:
        data = b""
        while most and not data and not self._decompressor.eof:
            packed = self._packed.read(_PIECE) if self._decompressor.needs_input else b""
            if not packed and self._decompressor.needs_input:
                raise EOFError
            data = self._decompressor.decompress(packed, most)
        return data


def _lzma(packed: IO[bytes]) -> lzma.LZMADecompressor:
    """Read the head of a member packed with LZMA."""
    head = packed.read(9)
    if len(head) < 9:
        raise EOFError
    size, parameters, dictionary = struct.unpack("<2xHBI", head)
    if size != 5 or parameters >= 9 * 5 * 5:
        raise zipfile.BadZipFile("a member of the archive is damaged: it is no LZMA")
    if dictionary > _MAX_DICTIONARY:
        raise SourceError(
            "a member of the archive takes too much memory: its LZMA dictionary is larger than "
            f"{_MAX_DICTIONARY} bytes",
            advice="pack it with another level or method",
        )
    filters = {
        "id": lzma.FILTER_LZMA1,
        "dict_size": dictionary,
        "lc": parameters % 9,
        "lp": parameters // 9 % 5,
        "pb": parameters // 45,
    }
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[filters])
