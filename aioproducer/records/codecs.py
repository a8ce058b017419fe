"""Compression of batch bodies: gzip, snappy, lz4 and zstd, each imported when first asked for.

Each has the byte format that Kafka expects, and levels (KIP-390).

Invariants:
- codecs hold no state two threads could spoil: `compress` may run in any thread;
- `decompress` never yields more than `max_bytes` and raises only `ProtocolError` on bad input;
- what cannot be made smaller is sent as it is (`compress_body`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import lru_cache
from typing import Any, Protocol

from aioproducer.errors import ProtocolError, UnsupportedCodecError

_Data = bytes | memoryview


class CompressionType(IntEnum):
    """The codec number of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Codec(Protocol):
    """One way to compress; safe to use from several threads at once."""

    type: CompressionType
    """The codec's number in a batch's attributes."""

    def compress(self, data: _Data) -> bytes:
        """Compress `data` into what a Kafka broker accepts as a batch's body."""
        ...

    def decompress(self, data: _Data, max_bytes: int) -> bytes:
        """Undo `compress`."""
        ...


class _NoCompression:
    type = CompressionType.NONE

    def __init__(self, level: int | None) -> None: ...

    def compress(self, data: _Data) -> bytes:
        return bytes(data)

    def decompress(self, data: _Data, max_bytes: int) -> bytes:
        if len(data) > max_bytes:
            raise _too_large(self.type, max_bytes)
        return bytes(data)


class _Gzip:
    type = CompressionType.GZIP

    # zlib's window size 15, plus 16 for gzip's header and trailer.
    _WINDOW_BITS = 31

    def __init__(self, level: int | None) -> None:
        self._level = -1 if level is None else level

    def compress(self, data: _Data) -> bytes:
        return zlib.compress(data, self._level, wbits=self._WINDOW_BITS)

    def decompress(self, data: _Data, max_bytes: int) -> bytes:
        stream = zlib.decompressobj(self._WINDOW_BITS)
        try:
            out = stream.decompress(data, max_bytes + 1)
        except zlib.error as error:
            raise _malformed(self.type, error) from error
        if len(out) > max_bytes:
            raise _too_large(self.type, max_bytes)
        if not stream.eof or stream.unused_data:
            raise _malformed(self.type, "it does not end where it should")
        return out


class _Snappy:
    """Snappy blocks in the framing of xerial's snappy-java, which every Kafka client reads.

    magic (8 bytes), version and compatible version (int32 each), then blocks of an int32 length
    and raw snappy. librdkafka writes bare snappy without the framing; it is read, never written.
    """

    type = CompressionType.SNAPPY

    _MAGIC = b"\x82SNAPPY\x00"
    _HEADER = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
    _BLOCK_SIZE = 32 * 1024  # as snappy-java's SnappyOutputStream

    def __init__(self, level: int | None) -> None:
        with _imported("cramjam", self.type):
            import cramjam
        self._snappy: Any = cramjam.snappy

    def compress(self, data: _Data) -> bytes:
        view = memoryview(data)
        parts: list[Any] = [self._HEADER]
        for start in range(0, len(view), self._BLOCK_SIZE):
            block = self._snappy.compress_raw(view[start : start + self._BLOCK_SIZE])
            parts += (len(block).to_bytes(4, "big"), block)
        return b"".join(parts)

    def decompress(self, data: _Data, max_bytes: int) -> bytes:
        view = memoryview(data)
        if bytes(view[: len(self._MAGIC)]) != self._MAGIC:
            return self._block(view, 0, max_bytes)
        if len(view) < len(self._HEADER):
            raise _malformed(self.type, "its header is cut off")
        position = len(self._HEADER)
        parts: list[bytes] = []
        size = 0
        while position < len(view):
            start = position + 4
            position = start + int.from_bytes(view[position:start], "big")
            if position > len(view):
                raise _malformed(self.type, "a block is cut off")
            parts.append(self._block(view[start:position], size, max_bytes))
            size += len(parts[-1])
        return b"".join(parts)

    def _block(self, block: memoryview, size_before: int, max_bytes: int) -> bytes:
        # cramjam.DecompressionError derives from Exception only.
        try:
            size = self._snappy.decompress_raw_len(block)
        except Exception as error:
            raise _malformed(self.type, error) from error
        if size_before + size > max_bytes:
            raise _too_large(self.type, max_bytes)
        try:
            return bytes(self._snappy.decompress_raw(block))
        except Exception as error:
            raise _malformed(self.type, error) from error


class _Lz4:
    """The LZ4 frame format as Java's Lz4BlockOutputStream writes it.

    64 KiB blocks, independent of each other (brokers refuse linked ones), no checksum of the
    content, no content size.
    """

    type = CompressionType.LZ4

    _JAVA_DEFAULT_LEVEL = 9
    _FAST = 0
    _LOWEST_HIGH_COMPRESSION, _HIGHEST = 3, 12

    def __init__(self, level: int | None) -> None:
        with _imported("lz4", self.type):
            import lz4.frame
        self._frame: Any = lz4.frame
        # Java compresses with the fast algorithm at its default level, and with the
        # high-compression one at every other.
        self._level = self._FAST
        if level is not None and level != self._JAVA_DEFAULT_LEVEL:
            self._level = min(max(level, self._LOWEST_HIGH_COMPRESSION), self._HIGHEST)

    def compress(self, data: _Data) -> bytes:
        frame: bytes = self._frame.compress(
            data,
            compression_level=self._level,
            block_size=self._frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            store_size=False,
        )
        return frame

    def decompress(self, data: _Data, max_bytes: int) -> bytes:
        stream = self._frame.LZ4FrameDecompressor()
        parts: list[bytes] = []
        room = max_bytes + 1
        rest: _Data = data
        try:
            while room and not stream.eof:
                part = stream.decompress(rest, max_length=min(room, 4 * len(data) + 65536))
                if not part and stream.needs_input:
                    break
                parts.append(part)
                room -= len(part)
                rest = b""
        except (RuntimeError, ValueError) as error:
            raise _malformed(self.type, error) from error
        if not room:
            raise _too_large(self.type, max_bytes)
        if not stream.eof or stream.unused_data:
            raise _malformed(self.type, "it does not end where it should")
        return b"".join(parts)


class _Zstd:
    type = CompressionType.ZSTD

    _JAVA_DEFAULT_LEVEL = 3

    def __init__(self, level: int | None) -> None:
        with _imported("zstandard", self.type):
            import zstandard
        self._zstd: Any = zstandard
        self._level = self._JAVA_DEFAULT_LEVEL if level is None else level
        # A compressor serves one thread at a time and is costly to make: each call takes one from
        # here (list.pop and append are atomic), so there are as many as threads ever compressed.
        self._idle: list[Any] = []

    def compress(self, data: _Data) -> bytes:
        try:
            compressor = self._idle.pop()
        except IndexError:
            compressor = self._zstd.ZstdCompressor(level=self._level)
        try:
            frame: bytes = compressor.compress(data)
        finally:
            self._idle.append(compressor)
        return frame

    def decompress(self, data: _Data, max_bytes: int) -> bytes:
        try:
            size: int = self._zstd.frame_content_size(data)
            if size > max_bytes:
                raise _too_large(self.type, max_bytes)
            if size != -1:  # it is known
                return self._decompress(data, size)
            return self._decompress_unsized(data, max_bytes)
        except self._zstd.ZstdError as error:
            raise _malformed(self.type, error) from error

    def _decompress_unsized(self, data: _Data, max_bytes: int) -> bytes:
        """Decompress a stream without its size (as Java's are): guess, and more while too small."""
        most = max_bytes + 1
        room = min(16 * len(data) + 65536, most)
        while True:
            try:
                out = self._decompress(data, room)
                break
            except self._zstd.ZstdError:
                if room == most:
                    raise
                room = min(room * 8, most)
        if len(out) > max_bytes:
            raise _too_large(self.type, max_bytes)
        # The library checks for bytes after the frame only where the frame fills its buffer.
        return self._decompress(data, len(out)) if out else out

    def _decompress(self, data: _Data, max_bytes: int) -> bytes:
        decompressor = self._zstd.ZstdDecompressor()
        out: bytes = decompressor.decompress(
            data, max_output_size=max_bytes, allow_extra_data=False
        )
        if not out:
            # Nor does it check after an empty frame.
            stream = decompressor.decompressobj()
            stream.decompress(data)
            if not stream.eof or stream.unused_data:
                raise _malformed(self.type, "it does not end where it should")
        return out


_CODECS: dict[CompressionType, Callable[[int | None], Codec]] = {
    CompressionType.NONE: _NoCompression,
    CompressionType.GZIP: _Gzip,
    CompressionType.SNAPPY: _Snappy,
    CompressionType.LZ4: _Lz4,
    CompressionType.ZSTD: _Zstd,
}


@lru_cache(maxsize=64, typed=True)
def codec_for(type_or_name: CompressionType | str, level: int | None = None) -> Codec:
    """Return the codec of that type or Kafka name (`gzip`), with its library imported.

    `level` is one that the option of the codec allows; None is Java's default.
    """
    if isinstance(type_or_name, str):
        type_or_name = CompressionType[type_or_name.upper()]
    return _CODECS[type_or_name](level)


def compress_body(codec: Codec, body: _Data) -> tuple[CompressionType, _Data]:
    """Compress a batch's body, or leave it as it is where compression would not make it smaller."""
    if codec.type is CompressionType.NONE:
        return codec.type, body
    compressed = codec.compress(body)
    if len(compressed) < len(body):
        return codec.type, compressed
    return CompressionType.NONE, body


@contextmanager
def _imported(package: str, codec: CompressionType) -> Iterator[None]:
    """Say what to install where an import in this block fails.

    Imports are statements so that PyInstaller and its like find them.
    """
    try:
        yield
    except (ImportError, OSError) as error:
        raise UnsupportedCodecError(
            f"compression type {codec.name.lower()} needs the package {package!r}, which cannot "
            f"be imported ({error})",
            advice=f"install it (pip install {package}) or choose another compression_type",
        ) from error


def _malformed(codec: CompressionType, reason: object) -> ProtocolError:
    return ProtocolError(f"{codec.name.lower()} data is malformed: {reason}")


def _too_large(codec: CompressionType, max_bytes: int) -> ProtocolError:
    return ProtocolError(f"{codec.name.lower()} data decompresses to more than {max_bytes} bytes")
