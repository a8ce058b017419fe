"""Batches of records that the caller has chosen (for `compat.aiokafka`): `WholeBatchAppender`.

Invariant: such a batch takes no other records and is written whole or not at all. If the broker
refuses it for its size, or for one of its records, that is the outcome of all its records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aioproducer.core.batching.outgoing import OutgoingRecord
from aioproducer.errors import IllegalStateError
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.send.appender import LOSSES, RecordAppender
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch


WholeRecord = tuple[bytes | None, bytes | None, HeaderPairs, int | None]
"""Key, value, headers and timestamp in ms of one record."""


class WholeBatchAppender(RecordAppender):
    """`RecordAppender` that also appends whole batches."""

    async def append_whole(
        self, topic: str, records: Sequence[WholeRecord], partition: int | None
    ) -> ProducerBatch:
        """Open one batch of these records, at least one, which takes no others.

        Waits as `append` does. Without a partition, the partitioner chooses as for a record
        without key and value.
        """
        transaction_number = self._transaction_number()
        try:
            meta, partition, deadline = await self._metadata_of(
                topic, partition, transaction_number
            )
            chosen = self._check.record(meta, None, None, (), partition, None).partition
            checked = [
                self._check.record(meta, key, value, headers, chosen or 0, timestamp_ms)
                for key, value, headers, timestamp_ms in records
            ]
            for record in checked:
                record.partition = chosen
            size = HEADER_SIZE + sum(record.size - HEADER_SIZE for record in checked)
            self._memory.pool.check_size(size)
            if self._may_append and not self.batch_appender.may_open(size):
                await asyncio.sleep(0)  # fairness, as in `append`
                self._check_open(transaction_number)
            buffer = self._memory.pool.try_allocate(size) if self._may_append else None
            if buffer is not None:
                return self.batch_appender.open_whole(checked, buffer, size)
            return await self._append_whole_in_line(checked, size, deadline, transaction_number)
        except (*LOSSES, IllegalStateError) as error:
            self._on_refused(transaction_number, error)
            raise

    # -- private -----------------------------------------------------------------------------------

    async def _append_whole_in_line(
        self,
        records: Sequence[OutgoingRecord],
        size: int,
        deadline: float | None,
        transaction_number: int,
    ) -> ProducerBatch:
        async with self._in_turn(records[0].meta.name, deadline):
            await self._memory.wait_for_place(self.fast_path.appended)
            buffer = await self._memory.allocate(size)
            try:
                self._check_open(transaction_number)
            except BaseException:
                self._memory.pool.deallocate(buffer, size)
                raise
            return self.batch_appender.open_whole(records, buffer, size)
