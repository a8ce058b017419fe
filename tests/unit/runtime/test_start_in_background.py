"""`start(wait=False)`: what the producer says of itself until the cluster is there."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer.errors import TopicAuthorizationFailedError
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
