"""The container of Avro files, read within bounds: header, blocks, decompression.

Start with `Container`. Everything in a file may be hostile, so sizes and counts are checked here,
in Python, before native code decodes a block.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from aioproducer._util.printable import printable
from aioproducer._util.varints import read_varint, unzigzag
from aioproducer.loader.errors import SourceError

MAX_BLOCK_BYTES: Final = 128 << 20
"""How large a block may be, also after decompression."""

_MAX_HEADER_BYTES: Final = 4 << 20
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_XZ_MEMORY: Final = 256 << 20
_VARINT_BYTES: Final = 10


class Container:
    """The schema of a container file, and its blocks."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise SourceError("not readable as Avro: it does not begin as a container file does")
        metadata = self._metadata()
        codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        decompress = _CODECS.get(codec)
        if decompress is None:
            raise SourceError(f"not readable as Avro: unknown codec {printable(codec, 50)!r}")
        self._decompress = decompress
        self.schema: Any = json.loads(metadata.get("avro.schema", b""))
        self._sync = self._exactly(_SYNC_BYTES)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of rows of each block, and its content."""
        while (count := self._number(at_end=True)) is not None:
            size = self._number() or 0
            if count < 0 or not 0 <= size <= MAX_BLOCK_BYTES:
                raise SourceError(
                    f"not readable as Avro: a block of {count} rows in {size} bytes, where "
                    f"{MAX_BLOCK_BYTES} bytes are allowed"
                )
            content = self._content(self._exactly(size))
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise SourceError("not readable as Avro: a block does not end where it should")
            yield count, content

    def _content(self, data: bytes) -> bytes:
        try:
            return self._decompress(data)
        except (SourceError, MemoryError, ImportError):
            raise
        except Exception as error:  # each library has its own
            raise SourceError(
                f"not readable as Avro: a block is damaged: {type(error).__name__}: {error}"
            ) from error

    def _metadata(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        left = _MAX_HEADER_BYTES
        while count := self._number():
            if count < 0:
                count = -count
                self._number()  # the size of what follows, which is checked anyway
            for _ in range(count):
                name, value = self._bytes(left), self._bytes(left)
                left -= len(name) + len(value) + 1
                found[name.decode("utf-8", "replace")] = value
        return found

    def _bytes(self, most: int) -> bytes:
        size = self._number() or 0
        if not 0 <= size <= most:
            raise SourceError("not readable as Avro: its header is too long")
        return self._exactly(size)

    def _number(self, *, at_end: bool = False) -> int | None:
        """Return a zigzag varint; None at the end of the file where that is allowed."""
        number = 0
        for place in range(_VARINT_BYTES):
            byte = self._stream.read(1)
            if not byte:
                if at_end and place == 0:
                    return None
                raise EOFError("it ends in the middle of a number")
            number |= (byte[0] & 0x7F) << (7 * place)
            if byte[0] < 0x80:
                return unzigzag(number)
        raise SourceError("not readable as Avro: a number has no end")

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise EOFError(f"it ends {size - len(data)} bytes too early")
        return data


# -- decompression ---------------------------------------------------------------------------------


def _too_large() -> SourceError:
    return SourceError(
        f"not readable as Avro: a block of more than {MAX_BLOCK_BYTES} bytes after decompression"
    )


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BLOCK_BYTES:
        raise _too_large()
    return data


def _zstandard(data: bytes) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    with decompressor.stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
        return _bounded(reader.read(MAX_BLOCK_BYTES + 1))


def _snappy(data: bytes) -> bytes:
    import cramjam

    body = data[:-4]  # a checksum follows
    size, _ = read_varint(body, 0)
    if size > MAX_BLOCK_BYTES:
        raise _too_large()
    content = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(content) != int.from_bytes(data[-4:], "big"):
        raise SourceError("not readable as Avro: the checksum of a block is wrong")
    return content


def _lz4(data: bytes) -> bytes:
    import lz4.block

    if int.from_bytes(data[:4], "little") > MAX_BLOCK_BYTES:
        raise _too_large()
    return bytes(lz4.block.decompress(data))


_CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: _bounded(
        zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, MAX_BLOCK_BYTES + 1)
    ),
    "bzip2": lambda data: _bounded(bz2.BZ2Decompressor().decompress(data, MAX_BLOCK_BYTES + 1)),
    "xz": lambda data: _bounded(
        lzma.LZMADecompressor(memlimit=_XZ_MEMORY).decompress(data, MAX_BLOCK_BYTES + 1)
    ),
    "zstandard": _zstandard,
    "snappy": _snappy,
    "lz4": _lz4,
}
