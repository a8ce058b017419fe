"""The command line as users run it: a separate process against embedded brokers."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import sys
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic

BOUND_S = 30.0


@dataclass(frozen=True)
class Finished:
    code: int | None
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.out)
        return content


class Command:
    """`aioproducer ...`, running."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def says(self, text: str) -> str:
        """Waits for a line on standard error that contains the text."""
        assert self.process.stderr is not None
        seen = []
        async with asyncio.timeout(BOUND_S):
            while line := (await self.process.stderr.readline()).decode():
                seen.append(line)
                if text in line:
                    return line
        raise AssertionError(f"ended without saying {text!r}: {seen}")

    async def finished(self, data: bytes | None = None) -> Finished:
        async with asyncio.timeout(BOUND_S):
            out, err = await self.process.communicate(data)
        assert b"Traceback" not in err, err.decode()
        return Finished(self.process.returncode, (out or b"").decode(), err.decode())


@asynccontextmanager
async def command(
    *arguments: str | Path, cwd: Path | None = None, **given: Any
) -> AsyncIterator[Command]:
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioproducer", *map(str, arguments)),
        **(pipes | {"stderr": asyncio.subprocess.PIPE} | given),
        cwd=cwd,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run(*arguments: str | Path, data: bytes = b"", cwd: Path | None = None) -> Finished:
    async with command(*arguments, cwd=cwd) as running:
        return await running.finished(data)


@pytest.fixture
async def brokers() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        yield cluster


async def values_in(cluster: EmbeddedCluster, topic: str = "t") -> list[bytes | None]:
    found = await read_topic(cluster.bootstrap_servers, topic, timeout_s=BOUND_S)
    return [record.value for records in found.values() for record in records]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def records_in_logs(cluster: EmbeddedCluster, topic: str = "t") -> int:
    topic_state = cluster.state.topics[topic]
    return sum(partition.log.end_offset for partition in topic_state.partitions)


def csv_file(directory: Path, rows: int) -> Path:
    file = directory / "rows.csv"
    file.write_text("id,name\n" + "".join(f"{n},name{n}\n" for n in range(1, rows + 1)))
    return file


def bootstrap(cluster: EmbeddedCluster) -> tuple[str, str]:
    return "-b", cluster.bootstrap_servers


# -- load -----------------------------------------------------------------------------------------


async def test_load_reads_quotes_as_they_are_described(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    for name, quote, text in (("a", "'", "x\n'1,2'\n"), ("b", "", 'x\n6" pipe\n')):
        file = tmp_path / f"{name}.csv"
        file.write_text(text)
        given = ("load", file, "-t", "t", "--value", "x", "--quote", quote)
        assert (await run(*given, *bootstrap(brokers), cwd=tmp_path)).code == 0
    assert sorted(map(str, await values_in(brokers))) == ["b'1,2'", "b'6\" pipe'"]


async def test_load_puts_every_row_into_the_topic(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    archive = tmp_path / "rows.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.write(csv_file(tmp_path, 1000), "rows.csv")
    done = await run(
        *("load", archive, "-t", "t", "--key", "id+name", "--key-join", "/", "--json"),
        *bootstrap(brokers),
        cwd=tmp_path,
    )
    assert done.code == 0
    summary = done.json
    assert (summary["rows"], summary["acknowledged"], summary["failed"]) == (1000, 1000, 0)
    assert summary["complete"]
    assert summary["producer"]["batches"] >= 3
    found = await read_topic(brokers.bootstrap_servers, "t")
    records = [record for partition in found.values() for record in partition]
    assert {(record.key, record.value) for record in records} == {
        (f"{n}/name{n}".encode(), f'{{"id":"{n}","name":"name{n}"}}'.encode())
        for n in range(1, 1001)
    }
    assert not (tmp_path / "rows.zip.t.load-state.json").exists()


async def test_load_prints_a_table_for_people(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    done = await run("load", csv_file(tmp_path, 10), "-t", "t", *bootstrap(brokers), cwd=tmp_path)
    assert done.code == 0
    assert "rows.csv -> t" in done.out
    assert "acknowledged" in done.out


async def test_load_reads_gzipped_ndjson_from_standard_input(brokers: EmbeddedCluster) -> None:
    lines = b'{"k": "a", "at": "1970-01-01T00:00:01Z"}\n{"k": "b", "at": 2000}\n'
    done = await run(
        *("load", "-", "--format", "ndjson", "-t", "t", "--key", "k", "--timestamp", "at"),
        *("--header", "source=test", "--header-column", "k", "--quiet"),
        *bootstrap(brokers),
        data=gzip.compress(lines),
    )
    assert done.code == 0
    found = await read_topic(brokers.bootstrap_servers, "t")
    records = sorted(
        (record.timestamp_ms, record.key, tuple(record.headers))
        for partition in found.values()
        for record in partition
    )
    assert records == [
        (1000, b"a", (("source", b"test"), ("k", b"a"))),
        (2000, b"b", (("source", b"test"), ("k", b"b"))),
    ]


async def test_bad_rows_are_kept_with_their_reasons_and_the_code_says_so(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\nbroken\n3,4\n")
    dead = tmp_path / "dead.ndjson"
    done = await run(
        "load", file, "-t", "t", "--dead-letter", dead, "--json", *bootstrap(brokers), cwd=tmp_path
    )
    assert (done.code, done.json["rejected"], done.json["acknowledged"]) == (1, 1, 2)
    assert json.loads(dead.read_text())["reason"] == "1 fields where the header names 2"
    assert str(dead) in done.err


async def test_a_load_keeps_the_state_file_of_an_unfinished_load_of_another_file(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.csv").write_text("a,b\n1,2\nbroken\n")
    arguments = ("-t", "t", *bootstrap(brokers))
    assert (await run("load", "one/rows.csv", *arguments, cwd=tmp_path)).code == 1
    state = (tmp_path / "rows.csv.t.load-state.json").read_text()
    done = await run("load", "two/rows.csv", *arguments, cwd=tmp_path)
    assert done.code == 6
    assert "the position of an unfinished load, in one/rows.csv row 1" in done.err
    assert (tmp_path / "rows.csv.t.load-state.json").read_text() == state
    assert len(await values_in(brokers)) == 1


async def test_without_dead_letters_a_bad_row_ends_the_load_and_resume_goes_on_there(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\nbroken\n3,4\n")
    arguments = ("load", file, "-t", "t", *bootstrap(brokers))
    done = await run(*arguments, cwd=tmp_path)
    assert done.code == 1
    assert "row 2: 1 fields where the header names 2" in done.err
    assert "--resume" in done.err
    again = await run(*arguments, cwd=tmp_path)
    assert "starting over, though rows.csv.t.load-state.json has 1 rows" in again.err
    file.write_text("a,b\n1,2\n5,6\n3,4\n")
    done = await run(*arguments, "--resume", "--json", cwd=tmp_path)
    assert (done.code, done.json["rows"], done.json["all_runs"]["acknowledged"]) == (0, 2, 3)
    # The first row twice: that load was started over once.
    assert len(await values_in(brokers)) == 4
    done = await run(*arguments, "--resume", "--json", cwd=tmp_path)
    assert (done.code, done.json["rows"], done.json["complete"]) == (0, 0, True)


@pytest.mark.parametrize("way", [("--state", "s", "--resume"), ("--exactly-once",)])
async def test_a_changed_file_is_not_said_to_be_loaded(
    brokers: EmbeddedCluster, tmp_path: Path, way: tuple[str, ...]
) -> None:
    file = csv_file(tmp_path, 3)
    arguments = ("load", file, "--topic", "t", *way, *bootstrap(brokers))
    assert (await run(*arguments, cwd=tmp_path)).code == 0
    assert "it was loaded before" in (await run(*arguments, cwd=tmp_path)).err
    csv_file(tmp_path, 4)
    done = await run(*arguments, cwd=tmp_path)
    assert (done.code, "nothing is left to resume" in done.err) == (6, True)
    assert "it was loaded before" not in done.err
    assert ("-X transactional.id=NAME" in done.err) == (way == ("--exactly-once",))


async def test_a_file_that_holds_no_state_is_not_written_over(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = csv_file(tmp_path, 3)
    done = await run("load", file, "-t", "t", "--state", file, *bootstrap(brokers), cwd=tmp_path)
    assert done.code == 6
    assert "is not a state file of a load" in done.err
    assert file.read_text().startswith("id,name")


async def test_missing_file_is_said_at_once(tmp_path: Path) -> None:
    done = await run("load", "missing.csv", "-t", "t", cwd=tmp_path)
    assert (done.code, done.out) == (4, "")
    *_, last = done.err.splitlines()
    assert last == "aioproducer: cannot read missing.csv: no such file or directory"


async def test_damaged_file_ends_the_load_after_what_could_be_read(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv.gz"
    whole = gzip.compress(csv_file(tmp_path, 50_000).read_bytes())
    file.write_bytes(whole[: len(whole) // 2])
    done = await run("load", file, "-t", "t", "--json", *bootstrap(brokers), cwd=tmp_path)
    assert done.code == 4
    assert "damaged or cut off" in done.err
    assert done.json["acknowledged"] == done.json["sent"] == len(await values_in(brokers)) > 0


async def test_unreachable_cluster_is_said_within_seconds(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{held.getsockname()[1]}"
        done = await run("load", csv_file(tmp_path, 5), "-t", "t", "-b", server, cwd=tmp_path)
    assert done.code == 3
    assert f"cannot reach the cluster: {server}" in done.err
    assert len(done.err.splitlines()) <= 3


async def test_cluster_lost_on_the_way_ends_the_load_and_resume_completes_it(
    tmp_path: Path,
) -> None:
    rows = 60_000
    async with EmbeddedCluster(brokers=1, topics={"t": 3}) as cluster:
        arguments = (
            "load",
            csv_file(tmp_path, rows),
            "-t",
            "t",
            "--key",
            "id",
            "--quiet",
            "--json",
        )
        limits = ("-X", "delivery.timeout.ms=1500", "-X", "request.timeout.ms=1000")
        limits += ("-X", "max.block.ms=1500", "-X", "batch.size=2000", "-X", "linger.ms=0")
        async with command(*arguments, *limits, *bootstrap(cluster), cwd=tmp_path) as running:
            await until(lambda: records_in_logs(cluster) > 0)
            await cluster.stop_broker(1)
            done = await running.finished()
        assert done.code == 3
        assert "--resume" in done.err
        assert not done.json["complete"]
        await cluster.start_broker(1)
        again = await run(*arguments, *bootstrap(cluster), "--resume", cwd=tmp_path)
        assert again.code == 0
        assert again.json["all_runs"]["acknowledged"] == rows
        # At least once: nothing is missing, some may be there twice.
        assert len(set(await values_in(cluster))) == rows


# -- Ctrl-C and broken pipes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_first_signal_delivers_what_was_accepted_and_resume_goes_on(
    brokers: EmbeddedCluster, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    arguments = ("load", "rows.csv", "-t", "t", "--json", "--quiet", *bootstrap(brokers))
    # `nohup make test` ignores SIGHUP, and children inherit that.
    default = partial(signal.signal, number, signal.SIG_DFL)
    try:
        async with command(*arguments, cwd=tmp_path, preexec_fn=default) as running:
            os.write(writer, b"id\n" + b"".join(b"%d\n" % n for n in range(1, 101)) + b"half")
            await until(lambda: records_in_logs(brokers) == 100)
            running.signal(number)
            done = await running.finished()
    finally:
        os.close(writer)
    assert done.code == code
    assert "stopping" in done.err
    assert (done.json["acknowledged"], done.json["unknown"]) == (100, 0)
    pipe.unlink()
    pipe.write_text("id\n" + "".join(f"{n}\n" for n in range(1, 151)))
    again = await run(*arguments, "--resume", cwd=tmp_path)
    assert (again.code, again.json["rows"]) == (0, 50)
    assert sorted(await values_in(brokers)) == sorted(b'{"id":"%d"}' % n for n in range(1, 151))


async def test_sighup_is_ignored_under_nohup(brokers: EmbeddedCluster) -> None:
    ignored = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    arguments = ("produce", "-t", "t", *bootstrap(brokers))
    async with command(*arguments, preexec_fn=ignored) as running:
        await running.write(b"one\n")
        await until(lambda: records_in_logs(brokers) == 1)
        running.signal(signal.SIGHUP)
        await running.write(b"two\n")
        done = await running.finished(b"")
    assert done.code == 0
    assert "2 records acknowledged" in done.err


async def test_second_ctrl_c_aborts_at_once(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    arguments = ("load", "-", "-f", "lines", "-t", "t", *bootstrap(brokers))
    async with command(*arguments, cwd=tmp_path) as running:
        await running.write(b"one\n")
        await until(lambda: records_in_logs(brokers) == 1)
        for node_id in brokers.state.brokers:
            brokers.freeze_broker(node_id)
        await running.write(b"two\n")
        await asyncio.sleep(0.2)
        running.signal(signal.SIGINT)
        await running.says("stopping")
        running.signal(signal.SIGINT)
        async with asyncio.timeout(5):
            done = await running.finished()
        for node_id in brokers.state.brokers:
            brokers.thaw_broker(node_id)
    assert done.code == 130
    assert "1 record acknowledged, 0 failed, 1 with an unknown outcome" in done.err


async def test_ctrl_c_before_anything_was_sent_ends_at_once(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        file = csv_file(tmp_path, 5)
        async with command("load", file, "-t", "t", "-b", server, cwd=tmp_path) as running:
            connection, _ = await asyncio.get_running_loop().run_in_executor(None, silent.accept)
            running.signal(signal.SIGINT)
            async with asyncio.timeout(5):
                done = await running.finished()
            connection.close()
    assert done.code == 130
    assert "aborting" in done.err


async def test_closed_standard_output_loses_nothing(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    arguments = ("load", csv_file(tmp_path, 500), "-t", "t", *bootstrap(brokers))
    async with command(*arguments, cwd=tmp_path, stdout=writer) as running:
        os.close(writer)
        os.close(reader)
        done = await running.finished()
    assert done.code == 141
    assert "500 records acknowledged" in done.err
    assert "broken pipe" in done.err
    assert len(await values_in(brokers)) == 500


async def test_closed_standard_error_loses_nothing(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    arguments = ("load", csv_file(tmp_path, 500), "-t", "t", "--json", *bootstrap(brokers))
    async with command(*arguments, cwd=tmp_path, stderr=writer) as running:
        os.close(writer)
        os.close(reader)
        out, _ = await running.process.communicate()
    assert running.process.returncode == 0
    assert json.loads(out)["acknowledged"] == 500


async def test_killed_load_is_completed_by_resume(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    rows = 20_000
    file, state = csv_file(tmp_path, rows), tmp_path / "state.json"
    arguments = ("load", file, "-t", "t", "--state", state, "--quiet", "--json")
    slow = ("-X", "batch.size=500", "-X", "max.in.flight.requests.per.connection=1")
    async with command(*arguments, *slow, *bootstrap(brokers), cwd=tmp_path) as running:
        await until(lambda: records_in_logs(brokers) > 1000)
        running.process.kill()
        await running.process.communicate()
    done = await run(*arguments, "--resume", *bootstrap(brokers), cwd=tmp_path)
    assert done.code == 0
    assert done.json["all_runs"]["acknowledged"] == rows
    assert len(set(await values_in(brokers))) == rows


# -- produce, topics, perf, cluster ---------------------------------------------------------------


async def test_produce_sends_lines_with_keys_and_headers(brokers: EmbeddedCluster) -> None:
    done = await run(
        *("produce", "-t", "t", "--key-separator", "=", "--header", "h=1", *bootstrap(brokers)),
        data=b"a=1\nb=2=3\n=\n",
    )
    assert (done.code, done.out) == (0, "")
    assert done.err == "aioproducer: 3 records acknowledged, 0 failed\n"
    found = await read_topic(brokers.bootstrap_servers, "t")
    records = {(r.key, r.value, tuple(r.headers)) for each in found.values() for r in each}
    headers = (("h", b"1"),)
    assert records == {(b"a", b"1", headers), (b"b", b"2=3", headers), (b"", b"", headers)}


@pytest.mark.parametrize(
    ("arguments", "record"), [(("-K", ":"), (b"ada", None)), ((), (None, b"ada:"))]
)
async def test_produce_writes_null_for_the_text_that_means_it(
    brokers: EmbeddedCluster, arguments: tuple[str, ...], record: tuple[bytes | None, bytes | None]
) -> None:
    given = ("produce", "-t", "t", "--null", "", *arguments, *bootstrap(brokers))
    assert (await run(*given, data=b"ada:\n")).code == 0
    found = await read_topic(brokers.bootstrap_servers, "t")
    assert [(each.key, each.value) for part in found.values() for each in part] == [record]


async def test_produce_takes_lines_as_long_as_the_largest_request(
    brokers: EmbeddedCluster,
) -> None:
    limit = ("-X", "max.request.size=2000000", "-X", "compression.type=zstd")
    line = b"x" * 1_500_000
    assert (await run("produce", "-t", "t", *limit, *bootstrap(brokers), data=line)).code == 0
    assert await values_in(brokers) == [line]


async def test_produce_sends_a_line_as_soon_as_it_is_there(brokers: EmbeddedCluster) -> None:
    async with command("produce", "-t", "t", *bootstrap(brokers)) as running:
        for count in (1, 2, 3):
            await running.write(b"line\n")
            await until(lambda count=count: records_in_logs(brokers) == count)
        done = await running.finished(b"last without line feed")
    assert done.code == 0
    assert len(await values_in(brokers)) == 4


async def test_produce_stops_at_a_line_without_separator(brokers: EmbeddedCluster) -> None:
    done = await run(
        "produce", "-t", "t", "-K", ":", *bootstrap(brokers), data=b"a:1\nwrong\nb:2\n"
    )
    assert done.code == 1
    assert "- row 2: no key separator ':'" in done.err
    assert await values_in(brokers) == [b"1"]


async def test_produce_to_a_topic_that_may_not_exist_is_refused(brokers: EmbeddedCluster) -> None:
    done = await run("produce", "-t", "no/such topic", *bootstrap(brokers), data=b"x\n")
    assert done.code == 5
    assert "INVALID_TOPIC" in done.err


async def test_topics_are_created_listed_described_and_deleted(brokers: EmbeddedCluster) -> None:
    servers = bootstrap(brokers)
    done = await run("topics", "create", "new", "-p", "2", "-r", "3", "--json", *servers)
    assert (done.code, len(done.json["partitions"])) == (0, 2)
    done = await run("topics", "create", "new", *servers)
    assert done.code == 5
    assert "TOPIC_ALREADY_EXISTS" in done.err
    assert (await run("topics", "list", *servers)).out == "new\nt\n"
    done = await run("topics", "describe", "new", "--json", *servers)
    assert [each["partition"] for each in done.json["partitions"]] == [0, 1]
    assert all(len(each["replicas"]) == 3 for each in done.json["partitions"])
    assert "in_sync" in (await run("topics", "describe", "new", *servers)).out
    assert (await run("topics", "delete", "new", *servers)).code == 0
    assert (await run("topics", "delete", "new", *servers)).code == 5
    assert (await run("topics", "delete", "new", "--missing-ok", *servers)).code == 0
    assert (await run("topics", "describe", "new", *servers)).code == 5
    assert (await run("topics", "list", "--json", *servers)).json == {"topics": ["t"]}


async def test_perf_reports_rate_and_latencies(brokers: EmbeddedCluster) -> None:
    done = await run(*("perf", "-t", "t", "-n", "2000", "-s", "100", "--json", *bootstrap(brokers)))
    assert done.code == 0
    assert (done.json["acknowledged"], done.json["failed"]) == (2000, 0)
    latency = done.json["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert {len(value or b"") for value in await values_in(brokers)} == {100}


async def test_perf_keeps_to_the_wanted_throughput(brokers: EmbeddedCluster) -> None:
    done = await run(
        *("perf", "-t", "t", "-n", "300", "-s", "10", "--throughput", "600", "--json"),
        *bootstrap(brokers),
    )
    assert done.json["seconds"] >= 0.45


async def test_cluster_serves_until_ctrl_c() -> None:
    async with command(
        *("cluster", "--brokers", "2", "--port", "0", "--topic", "a:4:2", "--topic", "b", "--json")
    ) as cluster:
        assert cluster.process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            ready = json.loads(await cluster.process.stdout.readline())
        assert (ready["event"], ready["topics"]) == ("ready", ["a", "b"])
        servers = ready["bootstrap_servers"]
        assert len(servers.split(",")) == 2
        described = await run("topics", "describe", "a", "--json", "-b", servers)
        assert [len(each["replicas"]) for each in described.json["partitions"]] == [2] * 4
        assert (await run("produce", "-t", "b", "-b", servers, data=b"x\n")).code == 0
        cluster.signal(signal.SIGINT)
        finished = await cluster.finished()
    assert finished.code == 0


async def test_cluster_on_a_taken_port_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = await run("cluster", "--brokers", "1", "--port", port)
    assert done.code == 3
    assert "cannot start brokers" in done.err
    assert port in done.err
