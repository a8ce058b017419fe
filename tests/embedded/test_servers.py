"""Servers that fork and servers that are asked to end: no event that was accepted is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.programs import EXAMPLES
from support.servers import ServerProcess, server_process
from websockets.asyncio.client import connect

from aioproducer.testing import EmbeddedCluster, read_topic

ROOT = EXAMPLES.parent
EVENT = {"type": "clicked", "subject": "user-7", "data": {}}
APP = "examples.gateway.app:app"
GUNICORN = ["--workers", "2", "--worker-class", "uvicorn_worker.UvicornWorker", "--preload"]


@pytest.fixture
async def brokers() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"events": 6, "orders": 3}) as cluster:
        yield cluster


def environment(brokers: EmbeddedCluster, **others: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(EXAMPLES)])
    servers = {"AIOPRODUCER_BOOTSTRAP_SERVERS": brokers.bootstrap_servers}
    return {"PYTHONPATH": path, **servers, **others}


async def post(port: str, count: int) -> None:
    """Events that are answered before Kafka has acknowledged them."""
    url = f"http://127.0.0.1:{port}/events?wait=false"
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        answers = await asyncio.gather(*(client.post(url, json=EVENT) for _ in range(count)))
    assert {answer.status_code for answer in answers} == {202}


async def count(brokers: EmbeddedCluster, topic: str = "events") -> int:
    found = await read_topic(brokers.bootstrap_servers, topic)
    return sum(map(len, found.values()))


async def test_uvicorn_delivers_what_it_accepted_when_it_is_asked_to_end(
    brokers: EmbeddedCluster,
) -> None:
    arguments = [APP, "--port", "0"]
    async with server_process("uvicorn", arguments, environment(brokers)) as server:
        port = await server.hears(r"running on http://127\.0\.0\.1:(\d+)")
        brokers.faults.every("produce").is_answered_late(1_000)
        # A viewer has the page open meanwhile: that delays nothing.
        async with connect(f"ws://127.0.0.1:{port}/live/feed", proxy=None) as viewer:
            await post(port, 50)
            server.terminate()
            assert await server.ends() in (0, -signal.SIGTERM), server.said
            await viewer.wait_closed()
    assert await count(brokers) == 50


async def test_the_gateway_shows_itself_with_its_own_cluster() -> None:
    path = {"PYTHONPATH": str(ROOT)}
    arguments = ["--port", "0", "--rate", "100"]
    async with server_process("examples.gateway", arguments, path) as server:
        port = await server.hears(r"http://localhost:(\d+)/")
        async with connect(f"ws://127.0.0.1:{port}/live/feed", proxy=None) as viewer:
            async with asyncio.timeout(60):
                while json.loads(await viewer.recv())["records"]["acknowledged"] < 10:
                    pass
        server.terminate()
        assert await server.ends() in (0, -signal.SIGTERM), server.said


async def worker_pids(port: str, *, without: int = 0) -> set[int]:
    """Two processes that answer, other than one."""
    found: set[int] = set()
    async with asyncio.timeout(60):
        while len(found) < 2:
            try:
                async with connect(f"ws://127.0.0.1:{port}/live/feed", proxy=None) as viewer:
                    shown: dict[str, Any] = json.loads(await viewer.recv())
                    found |= {shown["process"]} - {without}
            except (OSError, EOFError):
                await asyncio.sleep(0.05)  # a process that has just been killed
    return found


async def test_gunicorns_processes_have_separate_producers_after_the_fork(
    brokers: EmbeddedCluster,
) -> None:
    pytest.importorskip("gunicorn")
    arguments = [APP, "--bind", "127.0.0.1:0", *GUNICORN]
    async with server_process("gunicorn", arguments, environment(brokers)) as server:
        port = await server.hears(r"Listening at: http://127\.0\.0\.1:(\d+)")
        first = await worker_pids(port)
        assert server.pid not in first
        await post(port, 40)
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        assert len(await worker_pids(port, without=killed) - first) == 1
        await post(port, 40)
        await terminated(server)
    # One that was killed may take with it what it had only accepted.
    assert 40 <= await count(brokers) <= 80


async def terminated(server: ServerProcess) -> None:
    server.terminate()
    assert await server.ends() == 0, server.said


@pytest.mark.slow
async def test_a_celery_workers_processes_publish(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    (tmp_path / "queue").mkdir()
    (tmp_path / "worker_on_files.py").write_text(
        "from celery_worker import app, publish\n"
        f"folder = {str(tmp_path / 'queue')!r}\n"
        "app.conf.broker_transport_options = {\n"
        "    'data_folder_in': folder, 'data_folder_out': folder, 'control_folder': folder,\n"
        "    'polling_interval': 0.05,\n"
        "}\n"
    )
    variables = environment(brokers, CELERY_BROKER_URL="filesystem://")
    variables["PYTHONPATH"] += os.pathsep + str(tmp_path)
    if os.geteuid() == 0:
        variables["C_FORCE_ROOT"] = "1"
    arguments = ["--app", "worker_on_files", "worker", "--concurrency", "2", "--pool", "prefork"]
    arguments += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    ask = "from worker_on_files import publish\nfor n in range(20): publish.delay({'n': n})\n"
    async with server_process("celery", arguments, variables) as server:
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ask), env={**os.environ, **variables}
        )
        assert await asking.wait() == 0
        async with asyncio.timeout(60):
            while server.said.count(" succeeded in ") < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await terminated(server)
    assert await count(brokers, "orders") == 20
