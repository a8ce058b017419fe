"""A bootstrap server that misbehaves: `start()` ends in time with a typed error, nothing leaks."""

from __future__ import annotations

import asyncio

import pytest
from support import hostile
from support.hostile import HostileServer, Ranges, after_handshake

from aioproducer import Producer
from aioproducer.errors import BootstrapError, KafkaError, UnsupportedVersionError
from aioproducer.testing.embedded import EmbeddedCluster

BEHAVIOURS = (
    "silent",
    "garbage",
    "garbled_body",
    "wrong_correlation_id",
    "empty_frame",
    "closes_before_answering",
    "closes_mid_response",
    "resets",
    "oversize_length",
    "negative_length",
    "huge_promise",
    "slow_loris",
    "unsolicited",
    "closes",
)

IMPOSSIBLE: dict[str, Ranges] = {
    "only versions of the future": {0: (90, 99), 3: (90, 99), 18: (0, 4)},
    "lowest above highest": {0: (9, 3), 3: (9, 2), 18: (0, 4)},
    "no Metadata at all": {18: (0, 4)},
}


async def start_against(behaviour: hostile.Behaviour) -> KafkaError:
    async with HostileServer(behaviour) as server:
        producer = Producer(
            bootstrap_servers=f"{server.host}:{server.port}",
            max_block_ms=600,
            request_timeout_ms=200,
            delivery_timeout_ms=600,
            socket_connection_setup_timeout_ms=200,
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(KafkaError) as caught:
            await producer.start()
        assert loop.time() - started < 5
        return caught.value


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_a_hostile_handshake_ends_in_a_typed_error(name: str) -> None:
    error = await start_against(getattr(hostile, name))
    assert isinstance(error, BootstrapError)
    assert "127.0.0.1" in str(error)


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_a_hostile_metadata_answer_ends_in_a_typed_error(name: str) -> None:
    error = await start_against(after_handshake(getattr(hostile, name)))
    assert isinstance(error, BootstrapError)


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_impossible_versions_are_named(name: str) -> None:
    error = await start_against(hostile.advertises(IMPOSSIBLE[name]))
    assert isinstance(error, UnsupportedVersionError)


async def test_a_controller_is_named_and_not_taken_for_a_broker_that_is_too_old() -> None:
    error = await start_against(hostile.advertises(hostile.CONTROLLER_RANGES))
    assert isinstance(error, BootstrapError)
    assert "a Kafka controller answers there, not a broker" in str(error)
    assert "upgrade" not in str(error)


async def test_a_controller_among_the_bootstrap_servers_is_passed_over() -> None:
    controller = hostile.advertises(hostile.CONTROLLER_RANGES)
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster, HostileServer(controller) as server:
        servers = f"{server.host}:{server.port},{cluster.bootstrap_servers}"
        while server.accepted < 3:  # the first server is a random one
            async with Producer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait("t", b"1")
