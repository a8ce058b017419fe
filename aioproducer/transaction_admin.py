"""Transactions seen from outside: ending prepared and orphaned ones, positions of groups.

Invariants
- A transaction is ended by producer id and epoch: never one that was begun later.
- An outcome that cannot be determined is an error, never a success.
- Every call may be repeated, from any process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Self, Unpack

from aioproducer._util.arguments import index_of
from aioproducer._util.secrets import hides_arguments
from aioproducer.config import ConfigInput, configured
from aioproducer.config.option_types import ProducerOptions
from aioproducer.core.transactions import coordinator_queries
from aioproducer.core.transactions.prepared import PreparedOutcome, prepared_outcome
from aioproducer.core.transactions.requests import CoordinatorKind
from aioproducer.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.types import (
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
    TransactionDescription,
)

_NOT_OURS_ANY_MORE = (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    UnknownProducerIdError,
)


class TransactionAdmin:
    """Ends transactions and reads positions, over its own connections.

    Args:
        config: a ready `ProducerConfig` or a mapping of properties, of which the connection, the
            time limits and the backoff count; options given by keyword override it.
        **options: fields of `ProducerConfig`.

    Every call raises `KafkaTimeoutError` after `max_block_ms` without an outcome; it may be
    repeated.

    Examples:
        >>> async with TransactionAdmin(bootstrap_servers="localhost:9092") as admin:
        ...     await admin.finish(prepared, commit=True)
    """

    @hides_arguments
    def __init__(self, config: ConfigInput = None, /, **options: Unpack[ProducerOptions]) -> None:
        self._config = configured(config, options)
        self._client: CoordinatorClient | None = None

    async def __aenter__(self) -> Self:
        if self._client is not None:
            raise IllegalStateError(
                "the TransactionAdmin is open already", advice="make one for each `async with`"
            )
        self._client = self._new_client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; safe to call again."""
        if self._client is not None:
            client = self._asks()  # in a forked child this would end the parent's connections
            self._client = None
            await client.close()

    # -- prepared transactions -------------------------------------------------------------------

    async def finish(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a prepared transaction; return once that is decided for good.

        It may be repeated: the same end succeeds as long as the coordinator has the outcome, which
        it keeps until the transactional id is used again. Takes at most `max_block_ms`, and as long
        again for the state of a transaction whose end is refused.

        Raises:
            PreparedTransactionEndedError: it has ended the other way; most likely the broker
                aborted it after `transaction_timeout_ms`, so that nothing of it is visible.
            PreparedTransactionUnknownError: the transactional id was used again, or expired; in
                transactions of version 1 (KIP-98) also after `transaction_timeout_ms`.
            AuthorizationError: the principal may not use the transactional id.
            KafkaError: the coordinator refuses, and says that the transaction is open still.
        """
        if prepared.empty:
            return
        try:
            await self._asks().ask(coordinator_queries.end(prepared, commit=commit))
        except _NOT_OURS_ANY_MORE as error:
            outcome = await self._outcome_of(prepared)
            if outcome is PreparedOutcome.OPEN:
                raise
            if outcome is not (PreparedOutcome.COMMITTED if commit else PreparedOutcome.ABORTED):
                raise _ended_error(prepared, outcome) from error

    async def still_prepared(self, prepared: PreparedTransaction) -> bool:
        """Return whether the transaction is open still, so that it can be committed and aborted.

        An empty one always can. Needs brokers from Kafka 3.0 on.
        """
        return prepared.empty or await self._outcome_of(prepared) is PreparedOutcome.OPEN

    # -- any transaction -------------------------------------------------------------------------

    async def describe(self, transactional_id: str) -> TransactionDescription | None:
        """Return the coordinator's state of a transactional id; None for none (Kafka 3.0)."""
        return await self._asks().ask(coordinator_queries.describe(transactional_id))

    async def open_transactions(
        self, prefix: str = "", *, older_than_ms: int | None = None
    ) -> list[TransactionDescription]:
        """Return the open transactions whose ids begin with `prefix`, by id (Kafka 3.0).

        Args:
            prefix: the beginning of the transactional ids.
            older_than_ms: only those that have been open for longer (KIP-994, Kafka 3.8).
        """
        found = await self._asks().ask_each(coordinator_queries.list_open(prefix, older_than_ms))
        names = sorted({name for some in found for name in some})
        described = await self._described(names)
        return [
            each
            for name in names
            if (each := described.get(name)) is not None and each.state == "Ongoing"
        ]

    async def abort_orphans(
        self, prefix: str, *, keep: Collection[str] = (), older_than_ms: int | None = None
    ) -> list[TransactionDescription]:
        """Abort open transactions that no producer will end, and fence their producers.

        Until the broker's timeout they would hold up read_committed consumers.

        Args:
            prefix: the beginning of the transactional ids; not empty.
            keep: transactional ids to leave alone: those whose end is decided.
            older_than_ms: only those that have been open for longer (KIP-994, Kafka 3.8).

        Returns:
            The transactions that were open and are aborted now. Before transaction version 2
            (Kafka 4.0) one may be among them that its producer commits during the call.
        """
        if not prefix:
            raise ValueError("an empty prefix would abort the transactions of all producers")
        kept = frozenset([keep] if isinstance(keep, str) else keep)  # an iterator is read once
        found = await self.open_transactions(prefix, older_than_ms=older_than_ms)
        wanted = [each for each in found if each.transactional_id not in kept]
        return [each for each in wanted if await self._aborted(each)]

    # -- positions -------------------------------------------------------------------------------

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's positions with their metadata; a partition without one is left out.

        Waits for open transactions that may change them (require_stable, KIP-447, Kafka 2.5).
        """
        places = [TopicPartition(topic, index_of(number)) for topic, number in partitions]
        return await self._asks().ask(coordinator_queries.committed(group_id, places))

    async def _described(self, names: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return the coordinators' descriptions of transactional ids; unknown ids are left out."""
        kind = CoordinatorKind.TRANSACTION
        return await self._asks().ask_coordinators(kind, names, coordinator_queries.describe_each)

    def _new_client(self) -> CoordinatorClient:
        """Return the connections; a simulation gives it another network."""
        return CoordinatorClient(self._config)

    def _asks(self) -> CoordinatorClient:
        if self._client is None:
            raise IllegalStateError(
                "the TransactionAdmin is not open", advice="use it by `async with`"
            )
        self._client.check_loop()
        return self._client

    async def _outcome_of(self, prepared: PreparedTransaction) -> PreparedOutcome:
        return prepared_outcome(prepared, await self.describe(prepared.transactional_id))

    async def _aborted(self, found: TransactionDescription) -> bool:
        client = self._asks()
        if await client.transaction_version() >= 2:
            question = coordinator_queries.end(
                PreparedTransaction(found.transactional_id, found.producer_id, found.epoch, 2),
                commit=False,
            )
        else:
            question = coordinator_queries.fence(found)
        try:
            await client.ask(question)
        except _NOT_OURS_ANY_MORE:
            # Its producer, or the next one, was alive after all; or our first try had its effect.
            now = await self.describe(found.transactional_id)
            return now is not None and now.state == "CompleteAbort"
        return True


def _ended_error(
    prepared: PreparedTransaction, outcome: PreparedOutcome
) -> PreparedTransactionEndedError | PreparedTransactionUnknownError:
    name = f"the prepared transaction of {prepared.transactional_id!r}"
    match outcome:
        case PreparedOutcome.COMMITTED:
            return PreparedTransactionEndedError(
                f"{name} cannot be aborted: it is committed, all of it is visible"
            )
        case PreparedOutcome.ABORTED:
            return PreparedTransactionEndedError(
                f"{name} cannot be committed: it was aborted, nothing of it is visible",
                advice="Do its work again; unless it was aborted on purpose, it took longer than "
                "transaction_timeout_ms.",
            )
        case _:
            return PreparedTransactionUnknownError(f"{name} is {outcome.value}")


@hides_arguments
async def finish_transaction(
    prepared: PreparedTransaction, config: ConfigInput = None, /, *, commit: bool, **options: Any
) -> None:
    """`TransactionAdmin.finish` for one transaction."""
    async with TransactionAdmin(config, **options) as admin:
        await admin.finish(prepared, commit=commit)


@hides_arguments
async def still_prepared(
    prepared: PreparedTransaction, config: ConfigInput = None, /, **options: Any
) -> bool:
    """`TransactionAdmin.still_prepared` for one transaction."""
    async with TransactionAdmin(config, **options) as admin:
        return await admin.still_prepared(prepared)
