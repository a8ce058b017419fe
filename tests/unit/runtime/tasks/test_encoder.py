"""The bytes of a batch: made once per format, in a thread where that pays."""

from __future__ import annotations

import asyncio
import threading

import pytest
from core.support import Core

from aioproducer.records.codecs import Codec, CompressionType, codec_for
from aioproducer.records.message_set import EncodedMessageSet
from aioproducer.records.reader import parse_header
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
    data = b"".join(made.buffers)
    if magic == 2:
        header = parse_header(data)
        found = header.codec, header.count
    else:
        # The attributes and the last offset of a message that has the whole set as its value.
        found = CompressionType(data[17] & 7), int.from_bytes(data[:8]) + 1
    assert (made.magic, *found) == (magic, CompressionType.GZIP, batch.count)
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


class SlowCodec(Codec):
    """Compresses once it may, and notes in which thread."""

    type = CompressionType.GZIP

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.threads: list[threading.Thread] = []

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        self.threads.append(threading.current_thread())
        self.began.release()
        assert self.may_go_on.wait(20)
        return codec_for("gzip").compress(data)


async def test_large_batches_are_compressed_in_two_threads_that_end_with_the_close() -> None:
    codec = SlowCodec()
    encoder = BatchEncoder(codec, 0)
    batches = [Core(batch_size=2000).fill() for _ in range(3)]
    encoding = asyncio.create_task(encoder.encode(batches))
    for _ in range(2):
        assert await asyncio.to_thread(codec.began.acquire, timeout=20)
    encoder.close()  # does not wait for the threads
    assert not encoding.done()
    codec.may_go_on.set()
    await encoding
    assert all(batch.encoded is not None for batch in batches)
    threads = set(codec.threads)
    assert len(threads) == 2
    for thread in threads:
        assert thread.name.startswith("aioproducer-compress")
        thread.join(5)
        assert not thread.is_alive()


class FailingOnce(Codec):
    """Has no memory for the first batch."""

    type = CompressionType.GZIP
    calls = 0

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        self.calls += 1
        if self.calls == 1:
            raise MemoryError
        return codec_for("gzip").compress(data)


@pytest.mark.parametrize("threshold", [0, 1 << 30], ids=["thread", "loop"])
async def test_a_batch_that_cannot_be_encoded_has_the_error_and_the_others_their_bytes(
    threshold: int,
) -> None:
    encoder = BatchEncoder(FailingOnce(), threshold)
    batches = [Core(batch_size=2000).fill() for _ in range(3)]
    if not encoder.encode_inline(batches):
        await encoder.encode(batches)
    failed = [batch for batch in batches if batch.encoded is None]
    assert len(failed) == 1
    assert "MemoryError()" in str(failed[0].last_error)
    encoder.close()


async def test_batches_are_encoded_in_the_loop_when_there_are_no_more_threads() -> None:
    codec = SlowCodec()
    codec.may_go_on.set()
    encoder = BatchEncoder(codec, 0)
    batches = [Core(batch_size=2000).fill() for _ in range(2)]
    await encoder.encode(batches[:1])
    encoder.close()
    await encoder.encode(batches)
    assert [batch.encoded is not None for batch in batches] == [True, True]
    assert codec.threads[1:] == [threading.current_thread()]


@pytest.mark.parametrize("threshold", [0, 1 << 30], ids=["thread", "loop"])
async def test_only_batches_of_the_topics_that_are_given_are_compressed(threshold: int) -> None:
    for topics, codec in (({"t"}, CompressionType.GZIP), ({"u"}, CompressionType.NONE)):
        encoder = BatchEncoder(codec_for("gzip"), threshold, topics=topics)
        assert encoder.compresses
        batch = Core(batch_size=2000).fill()
        if not encoder.encode_inline([batch]):
            await encoder.encode([batch])
        assert batch.encoded is not None
        assert batch.encoded.codec is codec
        encoder.close()


def test_a_batch_as_large_as_the_threshold_is_left_for_a_thread() -> None:
    batch = Core(batch_size=2000).fill()
    size = batch.wire_size
    assert not BatchEncoder(codec_for("gzip"), size).encode_inline([batch])
    assert BatchEncoder(codec_for("gzip"), size + 1).encode_inline([batch])
