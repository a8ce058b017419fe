"""One attempt to connect: how the addresses of a broker share its time, and what is reported."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest
from unit.net.virtual import virtual_time

from aioproducer.errors import (
    ConnectionSetupTimeoutError,
    KafkaConnectionError,
    KafkaError,
    NameResolutionError,
    TlsError,
)
from aioproducer.net.dial.attempt import Streams, open_stream
from aioproducer.net.dial.dialer import Address, reason_of
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.types import Node

REFUSED = ConnectionRefusedError()


class Addresses:
    """A dialer whose addresses answer after these seconds (None: never), or raise."""

    def __init__(self, *answers: float | OSError | None) -> None:
        self.answers = answers
        self.tried: list[tuple[int, float]] = []
        self.name: str | None = None
        self.verified = ""
        self.limit = 0
        self.unresolved: OSError | None = None

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        if self.unresolved is not None:
            raise self.unresolved
        return [
            Address(f"10.0.0.{number}", port, canonical_name=self.name)
            for number in range(len(self.answers))
        ]

    async def connect(self, address: Address, *, server_hostname: str, limit: int) -> Any:
        self.verified, self.limit = server_hostname, limit
        number = int(address.host.rpartition(".")[2])
        self.tried.append((number, asyncio.get_running_loop().time() - 1000))
        answer = self.answers[number]
        if isinstance(answer, OSError):
            raise answer
        await asyncio.sleep(1e6 if answer is None else answer)
        return object(), object()


async def attempted(
    dialer: Any,
    unproven: Address | None = None,
    host: str = "kafka.example",
    tried: list[Address] | None = None,
) -> Address:
    """The address that accepts, within 30 s."""
    opened: list[Streams] = []
    address = await open_stream(
        dialer,
        Node(1, host, 9092),
        canonical=False,
        timeout_s=30,
        loop_time=asyncio.get_running_loop().time,
        opened=opened,
        tried=[] if tried is None else tried,
        unproven=unproven,
    )
    assert len(opened) == 1
    return address


@virtual_time
async def test_every_address_has_an_equal_share_of_the_time() -> None:
    dialer = Addresses(None, None, None)
    with pytest.raises(ConnectionSetupTimeoutError, match="no answer in time") as caught:
        await attempted(dialer)
    assert dialer.tried == [(0, 0), (1, 10), (2, 20)]
    assert caught.value.elapsed_ms == 30_000


@virtual_time
async def test_the_time_that_an_address_leaves_is_for_the_others() -> None:
    dialer = Addresses(REFUSED, None, 14)
    assert (await attempted(dialer)).host == "10.0.0.2"
    assert dialer.tried == [(0, 0), (1, 0), (2, 15)]


@virtual_time
async def test_slow_addresses_of_a_name_with_many_have_a_quarter_of_the_time_each() -> None:
    dialer = Addresses(*[None] * 3, *[5.0] * 27)
    assert (await attempted(dialer)).host == "10.0.0.3"
    assert dialer.tried == [(0, 0), (1, 7.5), (2, 15), (3, 22.5)]


@virtual_time
async def test_attempt_begins_after_the_last_address_of_the_attempt_before() -> None:
    dialer = Addresses(*[None] * 5, 1)
    tried: list[Address] = []
    with pytest.raises(ConnectionSetupTimeoutError):
        await attempted(dialer, tried=tried)
    assert [number for number, _ in dialer.tried] == [0, 1, 2, 3]
    assert (await attempted(dialer, tried[-1])).host == "10.0.0.5"
    assert [number for number, _ in dialer.tried[4:]] == [4, 5]


@virtual_time
async def test_the_address_that_failed_last_time_is_tried_last() -> None:
    dialer = Addresses(REFUSED, 1, REFUSED, REFUSED)
    assert (await attempted(dialer, Address("10.0.0.1", 9092))).host == "10.0.0.1"
    assert [number for number, _ in dialer.tried] == [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "the name has no address"), (4, "0.3:9092: connection refused"), (6, "and 2 more")],
)
def test_the_failures_of_a_few_addresses_are_named(count: int, words: str) -> None:
    with pytest.raises(KafkaError, match=f"kafka.example:9092 .*{words}\\)") as caught:
        asyncio.run(attempted(Addresses(*[REFUSED] * count)))
    assert type(caught.value) is (KafkaConnectionError if count else NameResolutionError)
    assert str(caught.value).count("connection refused") == min(count, 4)


def test_an_address_of_ipv6_is_reported_in_brackets() -> None:
    with pytest.raises(KafkaConnectionError, match=r"cannot connect to \[2001:db8::1\]:9092 "):
        asyncio.run(attempted(Addresses(REFUSED), host="2001:db8::1"))


def test_the_reason_is_that_of_the_system_where_asyncio_names_the_address() -> None:
    error = OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 9092)")
    assert reason_of(error) == os.strerror(errno.EHOSTUNREACH)


def test_a_name_that_cannot_be_resolved_is_reported() -> None:
    dialer = Addresses(1)
    dialer.unresolved = OSError("no such host")
    with pytest.raises(NameResolutionError, match="name resolution: no such host") as caught:
        asyncio.run(attempted(dialer))
    assert caught.value.__cause__ is dialer.unresolved


def test_the_last_failure_is_the_cause() -> None:
    errors = [OSError("one"), OSError(), OSError("three")]
    with pytest.raises(KafkaConnectionError, match=r"0\.0:9092: one; .*: OSError; .*: three") as it:
        asyncio.run(attempted(Addresses(*errors)))
    assert it.value.__cause__ is errors[-1]


@pytest.mark.parametrize("name", [None, "one.example"])
def test_the_name_of_a_reverse_lookup_is_verified_if_there_is_one(name: str | None) -> None:
    dialer = Addresses(0)
    dialer.name = name
    asyncio.run(attempted(dialer))
    assert dialer.verified == (name or "kafka.example")
    assert dialer.limit == 64 * 1024


@virtual_time
async def test_the_last_refusal_is_reported_unless_an_address_did_not_answer() -> None:
    refusals = [RefusedDialError(TlsError(f"refusal {number}")) for number in range(3)]
    assert str(refusals[1]) == "refusal 1"
    with pytest.raises(TlsError, match="refusal 2") as caught:
        await attempted(Addresses(*refusals))
    assert (caught.value.node_id, caught.value.elapsed_ms) == (1, 0)
    with pytest.raises(ConnectionSetupTimeoutError):
        await attempted(Addresses(None, *refusals))
