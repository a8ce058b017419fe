"""`producer.send(...)` is a coroutine by every check, on the fast path too."""

from __future__ import annotations

import asyncio
import inspect
import sys
import weakref
from collections.abc import Coroutine
from unittest import mock

import pytest

from aioproducer import Producer
from aioproducer.errors import IllegalStateError, KafkaError, ProducerClosedError
from aioproducer.records.message_set import records_of
from aioproducer.types import RecordMetadata, TimestampType

from .fast_paths import NOW_MS, Bench

pytestmark = pytest.mark.usefixtures("fast_path_form")


def is_native(bench: Bench) -> bool:
    return not type(bench.fast_path).__module__.endswith("_py")


async def opened(**options) -> Bench:
    """A producer with a batch that has room."""
    bench = Bench(**options)
    bench.know(a=1)
    await bench.producer.send("a", b"first")
    return bench


# Python 3.14 deprecates asyncio's own way of asking; frameworks still ask that way.
@pytest.mark.filterwarnings("ignore:.*iscoroutinefunction.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["send", "send_and_wait"])
async def test_method_of_a_producer_looks_like_the_method_of_the_class(name):
    bench = await opened()
    method, function = getattr(bench.producer, name), getattr(Producer, name)
    assert inspect.iscoroutinefunction(method)
    assert asyncio.iscoroutinefunction(method)
    assert method.__doc__ == function.__doc__
    assert method.__name__ == name
    assert list(inspect.signature(method).parameters) == [
        *("topic", "value", "key", "headers", "partition", "timestamp_ms")
    ]
    assert f"Producer.{name}" in repr(method)
    bench.end()


async def test_call_is_a_coroutine_that_does_nothing_before_it_is_awaited():
    bench = await opened()
    call = bench.producer.send("a", b"second")
    assert asyncio.iscoroutine(call)
    assert inspect.iscoroutine(call)
    assert isinstance(call, Coroutine)
    assert call.__name__ == "send"
    assert bench.fast_path.appended == 1
    delivery = await asyncio.create_task(call)
    assert (bench.fast_path.appended, delivery.partition) == (2, 0)
    bench.end()


@pytest.mark.parametrize(
    ("name", "size"), [("send_and_wait", 1), ("send", 100), ("send_and_wait", 100)]
)
async def test_call_shows_task_groups_whether_it_has_started(name, size, capsys):
    bench = await opened(batch_size=120, buffer_memory=250)
    call = getattr(bench.producer, name)("a", bytes(size))
    waiting = {inspect.CORO_RUNNING, inspect.CORO_SUSPENDED}
    assert inspect.getcoroutinestate(call) not in waiting
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    assert inspect.getcoroutinestate(call) == inspect.CORO_SUSPENDED
    task.print_stack(file=sys.stdout)
    if size > 1:  # it waits for memory
        assert f"in {name}" in capsys.readouterr().out
        assert inspect.iscoroutine(call.cr_await)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
    bench.end()


async def test_method_of_the_class_takes_the_producer_first():
    bench, other = await opened(), await opened()
    for producer, calls in ((bench.producer, 1), (other.producer, 2)):
        for _ in range(calls):
            await Producer.send(producer, "a", b"v")
            Producer.send_nowait(producer, "a", b"v")
    assert (bench.fast_path.appended, other.fast_path.appended) == (3, 5)
    assert bench.producer.send == bench.producer.send != other.producer.send
    assert weakref.WeakMethod(bench.producer.send)() == bench.producer.send
    with pytest.raises(AttributeError):
        await Producer.send("a", b"v")
    with pytest.raises(TypeError, match="missing"):
        await Producer.send()
    bench.end()
    other.end()


@pytest.mark.parametrize("name", ["send", "send_and_wait"])
async def test_method_of_the_class_is_still_a_function_to_inspect(name):
    bench = await opened()
    method = getattr(Producer, name)
    assert inspect.isfunction(method)
    assert f"async def {name}(" in inspect.getsource(method)
    assert list(inspect.signature(method).parameters)[:2] == ["self", "topic"]
    double = mock.create_autospec(Producer)("nowhere")
    await getattr(double, name)("a", b"v")
    with pytest.raises(TypeError):
        getattr(double, name)("a", nonsense=1)
    bench.end()


async def test_method_that_was_replaced_is_the_one_that_is_called():
    seen = []

    async def traced(producer, *args):
        seen.append(args)
        return await send(producer, *args)

    bench, send = await opened(), Producer.send
    with mock.patch.object(Producer, "send", traced):
        other = await opened()
        for each in (bench, other):
            await each.producer.send("a", b"v")
    assert len(seen) == 3
    await bench.producer.send("a", b"v")
    assert (len(seen), bench.fast_path.appended, other.fast_path.appended) == (3, 3, 2)
    bench.end()
    other.end()


async def test_producer_without_a_fast_path_gives_coroutines():
    bench, other = await opened(), await opened(value_serializer=lambda value: value)
    call = other.producer.send("a", b"v")
    assert inspect.iscoroutine(call)
    await call
    with pytest.raises(TypeError):
        other.producer.send("a", b"v", b"k", [])
    bench.end()
    other.end()


async def test_subclass_may_hide_the_fast_path():
    class Hiding(Producer):
        _fast_path = None

    bench = await opened(producer_type=Hiding)
    assert (await bench.producer.send("a", b"v")).topic == "a"
    bench.end()


async def test_producer_that_never_started_refuses():
    with pytest.raises(IllegalStateError):
        await Producer(bootstrap_servers="nowhere:1").send("a", b"v")
    with pytest.raises(AttributeError):
        await Producer.__new__(Producer).send_and_wait("a", b"v")


async def test_method_can_be_replaced_in_one_producer():
    bench, other = await opened(), await opened()
    with mock.patch.object(bench.producer, "send", return_value="replaced") as replacement:
        assert await bench.producer.send("a", b"v") == "replaced"
        assert (await other.producer.send("a", b"v")).topic == "a"
    replacement.assert_awaited_once_with("a", b"v")
    assert (await bench.producer.send("a", b"v")).topic == "a"
    bench.end()
    other.end()


async def test_arguments_arrive_however_they_are_passed():
    bench = await opened()
    send, later = bench.producer.send, {"partition": 0, "timestamp_ms": NOW_MS + 1}
    calls = [
        send("a", b"v", b"k"),
        send("a", b"v", key=b"k"),
        send("a", key=b"k", value=b"v"),
        send(topic="a", value=b"v", key=b"k"),
        send("a", b"v", b"k", headers=[("h", b"x")], **later),
        send(*("a", b"v"), **{"key": b"k", "headers": [("h", b"x")], **later}),
        send("a"),
        send("a", None, None),
    ]
    for call in calls:
        await call
    (batch,) = bench.incomplete()
    found = [
        (record.value, record.key, list(record.headers), record.timestamp_ms)
        for record in records_of(batch.builder)
    ]
    assert found[1:] == [
        *[(b"v", b"k", [], NOW_MS)] * 4,
        *[(b"v", b"k", [("h", b"x")], NOW_MS + 1)] * 2,
        *[(None, None, [], NOW_MS)] * 2,
    ]
    bench.end()


async def test_arguments_that_do_not_fit_are_refused_at_the_call():
    bench = await opened()
    for wrong in (
        lambda send: send(),
        lambda send: send("a", b"v", b"k", []),
        lambda send: send("a", b"v", value=b"v"),
        lambda send: send("a", nonsense=1),
        lambda send: send("a", *[b""] * 9, **{"x": 1}),
    ):
        with pytest.raises(TypeError):
            wrong(bench.producer.send)
    assert bench.stats.records_appended == bench.fast_path.appended == 1
    bench.end()


async def test_call_that_was_never_awaited_says_so_and_sends_nothing():
    bench = await opened()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        bench.producer.send("a", b"second")
    bench.producer.send("a", b"second").close()
    assert bench.fast_path.appended == 1
    bench.end()


async def test_call_is_awaited_once():
    bench = await opened()
    for method in (bench.producer.send, bench.producer.send_and_wait):
        call = method("a", b"v")
        call.close()
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await call
        call = method("a", b"v")
        with pytest.raises(ZeroDivisionError):
            call.throw(ZeroDivisionError())
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await call
    assert bench.fast_path.appended == 1
    bench.end()


async def test_call_driven_by_hand_ends_with_the_delivery():
    bench = await opened()
    with pytest.raises(StopIteration) as stop:
        bench.producer.send("a", b"v").send(None)
    assert stop.value.value.topic == "a"
    bench.end()


async def test_end_of_an_await_driven_by_next_has_its_value_and_its_own_traceback():
    bench = await opened()
    stops = []
    for _ in range(3):
        try:
            next(bench.producer.send("a", b"v").__await__())
        except StopIteration as stop:
            stops.append(stop)
    deliveries = [stop.value for stop in stops]
    assert len({delivery._index for delivery in deliveries}) == 3
    if is_native(bench):
        assert all(stop.__traceback__.tb_next is None for stop in stops)
    bench.complete_oldest(base_offset=7)
    for delivery in deliveries:
        with pytest.raises(StopIteration) as stop:
            next(delivery.__await__())
        assert stop.value.value == await delivery
        assert isinstance(stop.value.value, RecordMetadata)
    with pytest.raises(StopIteration) as stop:
        next(bench.producer.send("a", b"v").__await__())
    assert [each.value for each in stops] == deliveries
    assert stop.value.value not in deliveries
    bench.end()


async def test_nothing_keeps_the_result_of_an_await():
    bench = await opened()
    alone = object()
    only_here = sys.getrefcount(alone)  # one less since 3.14
    delivery = await bench.producer.send("a", b"v")
    assert sys.getrefcount(delivery) == only_here
    bench.complete_oldest()
    for _ in range(3):
        metadata = await delivery
        # Native deliveries fill it again once it is dropped.
        assert sys.getrefcount(metadata) <= only_here + 1
        next(delivery.__await__(), None)
        assert sys.getrefcount(delivery) == only_here
    bench.end()


@pytest.mark.parametrize("log_append_time_ms", [None, 12345])
async def test_awaited_delivery_gives_metadata_at_once_or_when_its_batch_is_done(
    log_append_time_ms,
):
    bench = await opened()
    delivery = await bench.producer.send("a", b"value", b"k", partition=0)
    waiting = asyncio.create_task(bench.producer.send_and_wait("a", None, timestamp_ms=7))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.complete_oldest(base_offset=40)
    created = TimestampType.CREATE_TIME
    assert await delivery == RecordMetadata("a", 0, 41, NOW_MS, created, 1, 5)
    assert type(await delivery) is RecordMetadata
    assert await waiting == RecordMetadata("a", 0, 42, 7, created, -1, -1)
    assert (await asyncio.wait_for(delivery, 1)).topic_partition == ("a", 0)
    assert await asyncio.gather(delivery, delivery) == [await delivery] * 2
    bench.end()


async def test_cancelled_awaiter_leaves_the_others_and_the_record_alone():
    bench = await opened()
    delivery = await bench.producer.send("a", b"v")

    async def wait():
        return await delivery

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    tasks.append(asyncio.create_task(bench.producer.send_and_wait("a", b"v")))
    await asyncio.sleep(0)
    listeners = bench.incomplete()[0].listeners
    assert len(listeners) == 4
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.gather(tasks[1], tasks[3], return_exceptions=True)
    assert tasks[1].cancelled()
    assert tasks[3].cancelled()
    assert len(listeners) == 2
    bench.complete_oldest()
    assert [(await task).offset for task in (tasks[0], tasks[2])] == [1, 1]
    bench.end()


async def test_failure_goes_to_every_awaiter_as_a_copy():
    bench = await opened()
    delivery = await bench.producer.send("a", b"v")
    waiting = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await asyncio.sleep(0)
    from aioproducer.core.batching.batch import BatchOutcome

    batch = bench.incomplete()[0]
    bench.accumulator.withdraw_all(in_flight=True)
    bench.accumulator.complete(batch, BatchOutcome(error=KafkaError("no")))
    errors = []
    for awaitable in (delivery, delivery, waiting):
        with pytest.raises(KafkaError, match="no") as raised:
            await awaitable
        errors.append(raised.value)
    assert len(set(map(id, errors))) == 3
    bench.end()


async def test_subclass_may_override_send_and_call_the_original():
    class Prefixed(Producer):
        async def send(self, topic, value=None, key=None, **rest):
            return await super().send(topic, b"prefix-" + value, key, **rest)

    bench = await opened(producer_type=Prefixed)
    delivery = await bench.producer.send("a", b"v")
    assert delivery._value_size == len(b"prefix-v")
    assert bench.contents()[0][2].count(b"prefix-") == 2
    bench.end()


async def test_send_and_wait_of_a_subclass_calls_its_send():
    class Prefixing:
        async def send(self, topic, value=None, key=None, **rest):
            return await super().send(topic, b"prefix-" + value, key, **rest)

    class Prefixed(Prefixing, Producer):
        pass

    class Further(Prefixed):
        pass

    assert inspect.signature(Further.send_and_wait) == inspect.signature(Producer.send_and_wait)
    bench = await opened(producer_type=Further)
    waiting = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await asyncio.sleep(0)
    assert bench.contents()[0][2].count(b"prefix-") == 2
    bench.complete_oldest()
    assert (await waiting).serialized_value_size == len(b"prefix-v")
    bench.end()


async def test_serializers_are_never_passed_by():
    bench = await opened(value_serializer=lambda value: value.upper())
    await bench.producer.send("a", b"second")
    waiting = asyncio.create_task(bench.producer.send_and_wait("a", b"third"))
    await asyncio.sleep(0)
    bench.producer.send_nowait("a", b"fourth")
    body = bench.contents()[0][2]
    for word in (b"FIRST", b"SECOND", b"THIRD", b"FOURTH"):
        assert word in body
    bench.complete_oldest()
    await waiting
    bench.end()


async def test_closed_producer_refuses_through_a_method_kept_from_before():
    bench = await opened()
    send = bench.producer.send
    bench.appender.close(ProducerClosedError("closed"))
    bench.end()
    with pytest.raises(ProducerClosedError):
        await send("a", b"v")
    assert bench.fast_path.appended == 1
