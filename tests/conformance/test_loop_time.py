"""No callback of ours holds the loop for long: 50 ms of thread CPU time under load.

On a slower machine it may take longer in proportion: a million additions take 35 ms elsewhere.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.testing.embedded import EmbeddedCluster

LIMIT_S = 0.05
ADDITIONS_S = 0.035

PROGRAM = """
import asyncio, asyncio.events, sys, time

def additions():
    started, total = time.thread_time(), 0
    for number in range(1_000_000):
        total += number
    return time.thread_time() - started

def limit():
    return LIMIT * max(1.0, slowness / ADDITIONS, additions() / ADDITIONS)

slowness = additions()
slowest = []
run = asyncio.events.Handle._run

def timed(handle):
    started = time.thread_time()
    try:
        run(handle)
    finally:
        spent = time.thread_time() - started
        if spent > LIMIT:
            slowest.append((spent, repr(handle)))

asyncio.events.Handle._run = timed

from aioproducer import Producer

async def mixed(producer):
    for number in range(30_000):
        await producer.send("wide", b"%d" % number * 20)
        if number % 100 == 0:
            await producer.send("narrow", b"%d" % number * 50_000)
    assert await producer.flush() == 0

async def keyed(producer):
    for number in range(60_000):
        await producer.send("wide", b"%d" % number * 2, key=b"%d" % number)
    assert await producer.flush() == 0

async def many(producer):
    result = await producer.send_many("narrow", (b"%d" % number * 4 for number in range(100_000)))
    assert result.delivered == 100_000

async def refused(producer):
    assert len((await producer.send_many("narrow", ["a str"] * 20_000)).failed) == 20_000

async def main(bootstrap, codec, batch_size, load):
    async with Producer(
        bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5, batch_size=batch_size,
    ) as producer:
        await producer.warm_up(["wide", "narrow"])
        slowest.clear()  # imports and compiling the messages happen once
        await asyncio.create_task(load(producer))  # in callbacks that begin under measurement

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), globals()[sys.argv[4]]))
most = limit()
for spent, handle in slowest:
    if spent > most:
        print(f"{spent * 1000:.0f} ms {handle}")
"""


@pytest.mark.parametrize(
    ("load", "codec", "batch_size"),
    [
        ("mixed", "none", 1_000_000),
        ("mixed", "gzip", 1_000_000),
        ("mixed", "zstd", 1_000_000),
        ("keyed", "none", 16_384),
        ("many", "none", 16_384),
        ("many", "none", 1_000_000),
        ("refused", "none", 16_384),
    ],
)
async def test_no_callback_takes_more_than_50_ms(load: str, codec: str, batch_size: int) -> None:
    async with EmbeddedCluster(topics={"wide": 1000, "narrow": 1}) as cluster:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"LIMIT, ADDITIONS = {LIMIT_S}, {ADDITIONS_S}\n{PROGRAM}",
            cluster.bootstrap_servers,
            codec,
            str(batch_size),
            load,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parent.parent.parent,
        )
        async with asyncio.timeout(90):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode() == ""


def test_the_measure_sees_a_slow_callback() -> None:
    head = PROGRAM.split("from aioproducer", maxsplit=1)[0]
    burn = (
        "async def main():\n"
        "    end = time.thread_time() + 2 * limit()\n"
        "    while time.thread_time() < end: pass\n"
        "asyncio.run(main())\nprint(len(slowest))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"LIMIT, ADDITIONS = {LIMIT_S}, {ADDITIONS_S}\n{head}\n{burn}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert int(done.stdout) >= 1
