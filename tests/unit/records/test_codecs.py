import gzip
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError, UnsupportedCodecError
from aioproducer.records.codecs import CompressionType, codec_for, compress_body

NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSING = NAMES[1:]
TEXT = b"".join(b"flight %d from %d; " % (i, i * 7 % 91) for i in range(12_000))


@pytest.mark.parametrize("name", NAMES)
@given(unit=st.binary(max_size=300), times=st.integers(0, 500))
def test_what_is_compressed_is_decompressed(name, unit, times):
    data = unit * times
    codec = codec_for(name)
    assert codec.decompress(codec.compress(data), len(data)) == data
    assert codec.decompress(memoryview(codec.compress(memoryview(data))), len(data)) == data


@pytest.mark.parametrize("name", COMPRESSING)
def test_output_may_be_as_large_as_allowed_and_no_byte_larger(name):
    codec = codec_for(name)
    compressed = codec.compress(TEXT)
    assert codec.decompress(compressed, len(TEXT)) == TEXT
    with pytest.raises(ProtocolError, match=f"more than {len(TEXT) - 1} bytes"):
        codec.decompress(compressed, len(TEXT) - 1)


def test_uncompressed_data_are_bounded_too():
    with pytest.raises(ProtocolError):
        codec_for("none").decompress(b"abc", 2)


def test_codec_is_found_by_name_and_by_number():
    for number, name in enumerate(NAMES):
        assert codec_for(name).type == number
        assert codec_for(CompressionType(number)).type == number


def test_gzip_is_read_by_another_reader():
    assert gzip.decompress(codec_for("gzip").compress(TEXT)) == TEXT


def test_lz4_frame_has_independent_blocks_of_64_kib_and_no_checksum():
    frame = codec_for("lz4").compress(TEXT)
    assert len(TEXT) > 2 * 65536
    magic, flags, block_descriptor = struct.unpack_from("<IBB", frame)
    assert magic == 0x184D2204
    assert flags == 0b0110_0000  # version 1, independent blocks, nothing else
    assert block_descriptor == 0b0100_0000  # 64 KiB


def test_small_lz4_frame_has_independent_blocks_too():
    assert codec_for("lz4").compress(b"a" * 100)[4] == 0b0110_0000


def test_lz4_with_linked_blocks_and_checksums_is_read():
    frame = lz4.frame.compress(TEXT, block_linked=True, content_checksum=True, block_checksum=True)
    assert codec_for("lz4").decompress(frame, len(TEXT)) == TEXT


def test_snappy_is_framed_as_xerials():
    framed = codec_for("snappy").compress(TEXT)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, out = 16, b""
    while position < len(framed):
        [length] = struct.unpack_from(">i", framed, position)
        block = framed[position + 4 : position + 4 + length]
        out += bytes(cramjam.snappy.decompress_raw(block))
        position += 4 + length
    assert out == TEXT


def test_snappy_without_framing_is_read_as_librdkafka_writes_it():
    bare = bytes(cramjam.snappy.compress_raw(TEXT))
    assert codec_for("snappy").decompress(bare, len(TEXT)) == TEXT
    with pytest.raises(ProtocolError, match="more than"):
        codec_for("snappy").decompress(bare, len(TEXT) - 1)


def test_snappy_block_of_a_negative_length_is_refused():
    framed = codec_for("snappy").compress(b"")[:16] + b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="a block is cut off"):
        codec_for("snappy").decompress(framed, 100)


def test_snappy_framing_that_is_cut_off_is_refused():
    with pytest.raises(ProtocolError, match="its header is cut off"):
        codec_for("snappy").decompress(codec_for("snappy").compress(TEXT)[:15], 100)


def test_snappy_length_is_checked_before_memory_is_taken():
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"abc"
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        codec_for("snappy").decompress(claims_4_gib, 1000)


@pytest.mark.parametrize("room", [0, 1, 1_000_000])
def test_bytes_after_a_zstd_stream_without_a_size_are_refused(room):
    writer = zstandard.ZstdCompressor().compressobj()
    stream = writer.compress(TEXT) + writer.flush()
    codec = codec_for("zstd")
    assert codec.decompress(stream, len(TEXT) + room) == TEXT
    with pytest.raises(ProtocolError, match="unused data"):
        codec.decompress(stream + b"\x00", len(TEXT) + room)


@pytest.mark.parametrize("sized", [False, True])
def test_zstd_stream_of_no_bytes_is_read_and_nothing_may_follow_it(sized):
    stream = zstandard.ZstdCompressor(write_content_size=sized).compress(b"")
    codec = codec_for("zstd")
    assert codec.decompress(stream, 0) == b""
    with pytest.raises(ProtocolError, match="does not end where it should"):
        codec.decompress(stream + b"\x00", 10)


def test_a_zstd_compressor_is_made_once_and_used_again(monkeypatch):
    made = []

    def make(**options):
        made.append(options)
        return compressor

    compressor = zstandard.ZstdCompressor(level=7)
    monkeypatch.setattr(zstandard, "ZstdCompressor", make)
    codec_for.cache_clear()
    codec = codec_for("zstd", 7)
    frames = {codec.compress(TEXT) for _ in range(3)}
    codec_for.cache_clear()
    assert made == [{"level": 7}]
    assert [codec.decompress(frame, len(TEXT)) for frame in frames] == [TEXT]


def test_zstd_stream_without_a_size_is_read_and_bounded():
    writer = zstandard.ZstdCompressor().compressobj()
    stream = writer.compress(bytes(3_000_000)) + writer.flush()
    assert zstandard.frame_content_size(stream) == -1
    codec = codec_for("zstd")
    assert codec.decompress(stream, 3_000_000) == bytes(3_000_000)
    for bound in (2_999_999, 300_000):
        with pytest.raises(ProtocolError):
            codec.decompress(stream, bound)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -5, 19)]
)
def test_level_changes_the_size_and_every_level_is_read_back(name, low, high):
    sizes = []
    for level in (low, high):
        codec = codec_for(name, level)
        compressed = codec.compress(TEXT)
        assert codec.decompress(compressed, len(TEXT)) == TEXT
        sizes.append(len(compressed))
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize(
    ("name", "level"), [("gzip", -1), ("gzip", 1), ("lz4", 9), ("zstd", 0), ("zstd", -131072)]
)
def test_levels_java_allows_are_allowed(name, level):
    codec = codec_for(name, level)
    assert codec.decompress(codec.compress(TEXT), len(TEXT)) == TEXT


def test_default_level_is_javas():
    assert codec_for("gzip").compress(TEXT) == codec_for("gzip", -1).compress(TEXT)
    assert codec_for("zstd").compress(TEXT) == codec_for("zstd", 3).compress(TEXT)
    # Java takes the fast algorithm at lz4's default level 9, not the high compression of 9.
    assert codec_for("lz4").compress(TEXT) == codec_for("lz4", 9).compress(TEXT)
    for level in (8, 10):
        assert len(codec_for("lz4", 9).compress(TEXT)) > len(codec_for("lz4", level).compress(TEXT))


@pytest.mark.parametrize("level", [2, 4])
def test_zstd_levels_beside_the_default_are_the_librarys(level):
    compressed = codec_for("zstd", level).compress(TEXT)
    assert compressed == zstandard.ZstdCompressor(level=level).compress(TEXT)
    assert compressed != codec_for("zstd").compress(TEXT)


@pytest.mark.parametrize(("level", "limit"), [(1, 3), (2, 3), (13, 12), (17, 12)])
def test_lz4_levels_that_the_library_lacks_are_its_nearest_one_of_high_compression(level, limit):
    assert codec_for("lz4", level).compress(TEXT) == codec_for("lz4", limit).compress(TEXT)
    expected = lz4.frame.compress(
        TEXT,
        compression_level=limit,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    assert codec_for("lz4", level).compress(TEXT) == expected


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("snappy", "cramjam", "cramjam"),
        ("lz4", "lz4.frame", "lz4"),
        ("zstd", "zstandard", "zstandard"),
    ],
)
def test_codec_whose_library_cannot_be_imported_names_the_package(
    name, module, package, monkeypatch
):
    codec_for.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedCodecError, match=f"{name} needs the package '{package}'"):
        codec_for(name)
    monkeypatch.undo()
    assert codec_for(name).type.name.lower() == name


@pytest.mark.parametrize("name", COMPRESSING)
def test_body_that_cannot_be_made_smaller_stays_as_it_is(name):
    body = bytes(range(64))
    codec, out = compress_body(codec_for(name), body)
    assert codec is CompressionType.NONE
    assert out is body


@pytest.mark.parametrize("name", COMPRESSING)
def test_body_that_can_be_made_smaller_is_compressed(name):
    codec, out = compress_body(codec_for(name), TEXT)
    assert codec.name.lower() == name
    assert len(out) < len(TEXT)


def test_body_is_not_touched_without_compression():
    view = memoryview(TEXT)
    assert compress_body(codec_for("none"), view) == (CompressionType.NONE, view)


@pytest.mark.parametrize("name", COMPRESSING)
def test_one_codec_compresses_in_many_threads_at_once(name):
    codec = codec_for(name)
    inputs = [TEXT[i * 10 :] for i in range(64)]
    with ThreadPoolExecutor(8) as threads:
        outputs = list(threads.map(codec.compress, inputs))
    for data, compressed in zip(inputs, outputs, strict=True):
        assert codec.decompress(compressed, len(data)) == data


@pytest.mark.parametrize("name", COMPRESSING)
@given(data=st.binary(max_size=200))
def test_bytes_that_are_not_compressed_raise_nothing_but_protocol_errors(name, data):
    try:
        assert len(codec_for(name).decompress(data, 10_000)) <= 10_000
    except ProtocolError:
        pass
