"""Whatever bytes come: a ProtocolError or records, never another error, never much memory."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._util.varints import varint, zigzag
from aioproducer.errors import ProtocolError
from aioproducer.records.batch import encode_batch, parse_header, read_batches
from aioproducer.records.codecs import CompressionType, codec_for

from .helpers import built, joined

T = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ROWS = [(T + i, b"key", b"value " * 20, (("name", b"x"), ("n", None))) for i in range(8)]
SAMPLES = {codec: joined(built(ROWS, codec=codec)) for codec in CODECS}


def one(body: bytes, count: int = 1, codec: CompressionType = CompressionType.NONE):
    batch = encode_batch(body, count=count, base_timestamp=T, max_timestamp=T, codec=codec)
    return parse_header(joined(batch))


def read_everything(data: bytes) -> None:
    try:
        for batch in read_batches(data):
            batch.records(max_bytes=1 << 20)
    except ProtocolError:
        pass


@given(codec=st.sampled_from(CODECS), data=st.data())
@settings(max_examples=500)
def test_mutated_batches_raise_nothing_but_protocol_errors(codec, data):
    whole = bytearray(SAMPLES[codec])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(12, len(whole) - 1))
        whole[position] = data.draw(st.integers(0, 255))
    read_everything(bytes(whole))


@given(data=st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_protocol_errors(data):
    read_everything(data)


@given(
    body=st.binary(max_size=120), count=st.integers(1, 20), codec=st.sampled_from(CompressionType)
)
@settings(max_examples=300)
def test_random_bodies_raise_nothing_but_protocol_errors(body, count, codec):
    try:
        one(body, count, codec).records(max_bytes=1 << 20)
    except ProtocolError:
        pass


@pytest.mark.parametrize("codec", CODECS)
def test_body_cut_off_anywhere_is_refused(codec):
    batch = parse_header(SAMPLES[codec])
    for cut in range(len(batch.body)):
        with pytest.raises(ProtocolError):
            one(bytes(batch.body[:cut]), batch.count, batch.codec).records()


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_body_are_refused(codec):
    batch = parse_header(SAMPLES[codec])
    with pytest.raises(ProtocolError):
        one(bytes(batch.body) + b"\x00", batch.count, batch.codec).records()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x0f" + bytes(10), "reaches beyond its batch"),  # a length of -8
        (b"\x80\x02" + bytes(10), "reaches beyond its batch"),  # 128 bytes, 10 are there
        (b"\xff" * 11, "a varint has more than 64 bits"),
        (b"\x10\x00\x00\x00\x10" + bytes(4), "a length of 8 does not fit its record"),
        (b"\x10\x00\x00\x00\x03" + bytes(4), "a length of -2 does not fit its record"),
        (b"\x10\x00\x00\x02\x01\x01\x00" + bytes(2), "length and contents differ"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "offset delta 1 is outside its batch"),
        (b"\x0c\x00\x00\x01\x01\x01\x00", "offset delta -1 is outside its batch"),
        (b"\x0c\x00\x00\x00\x01\x01\x08", "cannot have 4 headers"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "cannot have -1 headers"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "a header has no name"),
        (b"\x0c\x00\x00\x00\x01\x01\x00!", "1 bytes follow the last record"),
        (b"\x0c\x00\x00\x00\x01\x01\x80", "the records end within a record"),
        (b"\x02\x00" + bytes(6), "a length of 0 does not fit its record"),
    ],
)
def test_malformed_record_is_refused_with_the_reason(body, message):
    with pytest.raises(ProtocolError, match=message):
        one(body).records()


def test_name_of_a_header_that_is_no_utf8_has_replacement_characters():
    (record,) = one(b"\x14\x00\x00\x00\x01\x01\x02\x04\xffa\x01").records()
    assert record.headers == (("\ufffda", None),)


def test_well_formed_record_of_the_same_shape_is_read():
    assert len(one(b"\x0c\x00\x00\x00\x01\x01\x00").records()) == 1


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (8, ">i", -1, "a batch of length -1 does not fit"),
        (8, ">i", 48, "a batch of length 48 does not fit"),
        (8, ">i", 2**31 - 1, "a batch of length 2147483647 does not fit"),
        (16, ">b", 1, r"\(magic\) 1 is not supported"),
        (16, ">b", 3, r"\(magic\) 3 is not supported"),
        (21, ">h", 7, "unknown compression type 7"),
        (23, ">i", -1, "a last offset delta of -1"),
        (57, ">i", -1, "cannot have -1 records"),
    ],
)
def test_malformed_header_is_refused_with_the_reason(offset, layout, value, message):
    data = bytearray(SAMPLES["none"])
    struct.pack_into(layout, data, offset, value)
    with pytest.raises(ProtocolError, match=message):
        parse_header(data)


def test_header_cut_off_is_refused():
    with pytest.raises(ProtocolError, match="60 bytes are too few"):
        parse_header(SAMPLES["none"][:60])


@pytest.mark.parametrize("count", [2**31 - 1, len(SAMPLES["none"]) // 7])
def test_record_count_is_compared_with_the_bytes_before_anything_is_decoded(count):
    data = bytearray(SAMPLES["none"])
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(ProtocolError, match=f"cannot hold {count} records"):
        parse_header(data).records()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_bomb_is_refused_within_bounded_memory(codec):
    bomb = codec_for(codec).compress(bytes(64 << 20))
    batch = one(bomb, codec=CompressionType[codec.upper()])
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="decompresses to more than 1048576 bytes"):
            batch.records(max_bytes=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("records", [1, 2_000_001])
def test_a_batch_of_few_bytes_gives_a_bounded_number_of_values(records):
    headers = 2_000_001 if records == 1 else 0
    content = bytes([0, 0, 0, 1, 1]) + varint(zigzag(headers)) + bytes([0, 1]) * headers
    body = (varint(zigzag(len(content))) + content) * records
    packed = codec_for(CompressionType.GZIP).compress(body)
    batch = one(packed, count=records, codec=CompressionType.GZIP)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than 2000000 records and headers"):
            batch.records()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(body)
