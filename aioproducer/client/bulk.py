"""Many records in one call."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any

from aioproducer.client.lifecycle import ProducerLifecycle
from aioproducer.runtime.bulk.result import Item, SendManyResult
from aioproducer.types import HeadersInput

if TYPE_CHECKING:
    from aioproducer.serializers.calling import PendingRecord, Prepared


class BulkSendMixin(ProducerLifecycle):
    """The part of `Producer` that sends many records at once."""

    def _prepare(
        self, topic: str, key: Any, value: Any, headers: HeadersInput
    ) -> Prepared | PendingRecord:
        raise NotImplementedError

    async def send_many(
        self,
        topic: str,
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        partition: int | None = None,
    ) -> SendManyResult:
        """Send many records and wait until each is acknowledged or has failed.

        Args:
            topic: topic of every item that names none itself.
            items: values; `(key, value)`, `(key, value, headers)`, `(…, timestamp_ms)` or
                `(…, partition)` tuples; or `Record` objects. Iterated lazily, with back-pressure.
            partition: partition of every item that names none itself.

        Returns:
            Counts, the offsets per partition, and each failed item with its error. An item that
            is refused (too large, not serializable, the partitioner raises) counts as failed; the
            others go on, except in a transaction: that cannot be committed any more.

        Raises:
            TypeError: the items are text, bytes or a table.
            SendManyInterruptedError: the items raised, or the producer was closed or failed
                meanwhile, or the transaction ended; its `result` says what became of the items up
                to there.
        """
        from aioproducer.runtime.bulk.send_many import send_many

        engine = self._usable()
        return await send_many(engine, self._prepare, topic, items, partition)

    async def send_arrow(
        self,
        topic: str | None,
        data: object,
        *,
        value: str | None = "value",
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        topic_column: str | None = None,
    ) -> SendManyResult:
        """Send the rows of a table and wait until each is acknowledged or has failed.

        Rows are encoded by native code, without a Python object for each; order, back-pressure,
        partitioning and guarantees are those of `send`. Serializers are not applied.

        Arrow's interface does not say how large most buffers are, so offsets are not checked. Data
        from strangers, such as an Arrow IPC stream, may make native code read and send other memory
        of the process, or crash: check them first, as by `table.validate(full=True)` of pyarrow.

        Args:
            topic: topic of the rows that name none; None where every row names one.
            data: anything with `__arrow_c_stream__` or `__arrow_c_array__`: a table, batch or
                reader of pyarrow, a frame of polars or pandas, a relation of DuckDB.
            value: column of the values, binary or string; None sends null values.
            key: column of the keys, binary or string.
            headers: column of the headers: map<string, binary> or a list of such pairs.
            partition: column of partition ids, integers; where null, the partitioner chooses.
            timestamp: column of timestamps, or of int64 milliseconds; where null, now.
            topic_column: column of topics, strings; where null, `topic`.

        Returns:
            As `send_many`; a failed row's `index` is its number from 0, over all chunks. A row that
            is refused (too large, a negative timestamp or partition) counts as failed; the others
            go on, except in a transaction: that cannot be committed any more.

        Raises:
            TypeError: `data` is not Arrow data.
            InvalidTopicError: no topic is given in either way.
            SerializationError: a column does not exist or has a type that cannot be sent; nothing
                was sent.
            SendManyInterruptedError: the data could not be read any further, or the producer was
                closed or failed meanwhile, or the transaction ended; its `result` says what became
                of the rows up to there.
        """
        from aioproducer.records.arrow import ArrowColumns
        from aioproducer.runtime.bulk.send_arrow import send_arrow

        columns = ArrowColumns(value, key, headers, partition, timestamp, topic_column)
        return await send_arrow(self._usable(), topic, data, columns)
