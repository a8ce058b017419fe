"""One attempt to reach a broker: resolve its name, try its addresses in turn, within one bound.

Owns: the sharing of the setup timeout among the addresses, and the error that says what was tried.
Must not know: Kafka, backoff, how often this was tried before.

Invariants: the name is resolved anew in every attempt; ends within `timeout_s`; an address that
swallows packets uses up an equal share of what is left and no more, so that all addresses are tried
in every attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aioproducer.errors import (
    ConnectionSetupTimeoutError,
    KafkaConnectionError,
    KafkaError,
    NameResolutionError,
    ProxyError,
)
from aioproducer.net.dial.dialer import Address, Dialer
from aioproducer.net.dial.proxies import ProxyFailedError
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.types import Node

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_T = TypeVar("_T")

READ_LIMIT = 64 * 1024
"""What a stream reader buffers before it pauses its transport; it may come to hold twice this."""

_ATTEMPTS_SHOWN = 4


async def open_stream(
    dialer: Dialer,
    node: Node,
    *,
    canonical: bool,
    timeout_s: float,
    loop_time: Callable[[], float],
    opened: list[Streams],
    doubtful: Address | None = None,
) -> Address:
    """The first address of the broker that accepts; an open stream to it is the last of `opened`.

    Of the addresses, tried in the resolver's order, those behind `doubtful` come first and it comes
    last: it accepted the last time and was of no use.

    Raises:
        ConnectionSetupTimeoutError: an address (or the resolver) did not answer in time.
        NameResolutionError: the name has no address.
        ProxyError: the proxy cannot be reached, or does not lead there.
        KafkaConnectionError: all addresses refused.
        TlsError: an address refused TLS, or we refused what it showed.
        ProxyAuthenticationError: the proxy wants other credentials.
    """
    started = loop_time()
    deadline = started + timeout_s
    failures: list[tuple[str, OSError]] = []
    addresses: list[Address] = []
    try:
        addresses = await _until(
            deadline, dialer.resolve(node.host, node.port, canonical=canonical)
        )
    except OSError as error:
        failures.append(("name resolution", error))
    if doubtful in addresses:
        first = addresses.index(doubtful) + 1
        addresses = addresses[first:] + addresses[:first]
    for position, address in enumerate(addresses):
        now = loop_time()
        share = (deadline - now) / (len(addresses) - position)
        name = address.canonical_name or node.host
        try:
            async with asyncio.timeout_at(now + share):
                # In one line: a stream is the caller's before an exception can come.
                opened.append(await dialer.connect(address, server_hostname=name, limit=READ_LIMIT))
        except OSError as error:
            failures.append((str(address), error))
        else:
            return address
    elapsed_ms = round((loop_time() - started) * 1000)
    raise _failure(node, failures, elapsed_ms, resolved=bool(addresses))


async def _until(when: float, work: Awaitable[_T]) -> _T:
    """The work's result, or TimeoutError (an OSError) once the loop's clock reaches `when`."""
    async with asyncio.timeout_at(when):
        return await work


def _failure(
    node: Node, failures: list[tuple[str, OSError]], elapsed_ms: int, *, resolved: bool
) -> KafkaError:
    timed_out = any(isinstance(error, TimeoutError) for _, error in failures)
    refused = [error.error for _, error in failures if isinstance(error, RefusedDialError)]
    if refused and not timed_out:
        return refused[-1].with_context(node_id=node.id, elapsed_ms=elapsed_ms)
    kind = KafkaConnectionError if resolved else NameResolutionError
    if timed_out:
        kind = ConnectionSetupTimeoutError
    elif any(isinstance(error, ProxyFailedError) for _, error in failures):
        kind = ProxyError
    reasons = [f"{what}: {_reason(error)}" for what, error in failures[:_ATTEMPTS_SHOWN]]
    if len(failures) > _ATTEMPTS_SHOWN:
        reasons.append(f"and {len(failures) - _ATTEMPTS_SHOWN} more")
    text = "; ".join(reasons) or "the name has no address"
    failure = kind(
        f"cannot connect to {node.host}:{node.port} ({text})",
        node_id=node.id,
        elapsed_ms=elapsed_ms,
    )
    failure.__cause__ = failures[-1][1] if failures else None
    return failure


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
