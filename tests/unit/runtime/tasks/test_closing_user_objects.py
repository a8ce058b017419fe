"""Serializers and partitioners that have a `close()` are closed with their producer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer.blocking import Producer as BlockingProducer
from aioproducer.errors import BootstrapError
from aioproducer.serializers import in_thread
from aioproducer.testing import MockProducer, ThreadedCluster


class Closing:
    """A serializer and a partitioner that notes when it is closed."""

    def __init__(self, name: str, reported: list[str]) -> None:
        self.name = name
        self.reported = reported

    def serialize(self, data: Any, context: Any) -> bytes:
        self.reported.append(f"{self.name} used")
        return str(data).encode()

    def partition(self, topic: str, key: Any, value: Any, cluster: Any) -> int:
        self.reported.append(f"{self.name} used")
        return 0

    def close(self) -> None:
        self.reported.append(f"{self.name} closed")


class ClosingLater(Closing):
    """One that waits when it is closed."""

    seconds = 1.0

    async def close(self) -> None:  # type: ignore[override]
        await asyncio.sleep(self.seconds)
        super().close()


async def start_and_close(stage: Stage) -> None:
    """Do nothing in between."""
    await stage.producer.start()
    await stage.producer.close()


def test_each_is_closed_once_after_the_last_record() -> None:
    reported: list[str] = []

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", "v", "k")
        await asyncio.gather(stage.producer.close(), stage.producer.close())
        await stage.producer.close()
        assert stage.values("t") == [b"v"]

    key, value, partitioner = (
        ClosingLater("key", reported),
        Closing("value", reported),
        Closing("p", reported),
    )
    play(act, key_serializer=key, value_serializer=value, partitioner=partitioner)
    assert reported == [
        "key used",
        "value used",
        "p used",
        "key closed",
        "value closed",
        "p closed",
    ]


def test_one_object_in_two_places_is_closed_once() -> None:
    reported: list[str] = []
    both = Closing("both", reported)

    play(start_and_close, key_serializer=both, value_serializer=both, partitioner=both)
    assert reported == ["both closed"]


def test_what_goes_wrong_is_logged_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[str] = []

    class Raising(Closing):
        def close(self) -> None:
            raise ValueError("why")

    class Hanging(ClosingLater):
        seconds = 1000.0

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        began = stage.loop.time()
        await stage.producer.close(0)
        assert stage.loop.time() - began == pytest.approx(30, abs=0.1)  # request_timeout_ms

    play(
        act,
        key_serializer=Raising("key", reported),
        value_serializer=Hanging("value", reported),
        partitioner=Closing("p", reported),
    )
    assert reported == ["p closed"]
    assert "closing Raising: ValueError('why')" in caplog.text
    assert "closing Hanging: took longer than request_timeout_ms=30000" in caplog.text


def test_a_failed_start_closes_them() -> None:
    reported: list[str] = []

    async def act(stage: Stage) -> None:
        stage.lose()
        with pytest.raises(BootstrapError):
            await stage.producer.start()

    play(act, value_serializer=Closing("value", reported))
    assert reported == ["value closed"]


def test_a_close_that_is_cancelled_closes_none_twice() -> None:
    reported: list[str] = []

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        closing = asyncio.create_task(stage.producer.close())
        await asyncio.sleep(0.5)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await stage.producer.close()

    key = ClosingLater("key", reported)
    play(act, key_serializer=key, value_serializer=Closing("value", reported))
    assert reported == ["key closed", "value closed"]


def test_the_result_of_a_cancelled_future_in_a_close_does_not_begin_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[str] = []

    class Reading(Closing):
        def close(self) -> None:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            cancelled.result()

    key, value = Reading("key", reported), Closing("value", reported)
    play(start_and_close, key_serializer=key, value_serializer=value)
    assert reported == ["value closed"]
    assert "closing Reading: CancelledError()" in caplog.text


def test_functions_and_classes_have_nothing_to_close() -> None:
    class Text(str):
        def close(self) -> None:
            raise AssertionError

    play(
        start_and_close, key_serializer=Text, value_serializer=str.encode, partitioner=lambda *_: 0
    )


def test_one_that_runs_in_a_thread_is_closed_there() -> None:
    reported: list[str] = []

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", "v", "k")
        await stage.producer.close()

    play(
        act,
        key_serializer=in_thread(ClosingLater("key", reported)),
        value_serializer=in_thread(Closing("value", reported)),
    )
    assert reported == ["key used", "value used", "key closed", "value closed"]


async def test_a_mock_closes_them_too() -> None:
    reported: list[str] = []
    async with MockProducer(value_serializer=ClosingLater("value", reported)) as producer:
        await producer.send("t", "v")
    await producer.close()
    assert reported == ["value used", "value closed"]


def test_the_blocking_producer_closes_them() -> None:
    reported: list[str] = []
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = BlockingProducer(
            bootstrap_servers=cluster.bootstrap_servers, value_serializer=Closing("value", reported)
        )
        producer.start()
        producer.send("t", "v")
        producer.close()
    assert reported == ["value used", "value closed"]


class Unprintable(Closing):
    """One whose `close()` raises an exception that cannot be shown."""

    class Error(Exception):
        def __repr__(self) -> str:
            raise LookupError("no text")

    def close(self) -> None:
        raise self.Error


def test_the_producer_is_closed_although_an_exception_cannot_be_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[str] = []

    broken, sound = Unprintable("key", reported), Closing("value", reported)
    play(start_and_close, key_serializer=broken, value_serializer=sound)
    assert reported == ["value closed"]
    assert "closing Unprintable: <Error, whose repr() failed>" in caplog.text
