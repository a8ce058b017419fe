"""`aioproducer load --exactly-once`, killed at random points and started again.

AIOPRODUCER_TEST_KILLS=50   how often each load is killed (5)
AIOPRODUCER_TEST_SEED=7     when (any)
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.clusters import ClusterUnderTest
from support.confluent import read_all_confluent

from aioproducer.testing.reader import end_offsets

KILLS = int(os.environ.get("AIOPRODUCER_TEST_KILLS") or 5)
SEED = int(os.environ.get("AIOPRODUCER_TEST_SEED") or random.randrange(2**32))
ROWS_PER_KILL = 1500
TOO_LONG = 5_000
ENDED = {0, 1}
"""Exit codes of a load that came to its end, without and with refused rows."""
_START_S = 120.0

Load = subprocess.Popen[str]

pytestmark = pytest.mark.timeout(120 + KILLS * 30)


@contextmanager
def load(cluster: ClusterUnderTest, topic: str, file: Path, *options: str) -> Iterator[Load]:
    command = [sys.executable, "-m", "aioproducer", "load", str(file), "--topic", topic]
    # Few at a time, so that no machine is so fast that the load is over before it is killed.
    command += ["--max-outstanding", "100"]
    command += ["--format", "lines", "--raw", "--quiet", "-b", cluster.bootstrap_servers, *options]
    with subprocess.Popen(
        command, cwd=file.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def killed_again_and_again(
    cluster: ClusterUnderTest, file: Path, most: int, *options: str, at_start: float = 0.2
) -> tuple[str, int]:
    """The topic of a load that came to its end at last, and how often it had to be killed."""
    topic = await cluster.create_topic(3)
    rng, kills = random.Random(SEED), 0
    while kills < most:
        with load(cluster, topic, file, *options) as process:
            if await ended_before(cluster, topic, process, rng, at_start):
                break
        kills += 1
    with load(cluster, topic, file, *options) as process:
        output, _ = await asyncio.to_thread(process.communicate, timeout=_START_S)
        assert process.returncode in ENDED, output
    return topic, kills


async def ended_before(
    cluster: ClusterUnderTest, topic: str, process: Load, rng: random.Random, at_start: float
) -> bool:
    """Waits for a random moment of the load, or its end."""
    if rng.random() < at_start:
        await asyncio.sleep(rng.uniform(0, 2))
    else:
        enough = await records_in(cluster, topic) + rng.randrange(1, ROWS_PER_KILL)
        async with asyncio.timeout(_START_S):
            while process.poll() is None and await records_in(cluster, topic) < enough:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        await asyncio.sleep(rng.random() * 0.02)
    assert process.poll() in {None, *ENDED}
    return process.returncode is not None


async def records_in(cluster: ClusterUnderTest, topic: str) -> int:
    ends = await end_offsets(cluster.bootstrap_servers, topic)
    return sum(ends.values())


async def values_by_partition(cluster: ClusterUnderTest, topic: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for record in await read_all_confluent(cluster.bootstrap_servers, topic):
        found.setdefault(record.partition, []).append(record.value or b"")
    return found


def rows_of(file: Path) -> tuple[list[bytes], list[bytes]]:
    """Those that Kafka takes, and the others."""
    rows = file.read_bytes().split()
    return [row for row in rows if len(row) < TOO_LONG], [
        row for row in rows if len(row) >= TOO_LONG
    ]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    rng = random.Random(SEED)
    file = tmp_path / "rows.txt"
    rows = (
        f"{number:08d}{'.' * (TOO_LONG if rng.random() < 0.004 else 80)}\n"
        for number in range(ROWS_PER_KILL * KILLS)
    )
    file.write_text("".join(rows), encoding="ascii")
    return file


@pytest.mark.slow
async def test_a_load_that_is_killed_again_and_again_is_there_exactly_once(
    cluster: ClusterUnderTest, lines: Path
) -> None:
    """Some rows are refused: they are reported once, and take nothing along."""
    options = ("--exactly-once", "--transaction-rows", "400", "--dead-letter", "dead.ndjson")
    options += ("-X", f"max.request.size={TOO_LONG}")
    topic, kills = await killed_again_and_again(cluster, lines, KILLS, *options)
    assert kills >= KILLS * 0.6, f"seed {SEED}: hardly ever killed"
    found = await values_by_partition(cluster, topic)
    wanted, refused = rows_of(lines)
    assert sorted(value for some in found.values() for value in some) == wanted, f"seed {SEED}"
    for values in found.values():
        assert values == sorted(values), f"seed {SEED}: not in the input's order"
    dead = [json.loads(line) for line in lines.with_name("dead.ndjson").read_text().splitlines()]
    assert [each["raw"].encode() for each in dead] == refused, f"seed {SEED}"


@pytest.mark.slow
async def test_without_it_the_same_kills_leave_duplicates(
    cluster: ClusterUnderTest, lines: Path
) -> None:
    options: tuple[str, ...] = ("--resume", "--state", "state.json", "--dead-letter", "dead.ndjson")
    options += ("-X", f"max.request.size={TOO_LONG}")
    topic, kills = await killed_again_and_again(cluster, lines, 2, *options, at_start=0)
    assert kills
    found = await values_by_partition(cluster, topic)
    counts = Counter(value for some in found.values() for value in some)
    assert set(counts) == set(rows_of(lines)[0])
    assert max(counts.values()) > 1, f"seed {SEED}: the kills prove nothing"
