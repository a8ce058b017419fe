"""Callbacks are plain functions called by the loop: they may start tasks, they cannot wait."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.stage import Stage, play
from support.waiting import until

from aioproducer import Producer, TopicPartition
from aioproducer.errors import ConfigError, IllegalStateError
from aioproducer.runtime.delivery import Delivery
from aioproducer.wire.api_keys import ApiKey


async def _a_coroutine_function(*_: object) -> None:
    raise AssertionError("called")


class _CallableObject:
    async def __call__(self, *_: object) -> None:
        raise AssertionError("called")

    async def method(self, *_: object) -> None:
        raise AssertionError("called")


COROUTINE_FUNCTIONS = [
    _a_coroutine_function,
    functools.partial(_a_coroutine_function, 1),
    _CallableObject(),
    _CallableObject().method,
]


def driven_by_hand(coroutine: Coroutine[Any, Any, object]) -> BaseException | None:
    """The error of a coroutine's first step; None when it waits."""
    try:
        coroutine.send(None)
    except (Exception, StopIteration) as error:
        return error
    finally:
        coroutine.close()
    return None


def test_a_task_that_a_done_callback_starts_may_flush() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        flushes: list[asyncio.Task[int]] = []

        async def send_and_flush() -> int:
            await producer.send("u", b"from the callback")
            return await producer.flush()

        await producer.start()
        delivery = await producer.send("t", b"v")
        delivery.add_done_callback(lambda _: flushes.append(asyncio.create_task(send_and_flush())))
        assert await producer.flush() == 0
        await asyncio.sleep(0)
        assert await flushes[0] == 0
        assert stage.values("u") == [b"from the callback"]
        await producer.close()

    play(act)


@pytest.mark.parametrize("call", [Producer.flush, Producer.close])
def test_flush_and_close_driven_in_a_callback_are_refused_and_change_nothing(
    call: Callable[[Producer], Coroutine[Any, Any, object]],
) -> None:
    async def act(stage: Stage) -> None:
        errors: list[BaseException | None] = []
        await stage.producer.start()
        delivery = await stage.producer.send("t", b"v")
        await stage.producer.send("t", b"v")  # something to wait for
        delivery.add_done_callback(lambda _: errors.append(driven_by_hand(call(stage.producer))))
        await delivery
        await asyncio.sleep(0)
        (error,) = errors
        assert isinstance(error, IllegalStateError)
        assert "create_task" in str(error)
        await stage.producer.send_and_wait("t", b"v")
        await stage.producer.close()

    play(act)


def test_loops_run_in_a_callback_fail_by_themselves() -> None:
    async def act(stage: Stage) -> None:
        errors: list[BaseException] = []

        def wait(run: Callable[[Coroutine[Any, Any, object]], object], _: Delivery) -> None:
            coroutine = stage.producer.flush()
            try:
                run(coroutine)
            except RuntimeError as error:
                errors.append(error)
            finally:
                coroutine.close()

        await stage.producer.start()
        delivery = await stage.producer.send("t", b"v")
        for run in (asyncio.run, stage.loop.run_until_complete):
            delivery.add_done_callback(functools.partial(wait, run))
        await delivery
        await asyncio.sleep(0)
        assert len(errors) == 2
        await stage.producer.send_and_wait("t", b"v")
        await stage.producer.close()

    play(act)


@pytest.mark.parametrize("call", [Producer.flush, Producer.close])
def test_on_delivery_error_and_on_data_loss_cannot_wait_either(
    call: Callable[[Producer], Coroutine[Any, Any, object]],
) -> None:
    errors: dict[str, BaseException | None] = {}
    producers: list[Producer] = []

    def reported(option: str, *_: object) -> None:
        errors[option] = driven_by_hand(call(producers[0]))

    async def act(stage: Stage) -> None:
        producers.append(stage.producer)
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"v")
        stage.lose_records("t", 0)
        await stage.producer.send_and_wait("t", b"v")
        stage.faults.error(ApiKey.PRODUCE, 87)
        await stage.producer.send("t", b"v")
        await stage.producer.flush()
        await asyncio.sleep(0)
        await stage.producer.close()

    options = ("on_delivery_error", "on_data_loss")
    play(act, **{option: functools.partial(reported, option) for option in options})
    assert {option: type(error) for option, error in errors.items()} == dict.fromkeys(
        options, IllegalStateError
    )


def test_on_data_loss_may_purge_and_send() -> None:
    reported: list[TopicPartition] = []
    stages: list[Stage] = []

    def on_data_loss(where: TopicPartition) -> None:
        reported.append(where)
        stages[0].producer.purge(queued=True, in_flight=True)
        stages[0].faults.clear()
        stages[0].producer.send_nowait("u", b"an alarm")

    async def act(stage: Stage) -> None:
        stages.append(stage)
        await stage.producer.start()
        await stage.producer.warm_up(["u"])
        await stage.producer.send_and_wait("t", b"lost")
        stage.faults.error(ApiKey.PRODUCE, 19, topic="u", times=None)
        await stage.producer.send("u", b"purged")
        stage.lose_records("t", 0)
        await stage.producer.send_and_wait("t", b"v")
        await until(lambda: len(reported) == 1)
        assert await stage.producer.flush() == 0
        await stage.producer.send_and_wait("t", b"last")
        await stage.producer.close()
        assert (stage.values("t"), stage.values("u")) == ([b"v", b"last"], [b"an alarm"])

    play(act, on_data_loss=on_data_loss)
    assert reported == [TopicPartition("t", 0)]


@pytest.mark.parametrize("function", COROUTINE_FUNCTIONS)
def test_a_coroutine_function_is_no_done_callback(function: Any) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        delivery = await stage.producer.send("t", b"v")
        with pytest.raises(TypeError, match="coroutine function"):
            delivery.add_done_callback(function)
        await delivery
        await stage.producer.close()

    play(act)


@pytest.mark.parametrize("function", COROUTINE_FUNCTIONS)
@pytest.mark.parametrize("option", ["on_delivery_error", "on_data_loss"])
def test_a_coroutine_function_is_refused_by_the_options(option: str, function: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option}.*coroutine function"):
        Producer(bootstrap_servers="localhost:9092", **{option: function})
