"""The bytes of a batch: made once per format, in a thread where that pays."""

from __future__ import annotations

import pytest
from core.support import Core

from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.records.message_set import EncodedMessageSet
from aioproducer.runtime.tasks.encoder import BatchEncoder


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("threshold", [0, 1 << 30], ids=["thread", "loop"])
async def test_each_format_is_made_once(magic: int, threshold: int) -> None:
    encoder = BatchEncoder(codec_for("gzip"), threshold)
    batch = Core(batch_size=2000).fill()
    in_thread = threshold == 0
    assert encoder.encode_inline([batch], magic) is not in_thread
    if in_thread:
        await encoder.encode([batch], magic)
    made = batch.encoded
    assert made is not None
    assert (made.magic, made.codec, made.count) == (magic, CompressionType.GZIP, batch.count)
    assert batch.wire_size == made.size == sum(map(len, made.buffers))
    assert encoder.encode_inline([batch], magic)
    assert batch.encoded is made
    encoder.close()


def test_another_format_replaces_the_bytes() -> None:
    encoder = BatchEncoder(None, 0)
    batch = Core().append()
    for magic in (2, 1, 2, 0):
        assert encoder.encode_inline([batch], magic)
        assert batch.encoded is not None
        assert batch.encoded.magic == magic
        assert isinstance(batch.encoded, EncodedMessageSet) is (magic < 2)


def test_only_zstd_and_transactions_need_a_recent_version_of_produce() -> None:
    assert BatchEncoder(None, 0).min_produce_version == 0
    assert BatchEncoder(codec_for("lz4"), 0).min_produce_version == 0
    assert BatchEncoder(None, 0, transactional=True).min_produce_version == 3
    assert BatchEncoder(codec_for("zstd"), 0).min_produce_version == 7
