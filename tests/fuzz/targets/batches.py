"""Record batches as a Fetch answer or a Produce request carries them.

Input: a kind, then either the bytes of a log, or the parts of one well-framed batch (codec, whether
the time is the log's, record count, max timestamp) and its records before compression.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack_into

from aioproducer.errors import ProtocolError
from aioproducer.records import RecordBatchBuilder, record_size_bound
from aioproducer.records.batch import DecodedRecord, RecordBatch, encode_batch, read_batches
from aioproducer.records.codecs import CompressionType, codec_for, compress_body
from aioproducer.records.layout import CRC_END, LOG_APPEND_TIME
from fuzz.guard import Target, require
from fuzz.source import Source
from fuzz.targets.codecs import CODECS

_LOG, _CUT_OFF_LOG, _BATCH = range(3)
_LIMIT = 64 * 1024
_MAX_TIMESTAMP = 2**63 - 1
_NOW = 1_700_000_000_000


def run(data: bytes) -> None:
    source = Source(data)
    kind = source.number(1) % 3
    log = _assembled(source) if kind == _BATCH else source.rest()
    try:
        for batch in read_batches(log, allow_partial=kind == _CUT_OFF_LOG):
            _read(batch)
    except ProtocolError:
        pass


def _assembled(source: Source) -> bytes:
    codec = codec_for(source.one_of(CODECS))
    log_append_time = source.number(1) & 1
    count = 1 + source.number(2)
    max_timestamp = source.number(8, signed=True)
    encoded = encode_batch(
        codec.compress(source.rest()),
        count=count,
        base_timestamp=_NOW,
        max_timestamp=max_timestamp,
        codec=codec.type,
    )
    out = bytearray(b"".join(encoded.buffers))
    if log_append_time:
        pack_into(">h", out, CRC_END, codec.type | LOG_APPEND_TIME)
    else:
        next(read_batches(out)).check_crc()
    return bytes(out)


def _read(batch: RecordBatch) -> None:
    require(batch.size == len(batch.raw), "a batch's size is not that of its bytes")
    try:
        batch.check_crc()
    except ProtocolError:
        pass
    records = batch.records(max_bytes=_LIMIT)
    require(len(records) == batch.count, "{} records came, {} announced", len(records), batch.count)
    require(
        all(batch.base_offset <= each.offset <= batch.last_offset for each in records),
        "an offset is outside the batch",
    )
    if records and all(0 <= each.timestamp_ms <= _MAX_TIMESTAMP for each in records):
        _check_round_trip(batch, records)


def _check_round_trip(batch: RecordBatch, records: list[DecodedRecord]) -> None:
    rows = [record[1:] for record in records]
    room = sum(record_size_bound(key, value, headers) for _, key, value, headers in rows)
    builder = RecordBatchBuilder(bytearray(room))
    for index, row in enumerate(rows):
        require(builder.try_append(*row) == index, "a record that was read cannot be written")
    codec, body = compress_body(codec_for(batch.codec), builder.body())
    encoded = encode_batch(
        body,
        count=builder.count,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
        codec=codec,
    )
    (again,) = read_batches(b"".join(encoded.buffers))
    again.check_crc()
    repeated = [record[1:] for record in again.records()]
    require(repeated == rows, "{} came back as {}", rows, repeated)


def seeds() -> Iterator[bytes]:
    logs = []
    for index, kind in enumerate(CODECS):
        for rows in _samples():
            builder = RecordBatchBuilder(bytearray(4096))
            for row in rows:
                builder.try_append(*row)
            plain = bytes(builder.body())
            head = bytes([_BATCH, index, 0]) + (len(rows) - 1).to_bytes(2, "big")
            yield head + builder.max_timestamp.to_bytes(8, "big") + plain
            encoded = encode_batch(
                codec_for(kind).compress(plain),
                count=len(rows),
                base_timestamp=builder.base_timestamp,
                max_timestamp=builder.max_timestamp,
                codec=kind,
            )
            logs.append(b"".join(encoded.buffers))
    yield from (bytes([_LOG]) + log for log in logs)
    yield bytes([_CUT_OFF_LOG]) + logs[0] + logs[1][:-3]
    for index, kind in enumerate(CODECS[1:], 1):
        bomb = codec_for(kind).compress(bytes(8 * _LIMIT))[:30_000]
        encoded = encode_batch(
            bomb, count=9, base_timestamp=0, max_timestamp=0, codec=CompressionType(index)
        )
        yield bytes([_LOG]) + b"".join(encoded.buffers)


def _samples() -> Iterator[list[tuple[int, bytes | None, bytes | None, tuple]]]:
    yield [(_NOW, None, b"value", ())]
    yield [(_NOW + i, b"key", b"v" * i, (("h", b"x"), ("n", None))) for i in range(5)]
    yield [(0, b"", None, (("größer", b""),)), (_MAX_TIMESTAMP, b"k" * 200, b"", ())]


# A record of seven bytes becomes a tuple of five objects; a body may grow to the limit first.
TARGET = Target("batches", run, seeds, bytes_per_byte=200, extra_bytes=64 * _LIMIT)
