"""One attempt to connect to a broker: resolve its name and try its addresses in turn.

Invariants: the name is resolved in every attempt; the attempt ends within `timeout_s`; an address
that drops packets uses only an equal share of the remaining time, or a quarter of the whole if that
is longer. What is left of many addresses is for the next attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer._util.hosts import host_and_port
from aioproducer.errors import (
    ConnectionSetupTimeoutError,
    KafkaConnectionError,
    KafkaError,
    NameResolutionError,
    ProxyError,
)
from aioproducer.net.dial.dialer import Address, Dialer, reason_of
from aioproducer.net.dial.proxies import ProxyFailedError
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.types import Node

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

READ_LIMIT = 64 * 1024
"""Bytes that a stream reader buffers before it pauses its transport; it may hold twice as many."""

_ATTEMPTS_SHOWN = 4
_SMALLEST_SHARE = 1 / 4
"""A name may have dozens of addresses, and a distant or busy broker may need a second for TLS."""


async def open_stream(
    dialer: Dialer,
    node: Node,
    *,
    canonical: bool,
    timeout_s: float,
    loop_time: Callable[[], float],
    opened: list[Streams],
    tried: list[Address],
    unproven: Address | None = None,
) -> Address:
    """Return the first address that accepts; the open stream is appended to `opened`.

    Addresses are tried in the resolver's order, rotated so that `unproven` is last: it was the last
    one of the attempt before, which failed or whose connection failed without a response. Those
    that this attempt tries are appended to `tried`.
    """
    started = loop_time()
    deadline = started + timeout_s
    failures: list[tuple[str, OSError]] = []
    addresses: list[Address] = []
    try:
        async with asyncio.timeout_at(deadline):
            addresses = await dialer.resolve(node.host, node.port, canonical=canonical)
    except OSError as error:
        failures.append(("name resolution", error))
    if unproven in addresses:
        first = addresses.index(unproven) + 1
        addresses = addresses[first:] + addresses[:first]
    for position, address in enumerate(addresses):
        now = loop_time()
        if position and now >= deadline:
            break
        equal = (deadline - now) / (len(addresses) - position)
        ends_at = min(now + max(equal, timeout_s * _SMALLEST_SHARE), deadline)
        name = address.canonical_name or node.host
        tried.append(address)
        try:
            async with asyncio.timeout_at(ends_at):
                # In one line, so that no exception can leave a stream without an owner.
                opened.append(await dialer.connect(address, server_hostname=name, limit=READ_LIMIT))
        except OSError as error:
            failures.append((str(address), error))
        else:
            return address
    elapsed_ms = round((loop_time() - started) * 1000)
    raise _failure(node, failures, elapsed_ms, resolved=bool(addresses))


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
    reasons = [f"{what}: {reason_of(error)}" for what, error in failures[:_ATTEMPTS_SHOWN]]
    if len(failures) > _ATTEMPTS_SHOWN:
        reasons.append(f"and {len(failures) - _ATTEMPTS_SHOWN} more")
    text = "; ".join(reasons) or "the name has no address"
    failure = kind(
        f"cannot connect to {host_and_port(node.host, node.port)} ({text})",
        node_id=node.id,
        elapsed_ms=elapsed_ms,
    )
    failure.__cause__ = failures[-1][1] if failures else None
    return failure
