"""Questions to coordinators while brokers come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer.config import ProducerConfig
from aioproducer.core import coordinator_questions as questions
from aioproducer.errors import NodeDisconnectedError
from aioproducer.runtime.coordinator_client import CoordinatorClient


def client_on(stage: Stage) -> CoordinatorClient:
    return CoordinatorClient(ProducerConfig(**stage.world.spec.options), dialer=stage.world.network)


def committed() -> questions.Question[Any]:
    return questions.committed("group", None)


async def coordinator_of(client: CoordinatorClient) -> int:
    await client.ask(committed())
    (node,) = client._coordinators.values()
    return node


def test_a_coordinator_that_the_brokers_no_longer_list_is_looked_for_anew() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        node = await coordinator_of(client)
        stage.crash(node)
        await asyncio.sleep(1)
        began = stage.loop.time()
        await client.ask_each(questions.list_open("tx", None))  # lists the brokers there are
        assert await coordinator_of(client) != node
        assert stage.loop.time() - began < 30
        await client.close()

    play(act, brokers=3)


def test_a_broker_that_is_not_listed_is_not_waited_for() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        with pytest.raises(NodeDisconnectedError, match="left the cluster"):
            await client.ask_broker(99, questions.list_open("tx", None))
        await client.close()

    play(act)
