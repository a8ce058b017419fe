"""Waits for topics and for refreshes: what ends them, and what they leave."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from net.virtual import VirtualLoop, virtual_time

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.errors import (
    InvalidTopicError,
    MetadataTimeoutError,
    ProducerClosedError,
    UnknownTopicOrPartitionError,
)
from aioproducer.runtime.tasks.metadata_waiters import MetadataWaiters
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

MAX_AGE_S, MAX_IDLE_S = 300.0, 5.0
UNKNOWN_TOPIC = 3


class Scene:
    """Waits on real metadata; `answer` is the response of a broker to a request for all topics."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.metadata = Metadata(
            max_age_s=MAX_AGE_S,
            max_idle_s=MAX_IDLE_S,
            backoff=ExponentialBackoff(0.1, 1.0, jitter=0),
            allow_auto_create=False,
            rng=Random(1),
        )
        self.waiters = MetadataWaiters(self.metadata, self.loop)

    def answer(self, **partitions: int) -> list[str]:
        """Describe these topics, and call the others unknown; return what was asked for."""
        now = self.loop.time()
        asked = self.metadata.start_request(now).topics
        topics = [
            MetadataResponseTopic(
                error_code=0 if name in partitions else UNKNOWN_TOPIC,
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=1)
                    for index in range(partitions.get(name, 0))
                ],
            )
            for name in asked
        ]
        broker = MetadataResponseBroker(node_id=1, host="a", port=9092)
        response = MetadataResponse(brokers=[broker], topics=topics, cluster_id="c")
        assert self.metadata.on_response(response, now)
        self.waiters.resume_decided(now)
        return asked

    def wait(self, topic: str, partition: int | None = None) -> asyncio.Task[Any]:
        """A call that waits for a minute."""
        deadline = self.loop.time() + 60
        return asyncio.ensure_future(
            self.waiters.wait_for_topic(topic, deadline)
            if partition is None
            else self.waiters.wait_for_partition(topic, partition, deadline)
        )

    @property
    def is_request_due(self) -> bool:
        """Whether a request is due before the metadata are too old."""
        now = self.loop.time()
        return self.metadata.next_update_at(now) < now + MAX_AGE_S / 2


@virtual_time
async def test_a_topic_without_partitions_is_waited_for() -> None:
    scene = Scene()
    waiting = scene.wait("t")
    await asyncio.sleep(0)
    scene.answer(t=0)
    await asyncio.sleep(1)
    assert not waiting.done()
    scene.answer(t=1)
    assert len((await waiting).partitions) == 1


@virtual_time
async def test_a_partition_of_a_missing_topic_is_missed_with_its_topic() -> None:
    scene = Scene()
    waiting = scene.wait("t", 3)
    await asyncio.sleep(0)
    scene.answer()
    with pytest.raises(MetadataTimeoutError, match="the topic is not present") as caught:
        await waiting
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)


@virtual_time
async def test_an_impossible_name_is_refused_before_it_is_waited_for() -> None:
    scene = Scene()
    for partition in (None, 0):
        with pytest.raises(InvalidTopicError):
            await scene.wait("no topic", partition)
    assert scene.answer() == []


@virtual_time
async def test_a_topic_does_not_expire_while_a_call_waits_for_it() -> None:
    scene = Scene()
    scene.waiters.also_wanted = ["early"]
    waiting = scene.wait("t")
    await asyncio.sleep(MAX_IDLE_S + 1)
    scene.waiters.keep_alive(scene.loop.time())
    assert sorted(scene.answer(t=1)) == ["early", "t"]
    await waiting


@virtual_time
async def test_a_topic_does_not_expire_while_calls_ask_for_it() -> None:
    scene = Scene()
    waiting = scene.wait("t")
    await asyncio.sleep(0)
    scene.answer(t=1)
    await waiting
    for _ in range(4):
        await asyncio.sleep(MAX_IDLE_S - 1)
        await scene.wait("t")
    scene.metadata.invalidate()
    assert scene.answer(t=1) == ["t"]


@virtual_time
async def test_a_missing_topic_expires_once_the_last_wait_for_it_is_cancelled() -> None:
    scene = Scene()
    waits = [scene.wait("t"), scene.wait("t")]
    await asyncio.sleep(0)
    for waiting in waits:
        scene.answer()
        assert scene.is_request_due
        waiting.cancel()
        await asyncio.wait([waiting])
    await asyncio.sleep(MAX_IDLE_S + 1)
    assert scene.answer() == []
    assert not scene.is_request_due


@pytest.mark.parametrize("has_failed", [False, True])
@virtual_time
async def test_a_refresh_that_is_given_up_leaves_no_complaint(has_failed: bool) -> None:
    complaints: list[dict[str, Any]] = []
    scene = Scene()
    scene.loop.set_exception_handler(lambda _, context: complaints.append(context))
    refresh = scene.waiters.refresh(scene.loop.time() + 60)
    refresh.send(None)
    if has_failed:
        scene.waiters.fail(ProducerClosedError("over"))
    refresh.close()
    gc.collect(1)
    assert complaints == []


@virtual_time
async def test_wait_that_failed_does_not_keep_its_callers_frames() -> None:
    scene = Scene()

    async def caller() -> weakref.ref[Scene]:
        local = Scene()
        with suppress(MetadataTimeoutError):
            await scene.waiters.wait_for_topic("t", scene.loop.time() + 1)
        return weakref.ref(local)

    gc.disable()
    try:
        reference = await caller()
        await asyncio.sleep(0)  # the task's wake-up has the future
        assert reference() is None
    finally:
        gc.enable()


class NotingLoop(VirtualLoop):
    """Notes its futures, without keeping them."""

    def __init__(self) -> None:
        super().__init__()
        self.futures: list[weakref.ref[asyncio.Future[Any]]] = []

    def create_future(self) -> asyncio.Future[Any]:
        future = super().create_future()
        self.futures.append(weakref.ref(future))
        return future


def test_refreshes_and_waits_that_have_ended_are_not_kept() -> None:
    loop = NotingLoop()

    async def run() -> None:
        scene = Scene()
        calls = [scene.wait("t"), scene.wait("missing")]
        for sent in (0, 1, 2):
            scene.waiters.requests_sent = sent
            refresh = scene.waiters.refresh(scene.loop.time() + 60)
            calls.append(asyncio.ensure_future(refresh))
            await asyncio.sleep(0)
        assert len(loop.futures) == 5
        scene.answer(t=1)
        scene.waiters.resume_refreshes()
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [False, True, False, False, True]
        calls.clear()
        del call
        gc.collect(1)
        assert [each() for each in loop.futures[:5]] == [None] * 5

    loop.run_until_complete(run())
    loop.close()
