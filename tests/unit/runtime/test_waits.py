"""Awaiting deliveries: the order, time and context of resuming, and the effects of cancelling."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import tasks as asyncio_tasks

import pytest

from aioproducer.errors import WrongLoopError

from .send.fast_paths import Bench

pytestmark = pytest.mark.usefixtures("fast_path_form")

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME")


async def opened() -> Bench:
    """A producer with a batch that has room."""
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"first")
    return bench


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_awaiters_are_resumed_in_their_order_and_contexts_each_once():
    bench = await opened()
    seen = []

    async def ask(number: int) -> None:
        NAME.set(f"task {number}")
        await bench.producer.send_and_wait("a", b"v")
        seen.append((number, NAME.get()))

    tasks = [asyncio.create_task(ask(number)) for number in range(20)]
    await turns()
    assert not seen
    bench.complete_oldest()
    assert not seen  # never from inside whatever ends the batch
    await turns()
    assert seen == [(number, f"task {number}") for number in range(20)]
    assert all(task.done() for task in tasks)
    bench.end()


async def test_loop_is_called_once_for_all_awaiters_of_an_answer(monkeypatch, fast_path_form):
    if fast_path_form.__name__.endswith("_py"):
        pytest.skip("the pure form has a future for each")
    bench = await opened()
    tasks = [asyncio.create_task(bench.producer.send_and_wait("a", b"v")) for _ in range(50)]
    await turns()
    calls = []
    call_soon = bench.loop.call_soon

    def counting(callback, *args, **kwargs):
        calls.append(callback)
        return call_soon(callback, *args, **kwargs)

    monkeypatch.setattr(bench.loop, "call_soon", counting)
    bench.complete_oldest()
    assert len(calls) == 1
    monkeypatch.undo()
    await asyncio.gather(*tasks)
    bench.end()


async def test_awaiter_may_ask_again_at_once():
    bench = await opened()
    rounds = []

    async def ask() -> None:
        for number in range(3):
            await bench.producer.send_and_wait("a", b"v")
            rounds.append(number)

    tasks = [asyncio.create_task(ask()) for _ in range(2)]
    for _ in range(3):
        await turns()
        bench.complete_oldest()
    await asyncio.gather(*tasks)
    assert rounds == [0, 0, 1, 1, 2, 2]
    bench.end()


async def test_failing_task_disturbs_no_other():
    bench = await opened()

    async def ask(fails: bool) -> str:
        await bench.producer.send_and_wait("a", b"v")
        if fails:
            raise LookupError("mine")
        return "fine"

    tasks = [asyncio.create_task(ask(fails)) for fails in (False, True, False)]
    await turns()
    bench.complete_oldest()
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, third) == ("fine", "fine")
    assert isinstance(second, LookupError)
    bench.end()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_end_of_the_loop_in_one_task_leaves_the_others_their_turn(kind):
    seen = []
    loop = asyncio.new_event_loop()

    async def start() -> tuple[Bench, list[asyncio.Task[None]]]:
        bench = await opened()

        async def ask(number: int) -> None:
            await bench.producer.send_and_wait("a", b"v")
            if number == 1:
                raise kind
            seen.append(number)

        tasks = [asyncio.create_task(ask(number)) for number in range(4)]
        await turns()
        return bench, tasks

    try:
        bench, tasks = loop.run_until_complete(start())
        loop.call_soon(bench.complete_oldest)
        with pytest.raises(kind):
            loop.run_until_complete(asyncio.sleep(0.01))
        others = [task for number, task in enumerate(tasks) if number != 1]
        loop.run_until_complete(asyncio.wait(others))
        assert seen == [0, 2, 3]
        assert isinstance(tasks[1].exception(), kind)
        bench.end()
    finally:
        loop.close()


async def test_cancelled_awaiter_gets_its_message_and_is_dropped():
    bench = await opened()
    delivery = await bench.producer.send("a", b"v")
    reported = []

    async def wait() -> None:
        try:
            await delivery
        except asyncio.CancelledError as error:
            reported.append(error.args)
            raise

    task = asyncio.create_task(wait())
    await turns()
    assert bench.incomplete()[0].watchers == 1
    assert task.cancel("enough")
    assert bench.incomplete()[0].watchers == 0 or not task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reported == [("enough",)]
    assert bench.incomplete()[0].watchers == 0
    assert not delivery.done()
    bench.end()


async def test_cancelled_before_its_first_step_or_after_the_answer_a_task_is_cancelled():
    bench = await opened()
    delivery = await bench.producer.send("a", b"v")

    async def wait() -> object:
        return await delivery

    early, late, kept = (asyncio.create_task(wait()) for _ in range(3))
    early.cancel()
    await turns()
    bench.complete_oldest()
    late.cancel()
    await turns()
    assert early.cancelled()
    assert late.cancelled()
    assert await kept == await delivery
    bench.end()


async def test_awaiter_that_swallows_its_cancellation_may_wait_again():
    bench = await opened()

    async def stubborn() -> object:
        delivery = await bench.producer.send("a", b"v")
        try:
            return await delivery
        except asyncio.CancelledError:
            return await delivery

    task = asyncio.create_task(stubborn())
    await turns()
    task.cancel()
    await turns()
    assert not task.done()
    bench.complete_oldest()
    assert (await task).topic == "a"
    bench.end()


async def test_timeouts_and_shields_treat_an_await_like_any_other():
    bench = await opened()
    delivery = await bench.producer.send("a", b"v")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await delivery
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.001)

    async def wait() -> object:
        return await delivery

    inner = asyncio.create_task(wait())
    outer = asyncio.shield(inner)
    await turns()
    outer.cancel()
    await turns()
    assert not inner.done()
    bench.complete_oldest()
    assert await inner == await delivery
    assert bench.incomplete() == []
    bench.end()


async def test_tasks_written_in_python_wait_as_well():
    bench = await opened()

    async def ask() -> object:
        return await bench.producer.send_and_wait("a", b"v")

    kept, cancelled = (asyncio_tasks._PyTask(ask(), loop=bench.loop) for _ in range(2))
    await turns()
    cancelled.cancel()
    await turns()
    assert cancelled.cancelled()
    bench.complete_oldest()
    assert (await kept).topic == "a"
    bench.end()


async def test_waiting_task_says_in_its_repr_what_it_waits_for():
    bench = await opened()
    task = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await turns()
    assert "wait_for=<" in repr(task)
    bench.complete_oldest()
    await task
    bench.end()


async def test_delivery_of_another_loop_is_refused():
    bench = await opened()
    delivery = await bench.producer.send("a", b"v")

    async def wait() -> object:
        return await delivery

    def elsewhere() -> None:
        with pytest.raises(WrongLoopError):
            asyncio.run(wait())

    await asyncio.to_thread(elsewhere)
    assert bench.incomplete()[0].watchers == 0
    bench.end()


async def test_debug_mode_of_the_loop_changes_nothing():
    bench = await opened()
    bench.loop.set_debug(True)
    try:
        tasks = [asyncio.create_task(bench.producer.send_and_wait("a", b"v")) for _ in range(5)]
        await turns()
        tasks[0].cancel()
        bench.complete_oldest()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert [each.topic for each in done[1:]] == ["a"] * 4
    finally:
        bench.loop.set_debug(False)
    bench.end()


async def test_awaiters_are_resumed_where_the_answer_was_handled(fast_path_form):
    if fast_path_form.__name__.endswith("_py"):
        pytest.skip("the pure form has a future for each")
    bench = await opened()
    task = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await turns()
    seen = []

    def on_answer() -> None:
        owner = bench.complete_oldest().owner
        seen.append(task.done())
        owner.run_now()
        seen.append(task.done())

    bench.loop.call_soon(on_answer)
    await turns(1)
    assert seen == [False, True]
    bench.end()


async def test_awaiters_are_resumed_by_the_loop_where_tasks_may_run_it(monkeypatch):
    bench = await opened()
    task = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await turns()
    monkeypatch.setattr(asyncio, "_nest_patched", True, raising=False)  # as nest_asyncio does
    seen = []

    def on_answer() -> None:
        owner = bench.complete_oldest().owner
        if owner.run_now is not None:
            owner.run_now()
        seen.append(task.done())

    bench.loop.call_soon(on_answer)
    await turns()
    assert seen == [False]
    assert task.done()
    bench.end()


async def test_a_task_may_run_the_loop_until_another_awaiter_is_resumed(monkeypatch):
    monkeypatch.setattr(asyncio, "_nest_patched", True, raising=False)
    bench = await opened()

    async def nest() -> bool:
        await bench.producer.send_and_wait("a", b"v")
        nesting = asyncio.current_task()
        asyncio_tasks._leave_task(bench.loop, nesting)
        try:
            for _ in range(5):
                bench.loop.call_soon(int)  # so that nothing is waited for
                bench.loop._run_once()
        finally:
            asyncio_tasks._enter_task(bench.loop, nesting)
        return other.done()

    task = asyncio.create_task(nest())
    other = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await turns()
    bench.complete_oldest()
    assert await task
    bench.end()


async def test_loop_is_not_asked_to_resume_an_awaiter_twice(monkeypatch, fast_path_form):
    if fast_path_form.__name__.endswith("_py"):
        pytest.skip("the pure form has a future for each")
    bench = await opened()
    task = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await turns()
    (batch,) = bench.incomplete()
    calls = []
    call_soon = bench.loop.call_soon
    monkeypatch.setattr(
        bench.loop, "call_soon", lambda *a, **k: calls.append(a) or call_soon(*a, **k)
    )
    batch.owner.held = True
    bench.complete_oldest()
    assert not calls
    batch.owner.run_now()  # inside this task: so the loop is asked now
    assert len(calls) == 1
    await turns()
    assert task.done()
    bench.end()


async def test_no_awaiter_is_resumed_inside_another_task():
    bench = await opened()
    task = asyncio.create_task(bench.producer.send_and_wait("a", b"v"))
    await turns()
    owner = bench.complete_oldest().owner
    if owner.run_now is not None:
        owner.run_now()
    assert not task.done()
    await turns()
    assert task.done()
    bench.end()


def test_what_ends_the_loop_is_not_raised_where_the_answer_was_read(fast_path_form):
    if fast_path_form.__name__.endswith("_py"):
        pytest.skip("the pure form has a future for each")
    raised = []

    async def leave(bench: Bench) -> None:
        await bench.producer.send_and_wait("a", b"v")
        raise SystemExit(3)

    async def run() -> None:
        bench = await opened()
        leaving = asyncio.create_task(leave(bench))
        await turns()

        def on_answer() -> None:
            bench.complete_oldest().owner.run_now()
            raised.append(leaving.exception())

        bench.loop.call_soon(on_answer)
        try:
            await turns(5)
        finally:
            bench.end()

    with pytest.raises(SystemExit):
        asyncio.run(run())
    assert isinstance(raised[0], SystemExit)


async def test_delivery_of_something_that_is_no_batch_is_refused_when_it_is_awaited():
    bench = await opened()
    made = type(await bench.producer.send("a", b"v"))
    with pytest.raises((TypeError, AttributeError)):
        await made(object(), 0, 0, -1, 1)
    bench.end()
