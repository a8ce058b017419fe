"""Decompression of whatever claims to be compressed, and the round trip of whatever is not.

Input: codec, limit, then the compressed data.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.errors import ProtocolError
from aioproducer.records.codecs import Codec, CompressionType, codec_for
from fuzz.guard import Finding, Target, require
from fuzz.source import Source

CODECS = list(CompressionType)
_LIMITS = [64 * 1024, 4096, 1, 0]
_BOMB = bytes(256 * 1024)
_TEXT = b"the quick brown fox jumps over the lazy dog " * 12


def run(data: bytes) -> None:
    source = Source(data)
    codec = codec_for(source.one_of(CODECS))
    limit = source.one_of(_LIMITS)
    body = source.rest()
    compressed = codec.compress(body)
    require(codec.decompress(compressed, len(body)) == body, "the round trip changed the data")
    try:
        plain = codec.decompress(body, limit)
    except ProtocolError:
        return
    require(type(plain) is bytes, "{} came out", type(plain))
    require(len(plain) <= limit, "{} bytes came out, the limit is {}", len(plain), limit)
    require(codec.decompress(memoryview(body), limit) == plain, "a view decompresses differently")
    require(codec.decompress(body, len(plain)) == plain, "a limit that just fits changes the data")
    if not plain:
        return  # zstandard does not read a frame that says it is empty
    _expect_refusal(codec, body, len(plain) - 1, "a limit one byte too low was ignored")
    if codec.type is not CompressionType.NONE:
        _expect_refusal(codec, body + b"\0", limit, "a byte after the data was ignored")


def _expect_refusal(codec: Codec, body: bytes, limit: int, complaint: str) -> None:
    try:
        codec.decompress(body, limit)
    except ProtocolError:
        return
    raise Finding(complaint)


def seeds() -> Iterator[bytes]:
    for index, kind in enumerate(CODECS):
        codec = codec_for(kind)
        for plain in (b"", b"x", _TEXT, _TEXT * 8):
            yield bytes([index, 0]) + codec.compress(plain)
        yield bytes([index, 1]) + codec.compress(_BOMB)[:4000]
        if kind not in {CompressionType.NONE, CompressionType.SNAPPY}:
            yield bytes([index, 1]) + codec.compress(_BOMB)
    yield from (bytes([index, 0]) + frame for index, frame in _foreign_frames())


def _foreign_frames() -> Iterator[tuple[int, bytes]]:
    """Forms of the same formats that we do not write."""
    import cramjam
    import lz4.frame
    import zstandard

    yield CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(_TEXT))
    yield CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(_BOMB[:60_000]))
    for options in (
        {"content_checksum": True, "block_checksum": True},
        {"block_linked": True, "store_size": True},
    ):
        yield CompressionType.LZ4, lz4.frame.compress(_TEXT, **options)
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    yield CompressionType.ZSTD, unsized.compress(_TEXT)
    yield CompressionType.ZSTD, unsized.compress(_BOMB)
    stream = zstandard.ZstdCompressor().compressobj()
    yield CompressionType.ZSTD, stream.compress(_TEXT) + stream.flush()


# The largest limit, for what comes out and for what it is collected from, some of it twice.
TARGET = Target("codecs", run, seeds, bytes_per_byte=64, extra_bytes=4 * _LIMITS[0])
