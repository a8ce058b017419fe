"""Worker processes: they report, they end, and their death is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workers import WorkerError, worker

TIMEOUT_S = 60.0


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_worker_reports_and_ends_with_its_block() -> None:
    async with worker("cluster", "bench.embedded", brokers=1, topics={"t": 1}) as cluster:
        ready = await cluster.report("ready", TIMEOUT_S)
        assert ready["bootstrap_servers"].startswith("127.0.0.1:")
        assert 0 < cluster.rss() <= cluster.peak_rss()
        cluster.check()
    assert not runs(cluster.pid)
    with pytest.raises(WorkerError, match="exit code 0"):
        cluster.check()


async def test_waiting_for_a_dead_worker_raises() -> None:
    async with worker("cluster", "bench.embedded", brokers="none") as cluster:
        with pytest.raises(WorkerError, match="ended without 'ready'"):
            await cluster.report("ready", TIMEOUT_S)


async def test_a_frozen_worker_ends_all_the_same() -> None:
    async with worker("cluster", "bench.embedded", brokers=1, topics={}) as cluster:
        await cluster.report("ready", TIMEOUT_S)
        cluster.freeze()
        with pytest.raises(WorkerError, match="no 'more' within"):
            await cluster.report("more", 0.1)
    assert not runs(cluster.pid)
