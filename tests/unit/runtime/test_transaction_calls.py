"""The calls of a transactional producer on virtual time: what they raise, what may follow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from support.stage import Stage, play

from aioproducer import Producer, TopicPartition
from aioproducer.errors import (
    ClusterAuthorizationFailedError,
    DeliveryTimeoutError,
    FatalTransactionError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
)
from aioproducer.testing.broker.faults import ConnectionFault, Fault
from aioproducer.types import OffsetAndMetadata
from aioproducer.wire.api_keys import ApiKey

from .tasks.test_transactions import LEVELS, committed, perform, settled

GROUP_MEMBER_CODES = [22, 25, 30, 69, 82]
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND,
FENCED_INSTANCE_ID"""


def not_initialized(act: Callable[[Stage], Awaitable[None]], **options: object) -> None:
    """Plays an act with a producer that was started without `init_transactions()`."""

    async def started(stage: Stage) -> None:
        await stage.producer.start(init_transactions=False)
        try:
            await act(stage)
        finally:
            await stage.producer.close(5)

    play(started, transactional_id="tx", **options)


async def committed_afterwards(stage: Stage, value: bytes = b"after") -> None:
    """The next transaction works and is all that readers see."""
    async with stage.producer.transaction():
        await stage.producer.send("t", value)
    await settled(stage)
    assert committed(stage) == [value]


def test_offsets_are_sent_by_name_where_metadata_has_no_topic_ids() -> None:
    async def act(stage: Stage) -> None:
        cluster, place = stage.world.cluster, TopicPartition("t", 0)
        cluster.settings = replace(cluster.settings, api_versions={ApiKey.METADATA: (0, 9)})
        async with stage.producer as producer:
            async with producer.transaction() as tx:
                await producer.send("t", b"v", partition=0)
                await tx.send_offsets({place: 1}, "group")
            await settled(stage)
        assert cluster.groups.groups["group"].offsets[place].offset == 1

    play(act, transactional_id="tx")


@pytest.mark.parametrize(
    ("api", "highest"),
    [(ApiKey.PRODUCE, 11), (ApiKey.END_TXN, 4), (ApiKey.TXN_OFFSET_COMMIT, 4)],
)
def test_a_proxy_that_lacks_a_request_of_v2_gets_transactions_of_v1(
    api: ApiKey, highest: int
) -> None:
    async def act(stage: Stage) -> None:
        cluster, place = stage.world.cluster, TopicPartition("t", 0)
        cluster.settings = replace(cluster.settings, api_versions={api: (0, highest)})
        async with stage.producer as producer:
            for number in range(2):
                async with producer.transaction() as tx:
                    await producer.send("t", b"%d" % number)
                    await tx.send_offsets({place: number + 1}, "group")
            await settled(stage)
            assert committed(stage) == [b"0", b"1"]
        assert cluster.transaction_version == 2
        assert cluster.groups.groups["group"].offsets[place].offset == 2

    play(act, transactional_id="tx")


def test_a_record_for_no_transaction_is_refused_before_its_serializer_has_finished() -> None:
    began = []

    async def serialize(value: object) -> bytes:
        began.append(value)
        await asyncio.sleep(3)
        return b"v"

    async def act(stage: Stage) -> None:
        for _ in range(2):
            with pytest.raises(IllegalStateError, match="begin a transaction"):
                await stage.producer.send("t", "v")
        assert began == []
        assert not stage.engine.appender.serializing
        async with stage.producer.transaction():
            await stage.producer.send("t", "v")
        assert began == ["v"]

    perform(act, value_serializer=serialize)


def test_a_record_whose_serializer_takes_too_long_fails_its_transaction() -> None:
    async def serialize(value: float) -> bytes:
        await asyncio.sleep(value)
        return b"%d" % value

    async def act(stage: Stage) -> None:
        with pytest.raises(TransactionAbortableError):
            async with stage.producer.transaction():
                await stage.producer.send("t", 1.0)
                with pytest.raises(KafkaTimeoutError, match="serializer took longer"):
                    await stage.producer.send("t", 3.0)
        async with stage.producer.transaction():
            await stage.producer.send("t", 1.0)
        await settled(stage)
        assert committed(stage) == [b"1"]

    perform(act, value_serializer=serialize, max_block_ms=2_000)


# -- init_transactions -------------------------------------------------------------------------


def test_init_that_timed_out_can_be_repeated_and_nothing_else() -> None:
    async def act(stage: Stage) -> None:
        fault = stage.faults.error(ApiKey.INIT_PRODUCER_ID, 14, times=None)
        with pytest.raises(KafkaTimeoutError, match="repeat init_transactions"):
            await stage.producer.init_transactions()
        with pytest.raises(IllegalStateError, match="repeat init_transactions"):
            await stage.producer.begin_transaction()
        with pytest.raises(KafkaTimeoutError):
            await stage.producer.init_transactions()
        stage.faults.remove(fault)
        await stage.producer.init_transactions()
        await committed_afterwards(stage)

    not_initialized(act, max_block_ms=2_000)


def test_init_answered_after_its_timeout_is_done_when_it_is_repeated() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.delay(3_000, ApiKey.INIT_PRODUCER_ID)
        with pytest.raises(KafkaTimeoutError):
            await stage.producer.init_transactions()
        await asyncio.sleep(5)
        began = stage.loop.time()
        await stage.producer.init_transactions()
        assert stage.loop.time() == began
        with pytest.raises(IllegalStateError):
            await stage.producer.init_transactions()

    not_initialized(act, max_block_ms=2_000)


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID])
def test_init_waits_for_a_throttle_time(api: ApiKey) -> None:
    async def act(stage: Stage) -> None:
        stage.faults.throttle(5_000, api)
        began = stage.loop.time()
        await stage.producer.init_transactions()
        async with stage.producer.transaction():
            await stage.producer.send("t", b"x")
        assert 5 <= stage.loop.time() - began < 7

    not_initialized(act)


def test_init_that_was_not_authorized_works_once_it_is() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.INIT_PRODUCER_ID, 31)
        with pytest.raises(ClusterAuthorizationFailedError):
            await stage.producer.init_transactions()
        with pytest.raises(IllegalStateError):
            await stage.producer.begin_transaction()
        await stage.producer.init_transactions()
        await committed_afterwards(stage)

    not_initialized(act)


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID])
def test_close_without_time_ends_an_init_without_a_response(api: ApiKey) -> None:
    async def act(stage: Stage) -> None:
        stage.faults.swallow(api, times=None)
        call = asyncio.create_task(stage.producer.init_transactions())
        await asyncio.sleep(1)
        began = stage.loop.time()
        await stage.producer.close(0)
        with pytest.raises(ProducerClosedError):
            await call
        assert stage.loop.time() == began

    not_initialized(act)


# -- errors inside a transaction ------------------------------------------------------------------


@LEVELS
def test_value_that_cannot_be_serialized_leaves_the_transaction_alone(level: int) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer.transaction():
            await stage.producer.send("t", b"1")
            with pytest.raises(SerializationError):
                await stage.producer.send("t", object())  # type: ignore[arg-type]
            await stage.producer.send("t", b"2")
        await settled(stage)
        assert committed(stage) == [b"1", b"2"]

    perform(act, level)


@LEVELS
def test_record_that_is_too_large_fails_its_transaction_and_not_the_next(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send("t", b"small")
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", b"x" * 500)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await committed_afterwards(stage)

    perform(act, level, max_request_size=400)


@LEVELS
def test_record_that_expired_while_the_broker_was_away_costs_one_transaction(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"before")
        stage.crash()
        delivery = await producer.send("t", b"lost")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        stage.revive()
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await committed_afterwards(stage)

    perform(act, level, delivery_timeout_ms=3_000, request_timeout_ms=1_000)


@pytest.mark.parametrize("code", GROUP_MEMBER_CODES)
@LEVELS
def test_group_that_refuses_offsets_costs_one_transaction(level: int, code: int) -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.TXN_OFFSET_COMMIT, code)
        with pytest.raises(TransactionAbortableError):
            async with stage.producer.transaction() as tx:
                await stage.producer.send("t", b"x")
                await tx.send_offsets({TopicPartition("u", 0): 1}, "group")
        await committed_afterwards(stage)

    perform(act, level)


BOTH = [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]
V1_ONLY = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN]


@pytest.mark.parametrize(
    ("level", "api"), [*((1, api) for api in V1_ONLY), *((n, api) for n in (1, 2) for api in BOTH)]
)
def test_transaction_abortable_in_any_answer_costs_one_transaction(level: int, api: ApiKey) -> None:
    async def act(stage: Stage) -> None:
        fault = stage.faults.error(api, 120)
        producer = stage.producer
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction() as tx:
                await producer.send("t", b"x")
                await tx.send_offsets({TopicPartition("u", 0): 1}, "group")
                await producer.flush()
        assert fault.is_spent
        await committed_afterwards(stage)

    perform(act, level)


@LEVELS
def test_expired_transactional_id_is_fatal_and_a_new_producer_works(level: int) -> None:
    async def act(stage: Stage) -> None:
        api = ApiKey.ADD_PARTITIONS_TO_TXN if level == 1 else ApiKey.PRODUCE
        stage.faults.error(api, 49)
        with pytest.raises(FatalTransactionError):
            async with stage.producer.transaction():
                await stage.producer.send("t", b"x")
        with pytest.raises(FatalTransactionError):
            await stage.producer.begin_transaction()
        await stage.producer.close()
        async with stage.another_producer() as successor, successor.transaction():
            await successor.send("t", b"after")
        await settled(stage)
        assert committed(stage) == [b"after"]

    perform(act, level)


# -- offsets --------------------------------------------------------------------------------------


@LEVELS
def test_of_offsets_for_a_partition_the_last_ones_count_and_groups_are_apart(level: int) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1, 1, 1))
        places = [TopicPartition("many", number) for number in range(3)]
        async with stage.producer.transaction() as tx:
            await tx.send_offsets({places[0]: 1, places[1]: 2}, "one")
            await tx.send_offsets({places[0]: 7}, "two")
            await tx.send_offsets({places[1]: OffsetAndMetadata(5, "note"), places[2]: 6}, "one")
        await settled(stage)
        found = {group: stage.positions(group) for group in ("one", "two")}
        assert found == {
            "one": {places[0]: (1, ""), places[1]: (5, "note"), places[2]: (6, "")},
            "two": {places[0]: (7, "")},
        }

    perform(act, level)


# -- waits ----------------------------------------------------------------------------------------


@LEVELS
def test_abort_that_timed_out_can_only_be_repeated(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        fault = stage.faults.error(ApiKey.END_TXN, 14, times=None)
        with pytest.raises(KafkaTimeoutError, match="repeat abort_transaction"):
            await producer.abort_transaction()
        for other in (producer.commit_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError):
                await other()
        stage.faults.remove(fault)
        await producer.abort_transaction()
        await committed_afterwards(stage)

    perform(act, level, max_block_ms=2_000)


@LEVELS
def test_offsets_that_timed_out_are_in_the_transaction_once_a_commit_succeeds(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer, place = stage.producer, TopicPartition("u", 0)
        await producer.begin_transaction()
        await producer.send("t", b"x")
        fault = stage.faults.error(ApiKey.TXN_OFFSET_COMMIT, 14, times=None)
        with pytest.raises(KafkaTimeoutError, match="send_offsets"):
            await producer.send_offsets_to_transaction({place: 3}, "group")
        stage.faults.remove(fault)
        await producer.commit_transaction()
        await settled(stage)
        assert committed(stage) == [b"x"]
        assert stage.positions("group") == {place: (3, "")}

    perform(act, level, max_block_ms=2_000)


async def times_out(call: Awaitable[object], cause: str) -> None:
    """Awaits a call that runs into `max_block_ms` and has to name the cause."""
    with pytest.raises(KafkaTimeoutError, match=cause):
        await call


def test_calls_that_time_out_name_what_the_coordinator_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = TopicPartition("u", 0)

    async def act(stage: Stage) -> None:
        producer, loading = stage.producer, "COORDINATOR_LOAD_IN_PROGRESS"
        fault = stage.faults.error(ApiKey.INIT_PRODUCER_ID, 14, times=None)
        await times_out(producer.init_transactions(), loading)
        stage.faults.remove(fault)
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"x")
        fault = stage.faults.error(ApiKey.TXN_OFFSET_COMMIT, 14, times=None)
        await times_out(producer.send_offsets_to_transaction({place: 1}, "group"), loading)
        stage.faults.remove(fault)
        stage.faults.delay(10_000, ApiKey.END_TXN)
        await times_out(producer.commit_transaction(), "waits for the response to EndTxn")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"y")
        fault = stage.faults.error(ApiKey.END_TXN, 16, times=None)
        await times_out(producer.commit_transaction(), "last error: NOT_COORDINATOR")
        stage.faults.remove(fault)
        await producer.commit_transaction()

    not_initialized(act, max_block_ms=6_000)
    texts = [record.getMessage() for record in caplog.records]
    for request in ("InitProducerId", "TxnOffsetCommit", "EndTxn"):
        assert any(f"{request} of transactional id 'tx' is repeated" in text for text in texts)


def test_commit_that_times_out_says_that_it_waits_for_records() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        stage.crash()
        await stage.producer.send("t", b"y")
        await times_out(stage.producer.commit_transaction(), "1 record to be acknowledged")
        stage.revive()
        await stage.producer.commit_transaction()

    perform(act, max_block_ms=2_000)


def test_record_whose_partition_is_never_added_names_what_the_coordinator_answered() -> None:
    async def act(stage: Stage) -> None:
        producer, loading = stage.producer, "COORDINATOR_LOAD_IN_PROGRESS"
        fault = stage.faults.error(ApiKey.ADD_PARTITIONS_TO_TXN, 14, times=None)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"x")
        await asyncio.sleep(2)
        assert loading in (producer.health().waiting_for or "")
        with pytest.raises(DeliveryTimeoutError, match=loading):
            await delivery
        with pytest.raises(TransactionAbortableError, match=loading):
            await producer.commit_transaction()
        stage.faults.remove(fault)
        await producer.abort_transaction()
        await committed_afterwards(stage)

    perform(act, 1, delivery_timeout_ms=5_000, request_timeout_ms=1_000)


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.TXN_OFFSET_COMMIT])
@LEVELS
def test_close_without_time_ends_send_offsets_without_a_response(level: int, api: ApiKey) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        stage.faults.swallow(api, times=None)
        call = asyncio.create_task(
            producer.send_offsets_to_transaction({TopicPartition("u", 0): 1}, "group")
        )
        await asyncio.sleep(1)
        assert not call.done()
        began = stage.loop.time()
        await producer.close(0)
        with pytest.raises(ProducerClosedError):
            await call
        assert stage.loop.time() == began

    perform(act, level)


@LEVELS
def test_close_lets_a_commit_that_is_under_way_finish(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send("t", b"x")
        stage.faults.delay(2_000, ApiKey.END_TXN)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        await producer.close()
        await commit
        await settled(stage)
        assert committed(stage) == [b"x"]

    perform(act, level)


# -- several producers, several leaders -----------------------------------------------------------


@LEVELS
def test_of_producers_that_take_turns_each_newer_one_fences_the_older(level: int) -> None:
    async def act(stage: Stage) -> None:
        older: Producer = stage.producer
        for number in range(4):
            await older.begin_transaction()
            await older.send_and_wait("t", b"lost")
            newer = stage.another_producer()
            await newer.start()
            with pytest.raises((ProducerFencedError, TransactionAbortableError)):
                await older.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await older.begin_transaction()
            await older.close()
            async with newer.transaction():
                await newer.send("t", b"%d" % number)
            older = newer
        await older.close()
        await settled(stage)
        assert committed(stage) == [b"0", b"1", b"2", b"3"]

    perform(act, level)


@LEVELS
def test_markers_end_a_transaction_in_every_partition_of_every_leader(level: int) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1, 2, 3) * 4)
        producer = stage.producer
        for outcome in (b"committed", b"aborted"):
            await producer.begin_transaction()
            for partition in range(12):
                await producer.send("many", outcome, partition=partition)
            await producer.flush()
            if outcome == b"committed":
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        await settled(stage)
        for partition in range(12):
            assert committed(stage, "many", partition) == [b"committed"]

    perform(act, level, brokers=3)


def test_keyless_records_of_v1_may_move_to_partitions_that_are_not_announced_yet() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1, 2, 3))
        values = [b"%03d" % number + b"." * 60 for number in range(40)]
        async with stage.producer.transaction():
            for value in values:
                await stage.producer.send("many", value)
        await settled(stage)
        found = [committed(stage, "many", partition) for partition in range(3)]
        assert sum(map(bool, found)) > 1
        assert sorted(value for part in found for value in part) == values

    perform(act, 1, brokers=3)


@LEVELS
def test_epochs_rise_over_aborts_and_everything_committed_is_seen(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        for number in range(4):
            stage.faults.error(ApiKey.PRODUCE, 87)
            with pytest.raises(TransactionAbortableError):
                async with producer.transaction():
                    await producer.send("t", b"refused")
            async with producer.transaction():
                await producer.send("t", b"%d" % number)
        await settled(stage)
        assert committed(stage) == [b"0", b"1", b"2", b"3"]
        epochs = [batch.producer_epoch for batch in stage.batches("t") if not batch.is_control]
        assert epochs == sorted(epochs)
        assert len(set(epochs)) == 4

    perform(act, level)


def test_answer_lost_with_the_new_epoch_is_made_up_for_by_the_repeated_end() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.add(
            Fault(ConnectionFault(apply=True, answer=False, close=True), api=ApiKey.END_TXN)
        )
        for value in (b"1", b"2"):
            async with stage.producer.transaction():
                await stage.producer.send("t", value)
        await settled(stage)
        assert committed(stage) == [b"1", b"2"]

    perform(act, 2)


def test_a_record_that_waits_for_its_place_until_the_commit_is_refused() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        stage.create_topic("wide", (1, 2))
        await producer.begin_transaction()
        for partition in (0, 1):
            await producer.send_and_wait("wide", b"before", partition=partition)
        stage.crash(2)
        await asyncio.sleep(1)
        for partition in (0, 1):
            await producer.send("wide", b"v", partition=partition)
        waiting = asyncio.ensure_future(producer.send("wide", b"late", partition=1))
        await asyncio.sleep(0)
        committing = asyncio.ensure_future(producer.commit_transaction())
        with pytest.raises(IllegalStateError, match="the producer is committing"):
            await waiting
        stage.revive(2)
        with pytest.raises(TransactionAbortableError):
            await committing
        await producer.abort_transaction()

    perform(act, brokers=2, buffer_max_records=2, linger_ms=1_000)


def test_a_record_that_waits_for_its_topic_until_the_abort_is_refused() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"before")
        waiting = asyncio.ensure_future(producer.send("later", b"late"))
        await asyncio.sleep(1)
        await producer.abort_transaction()
        stage.create_topic("later")
        with pytest.raises(IllegalStateError):
            await waiting
        await committed_afterwards(stage)
        assert stage.values("later") == []

    perform(act, allow_auto_create_topics=False)


def test_a_record_that_waits_for_memory_until_the_abort_is_refused() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"before")
        stage.faults.swallow(ApiKey.PRODUCE)
        for topic in ("t", "u"):
            await producer.send(topic, bytes(100))
        waiting = asyncio.ensure_future(producer.send("t", bytes(100)))
        await asyncio.sleep(0)
        aborting = asyncio.ensure_future(producer.abort_transaction())
        with pytest.raises(IllegalStateError):
            await waiting
        await aborting
        await committed_afterwards(stage)

    perform(act, buffer_memory=400, linger_ms=1_000, request_timeout_ms=2_000)


def test_a_record_whose_serializer_outlasts_its_transaction_is_not_part_of_the_next_one() -> None:
    async def serialize(value: bytes) -> bytes:
        await asyncio.sleep(len(value))
        return value

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        waiting = asyncio.ensure_future(producer.send("t", b"late"))
        await asyncio.sleep(1)
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            await waiting
        await producer.abort_transaction()

    perform(act, value_serializer=serialize)
