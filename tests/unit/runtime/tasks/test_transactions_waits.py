"""Waits of transactional calls: what they wait for, and what ends them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.stage import Stage
from support.transactional_acts import committed, perform, settled

from aioproducer.errors import (
    CommitOutcomeUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerFailedError,
    RecordTooLargeError,
    TransactionAbortedError,
)
from aioproducer.testing.broker.faults import ConnectionFault, Fault
from aioproducer.wire.api_keys import ApiKey

COORDINATOR_LOAD_IN_PROGRESS = 14


def test_an_abort_waits_for_the_responses_to_records_that_were_given_up() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        stage.broker.freeze()
        await producer.send("t", b"y")
        await asyncio.sleep(0.1)
        assert producer.purge(in_flight=True) == 1
        aborting = asyncio.create_task(producer.abort_transaction())
        await asyncio.sleep(0.1)
        assert producer.health().waiting_for == (
            "the responses to requests whose records have failed"
        )
        stage.broker.thaw()
        await aborting
        assert producer.health().waiting_for is None

    perform(act)


@pytest.mark.parametrize("end", ["commit", "prepare"])
def test_the_end_of_a_transaction_does_not_wait_for_the_linger(end: str) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        began = stage.loop.time()
        await producer.begin_transaction()
        await producer.send("t", b"x")
        if end == "prepare":
            prepared = await producer.prepare_transaction()
            assert prepared.transactional_id == "tx"
            assert stage.values("t") == [b"x"]
        await producer.commit_transaction()
        await producer.begin_transaction()
        assert stage.loop.time() - began < 1
        await producer.send("t", b"y")
        await asyncio.sleep(10)
        assert stage.values("t") == [b"x"]
        await producer.commit_transaction()
        await settled(stage)
        assert committed(stage) == [b"x", b"y"]

    perform(act, linger_ms=20_000)


def test_a_record_is_refused_while_its_open_batch_is_committed() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.warm_up(["t"])
        await producer.begin_transaction()
        stage.broker.freeze()
        for _ in range(3):
            producer.send_nowait("t", b"x")
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.1)
        for _ in range(2):
            with pytest.raises(IllegalStateError):
                producer.send_nowait("t", b"late")
        stage.broker.thaw()
        await committing
        with pytest.raises(IllegalStateError):
            producer.send_nowait("t", b"late")
        await settled(stage)
        assert committed(stage) == [b"x"] * 3

    perform(act, 1, linger_ms=20_000)


def test_an_outcome_that_comes_together_with_the_end_of_the_wait_is_returned() -> None:
    async def act(stage: Stage) -> None:
        producer, transactions = stage.producer, stage.engine.transactions
        assert transactions is not None
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        stage.broker.freeze()
        # As after the loop was blocked: it reads the response, then runs the timer.
        at = stage.loop.time() + producer.config.max_block_ms / 1000
        stage.loop.call_at(at, transactions.manager.on_ended, None)
        await producer.commit_transaction()
        stage.broker.thaw()

    perform(act, max_block_ms=1000)


def test_the_time_in_calls_is_counted_from_zero() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        for _ in range(2):
            await asyncio.sleep(100)
            async with producer.transaction():
                await producer.send("t", b"x")
        seconds = {
            name: value
            for name, value in producer.metrics().items()
            if name.startswith("txn_") and name.endswith("_time_ns_total")
        }
        assert len(seconds) >= 5
        assert all(0 <= value < 500_000_000 for value in seconds.values()), seconds
        assert sum(seconds.values()) > 0

    perform(act)


def test_a_commit_that_no_call_has_reported_is_left_to_the_next_call_of_commit() -> None:
    async def act(stage: Stage) -> None:
        producer, transactions = stage.producer, stage.engine.transactions
        assert transactions is not None
        await producer.begin_transaction()
        number = transactions.manager.number
        await producer.send_and_wait("t", b"x")
        assert transactions.is_open(number)
        assert not transactions.is_open(number + 1)
        stage.lose()
        with pytest.raises(KafkaTimeoutError):
            await producer.commit_transaction()
        assert not transactions.reports_commit()
        assert not transactions.is_open(number)
        assert transactions.has_to_commit(number)
        stage.revive()
        await producer.commit_transaction()
        assert not transactions.has_to_commit(number)

    perform(act, max_block_ms=2_000, request_timeout_ms=1_000)


def test_a_refused_record_ends_the_linger_of_its_transaction() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        lingering = await producer.send("t", b"x")
        await asyncio.sleep(1)  # for the response to the addition of its partition
        began = stage.loop.time()
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", b"y" * 2_000)
        with pytest.raises(TransactionAbortedError):
            await lingering
        assert stage.loop.time() == began
        await producer.abort_transaction()

    perform(act, linger_ms=20_000)


def test_a_coordinator_that_stops_is_replaced_while_its_calls_wait() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        ends = {
            node: stage.faults.add(
                Fault(ConnectionFault(), ApiKey.END_TXN, node_id=node, times=None)
            )
            for node in (1, 2, 3)
        }
        async with producer.transaction():
            await producer.send("t", b"x")
        coordinator = next(node for node, fault in ends.items() if fault.struck)
        stage.create_topic("elsewhere", leaders=(coordinator % 3 + 1,))
        await producer.begin_transaction()
        await producer.send_and_wait("elsewhere", b"x")
        stage.crash(coordinator)
        await asyncio.sleep(0.2)
        await producer.commit_transaction()
        assert sum(fault.struck > 0 for fault in ends.values()) == 2
        stage.revive(coordinator)

    perform(act, brokers=3)


@pytest.mark.parametrize("is_answered", [True, False])
def test_the_log_has_the_failures_of_a_coordinator_and_their_end(
    is_answered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.begin_transaction()
        await stage.producer.send_and_wait("t", b"x")
        fault = (
            stage.faults.error(ApiKey.END_TXN, COORDINATOR_LOAD_IN_PROGRESS, times=None)
            if is_answered
            else stage.faults.swallow(ApiKey.END_TXN, times=None)
        )
        committing = asyncio.create_task(stage.producer.commit_transaction())
        await asyncio.sleep(20)
        assert "EndTxn of transactional id 'tx' is repeated, 5 requests in a row" in caplog.text
        assert "the transaction coordinator answers" not in caplog.text
        stage.faults.remove(fault)
        await committing
        assert "the transaction coordinator answers" in caplog.text

    with caplog.at_level(logging.INFO, logger="aioproducer"):
        perform(act, request_timeout_ms=1_000)


def test_a_fatal_error_of_transactions_is_the_failure_of_the_producer() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        stage.faults.error(ApiKey.END_TXN, -1)
        with pytest.raises(CommitOutcomeUnknownError):
            await producer.commit_transaction()
        await asyncio.sleep(0.1)
        assert producer.health().state == "failed"
        assert stage.engine.failure is not None

    perform(act)


class SignalError(BaseException):
    """An exception of a signal handler; those of log handlers are printed, unless they are such."""


class Failing(logging.Handler):
    """A handler during whose first line a signal comes."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.has_failed = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.has_failed and "requests in a row failed" in record.getMessage():
            self.has_failed = True
            self.failed_at = asyncio.get_running_loop().time()
            raise SignalError


def test_an_exception_while_a_response_is_handled_ends_the_producer() -> None:
    handler = Failing()

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        stage.faults.error(ApiKey.END_TXN, COORDINATOR_LOAD_IN_PROGRESS, times=None)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            await producer.commit_transaction()
        assert handler.has_failed
        assert stage.loop.time() == handler.failed_at
        assert "transaction task failed with SignalError" in str(caught.value.__cause__)
        with pytest.raises(ProducerFailedError, match="SignalError") as refused:
            await producer.send("t", b"y")
        assert isinstance(refused.value.__cause__, SignalError)
        (reported,) = stage.loop.failures
        assert "SignalError" in reported
        stage.loop.failures.clear()

    logger = logging.getLogger("aioproducer")
    logger.addHandler(handler)
    try:
        perform(act)
    finally:
        logger.removeHandler(handler)
