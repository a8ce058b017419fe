"""Small tools the tests of records/ share."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from aioproducer.records import _pure
from aioproducer.records.batch import EncodedBatch, encode_batch
from aioproducer.records.codecs import codec_for, compress_body
from aioproducer.types import HeaderPairs

Row = tuple[int, bytes | None, bytes | None, HeaderPairs]


def built(rows: Iterable[Row], core: ModuleType = _pure, codec: str = "none", **fields):
    """Encode rows into one batch, with a buffer that is large enough."""
    rows = list(rows)
    room = sum(core.record_size_bound(key, value, headers) for _, key, value, headers in rows)
    builder = core.RecordBatchBuilder(bytearray(room))
    for index, row in enumerate(rows):
        assert builder.try_append(*row) == index
    codec_type, body = compress_body(codec_for(codec), builder.body())
    return encode_batch(
        body,
        count=builder.count,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
        codec=codec_type,
        **fields,
    )


def joined(batch: EncodedBatch) -> bytes:
    return b"".join(batch.buffers)
