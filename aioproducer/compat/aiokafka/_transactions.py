"""The transactional calls of `AIOKafkaProducer`, and the context manager of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aioproducer.compat.aiokafka._connection import Connection
from aioproducer.compat.aiokafka._error_base import shared_class
from aioproducer.compat.aiokafka._errors import IllegalOperation
from aioproducer.compat.aiokafka._offsets import checked_group, checked_offsets
from aioproducer.compat.aiokafka._translation import translating

if TYPE_CHECKING:
    from aioproducer.client.transactions import Transaction
    from aioproducer.config import ProducerConfig


class TransactionsMixin:
    """The calls that need a `transactional_id`."""

    _own_config: ProducerConfig

    async def begin_transaction(self) -> None:
        """Begin a transaction; every record sent until its end belongs to it."""
        with translating():
            await self._own_transactional().begin_transaction()

    async def commit_transaction(self) -> None:
        """Wait for every record, then commit.

        Raises:
            KafkaError: of the class of whatever failed in the transaction: it must be aborted. With
                an `aioproducer.CommitOutcomeUnknownError` as its `__cause__`: the producer was
                stopped or failed before the coordinator's answer, and it may be committed or not;
                the cause's `transaction` finds out.
            KafkaTimeoutError: no outcome within `request_timeout_ms`; call this again for it.
            ProducerFenced: only `stop()` is left.
            IllegalOperation: no transaction is open.
        """
        with translating():
            await self._own_transactional().commit_transaction()

    async def abort_transaction(self) -> None:
        """Abort; the futures of records that were not sent yet fail."""
        with translating():
            await self._own_transactional().abort_transaction()

    def transaction(self) -> TransactionContext:
        """Return a context manager that commits, or aborts after an exception."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: Any) -> None:
        """Add a consumer group's positions to the transaction.

        Args:
            offsets: per `TopicPartition`, aiokafka's or ours, an offset, or offset and metadata.
            group_id: the group; or the consumer itself, so that the broker can refuse the positions
                of a member the group has expelled (KIP-447).

        Raises:
            IllegalOperation: no transaction is open.
            ValueError, TypeError: the arguments are something else.
        """
        connection = self._own_transactional()
        if not connection.in_transaction:
            raise shared_class(IllegalOperation)("Not in the middle of a transaction")
        group = checked_group(group_id)
        with translating():
            await connection.send_offsets_to_transaction(checked_offsets(offsets), group)

    # -- private ---------------------------------------------------------------------------------

    def _own_running(self) -> Connection:
        raise NotImplementedError

    def _own_transactional(self) -> Connection:
        if self._own_config.transactional_id is None:
            raise shared_class(IllegalOperation)(
                "You need to configure transaction_id to use transactions"
            )
        return self._own_running()


class TransactionContext:
    """The block `AIOKafkaProducer.transaction()` gives.

    Left normally it commits, and if that is refused, aborts and raises why. Left by an exception it
    aborts, and the exception goes on; what goes wrong with that abort becomes a note of it.
    """

    def __init__(self, producer: TransactionsMixin) -> None:
        self._producer = producer
        self._block: Transaction | None = None

    async def __aenter__(self) -> Self:
        self._block = self._producer._own_transactional().transaction()
        with translating():
            await self._block.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._block is not None:
            with translating():
                await self._block.__aexit__(exc_type, exc_value, traceback)
