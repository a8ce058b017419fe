"""A run counts what the server holds, not what the client says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import cast

import pytest

from aioproducer.errors import KafkaError
from bench.cells import CLIENTS, Cell, Client
from bench.clients import Job
from bench.compare import Run, WrongCountError, compare, figures, run_together
from bench.java_client import _between, _mark
from bench.servers import SERVERS, Server, sink

FOUND = {
    "records": 1_000,
    "warm_records": 100,
    "wall_s": 0.5,
    "cpu_s": 0.002,
    "life_cpu_s": 0.011,
    "peak_rss": 3 << 20,
    "idle_rss": 1 << 20,
}


def test_figures_are_per_record_that_arrived_after_the_warm_up() -> None:
    found = figures(FOUND | {"requests": 10}, 1_100)
    assert found["rate"] == 2_000
    assert found["cpu_us"] == pytest.approx(2.0)
    assert found["life_cpu_us"] == pytest.approx(10.0)
    assert found["peak_mib"] == 3
    assert found["records_per_request"] == 100


@pytest.mark.parametrize("arrived", [0, 100, 1_099, 1_101])
def test_a_run_whose_records_did_not_arrive_does_not_count(arrived: int) -> None:
    with pytest.raises(WrongCountError, match="were acknowledged"):
        figures(FOUND, arrived)


def test_tasks_that_stop_in_time_are_counted_by_what_arrived() -> None:
    assert figures(FOUND, 600, exact=False)["rate"] == 1_000


def test_latencies_become_percentiles_in_milliseconds() -> None:
    turn, stopped = [0.001] * 98 + [0.5, 1.0], [4.0] * 100
    found = figures(FOUND | {"latencies_s": [turn, turn, stopped]}, 1_100)
    assert (found["p50_ms"], found["p999_ms"]) == (1.0, 4_000.0)
    assert found["p99_ms"] == pytest.approx(1_000.0)  # the geometric mean of 500, 500 and 4,000
    assert found["p99_median_ms"] == 500.0


def test_the_cpu_clock_of_a_process_is_read_from_outside() -> None:
    first, second = _mark(os.getpid(), 10), _mark(os.getpid(), 30)
    between = _between([first, second])
    assert between["records"] == 20
    assert 0 < between["cpu_s"] < 10
    assert between["peak_rss"] >= between["idle_rss"] > 0


async def run(server: Server, cell: Cell, records: int) -> Run:
    (found,) = await run_together(server, [cell], records / cell.records)
    assert not isinstance(found, Exception), found
    return found


@pytest.mark.parametrize("mode", ["each", "dropped", "many", "tasks"])
async def test_the_sink_holds_what_our_client_sent(mode: str) -> None:
    async with sink() as server:
        found = await run(server, Cell("aioproducer", mode, server="sink"), 500)
        assert found["records"] == 500
        assert found["cpu_us"] > 0
        assert found["records_per_request"] > 1


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_the_sink_counts_foreign_clients_too(codec: str) -> None:
    pytest.importorskip("confluent_kafka")
    async with sink() as server:
        cell = Cell("confluent", "each", server="sink", codec=codec, keyed=True)
        assert (await run(server, cell, 500))["records"] == 500


@pytest.mark.slow
async def test_clients_that_take_turns_are_measured_one_at_a_time() -> None:
    cells = [
        Cell("aioproducer", "latency", server="sink", partitions=1),
        Cell("aioproducer-pure", "latency", server="sink", partitions=1),
    ]
    async with sink() as server:
        first, second = await run_together(server, cells, share=184 / cells[0].records)
    assert not isinstance(first, Exception)
    assert not isinstance(second, Exception)
    # 36 turns of five each, with a metronome's head start.
    assert first["records"] == second["records"] == 180
    assert 0 < first["p50_ms"] <= first["p99_ms"] < 1000 * first["wall_s"]
    assert 36 * 0.2 < first["wall_s"] < 20
    assert "records_per_request" not in first


@pytest.mark.slow
async def test_a_client_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cast("dict[str, Client]", CLIENTS), "none", Client("no_such_module", ()))
    cells = [
        Cell("none", "latency", server="sink", partitions=1),
        Cell("aioproducer", "latency", server="sink", partitions=1),
    ]
    async with sink() as server:
        failed, run = await run_together(server, cells, share=180 / cells[0].records)
    assert isinstance(failed, Exception)
    assert not isinstance(run, Exception)
    assert run["records"] == 180


async def test_topics_that_cannot_be_made_are_the_problem_of_the_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Server):
        @asynccontextmanager
        async def topics(self, count: int, partitions: int) -> AsyncIterator[list[str]]:
            raise KafkaError("no topic for you")
            yield []

    @asynccontextmanager
    async def broken() -> AsyncIterator[Server]:
        yield Broken("127.0.0.1:1", "broken")

    monkeypatch.setitem(cast("dict[str, object]", SERVERS), "kafka", broken)
    found = await compare([Cell("aioproducer", "each"), Cell("confluent", "each")], 1, 0.001)
    assert ["no topic for you" in entry["problem"] for entry in found["cells"].values()] == [
        True,
        True,
    ]


async def test_a_client_that_gets_no_more_requests_ends() -> None:
    async with sink() as server, server.topics(1, 1) as topics:
        job = Job(server.bootstrap, topics, 100, "none", keyed=False, tuning="common", linger_ms=0)
        given = {"module": "ours", "loop": "asyncio", "core": "pure", "mode": "latency"}
        given |= {"records": 4_000, "turns": 8, "job": asdict(job)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.client", json.dumps(given), stdin=PIPE, stdout=PIPE
        )
        assert process.stdin is not None
        process.stdin.close()
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode != 0
    assert b"turn" not in out
