"""The producer for threads: order, back-pressure, and nothing lost or hung however it ends."""

from __future__ import annotations

import _thread
import asyncio
import gc
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest
from support.signals import SignalAt, interrupt

from aioproducer.blocking import DeliveryHandle, Producer
from aioproducer.errors import (
    BufferExhaustedError,
    CommitOutcomeUnknownError,
    ForkedError,
    IllegalStateError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordsFailedError,
    RecordsPurgedError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionAbortedError,
    WouldBlockError,
)
from aioproducer.metrics import ApplicationMetric
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.testing.security import ListenerSecurity
from aioproducer.testing.threaded import ThreadedCluster
from aioproducer.transaction_admin import finish_transaction
from aioproducer.types import Persistence
from aioproducer.wire.api_keys import ApiKey

T = TypeVar("T")

WAIT_S = 20.0


class Brokers:
    """Run an embedded cluster in a separate thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = EmbeddedCluster(brokers=1, topics={"t": 1, "u": 3})
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.run(self.cluster.start())
        self.address = self.cluster.bootstrap_servers

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def freeze(self) -> None:
        self.loop.call_soon_threadsafe(self.cluster.freeze_broker, 1)

    def thaw(self) -> None:
        self.loop.call_soon_threadsafe(self.cluster.thaw_broker, 1)

    def values(self, topic: str) -> dict[int, list[bytes | None]]:
        found = self.run(read_topic(self.address, topic))
        return {partition: [r.value for r in records] for partition, records in found.items()}

    def committed(self, topic: str) -> list[bytes | None]:
        reading = read_topic(self.address, topic, isolation_level="read_committed")
        return [record.value for records in self.run(reading).values() for record in records]

    def close(self) -> None:
        self.run(self.cluster.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    try:
        yield brokers
    finally:
        brokers.close()


@pytest.fixture
def producer(brokers: Brokers) -> Iterator[Producer]:
    with Producer(bootstrap_servers=brokers.address) as producer:
        yield producer


def eventually(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def fill(producer: Producer, topic: str = "t") -> list[DeliveryHandle]:
    """Sends until there is no room."""
    accepted: list[DeliveryHandle] = []
    with pytest.raises(BufferExhaustedError, match="max_block_ms"):
        accepted.extend(producer.send(topic, b"v" * 10_000) for _ in range(1000))
    return accepted


def test_a_delivery_reports_where_the_record_was_written(
    producer: Producer, brokers: Brokers
) -> None:
    first = producer.send_and_wait("u", b"a", b"k", {"h": b"1"}, 2, 1_700_000_000_000)
    assert (first.partition, first.offset, first.timestamp_ms) == (2, 0, 1_700_000_000_000)
    handle = producer.send("u", b"b", partition=2)
    assert handle.result(WAIT_S).offset == 1
    assert handle.done()
    assert handle.exception() is None
    (record, _) = brokers.run(read_topic(brokers.address, "u"))[2]
    assert (record.key, tuple(record.headers)) == (b"k", (("h", b"1"),))
    assert producer.health().ready
    assert producer.metrics()["record_send_total"] == 2
    assert len(producer.partitions_for("u")) == 3


def test_many_threads_lose_nothing_and_keep_each_ones_order(
    producer: Producer, brokers: Brokers
) -> None:
    def hammer(name: int) -> list[DeliveryHandle]:
        return [producer.send("u", b"%d:%d" % (name, n), b"%d" % name) for n in range(3_000)]

    with ThreadPoolExecutor(6) as pool:
        handles = list(pool.map(hammer, range(6)))
    assert producer.flush(WAIT_S) == 0
    assert all(handle.result(0).offset is not None for each in handles for handle in each)
    seen: defaultdict[int, list[int]] = defaultdict(list)
    for values in brokers.values("u").values():
        for value in values:
            name, number = map(int, (value or b"").split(b":"))
            seen[name].append(number)
    assert seen == {name: list(range(3_000)) for name in range(6)}


def test_calls_of_one_thread_take_effect_in_order(producer: Producer, brokers: Brokers) -> None:
    expected: list[bytes] = []
    for turn in range(20):
        block = [b"%d-%d" % (turn, n) for n in range(50)]
        for value in block[:20]:
            producer.send("t", value)
        assert producer.send_many("t", iter(block[20:])).delivered == 30
        expected += block
    assert brokers.values("t") == {0: expected}


def test_senders_wait_while_memory_is_used_up_and_go_on_in_order(brokers: Brokers) -> None:
    with Producer(bootstrap_servers=brokers.address, buffer_memory=32_768, linger_ms=0) as producer:
        producer.send_and_wait("t", b"0")
        brokers.freeze()
        accepted: list[int] = []

        def send() -> list[DeliveryHandle]:
            handles = []
            for number in range(1, 60):
                handles.append(producer.send("t", b"%06d" % number + b"v" * 2_000))
                accepted.append(number)
            return handles

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            eventually(lambda: producer.health().waiting_for_memory)
            time.sleep(0.1)
            assert len(accepted) < 59
            assert not sending.done()
            brokers.thaw()
            offsets = [handle.result(WAIT_S).offset for handle in sending.result(WAIT_S)]
        assert offsets == list(range(1, 60))
        assert producer.health().buffer_available == 32_768


def test_waiting_for_room_ends_and_everything_accepted_ends_too(brokers: Brokers) -> None:
    with Producer(
        bootstrap_servers=brokers.address, buffer_memory=32_768, max_block_ms=300, linger_ms=0
    ) as producer:
        producer.send_and_wait("t", b"0")
        brokers.freeze()
        started = time.monotonic()
        accepted = fill(producer)
        assert time.monotonic() - started < 10
        assert producer.flush(0.1) > 0
        brokers.thaw()
        assert producer.flush(WAIT_S) == 0
        offsets = [handle.result(WAIT_S).offset for handle in accepted]
        assert offsets == list(range(1, len(accepted) + 1))
        assert producer.send_and_wait("t", b"last").offset == len(accepted) + 1


def test_calls_do_not_wait_for_the_memory_that_accepted_records_wait_for(brokers: Brokers) -> None:
    with Producer(
        bootstrap_servers=brokers.address, buffer_memory=100_000, max_block_ms=200
    ) as producer:
        producer.send_and_wait("t", b"0")
        brokers.freeze()
        accepted = fill(producer)
        began = time.monotonic()
        assert len(producer.partitions_for("t")) == 1
        given_up = producer.purge(in_flight=True)
        assert given_up == len(accepted)
        for handle in accepted:
            assert isinstance(handle.exception(WAIT_S), RecordsPurgedError)
        assert time.monotonic() - began < WAIT_S
        brokers.thaw()


def test_a_refusal_that_is_not_retrieved_is_reported(brokers: Brokers) -> None:
    reported: list[int] = []
    with Producer(
        bootstrap_servers=brokers.address,
        buffer_memory=32_768,
        max_block_ms=200,
        linger_ms=0,
        request_timeout_ms=400,
        delivery_timeout_ms=500,
        on_delivery_error=lambda where, count, error: reported.append(count),
    ) as producer:
        producer.send_and_wait("t", b"0")
        brokers.freeze()
        handles = fill(producer)
        eventually(lambda: any(handle.done() for handle in handles))
        refused = sum(handle.done() for handle in handles)
        handles.clear()
        gc.collect()  # the caught error refers to the frame that made them
        eventually(lambda: sum(reported) >= refused)
        brokers.thaw()
        with pytest.raises(RecordsFailedError) as caught:
            producer.flush(WAIT_S, raise_failures=True)
        assert caught.value.count >= refused
        assert producer.flush(WAIT_S, raise_failures=True) == 0


def test_mistakes_are_raised_by_the_call(brokers: Brokers) -> None:
    with Producer(bootstrap_servers=brokers.address, max_block_ms=300) as producer:
        producer.send_and_wait("t", b"0")
        with pytest.raises(RecordTooLargeError):
            producer.send("t", b"v" * 2_000_000)
        with pytest.raises(SerializationError):
            producer.send("t", "text")
        with pytest.raises(InvalidTopicError):
            producer.send(5, b"v")  # type: ignore[arg-type]
        with pytest.raises(MetadataTimeoutError):
            producer.send("t", b"v", partition=7)
        with pytest.raises(KafkaError):
            producer.send("no such topic", b"v")
        with pytest.raises(SerializationError):
            producer.send("t", b"v", timestamp_ms=-1)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(producer)
        assert producer.send_and_wait("t", b"1").offset == 1


def test_before_start_and_after_close_it_says_so(brokers: Brokers) -> None:
    producer = Producer(bootstrap_servers=brokers.address)
    with pytest.raises(IllegalStateError, match="start"):
        producer.send("t", b"v")
    producer.start()
    handle = producer.send("t", b"v")
    with pytest.raises(IllegalStateError, match="starts once"):
        producer.start()
    producer.close()
    producer.close()
    assert handle.result(0).offset == 0
    for call in (lambda: producer.send("t", b"v"), producer.flush):
        with pytest.raises(ProducerClosedError):
            call()
    assert not producer.health().ready


def test_a_cluster_that_is_not_there_fails_the_start_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(KafkaError):
        Producer(bootstrap_servers="127.0.0.1:9", max_block_ms=200).start()
    eventually(lambda: threading.active_count() <= before)


def test_a_callback_may_send_but_not_wait(producer: Producer) -> None:
    producer.send_and_wait("t", b"0")
    outcomes: list[object] = []
    ended = threading.Event()

    def callback(handle: DeliveryHandle) -> None:
        outcomes.append(handle.result().offset)
        outcomes.append(producer.send("t", b"again"))
        for call in (
            producer.flush,
            lambda: producer.send("u", b"new topic"),
            producer.close,
        ):
            try:
                call()
            except KafkaError as error:
                outcomes.append(type(error))
        ended.set()

    producer.send("t", b"1").add_done_callback(callback)
    assert ended.wait(WAIT_S)
    offset, again, *refused = outcomes
    assert offset == 1
    assert isinstance(again, DeliveryHandle)
    assert again.result(WAIT_S).offset == 2
    assert refused == [IllegalStateError, WouldBlockError, IllegalStateError]
    late: list[DeliveryHandle] = []
    again.add_done_callback(late.append)
    assert late == [again]


def test_a_callback_that_exits_ends_neither_the_producer_nor_its_records(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    def leaving(topic: str, key: object, value: bytes, meta: object) -> int:
        return sys.exit(1) if value == b"bad" else 0

    with Producer(bootstrap_servers=brokers.address, partitioner=leaving, linger_ms=20) as producer:
        with pytest.raises(SystemExit):
            producer.send("t", b"bad")
        first, second = producer.send("t", b"0"), producer.send("t", b"1")
        first.add_done_callback(sys.exit)
        assert second.result(WAIT_S).offset == 1
        refused, third = producer.send("t", b"bad"), producer.send("t", b"2")
        with pytest.raises(InvalidPartitionError, match="raised SystemExit"):
            refused.result(WAIT_S)
        assert third.result(WAIT_S).offset == 2
    assert brokers.values("t") == {0: [b"0", b"1", b"2"]}
    assert "the producer goes on" in caplog.text


def test_a_signal_handler_may_flush_wherever_it_interrupts_a_call(producer: Producer) -> None:
    handled: list[int] = []
    producer.send_and_wait("t", b"0")
    for point in range(1, 1000):
        with SignalAt(point, lambda: handled.append(producer.flush(WAIT_S))) as signal:
            metadata = producer.send_and_wait("t", b"v")
            producer.flush(WAIT_S)
        assert metadata.offset == point
        if not signal.is_handled:
            break
    assert handled == [0] * (point - 1)
    assert len(handled) > 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_producer_goes_on_wherever_ctrl_c_has_ended_a_flush(producer: Producer) -> None:
    for point in range(1, 1000):
        producer.send("t", b"v")
        ctrl_c = SignalAt(point, interrupt)
        with suppress(KeyboardInterrupt), ctrl_c:
            producer.flush()
        assert producer.flush(WAIT_S) == 0
        if not ctrl_c.is_handled:
            break
    assert point > 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_start_that_ctrl_c_ends_leaves_no_thread(brokers: Brokers) -> None:
    def is_ours(frame: FrameType) -> bool:  # in `Thread.start()` of CPython threads may be left
        return f"{os.sep}aioproducer{os.sep}" in frame.f_code.co_filename

    before = set(threading.enumerate())
    for point in range(1, 1000):
        producer = Producer(bootstrap_servers=brokers.address)
        ctrl_c = SignalAt(point, interrupt, counts=is_ours)
        began = time.monotonic()
        with suppress(KeyboardInterrupt), ctrl_c:
            producer.start()
        assert time.monotonic() - began < 4, point
        producer.close(0)
        for thread in set(threading.enumerate()) - before:
            thread.join(WAIT_S)
            assert not thread.is_alive(), point
        if not ctrl_c.is_handled:
            break
    assert point > 20


def test_a_result_is_waited_for_no_longer_than_the_timeout(
    producer: Producer, brokers: Brokers
) -> None:
    producer.send_and_wait("t", b"0")
    brokers.freeze()
    handle = producer.send("t", b"1")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            handle.result(0.02)
    assert not handle.done()
    brokers.thaw()
    assert handle.result(WAIT_S).offset == 1


async def test_in_a_running_loop_it_warns_once() -> None:
    brokers = await asyncio.to_thread(Brokers)
    try:
        producer = Producer(bootstrap_servers=brokers.address)
        with pytest.warns(RuntimeWarning, match="holds up the event loop"):
            producer.start()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            producer.send_and_wait("t", b"v")
        await asyncio.to_thread(producer.close)
    finally:
        await asyncio.to_thread(brokers.close)


async def test_where_threads_share_one_of_the_system_a_second_loop_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Greenlet(threading.Thread):
        def start(self) -> None:
            self.run()  # in the thread that a loop runs in, as gevent and eventlet do

        def join(self, timeout: float | None = None) -> None:
            pass

    monkeypatch.setattr(threading, "Thread", Greenlet)
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a loop runs here
        with pytest.raises(IllegalStateError, match="no event loop can run in a new thread"):
            producer.start()
        with pytest.raises(IllegalStateError, match="this one is closed"):
            producer.start()
    producer.close()


def test_where_threads_share_one_of_the_system_producers_share_a_loop(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Producer(bootstrap_servers=brokers.address)
    first.start()

    class Greenlet(threading.Thread):
        def run(self) -> None:
            asyncio._set_running_loop(first._thread._loop)  # as in the thread that it runs in
            super().run()

    monkeypatch.setattr(threading, "Thread", Greenlet)
    others = [Producer(bootstrap_servers=brokers.address) for _ in range(2)]
    for producer in others:
        producer.start()
    first.close()
    with pytest.raises(ProducerClosedError):
        first.send("t", b"v")
    for producer in others:
        producer.send_and_wait("t", b"v")
        producer.close()
        with pytest.raises(ProducerClosedError):
            producer.send("t", b"v")
    eventually(lambda: not first._thread.is_alive)
    assert brokers.values("t") == {0: [b"v", b"v"]}


def test_a_thread_that_cannot_be_made_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unmade(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", Unmade)
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        producer.start()
    with pytest.raises(IllegalStateError, match="this one is closed"):
        producer.start()
    producer.close()


def test_closing_while_others_send_ends_every_wait(brokers: Brokers) -> None:
    producer = Producer(bootstrap_servers=brokers.address, buffer_memory=65_536)
    producer.start()
    producer.send_and_wait("t", b"0")
    handles: list[DeliveryHandle] = []

    def send() -> None:
        with pytest.raises(ProducerClosedError):
            while True:
                handles.append(producer.send("t", b"v" * 1_000))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(handles) > 2_000)
    producer.close()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert all(handle.exception(0) is None for handle in handles)
    assert len(brokers.values("t")[0]) == len(handles) + 1


def test_metrics_are_read_in_the_loops_thread_while_it_closes(brokers: Brokers) -> None:
    threads: list[str] = []

    def reading() -> float:
        threads.append(threading.current_thread().name)
        return 1.0

    producer = Producer(bootstrap_servers=brokers.address)
    producer.start()
    producer.register_metric(ApplicationMetric("read", "shop-metrics", reading))
    producer.send_and_wait("t", b"")
    brokers.freeze()
    producer.send("t", b"")
    closing = threading.Thread(target=producer.close)
    closing.start()
    eventually(lambda: "closed" in repr(producer))
    assert producer.all_metrics()
    assert producer.statistics().state
    brokers.thaw()
    closing.join(WAIT_S)
    assert {name.partition(" ")[0] for name in threads} == {"aioproducer"}
    assert producer.all_metrics()


def test_a_call_that_the_closing_cuts_off_says_so(brokers: Brokers) -> None:
    producer = Producer(bootstrap_servers=brokers.address)
    producer.start()
    started = threading.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(producer.run, endless)
        assert started.wait(WAIT_S)
        producer.close()
        with pytest.raises(ProducerClosedError, match="thread has ended"):
            call.result(WAIT_S)


def test_closing_with_a_short_timeout_fails_what_is_left(brokers: Brokers) -> None:
    producer = Producer(bootstrap_servers=brokers.address, buffer_memory=32_768, linger_ms=0)
    producer.start()
    producer.send_and_wait("t", b"0")
    brokers.freeze()
    handles: list[DeliveryHandle] = []
    refused: list[KafkaError] = []

    def send() -> None:
        try:
            while True:
                handles.append(producer.send("t", b"v" * 10_000))
        except KafkaError as error:
            refused.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    eventually(lambda: producer.health().waiting_for_memory)
    producer.close(timeout=0.1)
    thread.join(WAIT_S)
    assert [type(error) for error in refused] == [ProducerClosedError]
    assert handles
    assert all(isinstance(handle.exception(0), ProducerClosedError) for handle in handles)
    brokers.thaw()


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_leaves_it_usable(brokers: Brokers) -> None:
    with Producer(bootstrap_servers=brokers.address, buffer_memory=32_768, linger_ms=0) as producer:
        producer.send_and_wait("t", b"0")
        for wait in (
            lambda: [producer.send("t", b"v" * 10_000) for _ in range(100)],
            lambda: [producer.send("t", b"v"), producer.flush()],
            lambda: [producer.send("t", b"v").result()],
        ):
            brokers.freeze()
            timer = threading.Timer(0.3, _thread.interrupt_main)
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                wait()
            timer.join()
            brokers.thaw()
            assert producer.flush(WAIT_S) == 0
        assert producer.health().waiting_for_memory == 0
        assert producer.health().buffer_available == 32_768
        offset = producer.send_and_wait("t", b"last").offset
        assert len(brokers.values("t")[0]) == (offset or 0) + 1


def test_items_are_read_in_the_calling_thread_and_their_error_ends_the_call(
    producer: Producer,
) -> None:
    threads: set[int] = set()

    def items() -> Iterator[bytes]:
        for number in range(5_000):
            threads.add(threading.get_ident())
            yield b"%d" % number
        raise RuntimeError("the source broke")

    with pytest.raises(SendManyInterruptedError, match="the source broke") as caught:
        producer.send_many("t", items())
    assert caught.value.result.delivered == 5_000
    assert threads == {threading.get_ident()}


def test_items_that_raise_a_cancelled_error_end_the_call_with_its_result(
    producer: Producer,
) -> None:
    def items() -> Iterator[bytes]:
        yield b"0"
        raise asyncio.CancelledError

    with pytest.raises(SendManyInterruptedError, match="CancelledError") as caught:
        producer.send_many("t", items())
    assert caught.value.result.delivered == 1


def test_arrow_rows_are_sent(producer: Producer, brokers: Brokers) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"value": [b"a", b"b", b"c"]})
    producer.send("t", b"before")
    assert producer.send_arrow("t", table).delivered == 3
    assert brokers.values("t") == {0: [b"before", b"a", b"b", b"c"]}


def test_transactions_commit_abort_and_refuse_what_is_outside(brokers: Brokers) -> None:
    with Producer(bootstrap_servers=brokers.address, transactional_id="x") as producer:
        with pytest.raises(IllegalStateError):
            producer.send("t", b"outside")
        with producer.transaction() as tx:
            handles = [producer.send("t", b"%d" % n) for n in range(100)]
            tx.send_offsets({("u", 0): 42}, "group")
        assert all(handle.done() for handle in handles)
        with pytest.raises(RuntimeError, match="mine"), producer.transaction():
            lost = producer.send("t", b"aborted")
            raise RuntimeError("mine")
        assert isinstance(lost.exception(WAIT_S), TransactionAbortedError)
        producer.begin_transaction()
        producer.send("t", b"prepared")
        assert producer.prepare_transaction().transactional_id == "x"
        producer.commit_transaction()
    assert brokers.values("t")[0] == [*(b"%d" % n for n in range(100)), b"prepared"]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_cut_off_by_a_close_in_another_thread_is_unknown_and_can_be_found_out(
    brokers: Brokers, arrives: bool
) -> None:
    producer = Producer(bootstrap_servers=brokers.address, transactional_id="x")
    producer.start()
    producer.begin_transaction()
    producer.send_and_wait("t", b"once")
    fault = brokers.cluster.state.faults.swallow(ApiKey.END_TXN, apply=arrives)
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(producer.commit_transaction)
        eventually(lambda: fault.struck)
        producer.close(0)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            committing.result(WAIT_S)
    with pytest.raises(CommitOutcomeUnknownError):
        producer.commit_transaction()
    transaction = pickle.loads(pickle.dumps(caught.value)).transaction
    asyncio.run(finish_transaction(transaction, bootstrap_servers=brokers.address, commit=True))
    assert brokers.committed("t") == [b"once"]


@pytest.mark.usefixtures("interrupts")
def test_a_commit_that_goes_on_after_an_interrupt_reports_its_end_after_the_close(
    brokers: Brokers,
) -> None:
    producer = Producer(bootstrap_servers=brokers.address, transactional_id="x")
    producer.start()
    producer.begin_transaction()
    producer.send_and_wait("t", b"once")
    brokers.cluster.state.faults.error(ApiKey.END_TXN, 14, times=4)
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.2, _thread.interrupt_main).start()
        producer.commit_transaction()
    producer.close()
    producer.commit_transaction()
    with pytest.raises(ProducerClosedError):
        producer.commit_transaction()
    assert brokers.committed("t") == [b"once"]


@pytest.mark.parametrize("timeout_s", [0, None])
def test_a_block_whose_producer_was_closed_says_that_nothing_is_committed(
    brokers: Brokers, timeout_s: float | None
) -> None:
    def closed_inside(raised: Exception | None = None) -> None:
        producer = Producer(bootstrap_servers=brokers.address, transactional_id="x")
        producer.start()
        with producer.transaction():
            producer.send_and_wait("t", b"never")
            producer.close(timeout_s)
            if raised is not None:
                raise raised

    with pytest.raises(ProducerClosedError) as caught:
        closed_inside()
    assert caught.value.persistence is Persistence.NOT_PERSISTED
    with pytest.raises(ZeroDivisionError) as mine:
        closed_inside(ZeroDivisionError())
    if timeout_s == 0:
        assert any("could not be aborted" in note for note in mine.value.__notes__)


def test_the_block_of_a_fenced_producer_raises_that_for_the_refusal_of_a_record(
    brokers: Brokers,
) -> None:
    old, new = (Producer(bootstrap_servers=brokers.address, transactional_id="x") for _ in range(2))
    with old, pytest.raises(ProducerFencedError), old.transaction():
        old.send_and_wait("t", b"zombie")
        new.start()
        old.send_and_wait("t", b"zombie")
    new.close()
    assert brokers.committed("t") == []


def test_a_record_refused_after_the_hand_over_forbids_the_commit(brokers: Brokers) -> None:
    def broken(topic: str, key: object, value: bytes | None, meta: object) -> int:
        if value == b"poison":
            raise ValueError("no partition for this one")
        return 0

    with Producer(
        bootstrap_servers=brokers.address, transactional_id="x", partitioner=broken
    ) as producer:
        with producer.transaction():
            producer.send("t", b"0")
        with pytest.raises(TransactionAbortableError), producer.transaction():
            producer.send("t", b"1")
            lost = producer.send("t", b"poison")
        with pytest.raises(InvalidPartitionError, match="partitioner raised ValueError") as raised:
            lost.result(WAIT_S)
        assert isinstance(raised.value.__cause__, ValueError)
        assert raised.value.topic == "t"
        with producer.transaction():
            producer.send("t", b"2")
    assert brokers.values("t") == {0: [b"0", b"2"]}


def test_a_partitioner_that_reads_a_cancelled_future_refuses_its_record_alone(
    brokers: Brokers,
) -> None:
    def reading(topic: str, key: object, value: bytes, meta: object) -> int:
        cancelled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        return cancelled.result() if value == b"bad" else 0

    with Producer(bootstrap_servers=brokers.address, partitioner=reading) as producer:
        producer.send("t", b"0").result(WAIT_S)
        refused, sent = producer.send("t", b"bad"), producer.send("t", b"1")
        with pytest.raises(InvalidPartitionError, match="raised CancelledError"):
            refused.result(WAIT_S)
        assert sent.result(WAIT_S).offset == 1


def test_a_refusal_that_is_raised_repeatedly_keeps_no_frames_of_earlier_calls(
    brokers: Brokers,
) -> None:
    def picky(topic: str, key: object, value: bytes, meta: object) -> int:
        if value == b"bad":
            raise ValueError(value)
        return 0

    with Producer(bootstrap_servers=brokers.address, partitioner=picky) as producer:
        producer.send("t", b"good").result()
        handle = producer.send("t", b"bad")
        lengths = set()
        for _ in range(3):
            with pytest.raises(InvalidPartitionError) as raised:
                handle.result()
            lengths.add(len(raised.traceback))
        assert len(lengths) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(
    producer: Producer, brokers: Brokers
) -> None:
    producer.send_and_wait("t", b"0")
    brokers.freeze()
    handle = producer.send("t", b"1")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: producer.send("t", b"v"), producer.flush, handle.result):
            try:
                call()
            except ForkedError:
                refused += 1
        producer.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    brokers.thaw()
    assert handle.result(WAIT_S).offset == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_one_that_was_made_before_a_fork_can_be_started_in_the_child(brokers: Brokers) -> None:
    producer = Producer(bootstrap_servers=brokers.address)
    child = os.fork()
    if child == 0:
        producer.start()
        producer.send_and_wait("t", b"child")
        producer.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert brokers.values("t") == {0: [b"child"]}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_one_that_a_thread_starts_at_a_fork_is_refused_in_the_child(brokers: Brokers) -> None:
    brokers.freeze()
    producer = Producer(bootstrap_servers=brokers.address)
    thread = threading.Thread(target=producer.start)
    thread.start()
    while producer._starting is None:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, WAIT_S)
        try:
            producer.start()
        except IllegalStateError:
            os._exit(0)
        os._exit(1)
    brokers.thaw()
    thread.join(WAIT_S)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.close()


def test_a_flush_of_a_destructor_after_the_interpreters_exit_has_nothing_to_do(
    brokers: Brokers,
) -> None:
    program = f"""
from aioproducer.blocking import Producer
class Sink:
    def __init__(self):
        self.producer = Producer(bootstrap_servers={brokers.address!r}, linger_ms=60_000)
        self.producer.start()
    def __del__(self):
        print("flushed:", self.producer.flush())
        self.producer.close()
sink = Sink()
sink.producer.send("t", b"v")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (b"flushed: 0\n", b"")
    assert brokers.values("t") == {0: [b"v"]}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_was_sent_is_delivered_at_the_interpreters_exit(
    brokers: Brokers, compression: str
) -> None:
    program = f"""
from aioproducer.blocking import Producer
producer = Producer(
    bootstrap_servers={brokers.address!r}, compression_type={compression!r},
    linger_ms=60_000, batch_size=1_000_000, compression_threads_threshold_bytes=1_000,
)
producer.start()
for number in range(5_000):
    producer.send("t", b"%d" % number * 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(brokers.values("t")[0]) == 5_000


@pytest.mark.parametrize(
    "call",
    [
        "pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches()))",
        "table",
    ],
    ids=["reader", "table"],
)
def test_arrow_data_and_serializers_in_threads_can_be_sent_at_the_interpreters_exit(
    brokers: Brokers, call: str
) -> None:
    program = f"""
import atexit
import pyarrow as pa
from aioproducer.blocking import Producer
from aioproducer.serializers import in_thread
producer = Producer(bootstrap_servers={brokers.address!r}, value_serializer=in_thread(str.encode))
producer.start()
table = pa.table({{"value": ["0", "1"]}})
def last():
    producer.send_and_wait("t", "text")
    print(producer.send_arrow("t", {call}).delivered)
atexit.register(last)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"2\n", b"")
    assert brokers.values("t") == {0: [b"text", b"0", b"1"]}


@pytest.mark.parametrize("login", ["PLAIN", "SCRAM-SHA-256"])
def test_connections_to_named_hosts_are_opened_at_the_interpreters_exit(login: str) -> None:
    security = ListenerSecurity(mechanisms=(login,), users={"u": "p"})
    with ThreadedCluster(
        brokers=3, host="localhost", topics={"t": 3}, security=security
    ) as cluster:
        program = f"""
from aioproducer.blocking import Producer
producer = Producer(
    bootstrap_servers={cluster.bootstrap_servers!r}, linger_ms=60_000,
    security_protocol="SASL_PLAINTEXT", sasl_mechanism={login!r},
    sasl_plain_username="u", sasl_plain_password="p",
)
producer.start()
for number in range(3):
    handle = producer.send("t", b"v", partition=number)
    handle.add_done_callback(lambda handle: print(handle.result().offset))
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.split() == [b"0", b"0", b"0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_what_a_child_of_multiprocessing_sent_is_delivered_at_its_end(brokers: Brokers) -> None:
    program = f"""
import threading
from multiprocessing import get_context
from concurrent.futures import ThreadPoolExecutor
from aioproducer.blocking import Producer
def work():
    global producer
    producer = Producer(bootstrap_servers={brokers.address!r}, linger_ms=60_000)
    producer.start()
    producer.send("t", b"0")
    threading.Thread(target=lambda: (pool.submit(int).result(), producer.send("t", b"1"))).start()
pool = ThreadPoolExecutor()
child = get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(brokers.values("t")[0]) == {b"0", b"1"}


def test_the_interpreters_exit_does_not_wait_for_ever(brokers: Brokers) -> None:
    program = f"""
from aioproducer.blocking import Producer
producer = Producer(bootstrap_servers={brokers.address!r})
producer.exit_timeout = 0.5
producer.start()
producer.send_and_wait("t", b"0")
print("ready", flush=True)
input()
producer.send("t", b"1")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        brokers.freeze()
        started = time.monotonic()
        child.communicate(b"go\n", timeout=WAIT_S)
        assert child.returncode == 0
        assert time.monotonic() - started < 10
    brokers.thaw()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["blocking", "confluent", "dropped"])
def test_producers_close_together_at_the_interpreters_exit(brokers: Brokers, client: str) -> None:
    make = f"""
from aioproducer.blocking import Producer
def make(number):
    producer = Producer(bootstrap_servers={brokers.address!r})
    producer.exit_timeout = 3.0
    producer.start()
    producer.send_and_wait("t", b"0")
    return producer
def send(producer):
    producer.send("t", b"1")
"""
    if client == "confluent":
        make = f"""
from aioproducer.compat.confluent import Producer
from aioproducer.compat.confluent import producer as module
module._EXIT_TIMEOUT_S = 3.0
def make(number):
    producer = Producer({{"bootstrap.servers": {brokers.address!r}}})
    producer.produce("t", b"0")
    assert producer.flush(20) == 0
    return producer
def send(producer):
    producer.produce("t", b"1")
"""
    program = f"""
import warnings
warnings.simplefilter("ignore")
{make}
producers = [make(number) for number in range(5)]
print("ready", flush=True)
input()
for producer in producers:
    send(producer)
del producer
if {client == "dropped"}:
    producers.clear()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        brokers.freeze()
        started = time.monotonic()
        child.communicate(b"go\n", timeout=WAIT_S)
        assert child.returncode == 0
        assert time.monotonic() - started < 8
    brokers.thaw()


def test_a_blocking_producer_starts_without_the_cluster() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    producer = Producer(bootstrap_servers=f"127.0.0.1:{port}", reconnect_backoff_max_ms=50)
    producer.start(wait=False)
    assert producer.health().state == "connecting"
    handles = [producer.send("t", b"%d" % number) for number in range(10)]
    with ThreadedCluster(brokers=1, ports=[port], topics={"t": 1}) as cluster:
        assert [handle.result(WAIT_S).offset for handle in handles] == list(range(10))
        assert producer.health().ready
        producer.close()
        assert cluster.values("t") == [b"%d" % number for number in range(10)]


def test_the_example_stores_every_reading(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers.loop.call_soon_threadsafe(brokers.cluster.create_topic, "readings", 3)
    program = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "threads.py"))
    assert program["main"](brokers.address) == 0
    assert "4000 of 4000" in capsys.readouterr().out


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """A server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        yield server


def _for_server(server: socket.socket) -> Producer:
    host, port = server.getsockname()
    return Producer(bootstrap_servers=f"{host}:{port}", max_block_ms=60_000)


def test_a_close_ends_a_start_of_another_thread(silent_server: socket.socket) -> None:
    producer = _for_server(silent_server)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(producer.start)
        with silent_server.accept()[0]:
            producer.close()
            with pytest.raises(ProducerClosedError, match="while it started"):
                starting.result(WAIT_S)
    assert "closed" in repr(producer)
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"v")


@contextmanager
def _signalled_once_it_dials(
    server: socket.socket, handler: Callable[[], object]
) -> Iterator[None]:
    """Have a signal's handler called in the block once a producer dials the server."""

    def signal_once_it_dials() -> None:
        with server.accept()[0]:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        with ThreadPoolExecutor(1) as pool:
            signalling = pool.submit(signal_once_it_dials)
            yield
            signalling.result(WAIT_S)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_may_close_a_producer_that_its_thread_starts(
    silent_server: socket.socket,
) -> None:
    producer = _for_server(silent_server)
    with (
        _signalled_once_it_dials(silent_server, producer.close),
        pytest.raises(ProducerClosedError, match="while it started"),
    ):
        producer.start()


def test_signal_handler_that_starts_the_producer_during_its_start_is_refused(
    silent_server: socket.socket,
) -> None:
    producer = _for_server(silent_server)
    refused: list[str] = []

    def start_again() -> None:
        try:
            producer.start()
        except IllegalStateError as error:
            refused.append(str(error))
        producer.close()

    with (
        _signalled_once_it_dials(silent_server, start_again),
        pytest.raises(ProducerClosedError, match="while it started"),
    ):
        producer.start()
    assert len(refused) == 1
    assert "starting" in refused[0]


def test_a_send_while_the_producer_starts_says_that_it_is_not_started(
    silent_server: socket.socket,
) -> None:
    producer = _for_server(silent_server)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(producer.start)
        with silent_server.accept()[0]:
            with pytest.raises(IllegalStateError, match="not started"):
                producer.send("t", b"v")
            producer.close()
        with pytest.raises(ProducerClosedError):
            starting.result(WAIT_S)
