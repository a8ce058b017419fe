"""Encoding and compression of closed batches, in threads for large ones: `BatchEncoder`."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from aioproducer._util.printable import repr_of
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.errors import IllegalStateError, KafkaError, ProducerFailedError
from aioproducer.records.batch import EncodedBatch, encode_batch
from aioproducer.records.codecs import Codec, CompressionType, compress_body
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import EncodedMessageSet, encode_message_set, records_of
from aioproducer.runtime.legacy_brokers import FIRST_PRODUCE_WITH_ZSTD

_Encoded = EncodedBatch | EncodedMessageSet


class BatchEncoder:
    """Encode each batch once; a retry sends the same bytes.

    A batch that cannot be encoded has no bytes afterwards; its `last_error` is the reason.
    Bodies of `threads_threshold` bytes or more are compressed in a thread. Only batches of `topics`
    are compressed; None for all. `min_produce_version` is the first Produce version that can carry
    the batches: v7 for zstd (KIP-110), v3 in transactions, else 0.
    """

    def __init__(
        self,
        codec: Codec | None,
        threads_threshold: int,
        *,
        transactional: bool = False,
        topics: Container[str] | None = None,
    ) -> None:
        self._codec = codec
        self._topics = topics
        self._transactional = transactional
        self._threshold = threads_threshold
        self._executor: Executor | None = None
        self.min_produce_version: int = 3 if transactional else 0
        if codec is not None and codec.type is CompressionType.ZSTD:
            self.min_produce_version = FIRST_PRODUCE_WITH_ZSTD
        # Imported now, not with the first batch (`records.batch`): it takes some 40 ms, which would
        # delay that batch.
        import crc32c  # noqa: F401

    @property
    def compresses(self) -> bool:
        """Whether the batches of some topics are compressed."""
        return self._codec is not None

    def encode_inline(self, batches: Sequence[ProducerBatch], magic: int = MAGIC) -> bool:
        """Encode small and uncompressed batches; return False if any are left for `encode`.

        Batches that are encoded already are skipped, unless the broker needs another format
        (`magic`).
        """
        complete = True
        for batch in batches:
            if _lacks(batch, magic):
                codec = self._codec_of(batch)
                if codec is None or batch.wire_size < self._threshold:
                    _store(batch, self._made(batch, magic))
                else:
                    complete = False
        return complete

    async def encode(self, batches: Sequence[ProducerBatch], magic: int = MAGIC) -> None:
        """Encode the batches left by `encode_inline`, in threads, in parallel."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(2, thread_name_prefix="aioproducer-compress")
        loop = asyncio.get_running_loop()
        left = [batch for batch in batches if _lacks(batch, magic)]
        try:
            jobs = [loop.run_in_executor(self._executor, self._made, b, magic) for b in left]
        except RuntimeError:
            # While the interpreter exits, threads accept no more work.
            made = [self._made(batch, magic) for batch in left]
        else:
            made = await asyncio.gather(*jobs)
        for batch, encoded in zip(left, made, strict=True):
            _store(batch, encoded)

    def close(self) -> None:
        """Shut the threads down, without waiting for them."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    def encode_one(
        self, batch: ProducerBatch, magic: int = MAGIC, codec: Codec | None = None
    ) -> _Encoded:
        """Return an encoded batch, compressed if there is a `codec`."""
        builder = batch.builder
        if builder is None:
            raise IllegalStateError("a batch was encoded after it gave up its memory")
        if magic != MAGIC:
            return encode_message_set(records_of(builder), magic, codec)
        body: bytes | memoryview = builder.body()
        compression = CompressionType.NONE
        if codec is not None:
            compression, body = compress_body(codec, body)
        return encode_batch(
            body,
            count=builder.count,
            base_timestamp=builder.base_timestamp,
            max_timestamp=builder.max_timestamp,
            codec=compression,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=self._transactional,
        )

    def _made(self, batch: ProducerBatch, magic: int) -> _Encoded | Exception:
        try:
            return self.encode_one(batch, magic, self._codec_of(batch))
        except Exception as error:
            return error

    def _codec_of(self, batch: ProducerBatch) -> Codec | None:
        names = self._topics
        return self._codec if names is None or batch.topic_partition.topic in names else None


def _store(batch: ProducerBatch, made: _Encoded | Exception) -> None:
    if not isinstance(made, Exception):
        batch.encoded = made
        return
    batch.encoded = None
    batch.last_error = made if isinstance(made, KafkaError) else ProducerFailedError(repr_of(made))


def _lacks(batch: ProducerBatch, magic: int) -> bool:
    return batch.encoded is None or batch.encoded.magic != magic
