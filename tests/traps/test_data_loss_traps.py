"""Traps in which real clients lost, duplicated or held back records: one test or more for each.

The unmodified producer meets the situation on virtual time, at a simulated broker that checks
sequences and epochs as Kafka does. The comment of each trap names the clients that had the fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.stage import Stage, play
from support.waiting import until

from aioproducer import Persistence, Producer
from aioproducer.core.transactions.rules import Reaction, Rpc, reaction_to
from aioproducer.errors import (
    BootstrapError,
    CommitOutcomeUnknownError,
    DeliveryTimeoutError,
    FatalTransactionError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    ProducerClosedError,
    RecordsPurgedError,
)
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.framing import RequestHeader
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.produce import ProduceRequest

COMMIT_MARKER, ABORT_MARKER = b"\0\0\0\1", b"\0\0\0\0"
SHORT = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1500}


async def started(stage: Stage) -> Producer:
    """A producer that has had an answer for `t`: from then on several requests are in flight."""
    await stage.producer.start()
    await stage.producer.warm_up(["u"])
    await stage.producer.send_and_wait("t", b"first")
    return stage.producer


async def in_flight(stage: Stage, requests: int = 1) -> None:
    await until(lambda: stage.producer.metrics()["requests_in_flight"] >= requests)


async def failure(delivery: Delivery) -> KafkaError:
    """The reason of the failure, once it has failed."""
    with pytest.raises(KafkaError) as caught:
        await delivery
    return caught.value


# -- 1: a sequence that was used and is given away again -------------------------------------------
# franz-go #1484: a sent batch failed locally, the next one got its sequence and as many records;
# the broker called it a duplicate, and the client took it for acknowledged.


def _wait_for_delivery_timeout(stage: Stage) -> None:
    """Nothing: time does it."""


def _purge(stage: Stage) -> None:
    assert stage.producer.purge(queued=True, in_flight=True) == 1


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("fail_locally", [_wait_for_delivery_timeout, _purge])
def test_trap_01_a_sequence_of_a_sent_batch_that_failed_locally_is_never_reused(
    fail_locally: Callable[[Stage], None], written: bool
) -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        swallowed = stage.faults.swallow(ApiKey.PRODUCE, apply=written)
        failed = await producer.send("t", b"failed")
        await in_flight(stage)
        await until(lambda: swallowed.struck == 1)
        fail_locally(stage)
        error = await failure(failed)
        assert isinstance(error, DeliveryTimeoutError | RecordsPurgedError)
        assert error.persistence is Persistence.POSSIBLY_PERSISTED
        await producer.send_and_wait("t", b"next")
        await producer.close()
        assert stage.values("t") == [b"first", *[b"failed"] * written, b"next"]

    play(act, delivery_timeout_ms=2000, request_timeout_ms=2000, linger_ms=0)


def test_trap_01_the_sequence_of_a_batch_whose_retries_are_used_up_is_not_reused() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        # NOT_ENOUGH_REPLICAS_AFTER_APPEND: it is in the log.
        stage.faults.error(ApiKey.PRODUCE, 20, apply=True, times=2)
        await failure(await producer.send("t", b"failed"))
        await producer.send_and_wait("t", b"next")
        await producer.close()
        assert stage.values("t") == [b"first", b"failed", b"next"]

    play(act, retries=1)


# -- 2: sequences that die with the metadata -------------------------------------------------------
# librdkafka: a lagging broker said the topic was gone; its partitions were dropped with their
# sequences, which started at 0 again, and the broker dropped "duplicates".


def test_trap_02_a_topic_that_vanishes_from_metadata_keeps_its_sequences() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        await producer.send_and_wait("t", b"second")
        gone = stage.faults.error(ApiKey.METADATA, 3, topic="t", times=None)
        await until(lambda: stage.engine.metadata.topic("t") is None)
        stage.faults.remove(gone)
        await producer.send_and_wait("t", b"third")
        await producer.send_and_wait("t", b"fourth")
        await producer.close()
        assert stage.values("t") == [b"first", b"second", b"third", b"fourth"]

    play(act, metadata_max_age_ms=1000)


# -- 3: memory that is given back while a transport reads from it ----------------------------------
# KAFKA-19012: a batch expired half-written, its buffer was filled with records of another topic,
# and the rest of the request carried those.


def test_trap_03_the_memory_of_an_expired_batch_is_not_refilled_while_it_is_written() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        stage.faults.delay(1500, ApiKey.PRODUCE)
        ahead = await producer.send("u", b"ahead")
        await in_flight(stage)
        expired = await producer.send("t", b"a" * 500)
        await ahead
        stage.broker.freeze()  # having read no more than the window's 100 bytes of the next request
        assert isinstance(await failure(expired), DeliveryTimeoutError)
        assert stage.producer.metrics()["requests_in_flight"] == 1
        waiting = asyncio.create_task(producer.send("u", b"b" * 800))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        stage.broker.thaw()
        await (await waiting)
        await producer.close()
        assert stage.values("u") == [b"ahead", b"b" * 800]
        assert stage.values("t") == [b"first", b"a" * 500]
        assert stage.broker.complaints == []

    # The batch waits for another request, so that its own one outlives it.
    play(
        act,
        window=100,
        linger_ms=0,
        delivery_timeout_ms=2000,
        request_timeout_ms=2000,
        max_in_flight_requests_per_connection=1,
    )


# -- 4: an end that comes late ---------------------------------------------------------------------
# KAFKA-17754 (Jepsen, Bufstream 0.1.0): an EndTxn that was sent again overtakes its first copy,
# which then ends the next transaction. What has an unknown outcome must not fit the next one.


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_trap_04_an_end_that_comes_late_does_not_end_the_next_transaction(
    transaction_version: int,
) -> None:
    async def act(stage: Stage) -> None:
        cluster = stage.world.cluster
        cluster.set_transaction_version(transaction_version)
        under_way: list[RequestHeader] = []
        respond = cluster.respond

        def watch(node_id, header, now_ms, **more):  # type: ignore[no-untyped-def]
            if header.api_key == ApiKey.END_TXN:
                under_way.append(header)
            return respond(node_id, header, now_ms, **more)

        cluster.respond = watch  # type: ignore[method-assign]
        producer = stage.producer
        await producer.start()
        lost = stage.faults.drop(ApiKey.END_TXN)
        async with producer.transaction():
            await producer.send("t", b"yes")
        assert lost.struck == 1
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"no")
        respond(1, under_way[0], stage.world.broker_ms())
        await producer.abort_transaction()
        await producer.close()
        batches = stage.batches("t")
        assert [batch.is_control for batch in batches] == [False, True, False, True]
        keys = [record.key or b"" for batch in batches[1::2] for record in batch.records()]
        assert keys == [COMMIT_MARKER, ABORT_MARKER]
        assert stage.values("t") == [b"yes", b"no"]

    play(act, transactional_id="x")


# -- 5: an unknown error taken for success ---------------------------------------------------------
# Redpanda's clients (Jepsen, 2022): EndTxn answered UNKNOWN_SERVER_ERROR, and was taken to be done.


def test_trap_05_no_error_code_of_a_transactional_request_passes_for_success() -> None:
    harmless = {Reaction.RETRY, Reaction.FIND_COORDINATOR}
    for rpc in Rpc:
        assert reaction_to(rpc, -1) not in harmless  # and there is no reaction called success
    assert reaction_to(Rpc.END, -1) is Reaction.FATAL
    assert reaction_to(Rpc.END, -1, ending=True) is Reaction.FATAL


@pytest.mark.parametrize("applied", [False, True])
def test_trap_05_an_unknown_error_of_a_commit_is_no_success(applied: bool) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        stage.faults.error(ApiKey.END_TXN, -1, apply=applied)
        await stage.producer.begin_transaction()
        await stage.producer.send("t", b"v")
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            await stage.producer.commit_transaction()
        assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
        assert isinstance(caught.value.__cause__, FatalTransactionError)
        await stage.producer.close()

    play(act, transactional_id="x")


def test_trap_05_an_unknown_error_of_a_produce_request_is_no_success_and_no_denial() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        for applied in (False, True):
            stage.faults.error(ApiKey.PRODUCE, -1, apply=applied)
            error = await failure(await producer.send("t", b"v%d" % applied))
            assert error.persistence is Persistence.POSSIBLY_PERSISTED
        await producer.send_and_wait("t", b"last")
        await producer.close()
        assert stage.values("t") == [b"first", b"v1", b"last"]

    play(act)


# -- 6: later batches that wait for one that is given up -------------------------------------------
# Java, `RecordAccumulator.failExpiredBatches`: only a batch that was retried leaves its sequence
# unresolved; a first attempt that expires in flight and gets lost leaves later ones out of
# order until their own time is over.


def test_trap_06_batches_after_a_lost_first_attempt_do_not_wait_for_their_own_timeout() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        stage.broker.freeze()
        lost = await producer.send("t", b"lost")
        await in_flight(stage, 1)
        await asyncio.sleep(0.9)
        following = await producer.send("t", b"following")
        await in_flight(stage, 2)
        stage.lose()
        await asyncio.sleep(1.4)
        assert isinstance(lost.exception(), DeliveryTimeoutError)
        assert not following.done()
        stage.revive()
        since = stage.loop.time()
        later = await producer.send("t", b"later")
        error = await failure(following)  # both may be at the broker still: it cannot be sent again
        assert isinstance(error, OutOfOrderSequenceNumberError)
        assert error.persistence is Persistence.POSSIBLY_PERSISTED
        await later
        assert stage.loop.time() - since < 0.75
        await producer.close()
        assert stage.values("t") == [b"first", b"later"]

    play(
        act,
        delivery_timeout_ms=2100,
        request_timeout_ms=2000,
        linger_ms=0,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=50,
        retry_backoff_max_ms=200,
    )


# -- 7: a stamp that is outdated when the request leaves -------------------------------------------
# The epoch is read, moves on, and the batch goes out under the old one (franz-go re-checks it after
# a request is built). Here: while a batch is being compressed its partition's epoch is bumped.


def test_trap_07_an_epoch_bumped_while_a_batch_is_prepared_does_not_split_its_stamp() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        # Every refusal is a bump; it meets batches queued, being compressed, in flight.
        sent = []
        for number in range(120):
            if number % 15 == 0:
                stage.faults.error(ApiKey.PRODUCE, 44)  # POLICY_VIOLATION: not retriable
            sent.append(await producer.send("t", b"%d" % number))
            await asyncio.sleep(0.004)
        await producer.flush()
        delivered = [b"%d" % n for n, each in enumerate(sent) if each.exception() is None]
        assert 60 < len(delivered) < 120
        epochs = {batch.producer_epoch for batch in stage.batches("t")}
        assert len(epochs) > 3
        await producer.close()
        assert stage.values("t") == [b"first", *delivered]
        assert stage.broker.complaints == []

    play(
        act,
        compression_type="gzip",
        compression_threads_threshold_bytes=0,
        linger_ms=0,
        buffer_memory=20_000,
    )


def test_trap_07_every_transaction_is_written_under_its_own_epoch() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        for number in range(10):
            async with producer.transaction():
                for part in range(3):
                    await producer.send("tu"[part % 2], b"%d-%d" % (number, part))
        await producer.close()
        for topic, parts in (("t", (0, 2)), ("u", (1,))):
            wanted = [b"%d-%d" % (number, part) for number in range(10) for part in parts]
            assert stage.values(topic) == wanted
            epochs = [b.producer_epoch for b in stage.batches(topic) if not b.is_control]
            assert len(set(epochs)) == 10
            assert epochs == sorted(epochs)
        assert stage.broker.complaints == []

    play(
        act,
        transactional_id="x",
        compression_type="gzip",
        compression_threads_threshold_bytes=0,
    )


# -- 8: topics named by an id that no broker lists -------------------------------------------------
# franz-go #1312: Azure Event Hubs offers Produce v13, which names topics by id, and no Metadata
# version that has the ids.


def test_trap_08_without_topic_ids_a_produce_request_names_its_topics() -> None:
    async def act(stage: Stage) -> None:
        cluster = stage.world.cluster
        versions = {**cluster.settings.api_versions, ApiKey.METADATA: (0, 9)}
        cluster.settings = replace(cluster.settings, api_versions=versions)
        producer = await started(stage)
        assert stage.engine.client.api_version(1, ProduceRequest) >= 13
        assert (await producer.send_and_wait("u", b"v")).offset == 0
        await producer.close()

    play(act, **SHORT)


# -- 9: a hint that leads to where one is ----------------------------------------------------------
# franz-go #1412: "not leader, the leader is broker 1", said broker 1, and was asked again at once.


def test_trap_09_a_hint_that_names_the_present_leader_causes_no_early_retry() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        refusing = stage.faults.error(ApiKey.PRODUCE, 6, times=None)
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(5)
        assert 3 <= refusing.struck <= 15
        stage.faults.remove(refusing)
        await delivery
        await producer.close()

    play(act)


# -- 10: no leader anywhere ------------------------------------------------------------------------
# franz-go 1.21.3: with one replica, a restart of the broker left no usable partition, and records
# failed at once.


def test_trap_10_records_are_kept_while_no_partition_has_a_leader() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("single", leaders=(2, 2))
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("single", b"before")
        stage.crash(2)
        metadata = stage.engine.metadata
        await until(lambda: all(metadata.cluster.leader("single", each) is None for each in (0, 1)))
        held = [await producer.send("single", b"%d" % n) for n in range(5)]
        held.append(await producer.send("single", b"key", b"key"))
        await asyncio.sleep(3)
        assert not any(each.done() for each in held)
        stage.revive(2)
        await asyncio.gather(*held)
        await producer.close()
        assert len(stage.values("single", 0) + stage.values("single", 1)) == 7

    play(act, brokers=2, metadata_max_age_ms=500)


# -- 11: requests among those of an authentication -------------------------------------------------
# franz-go 1.21.4: a re-authentication shared the stream with pipelined requests. Until a handshake
# is over, nothing of ours may be written.


def test_trap_11_nothing_is_written_amid_a_handshake() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        seen: list[int] = []
        respond = stage.world.cluster.respond

        def watch(node_id, header, now_ms, **more):  # type: ignore[no-untyped-def]
            seen.append(header.api_key)
            return respond(node_id, header, now_ms, **more)

        stage.world.cluster.respond = watch  # type: ignore[method-assign]
        stage.crash()
        slow = stage.faults.delay(1000, ApiKey.API_VERSIONS)
        held = [await producer.send("t", b"%d" % n) for n in range(5)]
        stage.revive()
        await until(lambda: slow.struck == 1)
        await asyncio.sleep(0.9)
        assert seen == [ApiKey.API_VERSIONS]
        await asyncio.gather(*held)
        await producer.close()
        assert stage.values("t") == [b"first", *[b"%d" % n for n in range(5)]]
        assert stage.broker.complaints == []

    play(act)


# -- 12: a connection without answers that dies before it lives ------------------------------------
# franz-go: with acks=0 such a connection was closed twice, and flush hung.


@pytest.mark.parametrize("acks", [0, 1])
def test_trap_12_a_connection_that_dies_unborn_hangs_neither_flush_nor_close(acks: int) -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        stage.crash()
        await asyncio.sleep(0.05)
        stage.faults.drop(ApiKey.API_VERSIONS, times=5)
        held = await producer.send("t", b"held")
        assert await producer.flush(0.2) == 1
        stage.revive()
        await asyncio.sleep(0.5)
        assert await producer.flush() == 0
        assert held.exception() is None
        stage.crash()
        await asyncio.sleep(0.05)
        lost = await producer.send("t", b"lost")
        closing = asyncio.create_task(producer.close(0.5))
        await asyncio.sleep(0)
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"too late")
        began = stage.loop.time()
        await closing
        assert stage.loop.time() - began < 1.0
        assert lost.done()
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"too late")
        with pytest.raises(ProducerClosedError):
            await producer.flush()
        stage.revive()
        assert stage.values("t")[-1:] == [b"held"]

    play(act, acks=acks, enable_idempotence=False, reconnect_backoff_ms=10)


def test_trap_12_a_producer_that_meets_only_such_connections_ends_in_time() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.drop(ApiKey.API_VERSIONS, times=None)
        with pytest.raises(BootstrapError):
            await stage.producer.start()
        await stage.producer.close()
        assert stage.loop.time() < 3.0

    play(act, acks=0, max_block_ms=2000)


# -- 13: flush and callbacks -----------------------------------------------------------------------
# KIP-1118: a flush inside a callback waits for the thread it runs in (see test_callbacks); records
# that callbacks send kept a flush from ending.


def test_trap_13_records_that_callbacks_send_do_not_keep_a_flush_from_ending() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        sent = 0

        def send_another(_: object) -> None:
            nonlocal sent
            sent += 1
            if sent < 500:
                producer.send_nowait("t", b"another").add_done_callback(send_another)

        for _ in range(3):
            (await producer.send("t", b"v")).add_done_callback(send_another)
        assert await producer.flush() == 0
        assert sent < 20
        await until(lambda: sent >= 500)
        await producer.close()

    play(act)


# -- 14: a lost answer that a later one makes up for -----------------------------------------------
# librdkafka acknowledges a request of unknown outcome when a later one of the same epoch is
# acknowledged: a broker accepts no sequence without its predecessor. An expired batch has had its
# outcome by then; but its gap is closed, and no new epoch is needed.


def test_trap_14_a_later_batch_that_is_acknowledged_closes_the_gap_of_an_expired_one() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        stage.broker.freeze()
        expired = await producer.send("t", b"expired")
        await in_flight(stage, 1)
        await asyncio.sleep(1.0)
        following = await producer.send("t", b"following")
        await in_flight(stage, 2)
        await asyncio.sleep(0.9)
        stage.faults.delay(300, ApiKey.PRODUCE)
        stage.broker.thaw()  # the first answer comes too late, the second one in time
        error = await failure(expired)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.persistence is Persistence.POSSIBLY_PERSISTED
        assert (await following).offset == 2
        await producer.send_and_wait("t", b"next")
        await producer.close()
        assert stage.values("t") == [b"first", b"expired", b"following", b"next"]
        assert {batch.producer_epoch for batch in stage.batches("t")} == {0}
        sequences = [batch.base_sequence for batch in stage.batches("t")]
        assert sequences == [0, 1, 2, 3]

    play(act, delivery_timeout_ms=2000, request_timeout_ms=2000, linger_ms=0)


# -- 15: a sticky choice that is never content -----------------------------------------------------
# KAFKA-14303, KAFKA-14553: with batch.size=0 no partition ever had room, and the partitioner chose
# for ever.


@pytest.mark.parametrize("adaptive", [True, False])
def test_trap_15_tiny_batches_do_not_make_the_partitioner_choose_for_ever(
    adaptive: bool,
) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        producer = stage.producer
        await producer.start()
        deliveries = [await producer.send("wide", b"%d" % n) for n in range(200)]
        await producer.flush()
        assert all(each.exception() is None for each in deliveries)
        assert producer.metrics()["records_per_batch_avg"] <= 2
        counts = [len(stage.values("wide", index)) for index in range(3)]
        assert sum(counts) == 200
        assert min(counts) > 20
        await producer.close()

    play(act, batch_size=0, partitioner_adaptive_partitioning_enable=adaptive)


# -- 16: a memory of five batches ------------------------------------------------------------------
# Brokers remember the last five batches of a partition. A later one that is acknowledged while an
# earlier one is retried counts, too: with four new ones in flight beside the retry, the batch that
# was written long ago is refused as out of order. Java retries it until its delivery timeout.


def test_trap_16_a_retry_of_a_written_batch_never_leaves_the_memory_of_the_broker() -> None:
    async def act(stage: Stage) -> None:
        producer = await started(stage)
        stage.faults.error(ApiKey.PRODUCE, 20, apply=True)  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        values = [b"%d" % number * 150 for number in range(6)]  # each in its own batch
        retried, following = [await producer.send("t", value) for value in values[:2]]
        await following
        assert not retried.done()
        lost = stage.faults.swallow(ApiKey.PRODUCE, apply=True, times=5)
        later = [await producer.send("t", value) for value in values[2:]]
        await asyncio.gather(retried, *later)
        assert lost.struck == 5
        await producer.close()
        assert stage.values("t") == [b"first", *values]

    play(act, linger_ms=0, buffer_memory=2000, request_timeout_ms=1000)
