"""A delivery is a future to asyncio: `gather`, `wait` and others take it as it is."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import sys
import weakref
from contextlib import suppress

import pytest

import aioproducer
from aioproducer.core.batching.batch import BatchOutcome
from aioproducer.errors import KafkaError, RecordTooLargeError
from aioproducer.runtime import delivery as delivery_module
from aioproducer.runtime.delivery import _delivery_py as delivery_pure
from aioproducer.types import Persistence

from ..send.fast_paths import Bench

pytestmark = pytest.mark.usefixtures("fast_path_form")

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


async def opened(count: int = 1) -> tuple[Bench, list]:
    """A producer, and the deliveries of records in one batch."""
    bench = Bench()
    bench.know(a=1)
    return bench, [await bench.producer.send("a", b"%d" % number) for number in range(count)]


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def fail_oldest(bench: Bench) -> None:
    (batch, *_) = bench.incomplete()
    batch.close()
    bench.accumulator.queue(*batch.topic_partition).batches.remove(batch)
    error = RecordTooLargeError("too large", persistence=Persistence.NOT_PERSISTED)
    bench.accumulator.complete(batch, BatchOutcome(error=error))


def tasks_besides(own: asyncio.Task | None) -> set:
    return asyncio.all_tasks() - {own}


def test_help_shows_the_calls_of_either_form_alike():
    pure, shown = delivery_pure.Delivery, delivery_module.Delivery
    for name in [name for name in vars(pure) if not name.startswith("_")]:
        theirs, ours = getattr(pure, name), getattr(shown, name)
        assert inspect.getdoc(ours).splitlines()[0] == inspect.getdoc(theirs).splitlines()[0]
        if callable(theirs):
            parameters = inspect.signature(ours).parameters
            assert list(parameters) == list(inspect.signature(theirs).parameters)


class Watched:
    """An object of a caller that can be watched."""


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_failure_that_was_raised_does_not_keep_its_callers_frames(is_awaited):
    bench, (delivery,) = await opened()
    fail_oldest(bench)

    async def caller() -> weakref.ref[Watched]:
        local = Watched()
        with suppress(RecordTooLargeError):
            if is_awaited:
                await delivery
            delivery.result()
        return weakref.ref(local)

    gc.disable()
    try:
        assert (await caller())() is None
    finally:
        gc.enable()
    bench.end()


async def test_delivery_is_a_future_of_its_producers_loop():
    bench, (delivery,) = await opened()
    assert asyncio.isfuture(delivery)
    assert asyncio.ensure_future(delivery) is delivery
    assert delivery.get_loop() is asyncio.get_running_loop()
    assert not delivery.done()
    assert not delivery.cancelled()
    bench.complete_oldest()
    assert delivery.done()
    bench.end()


def test_the_package_has_the_class_in_the_form_that_is_used():
    assert aioproducer.Delivery is delivery_module.Delivery
    with pytest.raises(AttributeError, match="Deliveries"):
        aioproducer.Deliveries  # noqa: B018


async def test_gather_and_others_make_no_task_of_deliveries():
    bench, deliveries = await opened(30)
    others = tasks_besides(asyncio.current_task())
    gathered = asyncio.gather(*deliveries)
    waiting = asyncio.ensure_future(asyncio.wait(deliveries))
    shielded = asyncio.shield(deliveries[0])
    timed = asyncio.ensure_future(asyncio.wait_for(deliveries[1], 60))
    await turns()
    assert tasks_besides(asyncio.current_task()) - others == {waiting, timed}
    bench.complete_oldest(base_offset=5)
    assert [metadata.offset for metadata in await gathered] == list(range(5, 35))
    assert await waiting == (set(deliveries), set())
    assert (await shielded).offset == 5
    assert (await timed).offset == 6
    assert [metadata.offset for metadata in await asyncio.gather(*deliveries[:2])] == [5, 6]
    bench.end()


async def test_deliveries_are_given_as_they_complete_beside_futures_and_tasks():
    bench, deliveries = await opened(3)
    future = asyncio.get_running_loop().create_future()
    future.set_result("done")
    mixed = [*deliveries, future, asyncio.create_task(asyncio.sleep(0, "slept"))]
    asyncio.get_running_loop().call_later(0.01, bench.complete_oldest)
    found = [await each for each in asyncio.as_completed(mixed)]
    assert len(found) == 5
    assert {"done", "slept"} < set(found)
    done, pending = await asyncio.wait(mixed, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 5
    assert not pending
    bench.end()


async def test_callbacks_run_once_in_their_order_and_contexts():
    bench, (delivery, other) = await opened(2)
    seen = []
    own = contextvars.copy_context()
    own.run(NAME.set, "own")
    empty = contextvars.Context()
    NAME.set("present")

    def note(name):
        return lambda done: seen.append((name, done is delivery, NAME.get()))

    unwanted = note("unwanted")
    delivery.add_done_callback(note("first"))
    delivery.add_done_callback(unwanted)
    delivery.add_done_callback(note("own"), context=own)
    delivery.add_done_callback(unwanted)
    delivery.add_done_callback(note("empty"), context=empty)
    other.add_done_callback(lambda done: seen.append(done is other))
    NAME.set("later")
    assert delivery.remove_done_callback(unwanted) == 2
    assert delivery.remove_done_callback(unwanted) == 0
    bench.complete_oldest()
    assert not seen
    delivery.add_done_callback(note("late"))
    await turns()
    expected = [
        ("first", True, "present"),
        ("own", True, "own"),
        ("empty", True, "nobody"),
    ]
    assert [each for each in seen if each is not True and each[0] != "late"] == expected
    assert seen[-1] == ("late", True, "later")
    assert seen.count(True) == 1
    await turns()
    assert len(seen) == 5
    bench.end()


async def test_batch_that_calls_its_listeners_twice_calls_callbacks_once():
    bench, (delivery,) = await opened()
    seen, reports = [], []
    bench.loop.set_exception_handler(lambda loop, context: reports.append(context))
    delivery.add_done_callback(seen.append)
    delivery.add_done_callback(seen.append)
    ((key, listener),) = bench.incomplete()[0].listeners.items()
    listener(key)
    bench.complete_oldest()
    await turns()
    assert seen == [delivery] * 2
    assert not reports
    bench.loop.set_exception_handler(None)
    bench.end()


async def test_removed_callbacks_leave_no_listener():
    bench, (delivery,) = await opened()
    listeners = bench.incomplete()[0].listeners
    delivery.add_done_callback(print)
    assert len(listeners) == 1
    assert delivery.remove_done_callback(print) == 1
    assert not listeners
    bench.end()


async def test_removing_a_callback_from_a_delivery_that_has_none_removes_nothing() -> None:
    bench, (delivery, done) = await opened(2)
    assert delivery.remove_done_callback(print) == 0
    done.add_done_callback(lambda _: None)
    bench.complete_oldest()
    await turns()
    assert done.remove_done_callback(print) == 0
    bench.end()


@pytest.mark.filterwarnings("ignore:.*iscoroutinefunction.* is deprecated:DeprecationWarning")
async def test_coroutine_functions_are_no_callbacks():
    async def coroutine(delivery): ...

    class Asynchronous:
        async def __call__(self, delivery): ...

    bench, (delivery,) = await opened()
    marked = lambda delivery: None  # noqa: E731
    refused = [coroutine, Asynchronous(), Asynchronous().__call__]
    if sys.version_info >= (3, 12):
        import inspect

        refused.append(inspect.markcoroutinefunction(marked))
    for each in refused:
        with pytest.raises(TypeError, match="plain function"):
            delivery.add_done_callback(each)
    bench.end()


@pytest.mark.parametrize("callback", [None, 5])
async def test_what_cannot_be_called_is_no_callback(callback: object) -> None:
    bench, (delivery,) = await opened()
    with pytest.raises(TypeError, match="plain function"):
        delivery.add_done_callback(callback)
    bench.end()


async def test_failing_callback_disturbs_no_other_and_is_reported():
    bench, deliveries = await opened(3)
    seen, reports = [], []
    bench.loop.set_exception_handler(lambda loop, context: reports.append(context))

    def fails(delivery):
        raise LookupError("mine")

    for delivery in deliveries:
        delivery.add_done_callback(seen.append)
        delivery.add_done_callback(fails)
        delivery.add_done_callback(seen.append)
    bench.complete_oldest()
    await turns()
    assert seen == [each for each in deliveries for _ in range(2)]
    assert len(reports) == 3
    assert all("fails" in report["message"] for report in reports)
    assert all(isinstance(report["exception"], LookupError) for report in reports)
    bench.loop.set_exception_handler(None)
    bench.end()


async def test_more_callbacks_than_are_called_in_one_turn():
    bench, deliveries = await opened(1200)
    seen = []
    for delivery in deliveries:
        delivery.add_done_callback(seen.append)
    bench.complete_oldest()
    await turns(6)
    assert seen == deliveries
    bench.end()


async def test_pending_delivery_has_neither_result_nor_error():
    bench, (delivery,) = await opened()
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()
    bench.complete_oldest()
    assert delivery.exception() is None
    assert delivery.result() == await delivery
    bench.end()


async def test_failure_goes_through_gather_and_counts_as_seen():
    bench, deliveries = await opened(3)
    batch = bench.incomplete()[0]
    gathered = asyncio.gather(*deliveries, return_exceptions=True)
    first = asyncio.gather(*deliveries)
    fail_oldest(bench)
    with pytest.raises(KafkaError, match="too large"):
        await first
    errors = await gathered
    assert [type(error) for error in errors] == [RecordTooLargeError] * 3
    assert len({id(error) for error in errors}) == 3
    assert batch.retrieved == 3
    bench.end()


async def test_waiting_does_not_retrieve_a_failure():
    bench, deliveries = await opened(2)
    batch = bench.incomplete()[0]
    waiting = asyncio.ensure_future(asyncio.wait(deliveries))
    await turns()
    fail_oldest(bench)
    await waiting
    assert batch.retrieved == 0
    batch.retrieved = 2
    bench.end()


async def test_cancelled_gather_ends_at_once_and_disturbs_no_awaiter_and_no_record():
    bench, deliveries = await opened(20)

    async def ask(delivery):
        return await delivery

    async def gather():
        return await asyncio.gather(*deliveries)

    direct = [asyncio.create_task(ask(delivery)) for delivery in deliveries]
    gathering = asyncio.create_task(gather())
    await turns()
    gathering.cancel("enough")
    await turns()
    assert gathering.cancelled()
    assert all(delivery.cancelled() for delivery in deliveries)
    assert len(bench.incomplete()[0].listeners) == 20  # the awaits
    assert not any(task.done() for task in direct)
    bench.complete_oldest()
    assert [(await task).offset for task in direct] == list(range(20))
    assert not any(delivery.cancelled() for delivery in deliveries)
    assert [each.result().offset for each in deliveries] == list(range(20))
    assert len(await asyncio.gather(*deliveries)) == 20
    bench.end()


async def test_cancel_calls_the_callbacks_and_may_be_given_a_message():
    bench, (delivery,) = await opened()
    seen, messages = [], []

    def look(done):
        seen.append((done.done(), done.cancelled()))
        messages.append(done._make_cancelled_error().args)

    delivery.add_done_callback(look)
    assert delivery.cancel("because")
    assert not delivery.cancel()
    assert delivery.done()
    assert delivery.cancelled()
    delivery.add_done_callback(look)
    await turns(1)
    assert seen[:1] == [(True, True)]
    assert not delivery.done()
    assert delivery.cancelled()
    delivery.add_done_callback(print)
    assert delivery.remove_done_callback(print) == 1
    assert delivery.cancel("because")
    await turns()
    bench.complete_oldest()
    await turns()
    assert len(seen) == 2
    assert delivery.done()
    assert not delivery.cancelled()
    assert not delivery.cancel()
    assert messages[0] == ("because",)
    assert (await delivery).offset == 0
    bench.end()


async def test_message_of_a_cancellation_is_not_kept_after_its_callbacks_were_called() -> None:
    bench, (delivery,) = await opened()
    assert delivery.cancel("because")
    with pytest.raises(asyncio.CancelledError, match="because"):
        delivery.result()
    await turns()
    delivery.add_done_callback(lambda _: None)
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(asyncio.CancelledError) as raised:
            ask()
        assert raised.value.args == ()
    bench.complete_oldest()
    await turns()
    bench.end()


async def test_cancelled_delivery_has_no_result_until_the_outcome():
    bench, (delivery,) = await opened()
    assert delivery.cancel()
    for ask in (delivery.result, delivery.exception):
        with pytest.raises(asyncio.CancelledError):
            ask()
    assert "cancelled" in repr(delivery)
    await turns()
    with pytest.raises(asyncio.CancelledError):
        delivery.result()
    bench.complete_oldest()
    assert not delivery.cancelled()
    assert delivery.result().offset == 0
    bench.end()


async def test_outcome_that_comes_before_the_callbacks_of_a_cancellation():
    bench, (delivery,) = await opened()
    seen = []
    delivery.add_done_callback(lambda done: seen.append(done.cancelled()))
    delivery.cancel()
    bench.complete_oldest()
    await turns()
    assert seen == [False]
    bench.end()


async def test_cancel_without_callbacks_before_the_outcome():
    bench, (delivery,) = await opened()
    delivery.cancel()
    bench.complete_oldest()
    await turns()
    assert delivery.result().offset == 0
    bench.end()


async def test_timeouts_may_be_tried_again_and_again():
    bench, (delivery,) = await opened()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.002)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.002):
                await delivery
    again = asyncio.ensure_future(asyncio.wait_for(delivery, 60))
    await turns()
    bench.complete_oldest()
    assert (await again).offset == 0
    assert (await asyncio.wait_for(delivery, 0)).offset == 0
    bench.end()


async def test_gather_may_be_tried_again_and_collects_cancelled_deliveries():
    bench, deliveries = await opened(3)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.002):
                await asyncio.gather(*deliveries)
    collected = asyncio.gather(*deliveries, return_exceptions=True)
    deliveries[1].cancel()
    await turns()
    again = asyncio.gather(*deliveries)
    assert not collected.done()
    deliveries[0].cancel()
    deliveries[2].cancel()
    assert [type(each) for each in await collected] == [asyncio.CancelledError] * 3
    with pytest.raises(asyncio.CancelledError):
        await again
    last = asyncio.gather(*deliveries)
    await turns()
    bench.complete_oldest()
    assert len(await last) == 3
    bench.end()


async def test_a_shielded_delivery_is_not_cancelled():
    bench, (delivery,) = await opened()
    shielded = asyncio.shield(delivery)
    shielded.cancel()
    await turns()
    assert not delivery.cancelled()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(delivery), 0.002)
    assert not delivery.cancelled()
    bench.complete_oldest()
    await turns()
    bench.end()


def test_delivery_of_another_loop_is_refused_by_gather():
    async def make():
        return await opened()

    async def wait(delivery):
        own = asyncio.get_running_loop().create_future()
        with pytest.raises(ValueError, match="loop"):
            await asyncio.gather(own, delivery)

    loop = asyncio.new_event_loop()
    try:
        bench, (delivery,) = loop.run_until_complete(make())
        asyncio.run(wait(delivery))
        loop.call_soon(bench.complete_oldest)
        assert loop.run_until_complete(delivery).offset == 0
        bench.end()
    finally:
        loop.close()


def test_outcome_after_the_loop_is_closed_calls_nothing():
    async def make():
        bench, (delivery,) = await opened()
        delivery.add_done_callback(print)
        return bench, delivery

    bench, delivery = asyncio.run(make())
    bench.complete_oldest()
    delivery.add_done_callback(print)
    assert delivery.result().offset == 0
    bench.end()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks")
async def test_eager_tasks_gather_deliveries():
    bench, deliveries = await opened(4)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    try:

        async def gather():
            return await asyncio.gather(*deliveries)

        async def ask(delivery):
            return await delivery

        task = asyncio.create_task(gather())
        asks = asyncio.gather(*(ask(delivery) for delivery in deliveries))
        sends = asyncio.gather(bench.producer.send("a", b"v"), bench.producer.send("a", b"v"))
        assert sends.done()
        both = asyncio.gather(*sends.result(), bench.producer.send_and_wait("a", b"v"))
        bench.complete_oldest()
        assert [metadata.offset for metadata in await task] == [0, 1, 2, 3]
        assert [metadata.offset for metadata in await asks] == [0, 1, 2, 3]
        assert [metadata.offset for metadata in await both] == [4, 5, 6]
        assert asyncio.gather(*deliveries).done()
        task = asyncio.create_task(gather())
        assert task.done()
    finally:
        loop.set_task_factory(None)
    bench.end()
