"""Produce (0): record batches for the partitions a broker leads.

v3 is the first with record batches of format v2 and transactions, v7 allows zstd (KIP-110), v8
names the records that spoiled a batch (KIP-467), v9 is the first flexible version, v10 adds the
new leader to NOT_LEADER_OR_FOLLOWER (KIP-951), v12 adds partitions to the transaction implicitly
(KIP-890), v13 names topics by id (KIP-516). Versions 0 to 2 are for brokers before 0.11; 4.0
brokers refuse them.

`aioproducer.wire.produce` encodes the same request without copying the records.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class BatchIndexAndErrorMessage(Struct):
    """A record that made the broker refuse its batch (KIP-467)."""

    batch_index: int = f("int32", "8+")
    batch_index_error_message: str | None = f("string", "8+", nullable="8+", default=None)


@struct
class PartitionProduceResponse(Struct):
    """The result for one batch.

    `log_append_time_ms` is -1 unless the topic uses LogAppendTime; `current_leader` comes with
    NOT_LEADER_OR_FOLLOWER (KIP-951).
    """

    index: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    base_offset: int = f("int64", "0+")
    log_append_time_ms: int = f("int64", "2+", default=-1, ignorable=True)
    log_start_offset: int = f("int64", "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = f(
        array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = f("string", "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse(Struct):
    """The results for the batches of one topic."""

    name: str = f("string", "0-12", ignorable=True)
    topic_id: UUID = f("uuid", "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = f(array(PartitionProduceResponse), "0+")


@struct
class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions=(0, 13), flexible_from=9):
    """The result for each batch. From v6 it is sent before the quota delay (KIP-219)."""

    responses: list[TopicProduceResponse] = f(array(TopicProduceResponse), "0+")
    throttle_time_ms: int = f("int32", "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "10+", tag=0)


@struct
class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: int = f("int32", "0+")
    records: bytes | memoryview | None = f("records", "0+", nullable="0+")


@struct
class TopicProduceData(Struct):
    """The batches for one topic."""

    name: str = f("string", "0-12", ignorable=True)
    topic_id: UUID = f("uuid", "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = f(array(PartitionProduceData), "0+")


@struct
class ProduceRequest(Message, response=ProduceResponse):
    """Record batches by topic and partition; with `acks=0` no response will come."""

    transactional_id: str | None = f("string", "3+", nullable="3+", default=None)
    acks: int = f("int16", "0+")
    timeout_ms: int = f("int32", "0+")
    topic_data: list[TopicProduceData] = f(array(TopicProduceData), "0+")
