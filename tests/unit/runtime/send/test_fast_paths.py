"""Both paths of `send()` accept and refuse the same records, and write the same bytes."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import closing
from math import inf
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.core.batching.partitioners import BuiltInPartitioner
from aioproducer.errors import KafkaError
from aioproducer.records import murmur2_partition, record_size_bound
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.send.batch_appender import RECORDS_PER_TURN
from aioproducer.types import TopicPartition

from .fast_paths import NOW_MS, Bench


class Text(str):
    """A str that is not exactly one."""


blobs = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.binary(min_size=100, max_size=400),
    st.binary(max_size=4).map(bytearray),
    st.binary(max_size=4).map(memoryview),
    st.sampled_from(["text", 7]),
)
pairs = st.one_of(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=5))),
    st.sampled_from(
        [["h", b"v"], ("h",), ("h", "v"), (b"h", b"v"), ("\ud800", b""), "ab", (Text("h"), None)]
    ),
)
headers = st.one_of(
    st.none(),
    st.lists(pairs, max_size=3),
    st.lists(pairs, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=5), max_size=2),
    st.sampled_from([5, "x", {"a": 1}]),
)
partitions = st.one_of(
    st.none(), st.none(), st.integers(-1, 3), st.sampled_from([True, 2**70, -(2**70), 1.0, "1"])
)
timestamps = st.one_of(
    st.none(),
    st.integers(NOW_MS - 200, NOW_MS + 200),
    st.sampled_from([0, 10**9 - 1, 10**9, 10**10 - 1, 10**10]),
    st.sampled_from([-1, 2**63 - 1, 2**63, 2**80, True, 1.5, "now"]),
)
topics = st.sampled_from(["a", "a", "a", "b", Text("a"), "unknown", 5])
sends = st.tuples(topics, blobs, blobs, headers, partitions, timestamps)
plain_sends = st.tuples(
    st.just("a"),
    st.binary(max_size=30),
    st.one_of(st.none(), st.binary(max_size=3)),
    st.none(),
    st.none(),
    st.none(),
)
bursts = st.builds(
    lambda count, size, keyed: [
        ("a", b"v" * size, b"k%d" % (i % 5) if keyed else None, None, None, None)
        for i in range(count)
    ],
    st.integers(5, 60),
    st.integers(0, 30),
    st.booleans(),
)
steps = st.one_of(
    bursts,
    plain_sends,
    sends,
    st.sampled_from(["acknowledge", "turn", "grow", "later", "drop"]),
)
STEPS = st.lists(steps, min_size=3, max_size=25)


def choosing(*choices):
    """A partitioner that makes these choices, one after the other, again and again."""
    chosen = itertools.cycle(choices)
    return lambda topic, key, value, meta: next(chosen)


PARTITIONERS = st.sampled_from(
    [
        dict,
        lambda: {"partitioner_ignore_keys": True},
        lambda: {"partitioner": "consistent"},
        lambda: {"partitioner": "round_robin"},
        lambda: {"partitioner": choosing(0, 2, None, 1, 0, 3, "0", True, -1, 2**70, 0, 1)},
    ]
)
METHODS = st.sampled_from(["send", "send_nowait"])

anything = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150
)


async def run(steps, options, method, *, fast: bool):
    """The result of each step, and the bytes of every batch there ever was."""
    given = options()
    bench = Bench(fast=fast, batch_size=300, max_request_size=200, buffer_memory=10**7, **given)
    bench.know(a=3, b=1)
    seen, count = [], 3
    for step in steps:
        if step == "acknowledge":
            oldest = bench.incomplete()[:1]
            seen += [(b.topic_partition, bytes(b.builder.body())) for b in oldest]
            bench.complete_oldest()
        elif step == "turn":
            await asyncio.sleep(0)
        elif step == "grow":
            count += 1
            bench.know(a=count)
        elif step == "later":
            bench.now_ms += 5
        elif step == "drop":
            bench.appender.batch_appender.drop_expired_topics()
        else:
            for send in step if isinstance(step, list) else [step]:
                seen.append(await outcome(bench, method, send))
    seen.append(bench.contents())
    assert bench.stats.records_appended == sum(type(s) is Accepted for s in seen)
    bench.end()
    return seen, bench.fast_path


class Accepted(tuple):
    __slots__ = ()


async def outcome(bench, method, step):
    topic, value, key, pairs, partition, timestamp_ms = step
    try:
        sent = getattr(bench.producer, method)(
            topic, value, key, headers=pairs, partition=partition, timestamp_ms=timestamp_ms
        )
        delivery = await sent if method == "send" else sent
    except (KafkaError, TimeoutError) as error:
        return type(error), str(error)
    assert delivery._batch.builder.count - 1 == delivery._index
    return Accepted(
        (
            delivery.topic,
            delivery.partition,
            delivery._index,
            delivery._timestamp_ms,
            delivery._key_size,
            delivery._value_size,
        )
    )


@anything
@given(STEPS, PARTITIONERS, METHODS)
def test_both_paths_write_the_same_bytes_and_raise_the_same_errors(
    fast_path_form, steps, options, method
):
    fast, fast_path = asyncio.run(run(steps, options, method, fast=True))
    general, closed = asyncio.run(run(steps, options, method, fast=False))
    assert fast == general
    assert fast_path.open and not closed.open


async def test_fast_path_and_delivery_have_the_form_that_the_test_asks_for(fast_path_form):
    bench = Bench()
    bench.know(a=1)
    delivery = await bench.producer.send("a", b"v")
    assert type(bench.fast_path) is fast_path_form.FastPath
    is_pure = fast_path_form.__name__.endswith("_py")
    for thing in (delivery, bench.incomplete()[0].owner):
        assert type(thing).__module__.endswith("_py") == is_pure
    bench.end()


async def test_record_that_finds_room_or_memory_takes_the_fast_path(fast_path_form):
    bench = Bench()
    bench.know(a=3)
    await bench.producer.send("a", b"opens the batch")
    for key, pairs, partition in [(None, None, None), (None, [("h", b"v")], None)]:
        assert bench.fast_path.append("a", b"v", key, pairs, partition, None) is not None
    keyed = await bench.producer.send("a", b"v", b"key")  # may open another one
    assert bench.fast_path.append("a", b"v", b"key", None, None, 5).partition == keyed.partition
    assert [bench.fast_path.append("a", b"v", None, None, p, None).partition for p in (2, 0)] == [
        2,
        0,
    ]
    bench.complete_oldest()
    assert bench.fast_path.append("a", b"v", None, None, None, None) is not None
    bench.end()


async def test_a_record_takes_the_fast_path_with_the_choice_of_a_partitioner(fast_path_form):
    bench = Bench(partitioner=choosing(1, 2, 0))
    bench.know(a=3)
    await bench.producer.send("a", b"the fast path has the topic")
    chosen = [bench.fast_path.append("a", b"v", b"k", None, None, None) for _ in range(5)]
    assert [each.partition for each in chosen] == [2, 0, 1, 2, 0]
    assert bench.fast_path.append("a", b"v", b"k", None, 0, None).partition == 0
    bench.end()


async def test_a_partitioner_is_asked_once_for_a_record_that_waits_for_memory(fast_path_form):
    asked = []

    def partitioner(topic, key, value, meta):
        asked.append(value)
        return len(asked) % 2

    bench = Bench(
        batch_size=1000, max_request_size=500, buffer_memory=1000, partitioner=partitioner
    )
    bench.know(a=2)
    await bench.producer.send("a", b"1")
    waiting = asyncio.ensure_future(bench.producer.send("a", b"2"))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.complete_oldest()
    delivery = await waiting
    assert (asked, delivery.partition) == ([b"1", b"2"], 0)
    bench.end()


async def test_a_choice_is_kept_for_its_record_alone(fast_path_form):
    bench = Bench(
        batch_size=1000, max_request_size=500, buffer_memory=1000, partitioner=choosing(0, 1, 0)
    )
    bench.know(a=2)
    await bench.producer.send("a", b"the fast path has the topic")
    assert bench.fast_path.append("a", b"1", None, None, None, None) is None  # for partition 1
    assert bench.fast_path.append("a", b"2", None, None, None, None).partition == 0
    bench.end()


async def test_a_partitioner_that_closes_the_fast_path_gets_no_record_past_that(fast_path_form):
    bench = Bench(partitioner=lambda *_: bench.fast_path.close() or 0)
    bench.know(a=1)
    bench.fast_path.append("a", b"v", None, None, None, None)
    await bench.producer.send("a", b"v", partition=0)  # the fast path has the topic
    appended = bench.fast_path.appended
    assert bench.fast_path.append("a", b"v", None, None, None, None) is None
    assert not bench.fast_path.open
    assert bench.fast_path.appended == appended
    bench.end()


async def test_topic_is_known_by_its_name_whichever_object_that_is(fast_path_form):
    bench = Bench()
    bench.know(one=1, two=1)
    names = ["".join(word) for word in ["one", "one", "two", "one", "two", "two"]]
    assert names[0] is not names[1]
    for name in ("one", "two"):
        await bench.producer.send(name, b"opens the batch")
    for name in (*names, *names):
        assert bench.fast_path.append(name, b"v", None, None, None, None).topic == name
    bench.fast_path.drop_topic("two")
    assert bench.fast_path.append(names[-1], b"v", None, None, None, None) is None
    bench.end()


async def test_a_topic_that_has_grown_has_room_for_batches_of_its_new_partitions(fast_path_form):
    bench = Bench(fast=True)
    bench.know(a=1)
    await bench.producer.send("a", b"v")
    bench.know(a=2)
    for topic in (Text("a"), "a"):  # the first takes the slow path
        assert (await bench.producer.send(topic, b"v", partition=1)).partition == 1
    bench.end()


async def test_a_record_that_waited_while_its_topic_grew_leaves_later_ones_their_partitions(
    fast_path_form,
):
    bench = Bench(fast=True)
    bench.know(a=2)
    for _ in range(RECORDS_PER_TURN):
        bench.producer.send_nowait("a", b"v")
    waiting = bench.producer.send("a", b"v", b"key")
    waiting.send(None)  # it lets other tasks run
    bench.know(a=50)
    bench.producer.send_nowait("a", b"v", b"key")
    with pytest.raises(StopIteration):
        waiting.send(None)
    for number in range(20):
        key = b"%d" % number
        found = bench.producer.send_nowait("a", b"v", key).partition
        assert found == murmur2_partition(key, 50)
    bench.end()


async def test_record_that_would_wait_for_memory_is_left_to_the_slow_path(fast_path_form):
    bench = Bench(batch_size=1000, max_request_size=500, buffer_memory=1000)
    bench.know(a=2)
    await bench.producer.send("a", b"v", partition=0)
    assert bench.fast_path.append("a", b"v", None, None, 1, None) is None
    assert bench.fast_path.append("a", b"v", None, None, 0, None) is not None
    bench.end()


async def test_no_task_waits_for_a_record_whose_batch_is_sent_and_fails_at_once(fast_path_form):
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"v")  # the fast path has the topic
    bench.complete_oldest()

    def fail_at_once():
        for batch in bench.incomplete():
            bench.accumulator.complete(batch, BatchOutcome(error=KafkaError("refused")))
        return True

    bench.appender.batch_appender._lingers = False
    bench.sender_task.sleeping_until = inf
    bench.sender_task.try_send_immediately = fail_at_once
    async with asyncio.timeout(10):
        with pytest.raises(KafkaError, match="refused"):
            await bench.producer.send_and_wait("a", b"v")
    bench.end()


async def test_record_that_needs_anything_else_is_left_to_the_slow_path(fast_path_form):
    bench = Bench(batch_size=1000, max_request_size=500)
    bench.know(a=1)
    await bench.producer.send("a", b"v")
    refused = [
        ("b", b"v", None, None, None, None),
        ("a", bytearray(b"v"), None, None, None, None),
        ("a", b"v", None, {"h": b"v"}, None, None),
        ("a", b"v", None, [("h", 1)], None, None),
        ("a", b"v", None, None, 1, None),
        ("a", b"v", None, None, None, -1),
        ("a", b"v" * 430, None, None, None, None),  # fits the batch, and no request
    ]
    assert [bench.fast_path.append(*arguments) for arguments in refused] == [None] * len(refused)
    assert bench.fast_path.appended == 1
    bench.end()


async def test_fast_path_pauses_after_so_many_records_of_a_turn_but_not_for_send_nowait(
    fast_path_form,
):
    bench = Bench(batch_size=10**6, max_request_size=10**6)
    bench.know(a=1)
    producer = bench.producer
    for _ in range(1000):
        await producer.send("a", b"v")
    assert bench.fast_path.append("a", b"v", None, None, None, None) is None
    assert producer.send_nowait("a", b"v") is not None
    turns = 0

    def turn():
        nonlocal turns
        turns += 1

    bench.loop.call_soon(turn)
    await producer.send("a", b"v")
    assert turns == 1
    assert bench.fast_path.append("a", b"v", None, None, None, None) is not None
    bench.end()


async def test_admission_is_asked_before_every_record(fast_path_form):
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"v")

    def refuse():
        raise KafkaError("not now")

    bench.fast_path.check_transaction = refuse
    for method in (bench.fast_path.append, bench.fast_path.append_nowait):
        try:
            method("a", b"v", None, None, None, None)
        except KafkaError as error:
            assert error.message == "not now"
        else:
            raise AssertionError("the fast path let a record in")
    assert bench.fast_path.appended == 1
    bench.end()


async def test_fast_path_takes_nothing_from_another_loop(fast_path_form):
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"v")

    async def elsewhere():
        return bench.fast_path.append("a", b"v", None, None, None, None)

    assert await asyncio.to_thread(asyncio.run, elsewhere()) is None
    assert (
        await asyncio.to_thread(bench.fast_path.append, "a", b"v", None, None, None, None) is None
    )
    assert await elsewhere() is not None
    bench.end()


def test_fast_path_takes_nothing_in_the_thread_of_its_uvloop_while_another_runs(fast_path_form):
    uvloop = pytest.importorskip("uvloop", reason="needs uvloop (the extra `uvloop`)")
    own, other = uvloop.new_event_loop(), uvloop.new_event_loop()
    with closing(own), closing(other):

        async def begin():
            bench = Bench()
            bench.know(a=1)
            await bench.producer.send("a", b"v")
            return bench

        async def append():
            return bench.fast_path.append("a", b"v", None, None, None, None)

        bench = own.run_until_complete(begin())
        assert other.run_until_complete(append()) is None
        assert own.run_until_complete(append()) is not None
        bench.end()


# -- the line for memory ---------------------------------------------------------------------------


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(1, 60)), min_size=1, max_size=120))
def test_no_send_overtakes_a_waiter_for_memory(fast_path_form, work):
    asyncio.run(overtaking(work))


async def overtaking(work):
    """16 tasks send what `work` says, while memory for two batches comes free now and then."""
    bench = Bench(batch_size=256, buffer_memory=512, max_request_size=400)
    bench.know(a=2)
    in_line: dict[object, None] = {}
    done: set[object] = set()
    general = bench.appender._append_in_line

    async def noted(record, *rest):
        in_line[record.value] = None
        try:
            return await general(record, *rest)
        finally:
            del in_line[record.value]

    bench.appender._append_in_line = noted

    async def one(worker):
        for number, (owner, size) in enumerate(work):
            if owner == worker:
                name = b"%d-%d" % (worker, number) + b"x" * size
                before = set(in_line)
                await bench.producer.send("a", name)
                assert before <= done, "a task was overtaken"
                done.add(name)
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(worker)) for worker in range(16)]
    for _ in range(100 * len(work)):
        if all(task.done() for task in tasks):
            break
        await asyncio.sleep(0)
        if in_line:
            bench.complete_oldest()
    await asyncio.gather(*tasks)
    assert bench.fast_path.appended == len(work)
    assert bench.appender.waiting == 0
    bench.end()


class Spare:
    """A spare batch in the fast path, and how often it was to be sent."""

    def __init__(self, bench: Bench, used: int = 0) -> None:
        self.sent = 0
        size = bench.config.batch_size
        buffer = bench.pool.try_allocate(size)
        self.batch = bench.accumulator.begin_spare(TopicPartition("a", 0), buffer, size)
        self.meta = bench.metadata.topic("a")
        self.sticky = BuiltInPartitioner(size, False, Random(1))
        self.sticky.update(self.sticky.peek(self.meta), used, self.meta, enable_switch=False)
        bench.appender.batch_appender._spare = self.batch
        bench.sender_task.try_send_directly = self.send
        full = bench.accumulator.begin_spare(TopicPartition("a", 0), bytearray(size), 0)
        full.close()
        bench.fast_path.use_batch(self.meta, full, self.sticky)
        bench.fast_path.use_spare(self.batch)

    def send(self, batch: ProducerBatch, now: float) -> bool:
        """As `SenderTask.try_send_directly`, without a request."""
        if batch is self.batch:
            assert batch.count == 1
            self.sent += 1
            batch.close()
        return batch is self.batch


@pytest.mark.parametrize("partition", [1, 2**40])
async def test_batch_of_a_partition_that_the_topic_lacks_is_refused(fast_path_form, partition):
    bench = Bench(batch_size=300)
    bench.know(a=1)
    buffer = bench.pool.try_allocate(300)
    batch = bench.accumulator.begin_spare(TopicPartition("a", partition), buffer, 300)
    with pytest.raises(IndexError):
        bench.fast_path.use_batch(bench.metadata.topic("a"), batch, None)
    bench.end()


@pytest.mark.parametrize("partition", [1, 2**40])
async def test_a_spare_batch_of_a_partition_that_the_topic_lacks_is_left_alone(
    fast_path_form, partition
):
    bench = Bench(batch_size=300)
    bench.know(a=1)
    spare = Spare(bench)
    lacking = bench.accumulator.begin_spare(TopicPartition("a", partition), bytearray(300), 0)
    bench.fast_path.use_spare(lacking)
    await bench.producer.send("a", b"v", partition=0)
    assert (spare.sent, lacking.count) == (1, 0)
    bench.end()


@pytest.mark.parametrize("partition", [None, 0])
async def test_a_record_for_a_spare_batch_is_sent_at_once(partition):
    bench = Bench(batch_size=300)
    bench.know(a=1)
    spare = Spare(bench)
    delivery = await bench.producer.send("a", b"v", partition=partition)
    assert (spare.sent, delivery._batch, delivery._index) == (1, spare.batch, 0)
    # As the first record of any batch it counts with the batch's header, if it was chosen for.
    bench.fast_path.count_sticky_bytes("a")
    header_and_bound = HEADER_SIZE + record_size_bound(None, b"v", ())
    used = 2 * 300 - spare.sticky.room
    assert used == (header_and_bound if partition is None else 0)
    other = await bench.producer.send("a", b"v", partition=partition)
    assert (spare.sent, spare.batch.count) == (1, 1)
    assert other._batch is not spare.batch
    bench.end()


@pytest.mark.parametrize(
    ("used", "partition", "sent"), [(299, None, 1), (300, None, 0), (300, 0, 1)]
)
async def test_a_record_that_may_change_the_partition_gets_into_no_spare_batch(
    used, partition, sent
):
    bench = Bench(batch_size=300)
    bench.know(a=1)
    spare = Spare(bench, used)
    await bench.producer.send("a", b"v", partition=partition)
    assert spare.sent == sent
    bench.end()


async def test_a_spare_batch_that_is_given_up_gets_nothing():
    bench = Bench(batch_size=300)
    bench.know(a=1)
    spare = Spare(bench)
    spare.batch.take_buffer()
    delivery = await bench.producer.send("a", b"v")
    assert (spare.sent, spare.batch.count) == (0, 0)
    assert delivery._batch is not spare.batch
    bench.end()
