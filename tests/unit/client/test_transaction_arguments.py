"""Offsets and group metadata as other clients hold them; the errors users meet."""

from __future__ import annotations

import asyncio
import copy
import pickle
from types import SimpleNamespace
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from aioproducer.client.transactions import group_metadata_of, offsets_of
from aioproducer.errors import (
    FatalTransactionError,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from aioproducer.testing import EmbeddedCluster, read_topic
from aioproducer.types import PreparedTransaction

HERE = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({HERE: 5}, OffsetAndMetadata(5)),
        ({("t", 1): 5}, OffsetAndMetadata(5)),
        ({HERE: OffsetAndMetadata(5, "m", 2)}, OffsetAndMetadata(5, "m", 2)),
        ({aiokafka.TopicPartition("t", 1): 5}, OffsetAndMetadata(5)),
        (
            {aiokafka.TopicPartition("t", 1): aiokafka.structs.OffsetAndMetadata(5, "m")},
            OffsetAndMetadata(5, "m"),
        ),
        ([confluent_kafka.TopicPartition("t", 1, 5)], OffsetAndMetadata(5)),
        (
            [confluent_kafka.TopicPartition("t", 1, 5, "m", leader_epoch=3)],
            OffsetAndMetadata(5, "m", 3),
        ),
    ],
)
def test_offsets_are_taken_in_everybodys_types(given: Any, known: OffsetAndMetadata) -> None:
    assert offsets_of(given) == {HERE: known}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"t": 5}, TypeError),
        ({HERE: "5"}, TypeError),
        ({HERE: None}, TypeError),
        ({HERE: OffsetAndMetadata(1.5)}, TypeError),  # type: ignore[arg-type]
        ({HERE: OffsetAndMetadata(5, 0)}, TypeError),  # type: ignore[arg-type]
        ({HERE: OffsetAndMetadata(5, None, 0.0)}, TypeError),  # type: ignore[arg-type]
        ({("t", "1"): 5}, TypeError),
        ({HERE: -1}, ValueError),
        ({HERE: 2**63}, ValueError),
        ({TopicPartition("t", -1): 5}, ValueError),
        ([confluent_kafka.TopicPartition("t", 1)], ValueError),
    ],
)
def test_what_is_no_offset_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        offsets_of(given)


def confluent_consumer(**options: str) -> confluent_kafka.Consumer:
    # Nothing listens there: it never joins.
    return confluent_kafka.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "group.id": "g", **options}
    )


@pytest.mark.parametrize("instance", [None, "static-1"])
def test_confluents_group_metadata_is_read(instance: str | None) -> None:
    consumer = confluent_consumer(**({"group.instance.id": instance} if instance else {}))
    try:
        wanted = ConsumerGroupMetadata("g", -1, "", instance)
        assert group_metadata_of(consumer.consumer_group_metadata()) == wanted
        assert group_metadata_of(consumer) == wanted
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"CGMDv1:\0\0\0\0g\0m\0\1", b"CGMDv2:", b"CGMDv2:\0\0\0\0g\0m", b"CGMDv2:\0\0\0\0g\0m\0"],
)
def test_bytes_of_another_form_are_refused(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="not group metadata"):
        group_metadata_of(garbage)


async def test_aiokafkas_group_metadata_is_read() -> None:
    consumer = aiokafka.AIOKafkaConsumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    with pytest.raises(TypeError, match="has no metadata"):
        group_metadata_of(consumer)  # Not started: it has no coordinator yet.
    # What a consumer that has joined looks like; the tests on real Kafka read a real one.
    consumer._coordinator = SimpleNamespace(
        group_id="g", generation=4, member_id="m", _group_instance_id="i"
    )
    assert group_metadata_of(consumer) == ConsumerGroupMetadata("g", 4, "m", "i")
    consumer._closed = True  # Never started: there is nothing to stop.


def test_a_group_id_is_enough() -> None:
    assert group_metadata_of("g") == ConsumerGroupMetadata("g")
    assert not ConsumerGroupMetadata("g").names_member
    assert ConsumerGroupMetadata("g", group_instance_id="i").names_member


def test_an_instance_id_is_a_text_even_if_it_is_zero() -> None:
    with pytest.raises(TypeError, match="group_instance_id must be a str, not int"):
        ConsumerGroupMetadata("g", group_instance_id=0)  # type: ignore[arg-type]


def test_a_generation_needs_a_member() -> None:
    with pytest.raises(ValueError, match="member_id"):
        ConsumerGroupMetadata("g", 3)


@pytest.mark.parametrize("strange", [None, 5, object()])
def test_what_is_no_group_is_refused(strange: object) -> None:
    with pytest.raises(TypeError):
        group_metadata_of(strange)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (TransactionAbortableError("lost"), "abort the transaction"),
        (FatalTransactionError("lost"), "close this producer"),
        (ProducerFencedError(), "close this producer"),
    ],
)
def test_errors_say_what_to_do_next_and_survive_a_pickle(error: Exception, advice: str) -> None:
    assert advice in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(copy.copy(error)) == str(error)


_UNSENDABLE = ["half a pair: \ud800", "x" * 32_768, "\N{EURO SIGN}" * 10_923]


@pytest.mark.parametrize("text", _UNSENDABLE)
def test_texts_that_no_request_can_hold_are_refused(text: str) -> None:
    for offsets in ({TopicPartition(text, 0): 1}, {HERE: OffsetAndMetadata(1, text)}):
        with pytest.raises(ValueError, match="must be text of at most 32,767 bytes in UTF-8"):
            offsets_of(offsets)
    for name in ("group_id", "member_id", "group_instance_id"):
        with pytest.raises(ValueError, match=f"{name} must be text of at most"):
            ConsumerGroupMetadata(**{"group_id": "g", name: text})
    with pytest.raises(ValueError, match="transactional_id must be text of at most"):
        PreparedTransaction(text, 1, 1, 2)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_numbers_that_no_request_can_hold_are_refused(number: int) -> None:
    for offsets in ({TopicPartition("t", number): 1}, {HERE: OffsetAndMetadata(1, None, number)}):
        with pytest.raises(ValueError, match="must be a 32-bit integer"):
            offsets_of(offsets)
    with pytest.raises(ValueError, match="generation_id must be a 32-bit integer"):
        ConsumerGroupMetadata("g", number, "m")
    with pytest.raises(ValueError, match="producer_id must be a 64-bit integer"):
        PreparedTransaction("x", number, 1, 2)
    with pytest.raises(ValueError, match="epoch must be a 16-bit integer"):
        PreparedTransaction("x", 1, number, 2)


@pytest.mark.parametrize("group", [*_UNSENDABLE, ""])
async def test_a_producer_works_on_after_a_group_that_cannot_be_sent(group: str) -> None:
    async with (
        EmbeddedCluster(1, topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer,
    ):
        await producer.begin_transaction()
        with pytest.raises(ValueError, match="group_id must"):
            await producer.send_offsets_to_transaction({HERE: 1}, group)
        await producer.send("t", b"value")
        await producer.commit_transaction()
        read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=10)
        assert [record.value for record in read[0]] == [b"value"]


async def test_a_call_outside_of_a_transaction_says_that_none_is_open() -> None:
    async with (
        EmbeddedCluster(1, topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer,
    ):
        refused = r"send\(\) is not possible: the producer is not in a transaction -> begin a"
        with pytest.raises(IllegalStateError, match=refused):
            await producer.send("t", b"value")


def test_abortable_and_fatal_errors_are_distinguished() -> None:
    kinds = (
        TransactionAbortableError,
        FatalTransactionError,
        ProducerFencedError,
        TransactionAbortedError,
        IllegalStateError,
    )
    for kind in kinds:
        assert [other for other in kinds if issubclass(kind, other)] == [kind]


async def test_a_transaction_object_is_one_block() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", transactional_id="tx")
    with pytest.raises(IllegalStateError, match="not started"):
        async with asyncio.timeout(1), producer.transaction():
            pass
