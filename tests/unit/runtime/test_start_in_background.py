"""`start(wait=False)`: what the producer says of itself until the cluster is there."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer.errors import ProducerFailedError, TopicAuthorizationFailedError
from aioproducer.runtime import engine
from aioproducer.wire.api_keys import ApiKey


def test_a_producer_is_connecting_until_the_cluster_has_answered() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        producer = stage.producer
        await producer.start(wait=False)
        await asyncio.sleep(1)
        health = producer.health()
        assert (health.ready, health.state) == (False, "connecting")
        assert "broker-1.sim:9092" in (health.error or "")
        stage.revive()
        await producer.send_and_wait("t", b"v")
        health = producer.health()
        assert (health.ready, health.state, health.error) == (True, "running", None)
        await producer.close()

    play(act)


def test_records_of_a_topic_that_is_refused_fail_when_the_cluster_has_answered() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        producer = stage.producer
        await producer.start(wait=False)
        refused, accepted = await producer.send("t", b"v"), await producer.send("u", b"v")
        stage.faults.error(ApiKey.METADATA, TopicAuthorizationFailedError.code, topic="t")
        stage.revive()
        with pytest.raises(TopicAuthorizationFailedError):
            await refused
        await accepted
        assert stage.loop.time() < 30
        await producer.close()

    play(act)


@pytest.mark.parametrize("wait", [True, False])
def test_a_warm_up_connects_to_the_leaders_once_the_cluster_is_there(wait: bool) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1, 2, 3))
        producer = stage.producer
        if not wait:
            for node in (1, 2, 3):
                stage.crash(node)
        await producer.start(wait=wait)
        warming = asyncio.create_task(producer._warm_up_later(["wide"]))
        await asyncio.sleep(5)
        assert warming.done() is wait
        if not wait:
            for node in (1, 2, 3):
                stage.revive(node)
        await warming
        await asyncio.sleep(1)
        states = {node.state for node in producer.health().nodes.values()}
        assert states == {"ready"}
        await producer.close()

    play(act, brokers=3)


def test_the_first_request_for_metadata_has_the_topics_of_a_warm_up() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        requests = stage.faults.delay(0, ApiKey.METADATA, times=None)
        await stage.producer.start(wait=False)
        warming = asyncio.create_task(stage.producer._warm_up_later(["t", "u"]))
        await asyncio.sleep(1)
        stage.revive()
        await warming
        assert requests.struck == 1
        await stage.producer.close()

    play(act)


def test_a_warm_up_ends_with_a_producer_that_is_closed_before() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        await stage.producer.start(wait=False)
        warming = asyncio.create_task(stage.producer._warm_up_later(["t"]))
        await asyncio.sleep(1)
        await stage.producer.close()
        await asyncio.sleep(0)
        assert warming.done()
        assert warming.exception() is None

    play(act)


def test_a_defect_while_it_starts_fails_the_producer_with_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stumble(*_: object) -> None:
        raise ZeroDivisionError

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start(wait=False)
        monkeypatch.setattr(engine, "refuse_what_they_lack", stumble)
        await asyncio.sleep(1)
        monkeypatch.undo()
        assert producer.health().state == "failed"
        with pytest.raises(
            ProducerFailedError, match=r"start failed with ZeroDivisionError"
        ) as caught:
            await producer.send("t", b"v")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        await producer.close()

    play(act)
