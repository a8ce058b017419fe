"""Storage of decisions: offsets of a consumer group, written in the driver's transactions.

    group <prefix>           partition i of the marker topic: offset = epoch + 1, metadata = piece i
    group <prefix>-settled   partition 0: the same epoch, a checksum of its transactions, its owner,
                             once every end is acknowledged

Invariants
- A decision is written under the identity its epoch was planned with, so never by a driver that
  was fenced in the meantime.
- Offsets are read only after the identity was renewed: no transaction that may change them is left.
- `settled` saves work; it may be out of date, and never counts for a later epoch than decided. A
  prefix that is used once has none: it would rarely save work.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from aioproducer._util import log
from aioproducer._util.tasks import together
from aioproducer.config import ProducerConfig
from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import coordinator_queries
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.core.transactions.prepared import PreparedOutcome, prepared_outcome
from aioproducer.core.transactions.requests import CoordinatorKind
from aioproducer.errors import (
    KafkaError,
    KafkaTimeoutError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
    UnknownTopicOrPartitionError,
)
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.errors import (
    FENCED,
    DecisionRecordError,
    DecisionUnknownError,
    SupersededError,
)
from aioproducer.spark.exactly_once.decision import Decision, Part, TransactionNames, decode, encode
from aioproducer.spark.topics import missing_topic
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import (
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
    TransactionDescription,
)
from aioproducer.wire.schema import Message

_log = log.get("spark")

_IDLE = "Empty"
_RETRY_S = 0.2


class Ledger(TransactionAdmin):
    """The decisions of one prefix, and the requests of the driver that makes them.

    A shared `client` stays open; without it the ledger makes its own. See `writes.ExactlyOnce` for
    the other arguments.
    """

    def __init__(
        self,
        config: ProducerConfig,
        prefix: str,
        marker_topic: str,
        client: CoordinatorClient | None = None,
        *,
        used_once: bool = False,
        topic_timeout_s: float | None = None,
    ) -> None:
        super().__init__(config)
        self.names: TransactionNames = TransactionNames(prefix)
        self.used_once: bool = used_once
        self._topic = marker_topic
        self._shared_client = client
        self._topic_timeout_s = topic_timeout_s

    async def close(self) -> None:
        """Close the ledger's own connections; safe to call again."""
        if self._shared_client is None:
            await super().close()
        self._client = None

    async def find_driver(self) -> None:
        """Find the coordinator for `take_over`; other requests run meanwhile."""
        await self._asks().find_coordinators(CoordinatorKind.TRANSACTION, [self.names.driver])

    async def find_groups(self) -> None:
        """Find the coordinator of the group that keeps decisions; other requests run meanwhile."""
        groups = (
            [self.names.prefix] if self.used_once else [self.names.prefix, self._completed_group]
        )
        await self._asks().find_coordinators(CoordinatorKind.GROUP, groups)

    async def take_over(self) -> PreparedTransaction:
        """Fence every other driver; return the identity of this one, which ends its decision."""
        asks = self._asks()
        timeout_ms = self._config.transaction_timeout_ms
        identity = await asks.ask(coordinator_queries.take_over(self.names.driver, timeout_ms))
        version = 2 if await asks.transaction_version() >= 2 else 1
        return PreparedTransaction(self.names.driver, *identity, transaction_version=version)

    async def give_up(self, driver: PreparedTransaction) -> PreparedTransaction | None:
        """Fence this identity; return the new one, or None if another driver has taken over."""
        identity = ProducerIdentity(driver.producer_id, driver.epoch)
        timeout_ms = self._config.transaction_timeout_ms
        try:
            query = coordinator_queries.take_over(self.names.driver, timeout_ms, identity)
            renewed = await self._asks().ask(query)
        except FENCED:
            return None
        return replace(driver, producer_id=renewed.producer_id, epoch=renewed.epoch)

    async def partition_count(self) -> int:
        """Return the number of partitions of the marker topic; wait for it to exist."""
        may_create = self._config.allow_auto_create_topics
        query = coordinator_queries.partition_count(self._topic, may_create=may_create)
        if self._topic_timeout_s is None:
            return await self._asks().ask(query)
        began = asyncio.get_running_loop().time()
        while not (count := await self._asks().ask(_or_zero(query))):
            if asyncio.get_running_loop().time() - began >= self._topic_timeout_s:
                raise missing_topic(self._topic, began)
            await asyncio.sleep(_RETRY_S)
        return count

    async def open_attempts(
        self, beside: Iterable[Part] = (), *, idle: bool = False
    ) -> list[TransactionDescription]:
        """Return the open transactions of this prefix's tasks, without those of the parts `beside`.

        With `idle` also attempts that have their identity and have written nothing yet.
        """
        query = coordinator_queries.list_open(self.names.workers, None, idle=idle)
        listed = {name for some in await self._asks().ask_each(query) for name in some}
        listed -= {part.transaction.transactional_id for part in beside}
        wanted = [name for name in sorted(listed) if self.names.read(name) is not None]
        described = await self._described(wanted)
        states = {"Ongoing", _IDLE} if idle else {"Ongoing"}
        return [each for each in described.values() if each.state in states]

    async def not_prepared(self, parts: Iterable[Part]) -> list[Part]:
        """Return the parts whose transactions have ended."""
        asked = [part for part in parts if not part.transaction.empty]
        names = [part.transaction.transactional_id for part in asked]
        # A connection answers one request after the other: the next coordinator is found meanwhile.
        both = [self.names.driver, *names]
        await self._asks().find_coordinators(CoordinatorKind.TRANSACTION, both)
        found = await self._described(names)

        def outcome(prepared: PreparedTransaction) -> PreparedOutcome:
            return prepared_outcome(prepared, found.get(prepared.transactional_id))

        return [part for part in asked if outcome(part.transaction) is not PreparedOutcome.OPEN]

    async def abort_orphan(self, found: TransactionDescription) -> None:
        """Abort a transaction if it is still open; a failure is left to the next plan."""
        try:
            if await self._aborted(found):
                _log.info("shut out %s, which no driver can decide", found.transactional_id)
        except KafkaError as error:
            _log.warning("%s was not aborted: %s", found.transactional_id, error)

    async def last_decision(self) -> Decision | None:
        """Return the last epoch that was decided; None for none, or none that brokers remember."""
        found = await self._asks().ask(coordinator_queries.committed(self.names.prefix, None))
        last = max((each.offset for each in found.values()), default=0)
        if last == 0:
            return None
        # The marker topic may have been another one before.
        topic = next(place.topic for place in sorted(found) if found[place].offset == last)
        pieces = {
            place.partition: each.metadata
            for place, each in found.items()
            if place.topic == topic and each.offset == last
        }
        return decode(last - 1, pieces, self.names)

    async def decide(
        self, driver: PreparedTransaction, decision: Decision, *, replaces_another: bool = False
    ) -> None:
        """Write a decision; return when it is durable.

        With `replaces_another` the epochs so far are another query's: they may be higher, and of
        another topic, and no longer count.

        Its transaction begins no sooner than it can be ended: a fenced driver that gives up
        aborts what is open under the id, since coordinators compare epochs only otherwise.
        Raises `SupersededError` also if an earlier call has decided.
        """
        replaced = await self._places() if replaces_another else ()
        await self._propose(driver, decision, replaced)
        await self._end(driver, decision.epoch)

    async def _places(self) -> list[TopicPartition]:
        """Return where decisions are, but for topics that are deleted."""
        asks = self._asks()
        found = await asks.ask(coordinator_queries.committed(self.names.prefix, None))
        counts = {}
        for topic in {place.topic for place in found}:
            query = coordinator_queries.partition_count(topic, may_create=False)
            counts[topic] = await asks.ask(_or_zero(query))
        return [place for place in found if place.partition < counts[place.topic]]

    async def _propose(
        self,
        driver: PreparedTransaction,
        decision: Decision,
        replaced: Iterable[TopicPartition] = (),
    ) -> None:
        pieces = encode(decision, self.names)
        if len(pieces) > 1 and len(pieces) > (partitions := await self.partition_count()):
            raise DecisionRecordError(
                f"the {len(decision.parts)} transactions of epoch {decision.epoch} take "
                f"{len(pieces)} partitions to remember, and topic {self._topic!r} has {partitions}",
                advice="Name an existing topic with more partitions as marker.topic, or write "
                "with fewer tasks (coalesce).",
            )
        offsets = dict.fromkeys(replaced, OffsetAndMetadata(0)) | {
            TopicPartition(self._topic, number): OffsetAndMetadata(decision.epoch + 1, piece)
            for number, piece in enumerate(pieces)
        }
        group, asks = self.names.prefix, self._asks()
        try:
            if driver.transaction_version < 2:
                await asks.ask(coordinator_queries.add_group(driver, group))
            await asks.ask(coordinator_queries.commit_in_transaction(driver, group, offsets))
        except FENCED as error:
            raise superseded(decision.epoch) from error

    async def _end(self, driver: PreparedTransaction, epoch: int) -> None:
        try:
            await self.finish(driver, commit=True)
        except (*FENCED, PreparedTransactionEndedError, PreparedTransactionUnknownError) as error:
            # The next driver aborts what was proposed; else the transaction's timeout does.
            raise superseded(epoch) from error
        except KafkaTimeoutError as error:
            raise DecisionUnknownError(
                f"whether epoch {epoch} is decided is not known: {error}", epoch=epoch
            ) from error

    async def last_decision_and_end(self) -> tuple[Decision | None, bool]:
        """`last_decision`, and whether every end of it was acknowledged."""
        completed = coordinator_queries.committed(self._completed_group, None)
        last, found = await together(self.last_decision(), self._asks().ask(completed))
        return last, last is not None and _completion_of(last) in found.values()

    async def record_completion(self, decision: Decision) -> None:
        """Record that every end of the decision was acknowledged and need not be repeated."""
        if self.used_once:
            return
        try:
            place = TopicPartition(self._topic, 0)
            await self._asks().ask(
                coordinator_queries.commit(self._completed_group, {place: _completion_of(decision)})
            )
        except KafkaError as error:
            _log.info("epoch %d will be checked once more: %s", decision.epoch, error)

    def _new_client(self) -> CoordinatorClient:
        if self._shared_client is None:
            return super()._new_client()
        # The coordinator is looked up in each call: a cached one may be a broker that was cut off,
        # and has not noticed yet that another broker coordinates.
        self._shared_client.drop_coordinators()
        return self._shared_client

    @property
    def _completed_group(self) -> str:
        return f"{self.names.prefix}-settled"


async def is_over(asks: CoordinatorClient, driver: PreparedTransaction) -> bool:
    """Return whether the driver with this identity has decided or given up, or was fenced."""
    found = await asks.ask(coordinator_queries.describe(driver.transactional_id))
    identity = (driver.producer_id, driver.epoch)
    return found is None or found.state != _IDLE or (found.producer_id, found.epoch) != identity


def _or_zero(query: CoordinatorQuery[int]) -> CoordinatorQuery[int]:
    """Return the query for a partition count with 0 for a topic that does not exist."""

    def read(answer: Message) -> int:
        with suppress(UnknownTopicOrPartitionError):
            return query.read(answer)
        return 0

    return replace(query, read=read)


def _completion_of(decision: Decision) -> OffsetAndMetadata:
    # Once its offsets were reset, an epoch may be decided once more: with other transactions.
    transactions = [
        (each.transaction.producer_id, each.transaction.epoch) for each in decision.parts
    ]
    checksum = zlib.crc32(repr(transactions).encode())
    return OffsetAndMetadata(decision.epoch + 1, f"{checksum:08x} {decision.owner}")


def superseded(epoch: int) -> SupersededError:
    """Return the error of a driver that another driver has fenced."""
    return SupersededError(
        f"another driver has taken over while epoch {epoch} was written, that of another query or "
        "job with this transactional.id.prefix; what becomes of the epoch is up to that one",
        epoch=epoch,
    )
