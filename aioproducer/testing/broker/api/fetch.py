"""Fetch (1) and ListOffsets (2): reading the log back.

Every fetch is answered without a session (session id 0), which makes clients name all their
partitions every time (KIP-227). No client reads beyond the high watermark, and a committed read not
beyond the last stable offset (KIP-98); its response names the transactions to leave out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aioproducer import errors
from aioproducer.testing.broker.api.context import (
    ERRORS_WITH_LEADER,
    LongPoll,
    RequestContext,
    check_leader_epoch,
)
from aioproducer.testing.broker.api.produce import node_endpoints
from aioproducer.testing.broker.log import PartitionLog, StoredBatch
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.topics import NO_LEADER, Partition
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.common import LeaderIdAndEpoch
from aioproducer.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aioproducer.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITH_LEADERS = 12
_FIRST_VERSION_WITH_ENDPOINTS = 16
_FINAL_SESSION_EPOCH = -1
_LONGEST_WAIT_MS = 30_000
"""Bounds how long a connection without a client stays unnoticed."""

READ_COMMITTED = 1
"""The isolation level that shows decided transactions only."""

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
"""The timestamps of ListOffsets that are questions (Java: ListOffsetsRequest)."""


def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse | LongPoll:
    """Read batches; wait for more while there are fewer bytes than asked for."""
    if request.session_id and request.session_epoch != _FINAL_SESSION_EPOCH:
        return FetchResponse(error_code=errors.FetchSessionIdNotFoundError.code)
    reading = _Reading(ctx, request)
    if _may_wait(ctx, request) and reading.is_quiet and reading.size < request.min_bytes:
        return LongPoll(_deadline_ms(ctx, request), frozenset(reading.watching))
    return reading.response()


def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Find the offset that belongs to each timestamp."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _list_partition(ctx, topic.name, each, request.isolation_level)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _may_wait(ctx: RequestContext, request: FetchRequest) -> bool:
    if ctx.deadline_ms is None:
        return request.max_wait_ms > 0
    return ctx.now_ms < ctx.deadline_ms


def _deadline_ms(ctx: RequestContext, request: FetchRequest) -> int:
    if ctx.deadline_ms is not None:
        return ctx.deadline_ms
    return ctx.now_ms + min(request.max_wait_ms, _LONGEST_WAIT_MS)


def _readable_end(partition: Partition, isolation_level: int) -> int:
    if isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


class _Read(NamedTuple):
    """One partition's answer before its batches are joined."""

    data: PartitionData
    batches: list[StoredBatch]


class _Reading:
    """One pass over a request's partitions within its byte limits."""

    def __init__(self, ctx: RequestContext, request: FetchRequest) -> None:
        self.size = 0
        self.watching: set[TopicPartition] = set()
        self.is_quiet = True
        self._ctx = ctx
        self._isolation_level = request.isolation_level
        self._limit = request.max_bytes
        self._topics = [(topic, list(self._read_topic(topic))) for topic in request.topics]

    def response(self) -> FetchResponse:
        named: set[int] = set()
        responses = []
        for topic, reads in self._topics:
            for data, batches in reads:
                data.records = b"".join([batch.data for batch in batches])
                if data.current_leader.leader_id != NO_LEADER:
                    named.add(data.current_leader.leader_id)
            responses.append(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[read.data for read in reads],
                )
            )
        response = FetchResponse(responses=responses)
        if self._ctx.version >= _FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = node_endpoints(self._ctx, named)
        return response

    def _read_topic(self, request: FetchTopic) -> Iterator[_Read]:
        for wanted in request.partitions:
            try:
                yield self._read_partition(request, wanted)
            except RefusedError as refusal:
                self.is_quiet = False
                yield _Read(self._failed(request, wanted, refusal.code), [])

    def _read_partition(self, request: FetchTopic, wanted: FetchPartition) -> _Read:
        ctx = self._ctx
        by_id = ctx.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        topic = ctx.find_topic(request.topic, request.topic_id, by_id=by_id)
        scripted = ctx.scripted_error(topic.name, wanted.partition)
        if scripted is not None:
            self.is_quiet = False
            return _Read(self._failed(request, wanted, scripted.code), [])
        partition = ctx.led_partition(topic, wanted.partition)
        check_leader_epoch(partition, wanted.current_leader_epoch)
        log = partition.log
        if not log.start_offset <= wanted.fetch_offset <= log.end_offset:
            raise RefusedError(errors.OffsetOutOfRangeError)
        self.watching.add(TopicPartition(topic.name, wanted.partition))
        batches = log.read(
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, self._limit - self.size),
            at_least_one=self.size == 0,
            end=_readable_end(partition, self._isolation_level),
        )
        self.size += sum(len(batch.data) for batch in batches)
        data = _partition_data(partition)
        if self._isolation_level == READ_COMMITTED:
            data.aborted_transactions = _aborted(partition, wanted.fetch_offset, batches)
        return _Read(data, batches)

    def _failed(self, request: FetchTopic, wanted: FetchPartition, code: int) -> PartitionData:
        data = PartitionData(
            partition_index=wanted.partition, error_code=code, high_watermark=-1, records=b""
        )
        partition = self._known_partition(request, wanted.partition)
        has_hint = self._ctx.version >= _FIRST_VERSION_WITH_LEADERS and code in ERRORS_WITH_LEADER
        if has_hint and partition is not None:
            data.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
        return data

    def _known_partition(self, request: FetchTopic, index: int) -> Partition | None:
        cluster = self._ctx.cluster
        topic = cluster.topic_by_id(request.topic_id) or cluster.topics.get(request.topic)
        return None if topic is None else topic.partition(index)


def _partition_data(partition: Partition) -> PartitionData:
    return PartitionData(
        partition_index=partition.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.start_offset,
        aborted_transactions=None,
    )


def _aborted(
    partition: Partition, start: int, batches: list[StoredBatch]
) -> list[AbortedTransaction]:
    end = batches[-1].last_offset + 1 if batches else start
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in partition.transactions.aborted_within(start, end)
    ]


def _list_partition(
    ctx: RequestContext, name: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    if (scripted := ctx.scripted_error(name, wanted.partition_index)) is not None:
        answer.error_code = scripted.code
        return answer
    try:
        topic = ctx.cluster.topics.get(name)
        if topic is None:
            raise RefusedError(errors.UnknownTopicOrPartitionError)
        partition = ctx.led_partition(topic, wanted.partition_index)
        check_leader_epoch(partition, wanted.current_leader_epoch)
        end = _readable_end(partition, isolation_level)
        found = _find(partition.log, wanted.timestamp, end)
    except RefusedError as refusal:
        answer.error_code = refusal.code
        return answer
    if found is not None:
        answer.offset, answer.timestamp = found
        answer.leader_epoch = partition.leader_epoch if ctx.version >= 4 else -1
    return answer


def _find(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int] | None:
    if timestamp == LATEST:
        return end, -1
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return log.start_offset, -1
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp()
    elif timestamp < 0:
        # Tiered storage (KIP-1005, KIP-1023): there is none, so nothing is in it.
        found = None
    else:
        found = log.find_timestamp(timestamp)
    return found if found is not None and found[0] < end else None
