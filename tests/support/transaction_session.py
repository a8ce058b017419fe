"""Single transactional requests to any cluster, and a log of what was answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch, read_batches
from aioproducer.testing.wire_client import WireClient
from aioproducer.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioproducer.wire.messages.find_coordinator import FindCoordinatorRequest
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.wire.schema import Message

PASSING = {14, 15, 16, 51}
"""Loading, not available, not coordinator, concurrent: real brokers need a moment for each step."""
TIMEOUT_S, PAUSE_S = 30.0, 0.02

V1, V2 = 4, 5
"""The versions of EndTxn that stand for the transaction versions."""


class Identity(NamedTuple):
    producer_id: int
    epoch: int


@dataclass
class Session:
    """Sends single requests and notes each outcome, with ids and names made comparable."""

    client: WireClient
    topic: str
    leaders: dict[int, int]
    log: list[Any] = field(default_factory=list)
    _ids: dict[int, int] = field(default_factory=dict)

    async def init(
        self, resume: Identity | None = None, *, timeout_ms: int = 60_000, once: bool = False
    ) -> Identity:
        given = resume or Identity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.topic,
            transaction_timeout_ms=timeout_ms,
            producer_id=given.producer_id,
            producer_epoch=given.epoch,
        )
        answer = await self._coordinator(request, 4, once=once)
        return self._note_identity("init", answer)

    async def add(self, who: Identity, *indexes: int, version: int = 3) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.topic,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=self.topic, partitions=list(indexes))
            ],
        )
        answer = await self._coordinator(request, version, codes=_added)
        self.log.append(("add", _added(answer)))

    async def produce(
        self,
        who: Identity,
        sequence: int = 0,
        *,
        version: int,
        index: int = 0,
        transactional: bool = True,
    ) -> None:
        data = PartitionProduceData(index=index, records=_batch(who, sequence, transactional))
        request = ProduceRequest(
            transactional_id=self.topic,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        # 19 stands for a passing error of the coordinator before v12; the others: a new leader may
        # not know yet that it leads.
        passing = PASSING | {3, 6, 19}
        leader = self.leaders[index]
        answer = await self._ask(leader, request, version, codes=_produced, passing=passing)
        self.log.append(("produce", _produced(answer)))

    async def end(self, who: Identity, version: int, *, commit: bool = True) -> Identity:
        request = EndTxnRequest(
            transactional_id=self.topic,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        answer = await self._coordinator(request, version)
        new = self._note_identity("end", answer)
        return new if version >= V2 and not answer.error_code else who

    async def add_group(self, who: Identity) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.topic,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=self.topic,
        )
        self.log.append(("group", (await self._coordinator(request, 3)).error_code))

    async def commit_offset(
        self, who: Identity, offset: int, *, version: int, generation: int = -1, member: str = ""
    ) -> None:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m"
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.topic,
            group_id=self.topic,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        node_id = await self._find(0)
        answer = await self._ask(node_id, request, version, codes=_offsets)
        self.log.append(("offset", _offsets(answer)))

    async def read_offset(self, *, stable: bool = False, decided: bool = False) -> None:
        """Read the committed offset; with `decided` once no transaction may change it."""
        topics = [OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(
            group_id=self.topic, topics=topics, require_stable=stable or decided
        )
        answer: Any = await self._ask(
            await self._find(0), request, 7, codes=_offsets, passing={88} if decided else ()
        )
        found = answer.topics[0].partitions[0]
        self.log.append(("committed", found.error_code, found.committed_offset, found.metadata))

    async def read(self, index: int = 0, offset: int = 0) -> None:
        """Read as a read_committed consumer, once every transaction is decided."""
        partition = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1_000_000
        )
        request = FetchRequest(
            max_bytes=1_000_000,
            max_wait_ms=10,
            isolation_level=1,
            topics=[FetchTopic(topic=self.topic, partitions=[partition])],
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response: Any = await self._ask(self.leaders[index], request, 12)
            data = response.responses[0].partitions[0]
            batches = [
                (batch.base_offset, batch.is_control, batch.producer_epoch)
                for batch in read_batches(data.records or b"")
            ]
            is_decided = data.last_stable_offset == data.high_watermark and batches[-1:]
            if (is_decided and batches[-1][1]) or time.monotonic() > deadline:
                break
            await asyncio.sleep(PAUSE_S)
        aborted = [
            (self._known(each.producer_id), each.first_offset)
            for each in data.aborted_transactions or []
        ]
        self.log.append(("read", data.last_stable_offset, data.high_watermark, batches, aborted))

    def _note_identity(self, what: str, answer: Any) -> Identity:
        new = Identity(answer.producer_id, answer.producer_epoch)
        self.log.append((what, answer.error_code, self._known(new.producer_id), new.epoch))
        return new

    def _known(self, producer_id: int) -> int:
        return self._ids.setdefault(producer_id, len(self._ids)) if producer_id >= 0 else -1

    async def _coordinator(self, request: Message, version: int, **options: Any) -> Any:
        return await self._ask(await self._find(1), request, version, **options)

    async def _find(self, kind: int) -> int:
        request = FindCoordinatorRequest(key=self.topic, key_type=kind)
        answer: Any = await self._ask(None, request, 3)
        assert answer.error_code == 0
        return int(answer.node_id)

    async def _ask(
        self,
        node_id: int | None,
        request: Message,
        version: int,
        *,
        codes: Callable[[Any], list[int]] = lambda answer: [getattr(answer, "error_code", 0)],
        passing: Iterable[int] = PASSING,
        once: bool = False,
    ) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = await self.client.ask(node_id, request, version, version)
            if once or set(codes(answer)).isdisjoint(passing) or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(PAUSE_S)


def _added(answer: Any) -> list[int]:
    results = answer.results_by_topic_v3_and_below[0].results_by_partition
    return sorted(each.partition_error_code for each in results)


def _produced(answer: Any) -> list[int]:
    return [answer.responses[0].partition_responses[0].error_code]


def _offsets(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def _batch(who: Identity, sequence: int, transactional: bool) -> bytes:
    builder = RecordBatchBuilder(bytearray(1000))
    now_ms = int(time.time() * 1000)
    builder.try_append(now_ms, None, b"v", ())
    encoded = encode_batch(
        bytes(builder.body()),
        count=1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return b"".join(encoded.buffers)
