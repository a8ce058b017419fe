"""The judge of the fault scenarios convicts, and the proxy follows its settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from aioproducer.testing.kafka.ports import free_ports
from aioproducer.types import Persistence
from support.faults.ledger import Ledger, LogEntry, judge
from support.faults.proxy import FaultyProxy, NetworkFault
from support.faults.runner import number_of, value_of
from support.waiting import until

PARTITIONS = 2
COUNT = 20


def acknowledged_ledger() -> Ledger:
    ledger = Ledger()
    for number in range(COUNT):
        ledger.offer(number)
        ledger.acknowledge(number, number % PARTITIONS, number // PARTITIONS)
    return ledger


def honest_log() -> list[LogEntry]:
    return [LogEntry(number % PARTITIONS, number // PARTITIONS, number) for number in range(COUNT)]


def without_one(log: list[LogEntry]) -> list[LogEntry]:
    """A hole, as a compacted or a lost record leaves it: the others keep their offsets."""
    return [entry for entry in log if entry.number != 7]


def with_a_copy(log: list[LogEntry]) -> list[LogEntry]:
    return [*log, LogEntry(1, COUNT, 7)]


def with_two_swapped(log: list[LogEntry]) -> list[LogEntry]:
    numbers = {4: 6, 6: 4}
    return [entry._replace(number=numbers.get(entry.number, entry.number)) for entry in log]


def test_an_honest_log_has_no_violations() -> None:
    verdict = judge(acknowledged_ledger(), honest_log())
    assert verdict.violations == {}
    assert (verdict.accepted, verdict.acknowledged, verdict.failed) == (COUNT, COUNT, 0)


@pytest.mark.parametrize(
    ("doctor", "violations"),
    [
        (without_one, {"lost": 1}),
        (with_a_copy, {"duplicated": 1}),
        (with_two_swapped, {"reordered": 1, "misplaced": 2}),
        (lambda log: [], {"lost": COUNT}),
    ],
)
def test_a_doctored_log_is_convicted(
    doctor: Callable[[list[LogEntry]], list[LogEntry]], violations: dict[str, int]
) -> None:
    assert judge(acknowledged_ledger(), doctor(honest_log())).violations == violations


def test_a_record_called_not_persisted_must_not_be_in_the_log() -> None:
    ledger = Ledger()
    for number in range(4):
        ledger.offer(number)
    ledger.fail(0, Persistence.NOT_PERSISTED, "expired")
    ledger.fail(1, Persistence.POSSIBLY_PERSISTED, "expired")
    ledger.fail(2, None, "a client that reports nothing")
    ledger.refuse(3, "buffer full")
    verdict = judge(ledger, [LogEntry(0, number, number) for number in range(4)])
    assert verdict.violations == {"wrongly not persisted": 2}
    assert (verdict.accepted, verdict.failed, verdict.refused) == (3, 3, 1)
    assert dict(verdict.reasons) == {
        "expired": 2,
        "a client that reports nothing": 1,
        "buffer full": 1,
    }


def test_what_a_client_says_as_it_is_closed_comes_too_late() -> None:
    ledger = Ledger()
    ledger.offer(0)
    ledger.seal()
    ledger.acknowledge(0, 0, 0)
    assert judge(ledger, [LogEntry(0, 0, 0)]).violations == {"unresolved": 1}


def test_what_was_deleted_on_purpose_is_not_lost_and_what_came_later_is() -> None:
    ledger = acknowledged_ledger()
    ledger.excuse_acknowledged()
    ledger.offer(COUNT)
    ledger.acknowledge(COUNT, 0, 0)
    verdict = judge(ledger, [])
    assert verdict.violations == {"lost": 1}
    assert verdict.deleted == COUNT


def test_a_second_outcome_is_a_violation() -> None:
    ledger = acknowledged_ledger()
    ledger.fail(3, None, "late")
    assert judge(ledger, honest_log()).violations == {"second outcome": 1}
    with pytest.raises(ValueError, match="record 3 was offered before"):
        ledger.offer(3)


def test_values_carry_their_number() -> None:
    assert len(value_of(123_456)) == 100
    assert number_of(value_of(123_456)) == 123_456
    with pytest.raises(ValueError, match="not one of our records"):
        number_of(b"something else")


# -- the proxy ------------------------------------------------------------------------------------


@pytest.fixture
async def heard() -> list[bytes]:
    """The bytes that reached the server through the proxy."""
    return []


@pytest.fixture
async def proxy(heard: list[bytes]) -> AsyncIterator[FaultyProxy]:
    """A proxy before a server that answers everything with the same bytes."""
    port, target = free_ports(2)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                heard.append(data)
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", target)
    proxy = FaultyProxy(port, target)
    await proxy.start()
    yield proxy
    await proxy.close()
    server.close()
    await server.wait_closed()


@contextlib.asynccontextmanager
async def connection(
    proxy: FaultyProxy,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_or_reset(reader: asyncio.StreamReader) -> bytes:
    """All bytes up to the end, which may be a reset."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := await reader.read(1000):
            received += data
    return received


@pytest.mark.parametrize(
    ("fault", "answer", "request_seen"),
    [
        (NetworkFault.DROP, b"", b""),
        (NetworkFault.TRUNCATE_REQUESTS, b"", b"dur"),
        (NetworkFault.TRUNCATE_ANSWERS, b"dur", b"during"),
        (NetworkFault.HALF_CLOSE, b"", b"during"),
    ],
)
async def test_the_proxy_ends_connections_as_set(
    proxy: FaultyProxy, heard: list[bytes], fault: NetworkFault, answer: bytes, request_seen: bytes
) -> None:
    async with connection(proxy) as (reader, writer):
        proxy.fault = fault
        writer.write(b"during")
        assert await read_or_reset(reader) == answer
    await until(lambda: b"".join(heard) == b"before" + request_seen)
    assert proxy.struck[fault] > 0


async def test_a_delay_changes_nothing_but_the_time(proxy: FaultyProxy) -> None:
    proxy.delay_s = 0.05
    async with connection(proxy) as (reader, writer):
        proxy.fault = NetworkFault.DELAY
        began = asyncio.get_running_loop().time()
        writer.write(b"during")
        assert await reader.readexactly(6) == b"during"
        assert asyncio.get_running_loop().time() - began >= 0.1


@pytest.mark.parametrize(
    ("fault", "request_seen"),
    [(NetworkFault.SWALLOW_ANSWERS, b"during"), (NetworkFault.BLACK_HOLE, b"")],
)
async def test_bytes_once_swallowed_leave_no_hole_in_the_stream(
    proxy: FaultyProxy, heard: list[bytes], fault: NetworkFault, request_seen: bytes
) -> None:
    async with connection(proxy) as (reader, writer):
        proxy.fault = fault
        writer.write(b"during")
        await until(lambda: proxy.struck[fault] > 0)
        proxy.fault = NetworkFault.NONE
        writer.write(b"after")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
    assert b"".join(heard).startswith(b"before" + request_seen)
    assert (b"after" in b"".join(heard)) == bool(request_seen)  # only one direction is dead


async def test_new_connections_work_after_the_fault(proxy: FaultyProxy) -> None:
    async with connection(proxy) as (reader, writer):
        proxy.fault = NetworkFault.DROP
        writer.write(b"during")
        assert await read_or_reset(reader) == b""
    proxy.fault = NetworkFault.NONE
    async with connection(proxy) as (reader, writer):
        writer.write(b"after")
        assert await reader.readexactly(5) == b"after"
