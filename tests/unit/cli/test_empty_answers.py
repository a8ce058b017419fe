"""A broker whose answers have empty arrays: `doctor`, `topics` and `TransactionAdmin` report it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from typing import Any

import pytest
from support.hostile import HostileServer, Peer

from aioproducer import Producer, ProducerConfig
from aioproducer.cli.sessions import link_opener
from aioproducer.errors import KafkaError
from aioproducer.testing import read_topic
from aioproducer.testing.admin import create_topic, delete_topic, list_topics
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.framing import REQUEST_TYPES, decode_request_header, encode_response
from aioproducer.testing.reader import ReadFrom, Start, stream_part
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, frame_size
from aioproducer.wire.schema import Struct
from cli.checkup_places import examined

STEP_S = 1.0


def emptied(message: Any, depth: int) -> None:
    """Empty the arrays of a message that are `depth` arrays deep."""
    for field in fields(message):
        value = getattr(message, field.name)
        if not isinstance(value, list):
            continue
        if depth == 0:
            setattr(message, field.name, [])
        else:
            for each in value:
                if isinstance(each, Struct):
                    emptied(each, depth - 1)


@asynccontextmanager
async def broker(api: ApiKey, depth: int) -> AsyncIterator[str]:
    """An embedded broker whose answers to one kind of request have empty arrays."""

    async def relay(peer: Peer) -> None:
        reader, writer = await asyncio.open_connection(*real)
        try:
            while True:
                prefix = await peer.reader.readexactly(4)
                frame = await peer.reader.readexactly(frame_size(prefix))
                header = decode_request_header(frame)
                writer.write(prefix + frame)
                size = await reader.readexactly(4)
                answer = await reader.readexactly(frame_size(size))
                if header.api_key == api:
                    number, message = decode_response(
                        REQUEST_TYPES[api], header.api_version, answer
                    )
                    emptied(message, depth)
                    peer.raw(encode_response(message, header.api_version, number))
                else:
                    peer.raw(size + answer)
        finally:
            writer.close()

    async with EmbeddedCluster(1, topics={"t": TopicSpec(1, 1)}) as cluster:
        host, _, port = cluster.bootstrap_servers.partition(":")
        real = (host, int(port))
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"a record")
        async with HostileServer(relay) as server:
            cluster.state.set_broker_address(1, server.host, server.port)
            yield f"{server.host}:{server.port}"


async def doctor(servers: str) -> None:
    await examined(servers, "t", step_s=STEP_S, total_s=5 * STEP_S, transactional_id="x")


async def written(servers: str) -> None:
    await examined(servers, "t", write=True, step_s=STEP_S, total_s=5 * STEP_S)


async def topics(servers: str) -> None:
    opener = link_opener(ProducerConfig(bootstrap_servers=servers))
    bounds: Any = {"timeout_s": STEP_S, "open_link": opener}
    await list_topics(servers, timeout_s=STEP_S)
    await create_topic(servers, "new", 1, 1, **bounds)
    await delete_topic(servers, "new", **bounds)


async def reading(servers: str) -> None:
    await read_topic(servers, "t", timeout_s=STEP_S)


async def reading_by_time(servers: str) -> None:
    start = ReadFrom(Start.TIME, 0)
    async with aclosing(stream_part(servers, "t", read_from=start, timeout_s=STEP_S)) as batches:
        async for _ in batches:
            pass


async def transactions(servers: str) -> None:
    async with TransactionAdmin(
        bootstrap_servers=servers, request_timeout_ms=1000, max_block_ms=1000
    ) as admin:
        await admin.describe("x")
        await admin.open_transactions()
        await admin.committed_offsets("g", [TopicPartition("t", 0)])


ACTS: dict[str, tuple[Callable[[str], Awaitable[None]], tuple[ApiKey, ...]]] = {
    "doctor": (
        doctor,
        (
            ApiKey.METADATA,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.LIST_OFFSETS,
            ApiKey.FIND_COORDINATOR,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.API_VERSIONS,
        ),
    ),
    "doctor that writes": (written, (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.FETCH)),
    "topics": (topics, (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS)),
    "reading": (reading, (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH)),
    "reading by time": (reading_by_time, (ApiKey.METADATA, ApiKey.LIST_OFFSETS)),
    "transactions": (
        transactions,
        (
            ApiKey.METADATA,
            ApiKey.FIND_COORDINATOR,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
            ApiKey.OFFSET_FETCH,
        ),
    ),
}


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    ("act", "api"), [(name, api) for name, (_, apis) in ACTS.items() for api in apis]
)
async def test_empty_arrays_end_in_an_error_of_this_package_or_in_none(
    act: str, api: ApiKey, depth: int
) -> None:
    async with broker(api, depth) as servers:
        try:
            await ACTS[act][0](servers)
        except KafkaError as error:
            assert str(error)
