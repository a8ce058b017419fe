"""The transactional producer on virtual time: waits and their bounds, cancellation, lost answers.

The brokers are the simulation's; nothing of the producer is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from support.picky_dialer import PickyDialer
from support.stage import Stage, play
from support.stepping import CancelledAt, Instant, drive
from support.transactional_acts import committed, perform, settled

from aioproducer import Producer, TopicPartition
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    FatalTransactionError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    WouldBlockError,
)
from aioproducer.runtime.tasks.closing import tasks_named
from aioproducer.testing.world.producer import SimProducer
from aioproducer.types import Persistence
from aioproducer.wire.api_keys import ApiKey

LEVELS = pytest.mark.parametrize("level", [1, 2])
MOST_SUSPENSIONS = 60


@LEVELS
def test_transactions_follow_one_another(level: int) -> None:
    async def act(stage: Stage) -> None:
        for number in range(5):
            async with stage.producer.transaction():
                await stage.producer.send("t", b"%d" % number)
                await stage.producer.send("u", b"%d" % number)
        await settled(stage)
        assert committed(stage) == committed(stage, "u") == [b"0", b"1", b"2", b"3", b"4"]

    perform(act, level)


@LEVELS
def test_a_cluster_upgraded_in_between_is_followed(level: int) -> None:
    async def act(stage: Stage) -> None:
        for number in range(6):
            if number == 3:
                stage.world.cluster.set_transaction_version(3 - level)
                # A producer hears of it with the next connection.
                stage.crash()
                stage.revive()
            async with stage.producer.transaction():
                await stage.producer.send("t", b"%d" % number)
        await settled(stage)
        assert committed(stage) == [b"%d" % number for number in range(6)]
        transactions = stage.engine.transactions
        assert transactions is not None
        assert transactions.manager.uses_v2 is (level == 1)

    perform(act, level)


@LEVELS
@pytest.mark.parametrize("apply", [True, False])
@pytest.mark.parametrize(
    "api",
    [
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.PRODUCE,
    ],
)
def test_a_lost_answer_costs_nothing(level: int, api: ApiKey, apply: bool) -> None:
    async def act(stage: Stage) -> None:
        for number in range(3):
            if number == 1:
                stage.faults.drop(api, apply=apply)
            async with stage.producer.transaction() as tx:
                await stage.producer.send("t", b"%d" % number)
                await tx.send_offsets({TopicPartition("u", 0): number}, "group")
        await settled(stage)
        assert committed(stage) == [b"0", b"1", b"2"]

    perform(act, level)


@LEVELS
def test_a_transaction_that_took_too_long_says_so(level: int) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        await asyncio.sleep(40)
        # Coordinators of V1 take it for a fenced producer.
        expected = ProducerFencedError if level == 1 else TransactionAbortableError
        with pytest.raises(expected, match=r"time.?out"):
            await stage.producer.commit_transaction()
        await settled(stage)
        assert committed(stage) == []

    perform(act, level, transaction_timeout_ms=5_000)


@LEVELS
def test_a_call_that_runs_out_of_time_can_only_be_repeated(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        stage.lose()
        with pytest.raises(KafkaTimeoutError, match="repeat commit_transaction"):
            await producer.commit_transaction()
        for other in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError):
                await other()
        stage.revive()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"y")
        await settled(stage)
        assert committed(stage) == [b"x", b"y"]

    perform(act, level, max_block_ms=2_000, request_timeout_ms=1_000)


@LEVELS
@pytest.mark.parametrize("waits_inside", [True, False])
def test_a_block_left_normally_waits_for_the_commit_that_was_begun_inside(
    level: int, waits_inside: bool
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        with pytest.raises(KafkaTimeoutError, match="repeat commit_transaction"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                stage.lose()
                if waits_inside:
                    with contextlib.suppress(KafkaTimeoutError):
                        await producer.commit_transaction()
                else:
                    committing = asyncio.ensure_future(producer.commit_transaction())
                    await asyncio.sleep(0.1)
                    committing.cancel()
        stage.revive()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"y")
            committing = asyncio.ensure_future(producer.commit_transaction())
            await asyncio.sleep(1)
            committing.cancel()
            await asyncio.wait([committing])
        async with producer.transaction():
            await producer.send("t", b"z")
        await settled(stage)
        assert committed(stage) == [b"x", b"y", b"z"]

    perform(act, level, max_block_ms=2_000, request_timeout_ms=1_000)


@LEVELS
def test_a_block_left_after_a_cancelled_commit_has_succeeded_lets_another_one_begin(
    level: int,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        async with producer.transaction():
            await producer.send("t", b"x")
            committing = asyncio.ensure_future(producer.commit_transaction())
            await asyncio.sleep(0)
            committing.cancel()
            await asyncio.sleep(1)
            assert committing.cancelled()
        async with producer.transaction():
            await producer.send("t", b"y")
        await settled(stage)
        assert committed(stage) == [b"x", b"y"]

    perform(act, level)


def test_a_commit_that_ran_out_of_time_reports_its_end_after_the_close() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        stage.faults.error(ApiKey.END_TXN, 51, times=6)
        with pytest.raises(KafkaTimeoutError) as caught:
            await producer.commit_transaction()
        assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        await producer.commit_transaction()
        await closing
        with pytest.raises(ProducerClosedError):
            await producer.commit_transaction()
        await settled(stage)
        assert committed(stage) == [b"x"]

    perform(act, max_block_ms=1_000)


@pytest.mark.parametrize("end", ["commit", "abort", "prepare"])
def test_a_block_whose_transaction_and_producer_were_ended_inside_is_left_without_an_error(
    end: str,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        async with producer.transaction() as tx:
            await producer.send_and_wait("t", b"x")
            ends = {
                "commit": producer.commit_transaction,
                "abort": producer.abort_transaction,
                "prepare": tx.prepare,
            }
            await ends[end]()
            await producer.close()

    perform(act)


@pytest.mark.parametrize("timeout_s", [0, None])
@pytest.mark.parametrize("failed", [False, True])
def test_a_block_whose_producer_was_closed_inside_says_that_nothing_is_committed(
    timeout_s: float | None, failed: bool
) -> None:
    async def act(stage: Stage) -> None:
        with pytest.raises(ProducerClosedError) as caught:
            async with stage.producer.transaction():
                await stage.producer.send_and_wait("t", b"x")
                if failed:
                    stage.faults.error(ApiKey.PRODUCE, 87)  # INVALID_RECORD
                    await stage.producer.send("t", b"y")
                    await stage.producer.flush()
                await stage.producer.close(timeout_s)
        assert caught.value.persistence is Persistence.NOT_PERSISTED

    perform(act)


@pytest.mark.parametrize("failed", [False, True])
def test_a_close_whose_abort_is_not_answered_leaves_no_commit_in_doubt(failed: bool) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        if failed:
            stage.faults.error(ApiKey.PRODUCE, 87)  # INVALID_RECORD
            with pytest.raises(KafkaError):
                await producer.send_and_wait("t", b"y")
        stage.lose()
        await producer.close(1)
        with pytest.raises(ProducerClosedError) as caught:
            await producer.commit_transaction()
        assert caught.value.persistence is Persistence.NOT_PERSISTED

    perform(act)


def test_health_says_what_a_call_waits_for() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        assert producer.health().waiting_for is None
        fault = stage.faults.error(ApiKey.END_TXN, 14, times=None)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(1)
        waiting_for = producer.health().waiting_for or ""
        assert "EndTxn" in waiting_for
        assert "COORDINATOR_LOAD_IN_PROGRESS" in waiting_for
        stage.faults.remove(fault)
        await committing
        assert producer.health().waiting_for is None

    perform(act)


def test_health_says_why_a_request_to_the_coordinator_is_repeated() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        fault = stage.faults.swallow(ApiKey.END_TXN, times=None)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(3)
        assert "EndTxnRequest" in (producer.health().waiting_for or "")
        assert "was not answered in time" in (producer.health().waiting_for or "")
        stage.faults.remove(fault)
        await committing

    perform(act, request_timeout_ms=2_000)


@pytest.mark.parametrize("again", ["elsewhere", "accepted"])
def test_a_coordinator_that_refuses_the_client_does_not_end_the_producer(again: str) -> None:
    async def act(stage: Stage) -> None:
        picky = PickyDialer(stage.world.network, set())
        stage.producer = producer = SimProducer(stage.world, dialer=picky)
        await producer.start()
        async with producer.transaction():
            await producer.send("t", b"before")
        transactions = stage.engine.transactions
        assert transactions is not None
        (coordinator,) = transactions._coordinator_session._coordinators.values()
        assert coordinator != 1  # which leads the topic
        picky.refuse.add(f"broker-{coordinator}.sim")
        stage.faults.drop(ApiKey.END_TXN)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"meanwhile")
        with pytest.raises(KafkaTimeoutError, match=r"waits for .* last error: refused"):
            await producer.commit_transaction()
        if again == "accepted":
            picky.refuse.clear()
        else:
            stage.crash(coordinator)
        await producer.commit_transaction()
        await producer.close()
        assert picky.refused > 2
        await settled(stage)
        assert committed(stage) == [b"before", b"meanwhile"]

    play(act, brokers=3, transactional_id="tx", max_block_ms=10_000)


def test_a_call_that_waits_while_its_coordinator_is_unknown_names_no_request_to_it() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start(init_transactions=False)
        stage.faults.swallow(ApiKey.FIND_COORDINATOR, times=None)
        with pytest.raises(KafkaTimeoutError, match=r"it waits for the coordinator"):
            await stage.producer.init_transactions()
        await stage.producer.close(1)

    play(act, transactional_id="tx", max_block_ms=10_000)


def test_a_commit_whose_records_are_acknowledged_waits_for_the_coordinator() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        await asyncio.sleep(1)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0)  # before the request is sent
        assert producer.health().waiting_for == "the coordinator"
        await committing

    perform(act)


def test_offsets_that_take_too_long_are_waited_for_by_the_commit() -> None:
    async def act(stage: Stage) -> None:
        fault = stage.faults.error(ApiKey.TXN_OFFSET_COMMIT, 14, times=12)
        async with stage.producer.transaction() as tx:
            with pytest.raises(KafkaTimeoutError, match="a commit waits for it"):
                await tx.send_offsets({TopicPartition("u", 0): 1}, "group")
        assert fault.is_spent

    perform(act, max_block_ms=5_000)


def test_initialization_is_bounded_and_leaves_nothing() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.INIT_PRODUCER_ID, 51, times=None)
        with pytest.raises(KafkaTimeoutError, match="init_transactions") as caught:
            await stage.producer.start()
        assert stage.loop.time() < 10
        # The producer is closed: there is nothing to repeat.
        assert "repeat" not in str(caught.value)
        assert "create a new Producer" in str(caught.value)

    play(act, transactional_id="tx", max_block_ms=2_000)


def test_closing_while_no_broker_answers_ends_in_time() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        stage.lose()
        commit = asyncio.create_task(stage.producer.commit_transaction())
        await asyncio.sleep(0.5)
        started = stage.loop.time()
        await stage.producer.close(1)
        assert stage.loop.time() - started < 2
        with pytest.raises(CommitOutcomeUnknownError, match="closed meanwhile"):
            await commit

    perform(act)


def test_a_close_without_a_bound_gives_a_lost_coordinator_up() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        stage.lose()
        started = stage.loop.time()
        await stage.producer.close()
        assert 5 <= stage.loop.time() - started < 7

    perform(act, max_block_ms=5_000)


def test_a_forced_close_does_not_wait() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        delivery = await stage.producer.send("t", b"x")
        started = stage.loop.time()
        await stage.producer.close(0)
        assert stage.loop.time() == started
        assert isinstance(delivery.exception(), ProducerClosedError)

    perform(act, linger_ms=10_000)


def test_closing_aborts_and_fails_what_was_not_sent() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        await stage.producer.send("t", b"y", partition=0)
        queued = await stage.producer.send("u", b"z")
        await stage.producer.close()
        assert isinstance(queued.exception(), TransactionAbortedError)
        await settled(stage)
        assert committed(stage) == []

    perform(act, linger_ms=10)


def test_the_end_of_the_task_is_the_end_of_the_producer() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        stage.lose()
        commit = asyncio.create_task(stage.producer.commit_transaction())
        await asyncio.sleep(0)
        (task,) = tasks_named(stage.loop, "aioproducer-transaction")
        task.cancel()
        with pytest.raises(ProducerFailedError, match="cancelled from outside"):
            await commit
        with pytest.raises(ProducerFailedError):
            await stage.producer.begin_transaction()

    perform(act)


def test_an_error_that_is_fatal_ends_calls_and_records() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.END_TXN, -1)
        await stage.producer.begin_transaction()
        await stage.producer.send("t", b"x")
        for _ in range(2):
            with pytest.raises(CommitOutcomeUnknownError) as caught:
                await stage.producer.commit_transaction()
            assert isinstance(caught.value.__cause__, FatalTransactionError)
        for call in (stage.producer.abort_transaction, stage.producer.begin_transaction):
            with pytest.raises(FatalTransactionError):
                await call()

    perform(act)


def test_a_send_that_waits_while_its_transaction_ends_does_not_slip_into_the_next() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        waiting = asyncio.create_task(producer.send("later", b"first"))
        await asyncio.sleep(0.1)
        await producer.abort_transaction()
        await producer.begin_transaction()
        stage.create_topic("later")
        with pytest.raises(IllegalStateError, match="transaction ended"):
            await waiting
        await producer.send("later", b"second")
        await producer.commit_transaction()
        await settled(stage)
        assert committed(stage, "later") == [b"second"]

    perform(act, allow_auto_create_topics=False)


def test_a_send_that_waits_for_memory_does_not_slip_into_the_next_either() -> None:
    async def act(stage: Stage) -> None:
        producer, pool = stage.producer, stage.engine.pool
        await producer.warm_up(["t"])
        await producer.begin_transaction()
        everything = pool.try_allocate(pool.total)
        assert everything is not None
        waiting = [asyncio.create_task(producer.send("t", b"first")) for _ in range(3)]
        await asyncio.sleep(0.1)
        await producer.abort_transaction()
        await producer.begin_transaction()
        pool.deallocate(everything, pool.total)
        for task in waiting:
            with pytest.raises(IllegalStateError, match="transaction ended"):
                await task
        await producer.send("t", b"second")
        await producer.commit_transaction()
        assert pool.available == pool.total
        await settled(stage)
        assert committed(stage) == [b"second"]

    perform(act)


@LEVELS
def test_a_send_that_still_waits_for_memory_at_the_commit_fails_the_transaction(level: int) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.warm_up(["t"])
        await producer.begin_transaction()
        sends = [asyncio.create_task(producer.send("t", b"%d" % n * 150)) for n in range(8)]
        await asyncio.sleep(0.001)
        assert stage.engine.appender.waiting
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert any(isinstance(outcome, IllegalStateError) for outcome in outcomes)
        await settled(stage)
        assert committed(stage) == []

    perform(act, level)


@pytest.mark.parametrize(("level", "versions"), [(1, (3, 11)), (2, (12, 13))])
def test_produce_versions_follow_the_protocol(level: int, versions: tuple[int, int]) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer.transaction():
            await stage.producer.send_and_wait("t", b"x")
            assert stage.engine.sender_task._versions([]) == versions

    perform(act, level)


def test_a_block_left_normally_after_a_prepare_without_outcome_aborts() -> None:
    async def act(stage: Stage) -> None:
        with pytest.raises(IllegalStateError, match="prepare_transaction"):
            async with stage.producer.transaction() as tx:
                await stage.producer.send_and_wait("t", b"x")
                stage.lose()
                await stage.producer.send("t", b"y")
                with pytest.raises(KafkaTimeoutError):
                    await tx.prepare()
                stage.revive()
        async with stage.producer.transaction():
            await stage.producer.send("t", b"z")
        await settled(stage)
        assert committed(stage) == [b"z"]

    perform(act, max_block_ms=3_000, request_timeout_ms=5_000)


def test_what_is_left_of_a_transaction_does_not_act_on_the_next() -> None:
    async def act(stage: Stage) -> None:
        offsets = {TopicPartition("u", 0): 1}
        async with stage.producer.transaction() as first:
            await first.send_offsets(offsets, "group")
        async with stage.producer.transaction() as second:
            for call in (partial(first.send_offsets, offsets, "group"), first.prepare):
                with pytest.raises(IllegalStateError, match="has ended"):
                    await call()
            await second.send_offsets(offsets, "group")
        with pytest.raises(IllegalStateError):
            await second.prepare()

    perform(act)


def test_two_tasks_cannot_begin_the_same_transaction() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        transactions = stage.engine.transactions
        assert transactions is not None
        abort = asyncio.create_task(transactions.abort_for_good())
        await asyncio.sleep(0)
        abort.cancel()
        await asyncio.wait([abort])
        first = asyncio.create_task(producer.begin_transaction())
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="another task"):
            await producer.begin_transaction()
        await first
        await producer.commit_transaction()

    perform(act)


def test_purged_records_fail_their_transaction() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send("t", b"x")
        assert stage.producer.purge() == 1
        with pytest.raises(TransactionAbortableError, match="purged"):
            await stage.producer.commit_transaction()
        await stage.producer.abort_transaction()

    perform(act)


@pytest.mark.parametrize(("failures", "warned"), [(1, []), (4, []), (5, [5]), (7, [5])])
def test_a_request_that_fails_five_times_in_a_row_is_warned_of(
    failures: int, warned: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.END_TXN, 14, times=failures)
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        await stage.producer.commit_transaction()

    perform(act)
    counts = [
        int(record.getMessage().split(" requests in a row failed")[0].rsplit(" ", 1)[1])
        for record in caplog.records
        if "requests in a row failed: COORDINATOR_LOAD" in record.getMessage()
    ]
    assert counts[:1] == warned


def test_records_of_a_metadata_timeout_fail_the_transaction() -> None:
    async def act(stage: Stage) -> None:
        with pytest.raises(TransactionAbortableError):
            async with stage.producer.transaction():
                await stage.producer.send("t", b"no")
                with pytest.raises(KafkaTimeoutError):
                    await stage.producer.send("missing", b"no")
        async with stage.producer.transaction():
            await stage.producer.send("t", b"yes")
        await settled(stage)
        assert committed(stage) == [b"yes"]

    perform(act, max_block_ms=1_000, allow_auto_create_topics=False)


@pytest.mark.parametrize("name", ["secret", ".."])
def test_a_topic_that_does_not_wait_either_to_be_refused_fails_the_transaction(name: str) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("secret")
        stage.faults.error(ApiKey.METADATA, 29, topic="secret", times=None)
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        with pytest.raises((WouldBlockError, InvalidTopicError)):
            producer.send_nowait(name, b"x")
        await asyncio.sleep(1)
        with pytest.raises((TopicAuthorizationFailedError, TransactionAbortableError)):
            producer.send_nowait(name, b"x")
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()

    perform(act)


def test_an_abort_that_fails_does_not_hide_the_first_error() -> None:
    async def act(stage: Stage) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            async with stage.producer.transaction():
                await stage.producer.send_and_wait("t", b"x")
                stage.lose()
                raise ZeroDivisionError
        assert any("could not be aborted" in note for note in caught.value.__notes__)
        stage.revive()
        # The abort goes on by itself; another transaction waits for it.
        async with stage.producer.transaction():
            await stage.producer.send("t", b"y")
        await settled(stage)
        assert committed(stage) == [b"y"]

    perform(act, max_block_ms=3_000, request_timeout_ms=1_000)


APIS = {
    ApiKey.FIND_COORDINATOR: (15,),
    ApiKey.INIT_PRODUCER_ID: (14, 16, 51),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3, 14, 16, 51),
    ApiKey.ADD_OFFSETS_TO_TXN: (14, 16),
    ApiKey.TXN_OFFSET_COMMIT: (7, 14, 16),
    ApiKey.END_TXN: (14, 15, 16, 51),
    ApiKey.PRODUCE: (6, 7, 19, 20, 51, 56, 87),
}
"""What goes away by itself, and one code that fails a batch."""


async def _weather(stage: Stage, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.expovariate(5))
        api = rng.choice(list(APIS))
        match rng.choices(["drop", "error", "crash", "level"], [6, 6, 2, 1])[0]:
            case "drop":
                stage.faults.drop(api, apply=rng.random() < 0.5)
            case "error":
                stage.faults.error(api, rng.choice(APIS[api]))
            case "crash":
                node_id = rng.choice([1, 2, 3])
                stage.crash(node_id)
                await asyncio.sleep(rng.uniform(0, 2))
                stage.revive(node_id)
            case _:
                stage.world.cluster.set_transaction_version(rng.choice([1, 2]))


@pytest.mark.parametrize("seed", range(15))
def test_in_any_weather_what_was_committed_is_there_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)

    async def act(stage: Stage) -> None:
        weather = asyncio.create_task(_weather(stage, rng))
        expected: list[bytes] = []
        for number in range(20):
            records = [b"%d" % number] * rng.randint(0, 4)
            with contextlib.suppress(ZeroDivisionError, TransactionAbortableError):
                async with stage.producer.transaction() as tx:
                    for record in records:
                        await stage.producer.send("t", record)
                    if rng.random() < 0.3:
                        await tx.send_offsets({TopicPartition("u", 0): number}, "group")
                    if rng.random() < 0.2:
                        raise ZeroDivisionError
                expected += records
        weather.cancel()
        await asyncio.wait([weather])
        for node_id in (1, 2, 3):
            if not stage.world.cluster.is_live(node_id):
                stage.revive(node_id)
        await asyncio.sleep(10)
        assert committed(stage) == expected

    perform(
        act,
        rng.choice([1, 2]),
        brokers=3,
        request_timeout_ms=1_000,
        delivery_timeout_ms=10_000,
    )


async def whole(stage: Stage) -> None:
    async with stage.producer.transaction() as tx:
        await stage.producer.send("t", b"victim")
        await tx.send_offsets({TopicPartition("u", 0): 1}, "group")
        await stage.producer.send_and_wait("t", b"victim")


async def calls(stage: Stage) -> None:
    producer = stage.producer
    await producer.begin_transaction()
    await producer.send("t", b"victim")
    await producer.commit_transaction()


async def aborted(stage: Stage) -> None:
    producer = stage.producer
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"victim")
    await producer.abort_transaction()


@LEVELS
@pytest.mark.parametrize("work", [whole, calls, aborted])
@pytest.mark.parametrize("instant", list(Instant))
def test_cancelling_at_every_await_leaves_whole_transactions(
    level: int, work: Callable[[Stage], Awaitable[None]], instant: Instant
) -> None:
    for number in range(1, MOST_SUSPENSIONS):
        struck = [False]
        perform(partial(_cancelled, work, number, instant, struck), level)
        if not struck[0]:
            assert number > 2
            return
    raise AssertionError("the work never ends")


async def _cancelled(
    work: Callable[[Stage], Awaitable[None]],
    number: int,
    instant: Instant,
    struck: list[bool],
    stage: Stage,
) -> None:
    victim = CancelledAt(work(stage), number, instant)
    task = asyncio.create_task(drive(victim))
    await asyncio.wait([task])
    struck[0] = victim.struck
    await _finish_what_is_open(stage.producer, commit=work is not aborted)
    async with stage.producer.transaction():
        await stage.producer.send("t", b"after")
    await settled(stage)
    records = committed(stage)
    assert records[-1] == b"after"
    assert records.count(b"victim") in ({0, 2} if work is whole else {0, 1})
    if work is aborted:
        assert b"victim" not in records


async def _finish_what_is_open(producer: Producer, *, commit: bool) -> None:
    """Repeat every call that may have been made, as an application that lost track does."""
    ends = [producer.commit_transaction, producer.abort_transaction]
    for call in [producer.begin_transaction, *(ends if commit else ends[::-1])]:
        with contextlib.suppress(IllegalStateError):
            await call()
