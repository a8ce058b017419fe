"""Reading a topic back, from its start to the end it had when the reading began.

Invariants:
- Each record comes once and in offset order per partition; every batch's CRC is checked.
- Control records are never among the records; what belongs to an aborted or an undecided
  transaction is not either where `isolation_level` is "read_committed" (KIP-98).
- All waiting and decoding ends at `timeout_s`; in `stream_part` that is the time without an
  answer, and without new batches unless it follows.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Self, cast

from aioproducer import errors
from aioproducer.errors.base import raise_for_code
from aioproducer.records.batch import DecodedRecord
from aioproducer.records.committed import (
    EARLIEST,
    FETCH_VERSIONS,
    LATEST,
    batches_between,
    fetch_request,
    offsets_request,
)
from aioproducer.testing.admin import create_topic, delete_topic, list_topics
from aioproducer.testing.wire_client import OpenLink, WireClient, first_of
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.fetch import FetchResponse, PartitionData
from aioproducer.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

__all__ = [
    "BEGINNING",
    "ReadFrom",
    "Start",
    "create_topic",
    "delete_topic",
    "end_offsets",
    "list_topics",
    "read_topic",
    "stream_batches",
    "stream_part",
    "stream_topic",
]

IsolationLevel = Literal["read_uncommitted", "read_committed"]
_ISOLATION_CODES: Mapping[IsolationLevel, int] = {"read_uncommitted": 0, "read_committed": 1}

_PARTITION_BYTES = 1024 * 1024


class Start(Enum):
    """The unit of a `ReadFrom`'s number."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    """So many records before the end of each partition."""
    TIME = "time"
    """The first record that is not older than so many ms since 1970."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """The start of reading in each partition."""

    start: Start
    number: int = 0


BEGINNING = ReadFrom(Start.BEGINNING)

_LEADER_MOVED = (
    errors.NotLeaderOrFollowerError,
    errors.LeaderNotAvailableError,
    errors.FencedLeaderEpochError,
    errors.UnknownLeaderEpochError,
)


async def read_topic(
    bootstrap: str,
    topic: str,
    *,
    timeout_s: float = 60.0,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> dict[int, list[DecodedRecord]]:
    """Return all records of a topic by partition, every partition named even if empty.

    Args:
        bootstrap: `host:port` of one or more brokers, separated by commas.
        topic: The topic.
        timeout_s: For all of it.
        isolation_level: "read_committed" leaves out what was not committed when the reading began.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
        KafkaTimeoutError: It took longer than `timeout_s`.
        ProtocolError: A batch is corrupt.
    """
    async with WireClient(bootstrap, timeout_s=timeout_s) as client:
        reading = await _Reading.begin(client, topic, isolation_level)
        found: dict[int, list[DecodedRecord]] = {index: [] for index in reading.partitions}
        async with aclosing(reading.batches()) as batches:
            async for partition, records in batches:
                found[partition.partition].extend(records)
        return found


async def stream_topic(
    bootstrap: str,
    topic: str,
    *,
    timeout_s: float = 60.0,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> AsyncGenerator[tuple[TopicPartition, DecodedRecord], None]:
    """Yield all records of a topic; partitions come interleaved. Errors as `read_topic`."""
    reading = stream_batches(bootstrap, topic, timeout_s=timeout_s, isolation_level=isolation_level)
    async with aclosing(reading) as batches:
        async for partition, records in batches:
            for record in records:
                yield partition, record


async def stream_batches(
    bootstrap: str,
    topic: str,
    *,
    timeout_s: float = 60.0,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> AsyncGenerator[tuple[TopicPartition, list[DecodedRecord]], None]:
    """Yield all records of a topic batch by batch, which costs least per record."""
    async with WireClient(bootstrap, timeout_s=timeout_s) as client:
        reading = await _Reading.begin(client, topic, isolation_level)
        async with aclosing(reading.batches()) as batches:
            async for found in batches:
                yield found


async def stream_part(
    bootstrap: str,
    topic: str,
    *,
    read_from: ReadFrom = BEGINNING,
    partition: int | None = None,
    follow: bool = False,
    timeout_s: float = 60.0,
    isolation_level: IsolationLevel = "read_uncommitted",
    open_link: OpenLink | None = None,
) -> AsyncGenerator[tuple[TopicPartition, list[DecodedRecord]], None]:
    """Yield records of a topic from a place on, batch by batch.

    Args:
        bootstrap: As `read_topic`.
        topic: The topic.
        read_from: Where to begin; a place outside of a partition means its nearest end.
        partition: The only partition to read; all of them if left out.
        follow: Go on with records that arrive later, without end.
        timeout_s: How long brokers may be silent, or answer without new records before the end.
        isolation_level: As `read_topic`.
        open_link: How to connect; without TLS and SASL if left out.

    Raises:
        InvalidPartitionError: The topic has no such partition.
        KafkaError: As `read_topic`, and whatever `open_link` raises.
    """
    async with WireClient(bootstrap, timeout_s=timeout_s, open_link=open_link) as client:
        reading = await _Reading.begin(client, topic, isolation_level, read_from, partition)
        if follow:
            reading.follow()
        async with aclosing(reading.batches(extend_deadline=True)) as batches:
            async for found in batches:
                yield found


async def end_offsets(
    bootstrap: str,
    topic: str,
    *,
    timeout_s: float = 30.0,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> dict[int, int]:
    """Return the offset after the last record of each partition. Errors as `read_topic`.

    With "read_committed" the last stable offset, where the first undecided transaction begins.
    """
    async with WireClient(bootstrap, timeout_s=timeout_s) as client:
        return await _list_offsets(client, topic, LATEST, isolation_level)


class TopicMissingError(errors.UnknownTopicOrPartitionError):
    """No broker has the topic."""

    retriable = False


async def _leaders(client: WireClient, topic: str, only: int | None = None) -> dict[int, int]:
    """Return the leader of each partition, or of the `only` one; one attempt.

    Brokers learn of a new topic one after the other, so it counts as missing only if none has it.
    """
    described = first_of((await client.metadata([topic])).topics, "topic")
    for node_id in client.node_ids:
        if described.error_code != errors.UnknownTopicOrPartitionError.code:
            break
        answer = await client.metadata([topic], node_id=node_id)
        described = first_of(answer.topics, "topic")
    else:
        raise TopicMissingError(topic=topic)
    raise_for_code(described.error_code, topic=topic)
    partitions = described.partitions
    if only is not None:
        partitions = [each for each in partitions if each.partition_index == only]
        if not partitions:
            count = len(described.partitions)
            raise errors.InvalidPartitionError(
                f"there is no partition {only}: the topic has {count}, from 0 to {count - 1}",
                topic=topic,
            )
    for partition in partitions:
        raise_for_code(partition.error_code, topic=topic)
    return {each.partition_index: each.leader_id for each in partitions}


async def _list_offsets(
    client: WireClient,
    topic: str,
    timestamp: int,
    isolation_level: IsolationLevel,
    only: int | None = None,
) -> dict[int, int]:
    async def attempt() -> dict[int, int]:
        found: dict[int, int] = {}
        for node_id, indexes in _by_leader(await _leaders(client, topic, only)).items():
            request = offsets_request(topic, indexes, timestamp, _ISOLATION_CODES[isolation_level])
            found |= await _offsets_at(client, topic, node_id, request)
        return dict(sorted(found.items()))

    return await client.retry(attempt)


async def _offsets_at(
    client: WireClient, topic: str, node_id: int, request: ListOffsetsRequest
) -> dict[int, int]:
    # v2 is the first with isolation levels.
    lowest = 2 if request.isolation_level else 1
    response = cast(ListOffsetsResponse, await client.ask(node_id, request, lowest, 7))
    answers = first_of(response.topics, "topic").partitions
    for answer in answers:
        raise_for_code(answer.error_code, topic=topic)
    found = {answer.partition_index: answer.offset for answer in answers}
    asked = {each.partition_index for each in request.topics[0].partitions}
    if asked != found.keys():
        raise errors.ProtocolError(
            "a broker answered about other partitions than asked", topic=topic, node_id=node_id
        )
    return found


def _by_leader(leaders: Mapping[int, int]) -> dict[int, list[int]]:
    led: defaultdict[int, list[int]] = defaultdict(list)
    for index, node_id in sorted(leaders.items()):
        led[node_id].append(index)
    return led


def _places(
    read_from: ReadFrom, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Return the start offsets of partitions that are given by their ends alone."""
    if read_from.start is Start.BEGINNING:
        return {index: starts.get(index, 0) for index in ends}
    if read_from.start is Start.OFFSET:
        return dict.fromkeys(ends, read_from.number)
    return {index: end - read_from.number for index, end in ends.items()}


class _Reading:
    """One pass over a topic: the position of each partition, and its end."""

    def __init__(
        self,
        client: WireClient,
        topic: str,
        isolation_level: IsolationLevel,
        starts: dict[int, int],
        ends: dict[int, int],
        only: int | None,
    ) -> None:
        self.partitions = sorted(ends)
        self._client = client
        self._topic = topic
        self._isolation_level = isolation_level
        self._next = starts
        self._end = ends
        self._only = only
        self._follows = False

    @classmethod
    async def begin(
        cls,
        client: WireClient,
        topic: str,
        isolation_level: IsolationLevel,
        read_from: ReadFrom = BEGINNING,
        partition: int | None = None,
    ) -> Self:
        # Ends first: records that arrive meanwhile belong to a later reading.
        ends = await _list_offsets(client, topic, LATEST, isolation_level, partition)
        starts = await _list_offsets(client, topic, EARLIEST, isolation_level, partition)
        if read_from.start is Start.TIME:
            at_ms = read_from.number
            later = await _list_offsets(client, topic, at_ms, isolation_level, partition)
            # -1: no record is as young.
            places = {
                index: later[index] if later.get(index, -1) >= 0 else end
                for index, end in ends.items()
            }
        else:
            places = _places(read_from, starts, ends)
        # A partition that was created meanwhile belongs to a later reading, too.
        starts = {
            index: min(max(places[index], starts.get(index, 0)), end) for index, end in ends.items()
        }
        return cls(client, topic, isolation_level, starts, ends, partition)

    def follow(self) -> None:
        """Read without end, also records that arrive later."""
        self._end = dict.fromkeys(self._end, sys.maxsize)
        self._follows = True

    async def batches(
        self, *, extend_deadline: bool = False
    ) -> AsyncGenerator[tuple[TopicPartition, list[DecodedRecord]], None]:
        """Yield what is read.

        Args:
            extend_deadline: Whether the client's deadline starts over with every response that
                has new batches, and with every one while following.
        """
        while self._unread():
            leaders = await self._client.retry(
                lambda: _leaders(self._client, self._topic, self._only)
            )
            try:
                while by_leader := _by_leader(self._led(leaders)):
                    for node_id, indexes in by_leader.items():
                        before = [self._next[index] for index in indexes]
                        for data in await self._fetch(node_id, indexes):
                            for found in self._decode(data):
                                if found[1]:
                                    yield found
                                # Decoding is all CPU: let others run between two batches.
                                await asyncio.sleep(0)
                                if extend_deadline:
                                    self._client.extend_deadline()
                                elif self._client.is_late:
                                    await self._end_unless_done()
                        is_progress = [self._next[index] for index in indexes] != before
                        if extend_deadline and (is_progress or self._follows):
                            self._client.extend_deadline()
            except (errors.KafkaConnectionError, *_LEADER_MOVED) as error:
                await self._client.pause(error)

    async def _end_unless_done(self) -> None:
        """Raise KafkaTimeoutError, at the deadline, if there is more to read."""
        if self._unread():
            await self._client.pause()

    def _led(self, leaders: Mapping[int, int]) -> dict[int, int]:
        unread = self._unread()
        if not leaders.keys() >= set(unread):
            raise errors.LeaderNotAvailableError(topic=self._topic)
        return {index: leaders[index] for index in unread}

    def _unread(self) -> list[int]:
        return [index for index in self.partitions if self._next[index] < self._end[index]]

    async def _fetch(self, node_id: int, indexes: list[int]) -> list[PartitionData]:
        positions = {index: self._next[index] for index in indexes}
        isolation = _ISOLATION_CODES[self._isolation_level]
        request = fetch_request(self._topic, positions, isolation, _PARTITION_BYTES)
        response = cast(FetchResponse, await self._client.ask(node_id, request, *FETCH_VERSIONS))
        raise_for_code(response.error_code, topic=self._topic)
        found = response.responses[0].partitions if response.responses else []
        return [each for each in found if each.partition_index in indexes]

    def _decode(self, data: PartitionData) -> Iterator[tuple[TopicPartition, list[DecodedRecord]]]:
        """Yield the records of each batch that are to be read; of some there are none."""
        raise_for_code(data.error_code, topic=self._topic)
        index = data.partition_index
        for batch, records in batches_between(data, self._next[index], self._end[index]):
            self._next[index] = batch.last_offset + 1
            yield TopicPartition(self._topic, index), records
