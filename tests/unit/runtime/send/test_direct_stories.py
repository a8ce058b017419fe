"""Random stories end alike, whether records went alone or the usual way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from dataclasses import fields
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.testing import TopicSpec
from aioproducer.testing.virtual import VirtualKafka, run_virtual

from .direct_sends import send_by_queue

BATCH_SIZE = 1000
COUNTED = {*ProducerStats().__dataclass_fields__} - {"count_appended", "delivery_times"}
"""What the statistics count; the rest is a callback and an object, compared by itself."""
# Some about as large as a batch, and some that are not copied into their request.
SIZES = st.sampled_from([0, 30, 300, 900, 1500, 5000]) | st.integers(900, 940)
RECORDS = st.builds(
    dict,
    size=SIZES,
    partition=st.sampled_from([None, None, 0, 1]),
    pause=st.sampled_from([None, 0, 0, 0.0005, 0.01, 0.01]),
    awaited=st.sampled_from([True, True, True, False]),
)
OVERLAPPING = st.builds(
    dict,
    size=st.just(0) | SIZES,
    partition=st.sampled_from([None, 0, 1]),
    pause=st.sampled_from([None, 0.00003, *[0.0001, 0.0002, 0.0005] * 3, 0.002, 0.01]),
    awaited=st.sampled_from([True] + [False] * 5),
)
"""They are sent while the last ones are in the air."""
EVENTS = st.sampled_from(
    [
        ("Produce", "answers", "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", "answers", "MESSAGE_TOO_LARGE"),
        ("Produce", "answers", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ("Produce", "answers", "UNKNOWN_PRODUCER_ID"),
        ("Produce", "answers", "REQUEST_TIMED_OUT"),
        ("Produce", "answers", "PRODUCER_FENCED"),
        ("Produce", "drops_the_connection"),
        ("Produce", "is_never_answered"),
        ("Produce", "is_throttled", 70),
        ("Produce", "is_throttled", 300),
        ("Produce", "is_answered_late", 20),
        ("Metadata", "is_answered_late", 20),
        ("stop",),
        ("start",),
        ("move", 1),
        ("move", 2),
        ("read",),
        ("read",),
        ("read memory",),
        ("read traffic",),
        ("read health",),
        ("read metrics",),
        ("send_many",),
        ("flush",),
        ("purge",),
        ("update",),
        ("wait", 0.06),
        ("wait", 0.2),
        ("wait", 400.0),
    ]
)
OPTIONS = st.fixed_dictionaries(
    {
        "max_in_flight_requests_per_connection": st.sampled_from([1, 2, 5]),
        "enable_idempotence": st.booleans(),
        "acks": st.just("all"),
        "delivery_timeout_ms": st.sampled_from([600, 1000, 120_000]),
        "request_timeout_ms": st.just(500),
        "max_block_ms": st.just(3000),
        # Queues are weighed when a batch is opened, at most once in 2 ms.
        "partitioner_adaptive_partitioning_enable": st.just(False),
        "buffer_memory": st.sampled_from([1600, 2000, 3000, 32 * 1024 * 1024]),
        "max_request_size": st.just(1600),
        "connections_max_idle_ms": st.sampled_from([300, 540_000]),
        "retries": st.sampled_from([1, 2**31 - 1]),
    }
)


def counted(producer: Producer) -> list[Any]:
    """The counters of the producer so far."""
    engine = producer._engine
    assert engine is not None
    stats = engine.stats
    totals = [(f.name, getattr(stats, f.name)) for f in fields(stats) if f.name in COUNTED]
    return [repr(totals), repr(stats.delivery_times.snapshot()), repr(engine.client.io_stats.nodes)]


async def read(producer: Producer, what: str) -> list[Any]:
    """Asks the producer, or has it do, something that concerns all records."""
    engine = producer._engine
    assert engine is not None
    match what:
        case "read":
            return [*counted(producer), engine.accumulator.is_idle, len(engine.accumulator.pinned)]
        case "read memory":
            return [engine.pool.available]
        case "read traffic":
            return [repr(engine.client.io_stats.nodes)]
        case "read health":
            return [producer.health()]
        case "read metrics":
            return sorted(
                f"{metric.group} {metric.name} {metric.tags} {metric.value}"
                for metric in producer.all_metrics()
                if not {"age", "time", "rate"} & {*metric.name.split("-")}
            )
        case "send_many":
            result = await producer.send_many("t", [b"row %d" % row for row in range(5)])
            return [result.count, result.delivered, *result.failed]
        case "flush":
            return [await producer.flush(timeout=0.3)]
        case "purge":
            return [producer.purge(in_flight=True)]
        case "update":
            engine.metadata.request_update()
            engine.metadata_task.wake()
    return []


async def carry_out(kafka: VirtualKafka, step: tuple[Any, ...]) -> None:
    match step:
        case ("stop",) if kafka.world.cluster.is_working(1):
            kafka.stop_broker(1)
        case ("start",) if not kafka.world.cluster.is_working(1):
            kafka.start_broker(1)
        case ("move", node_id) if kafka.world.cluster.is_working(1):
            with contextlib.suppress(ValueError):  # it is not in sync
                kafka.world.cluster.move_leader("t", 0, node_id)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case ("Produce" | "Metadata" as request, what, *how):
            getattr(kafka.faults.next(request), what)(*how)


def story(steps: list[Any], options: dict[str, Any], *, alone: bool, fragments: bool) -> list[Any]:
    """The outcomes of records, and the bytes of the logs."""
    given = {"client_id": "single", "linger_ms": 0, "batch_size": BATCH_SIZE} | options

    async def run(kafka: VirtualKafka) -> list[Any]:
        seen: list[Any] = []
        kafka.world.network.fragments = fragments
        async with kafka.producer(**given) as producer:
            assert producer._engine is not None
            assert producer._engine.sender_task._sends_directly
            if not alone:
                send_by_queue(producer)
            deliveries = []
            for number, step in enumerate(steps):
                if isinstance(step, tuple):
                    await carry_out(kafka, step)
                    try:
                        seen += await read(producer, step[0])
                    except KafkaError as error:
                        seen.append(error)
                    continue
                value = b"%d" % number + bytes(step["size"])
                try:
                    delivery = await producer.send("t", value, partition=step["partition"])
                except KafkaError as error:
                    seen.append(error)
                    continue
                deliveries.append(delivery)
                if step["awaited"]:
                    with contextlib.suppress(KafkaError):
                        await delivery
                if step["pause"] is not None:
                    await asyncio.sleep(step["pause"])
            await carry_out(kafka, ("start",))
            seen += await asyncio.gather(*deliveries, return_exceptions=True)
            seen += [*counted(producer), kafka.now]
            seen.append(producer._engine.pool.available)
            seen += [producer._engine._latencies.is_available(node) for node in (1, 2)]
        for partition in range(2):
            found = kafka.world.cluster.partition("t", partition)
            assert found is not None
            seen.append([bytes(each.data) for each in found.log.batches])
        # What was made ready for a record that did not come had one of those.
        return [re.sub(r"correlation id \d+ came where \d+", "", repr(each)) for each in seen]

    random.seed(1)
    return run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


@given(steps=st.lists(RECORDS | EVENTS, max_size=12), options=OPTIONS, fragments=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_directly_sent_record_has_the_same_results(
    steps: list[Any], options: dict[str, Any], fragments: bool
) -> None:
    usual = story(steps, options, alone=False, fragments=fragments)
    assert story(steps, options, alone=True, fragments=fragments) == usual


@given(
    steps=st.lists(st.one_of([OVERLAPPING] * 8 + [EVENTS]), min_size=4, max_size=20),
    options=OPTIONS,
)
@settings(max_examples=60, deadline=None)
def test_directly_sent_records_in_flight_have_the_same_results(
    steps: list[Any], options: dict[str, Any]
) -> None:
    one = {"size": 0, "pause": 0.01, "awaited": True}
    steps = [{**one, "partition": each} for each in (0, 1, 0, 1)] + steps
    usual = story(steps, options, alone=False, fragments=False)
    assert story(steps, options, alone=True, fragments=False) == usual


def test_what_a_burst_adds_to_a_partition_counts_for_the_single_records_after_it() -> None:
    def record(size: int, awaited: bool = True) -> dict[str, Any]:
        return {
            "size": size,
            "partition": None,
            "pause": 0.01 if awaited else None,
            "awaited": awaited,
        }

    single, burst, after = [record(0)] * 4, [record(150, awaited=False)] * 5, [record(300)] * 8
    steps = [*single, *burst, record(0), *after]
    usual = story(steps, {}, alone=False, fragments=False)
    assert story(steps, {}, alone=True, fragments=False) == usual
