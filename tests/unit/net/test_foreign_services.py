"""Another service at the address of a broker is named, and not asked again for a minute."""

from __future__ import annotations

import asyncio
from itertools import cycle

import pytest
from support import hostile
from support.hostile import Peer, service, unsteady

from aioproducer import Producer
from aioproducer.errors import BootstrapError, KafkaError, NotKafkaError, ProtocolError
from aioproducer.net.foreign_services import check_kafka
from aioproducer.testing import EmbeddedCluster
from aioproducer.testing.framing import encode_response
from aioproducer.wire.api_keys import ApiKey
from net.harness import Harness, harness
from net.virtual import MemoryDialer, virtual_time

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.2\r\n"


@pytest.mark.parametrize(
    ("says", "name"),
    [
        (HTTP, "an HTTP server"),
        (b"<html><body>400 Bad Request</body></html>", "an HTTP server"),
        (b"\0\0\x12\4\0\0\0\0\0" + bytes(8), "an HTTP/2 (gRPC) server"),
        (b"\0\0\0\4\0\0\0\0\0", "an HTTP/2 (gRPC) server"),
        (SSH, "an SSH server"),
        (b"220 mail\r\n", "mail"),
        (b"* OK IMAP4rev1 ready\r\n", "an IMAP server"),
        (b"INFO {}\r\n", "a NATS server"),
        (b"E\0\0\0\x8cSFATAL\0", "a PostgreSQL server"),
        (b"\x4a\0\0\0\x0a8.0.33\0", "a MySQL or MariaDB server"),
        (b"hello, who are you?\n", "a server with a text protocol"),
        (b"\r\nlogin: ", "a server with a text protocol"),
    ],
)
async def test_a_start_ends_at_once_where_another_service_answers(says: bytes, name: str) -> None:
    async with service(says) as address:
        with pytest.raises(BootstrapError) as caught:
            async with asyncio.timeout(3), Producer(bootstrap_servers=address):
                pass
    assert name in str(caught.value)
    assert "-> correct the host and port" in str(caught.value)


@pytest.mark.parametrize(
    "says",
    [
        b"\xde\xad\xbe\xef" * 8,
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x08" + b"\xca\xfe\xba\xbe" * 2,  # a size, and no answer to what was asked
    ],
)
async def test_a_start_ends_soon_where_bytes_come_that_no_broker_sends(says: bytes) -> None:
    async with service(says) as address, service(b"\xff" * 64) as other:
        for servers in (address, f"{address},{other}"):
            with pytest.raises(BootstrapError) as caught:
                async with asyncio.timeout(3), Producer(bootstrap_servers=servers):
                    pass
            assert "another binary protocol" in str(caught.value)
            assert "-> correct the host and port" in str(caught.value)


@pytest.mark.parametrize(
    "answers",
    [
        [None],  # as of a broker that restarts behind a balancer
        [b"\xff" * 8, b"\xff" * 8, None],  # not consistent
        [b"\0\0\0\x08"],  # the beginning of an answer
    ],
)
async def test_a_start_goes_on_where_a_broker_may_be_about_to_come(
    answers: list[bytes | None],
) -> None:
    async with unsteady(cycle(answers)) as address:
        with pytest.raises(BootstrapError, match="described the cluster in time"):
            async with Producer(
                bootstrap_servers=address, max_block_ms=1500, request_timeout_ms=300
            ):
                pass


async def noise(peer: Peer) -> None:
    await peer.request()
    peer.raw(b"\xff" * 8)
    await peer.until_closed()


async def connect_after_backoff(it: Harness) -> KafkaError | None:
    await asyncio.sleep(2)
    return await it.connect()


@virtual_time
async def test_three_answers_in_a_row_that_are_none_of_kafka_are_needed_to_be_sure() -> None:
    dialer = MemoryDialer({"broker": noise})
    async with harness(dialer) as it:
        for _ in range(2):
            assert isinstance(await connect_after_backoff(it), ProtocolError)
        dialer.servers.clear()
        assert not isinstance(await connect_after_backoff(it), ProtocolError)
        dialer.servers["broker"] = noise
        for _ in range(2):
            assert isinstance(await connect_after_backoff(it), ProtocolError)
        error = await connect_after_backoff(it)
        assert isinstance(error, NotKafkaError)
        assert "3 answers in a row were none of Kafka's" in str(error)


@pytest.mark.parametrize(
    ("behaviour", "is_foreign"),
    [
        (hostile.wrong_correlation_id, True),
        (hostile.oversize_length, True),
        (hostile.negative_length, True),
        (hostile.garbled_body, False),  # an answer to what was asked, although a bad one
        (hostile.closes_mid_response, False),
    ],
)
def test_bad_answers_of_a_broker_are_distinguished_from_those_of_another_service(
    behaviour: hostile.Behaviour, is_foreign: bool
) -> None:
    @virtual_time
    async def run() -> None:
        async with harness(MemoryDialer({"broker": behaviour})) as it:
            for _ in range(3):
                error = await connect_after_backoff(it)
            assert error is not None
            assert isinstance(error, NotKafkaError) is is_foreign

    run()


async def test_noise_at_one_address_among_others_does_no_harm() -> None:
    async with service(b"\xff" * 64) as address, EmbeddedCluster(1, topics={"t": 1}) as cluster:
        servers = [address, *cluster.bootstrap_servers.split(",")]
        async with Producer(bootstrap_servers=servers) as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == 0


async def test_one_wrong_address_among_others_does_no_harm() -> None:
    async with service(HTTP) as address, EmbeddedCluster(1, topics={"t": 1}) as cluster:
        servers = [address, *cluster.bootstrap_servers.split(",")]
        async with Producer(bootstrap_servers=servers) as producer:
            assert (await producer.send_and_wait("t", b"v")).offset == 0


@virtual_time
async def test_first_answer_of_a_broker_may_begin_as_http2() -> None:
    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        ranges = hostile.SANE_RANGES | dict.fromkeys(
            range(1000, 1072 - len(hostile.SANE_RANGES)), (0, 1)
        )
        answer = encode_response(
            hostile.versions_response(ranges), header.api_version, header.correlation_id
        )
        assert answer[:4] == b"\0\0\2\4"
        peer.raw(answer)
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": behave})) as it:
        assert await it.connect() is None


@pytest.mark.parametrize("size", [0x20, 0x7F])
def test_a_greeting_of_mysql_has_32_to_127_bytes(size: int) -> None:
    with pytest.raises(NotKafkaError, match="MySQL"):
        check_kafka(bytes([size, 0, 0, 0]))


@pytest.mark.parametrize(
    "prefix",
    [b"\x1f\0\0\0", b"\x80\0\0\0", b"\0\0\0\4", b"\0\0\1\0", b"\x05\xf5\xe1\x00", b"\x06\0\0\0"],
)
def test_the_size_of_a_frame_is_no_service(prefix: bytes) -> None:
    check_kafka(prefix)
