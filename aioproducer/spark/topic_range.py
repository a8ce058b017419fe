"""Reads a range of offsets of one partition: what verification and backfills need, nothing more.

Invariants
- Each record of the range comes once and in order; every batch's checksum is checked.
- Markers never show; what belongs to an aborted transaction does not either, unless uncommitted
  records are asked for.
- A step without progress ends after `max_block_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Self, TypeVar, cast

from aioproducer import errors
from aioproducer.config import ProducerConfig
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.errors.base import raise_for_code
from aioproducer.records.batch import DecodedRecord
from aioproducer.records.committed import (
    FETCH_BYTES,
    FETCH_VERSIONS,
    batches_between,
    fetch_request,
    offsets_request,
)
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.types import TimestampType
from aioproducer.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aioproducer.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.wire.schema import Message

_T = TypeVar("_T")

_PAUSE_S: Final = 0.1
# The first versions that create no topics and have isolation levels; the last by name.
_METADATA: Final = (4, 9)
_LIST_OFFSETS: Final = (2, 7)


class Fetched(NamedTuple):
    """The records of one batch."""

    records: list[DecodedRecord]
    timestamp_type: TimestampType


class TopicRange:
    """One topic of a cluster, over its own connections; in an `async with` block."""

    def __init__(self, config: ProducerConfig, topic: str, *, committed: bool) -> None:
        self._config = config
        self._topic = topic
        self._isolation = 1 if committed else 0
        self._leaders: dict[int, int] = {}

    async def __aenter__(self) -> Self:
        self._client = CoordinatorClient(self._config)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def offsets(self, time: int) -> dict[int, int]:
        """Return the earliest or latest offset of each partition."""

        async def asked() -> dict[int, int]:
            self._leaders = await self._client.ask(_leaders(self._topic))
            return {
                partition: await self._client.ask_broker(
                    self._leader(partition), _offset(self._topic, partition, time, self._isolation)
                )
                for partition in sorted(self._leaders)
            }

        return await self._repeated(asked)

    async def records(self, partition: int, start: int, end: int) -> AsyncIterator[Fetched]:
        """Yield the records from `start` up to, not including, `end`."""
        loop = asyncio.get_running_loop()
        position, moved = start, loop.time()
        while position < end:
            at = position

            async def fetched(at: int = at) -> PartitionData:
                if partition not in self._leaders:
                    self._leaders = await self._client.ask(_leaders(self._topic))
                query = _fetch(self._topic, partition, at, self._isolation)
                return await self._client.ask_broker(self._leader(partition), query)

            data = await self._repeated(fetched)
            for batch, records in batches_between(data, position, end):
                if records:
                    yield Fetched(records, batch.timestamp_type)
                position = batch.last_offset + 1
            if position > at:
                moved = loop.time()
            elif loop.time() - moved < self._config.call_timeout_ms / 1000:
                await asyncio.sleep(_PAUSE_S)  # an open transaction may be in the way
            else:
                raise errors.KafkaTimeoutError(
                    f"nothing to read at offset {at}", topic=self._topic, partition=partition
                )

    def _leader(self, partition: int) -> int:
        leader = self._leaders.get(partition, -1)
        if leader < 0:  # or the answer leaves it out
            raise errors.LeaderNotAvailableError(topic=self._topic, partition=partition)
        return leader

    async def _repeated(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        last = ""
        try:
            async with asyncio.timeout(self._config.call_timeout_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except errors.KafkaError as error:
                        if not error.retriable or isinstance(error, _MissingTopicError):
                            raise
                        last = f": {error}"
                    self._leaders = {}
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise errors.KafkaTimeoutError(
                f"no answer within {self._config.call_bound}{last}", topic=self._topic
            ) from None


class _MissingTopicError(errors.UnknownTopicOrPartitionError):
    retriable = False


def _leaders(topic: str) -> CoordinatorQuery[dict[int, int]]:
    def read(answer: Message) -> dict[int, int]:
        found = _first(cast(MetadataResponse, answer).topics)
        if found.error_code == errors.UnknownTopicOrPartitionError.code:
            raise _MissingTopicError(topic=topic)
        raise_for_code(found.error_code, topic=topic)
        if not found.partitions:
            raise errors.LeaderNotAvailableError(topic=topic)
        return {each.partition_index: each.leader_id for each in found.partitions}

    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return CoordinatorQuery(MetadataRequest, lambda _: request, read, None, *_METADATA)


def _offset(topic: str, partition: int, time: int, isolation: int) -> CoordinatorQuery[int]:
    def read(answer: Message) -> int:
        found = _first(_first(cast(ListOffsetsResponse, answer).topics).partitions)
        raise_for_code(found.error_code, topic=topic, partition=partition)
        return found.offset

    request = offsets_request(topic, [partition], time, isolation)
    return CoordinatorQuery(ListOffsetsRequest, lambda _: request, read, None, *_LIST_OFFSETS)


def _fetch(
    topic: str, partition: int, offset: int, isolation: int
) -> CoordinatorQuery[PartitionData]:
    def read(answer: Message) -> PartitionData:
        response = cast(FetchResponse, answer)
        raise_for_code(response.error_code, topic=topic, partition=partition)
        if not response.responses:
            return PartitionData(partition_index=partition)
        found = _first(response.responses[0].partitions)
        raise_for_code(found.error_code, topic=topic, partition=partition)
        return found

    request = fetch_request(topic, {partition: offset}, isolation, FETCH_BYTES)
    return CoordinatorQuery(FetchRequest, lambda _: request, read, None, *FETCH_VERSIONS)


def _first(answers: Sequence[_T]) -> _T:
    if not answers:
        raise errors.ProtocolError("a broker's answer is empty")
    return answers[0]
