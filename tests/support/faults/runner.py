"""Runs one scenario with any clients side by side, and has the logs judged.

Owns: the load, the order of events, and the bounds of every wait. Not here: what the fault is.

Every client sends its own numbered records, at the same pace, to a separate topic, until it
has sent as many as wanted *and* the fault is over. Then each gets its delivery timeout, and some
time more, to bring every outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from support.clusters import unique_topic
from support.confluent import read_all_confluent
from support.faults.clients import ClientSettings, LoadClient
from support.faults.ground import PARTITIONS, FaultGround
from support.faults.ledger import Ledger, LogEntry, Verdict, judge
from support.faults.scenarios import Scenario, Situation
from support.waiting import until

VALUE_BYTES = 100
_TICK_S = 0.01
_TAIL_S = 3.0
"""Records are sent for so long at least after everything is well again."""
GRACE_S = 15.0
_CLOSE_TIMEOUT_S = 30.0
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Load:
    """The size and the pace of what is sent."""

    records: int
    per_second: int = 1_500
    request_timeout_ms: int = 5_000
    delivery_timeout_ms: int = 120_000


class _Run:
    """One client in one scenario."""

    def __init__(self, client: LoadClient, ledger: Ledger, topic: str) -> None:
        self.client = client
        self.ledger = ledger
        self.topic = topic
        self.seconds = 0.0
        self.retries: int | None = None

    async def send(self, load: Load, fault: asyncio.Task[None]) -> None:
        """Keep the pace until the records are sent and the fault is over."""
        started = time.monotonic()
        number = 0
        while number < load.records or not fault.done():
            due = (time.monotonic() - started) * load.per_second
            while number < due:
                await self.client.send(number, value_of(number), number % PARTITIONS)
                number += 1
            await asyncio.sleep(_TICK_S)

    async def wait_for_outcomes(self, timeout_s: float) -> None:
        """Wait for the last outcome."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: not self.ledger.pending, timeout_s=timeout_s)


def value_of(number: int) -> bytes:
    """The record: its number, filled up to 100 bytes."""
    return (b"%0*d" % (_DIGITS, number)).ljust(VALUE_BYTES, b".")


def number_of(value: bytes | None) -> int:
    """The number of a record that was read."""
    if value is None or len(value) != VALUE_BYTES:
        raise ValueError(f"not one of our records: {value!r}")
    return int(value[:_DIGITS])


async def run(
    scenario: Scenario, ground: FaultGround, clients: Sequence[type[LoadClient]], load: Load
) -> dict[str, Verdict]:
    """Let the clients live through the scenario; gives each one's verdict by its name."""
    runs = [await _begin(scenario, ground, client, load) for client in clients]
    situation = Situation(
        ground, {one.topic: one.ledger for one in runs}, load.request_timeout_ms / 1000
    )
    fault = asyncio.create_task(_disturb(scenario, situation))
    try:
        async with asyncio.TaskGroup() as group:
            for one in runs:
                group.create_task(_live_through(one, load, fault))
        await fault
    finally:
        fault.cancel()
        await asyncio.gather(fault, return_exceptions=True)
    await ground.wait_ready()
    return {one.client.name: await _verdict(ground, one) for one in runs}


async def _disturb(scenario: Scenario, situation: Situation) -> None:
    await scenario.fault(situation)
    await asyncio.sleep(_TAIL_S)


async def _begin(
    scenario: Scenario, ground: FaultGround, client: type[LoadClient], load: Load
) -> _Run:
    topic = unique_topic()
    await ground.create_topic(topic, scenario.min_insync)
    await ground.wait_in_sync(topic)
    proxied = scenario.through_proxy
    settings = ClientSettings(
        ground.proxied_bootstrap_servers if proxied else ground.bootstrap_servers,
        topic,
        load.request_timeout_ms,
        load.delivery_timeout_ms,
    )
    ledger = Ledger()
    return _Run(client(settings, ledger), ledger, topic)


async def _live_through(run: _Run, load: Load, fault: asyncio.Task[None]) -> None:
    """Start, send, wait, close; a client that hangs costs no more than its timeouts."""
    started = time.monotonic()
    timeout_s = load.delivery_timeout_ms / 1000 + GRACE_S
    await run.client.start()
    sending = asyncio.create_task(run.send(load, fault))
    try:
        await asyncio.wait({fault})
        # A client may still have records to send: the wait is for one that hangs in `send`.
        await asyncio.wait({sending}, timeout=timeout_s + load.records / load.per_second)
        if sending.done():
            await sending
        await run.wait_for_outcomes(timeout_s)
        run.seconds = time.monotonic() - started
        run.retries = run.client.retries()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        run.ledger.seal()
        await _close(run.client)


async def _close(client: LoadClient) -> None:
    # What it leaves unresolved is in the ledger already.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await client.close()


async def _verdict(ground: FaultGround, run: _Run) -> Verdict:
    read = await read_all_confluent(ground.bootstrap_servers, run.topic, "read_uncommitted")
    log = [LogEntry(r.partition, r.offset, number_of(r.value)) for r in read]
    verdict = judge(run.ledger, log, seconds=run.seconds, retries=run.retries)
    await ground.delete_topic(run.topic)
    return verdict
