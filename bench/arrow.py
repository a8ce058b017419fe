"""The cost of a record in `send_arrow` and `send_many`, as ratios to others in the same run.

    encode       rows of an Arrow column into open batches, partitions chosen, beside copying the
                 same bytes once and their CRC-32C: what any producer has to do
    end to end   client CPU of `send_arrow` and `send_many` beside confluent-kafka's `Producer`
                 without callbacks, all idempotent, acks=all, 5 ms, 128 KiB, no compression

Method: 100-byte values, 6 partitions. Each client runs in a fresh process and reports its own CPU
time, of all threads, start-up excluded; the embedded cluster runs in a separate process and its
end offsets are counted. Clients take turns; medians are reported. The machine decides the absolute
figures; the ratios are what counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from bench.machine import describe

ROUNDS = 5
RECORDS = 1_000_000
PARTITIONS = 6
_ENCODED = 100_000

_CLUSTER = f"""
import asyncio, sys
from aioproducer.testing.embedded import EmbeddedCluster

async def main():
    async with EmbeddedCluster(brokers=1, topics={{"bench": {PARTITIONS}}}) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""

_HEAD = """
import asyncio, json, time
N, BOOTSTRAP = {records}, {bootstrap!r}
VALUES = [b"%0100d" % number for number in range(N)]

def report(cpu, wall):
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({{"cpu_us": cpu / N * 1e6, "rate": N / wall}}))
"""

_OURS = """
from aioproducer import Producer
{prepare}
async def main():
    async with Producer(bootstrap_servers=BOOTSTRAP, linger_ms=5, batch_size=131072) as producer:
        await producer.warm_up(["bench"])
        await producer.{warm_up}
        cpu, wall = time.process_time(), time.perf_counter()
        result = await producer.{call}
        report(cpu, wall)
        assert result.delivered == N, result

asyncio.run(main())
"""

_CONFLUENT = """
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "enable.idempotence": True,
                     "linger.ms": 5, "batch.size": 131072})

def send_all(values):
    for value in values:
        while True:
            try:
                producer.produce("bench", value)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(60) == 0

send_all(VALUES[:1000])
cpu, wall = time.process_time(), time.perf_counter()
send_all(VALUES)
report(cpu, wall)
"""

_ARROW_TABLE = """
import pyarrow
TABLE = pyarrow.table({"value": pyarrow.array(VALUES, pyarrow.binary())})
del VALUES
"""

PROGRAMS = {
    "confluent Producer": _CONFLUENT,
    "send_arrow": _OURS.format(
        prepare=_ARROW_TABLE,
        warm_up='send_arrow("bench", TABLE.slice(0, 1000))',
        call='send_arrow("bench", TABLE)',
    ),
    "send_many": _OURS.format(
        prepare="",
        warm_up='send_many("bench", VALUES[:1000])',
        call='send_many("bench", VALUES)',
    ),
}
_WARM_UP = 1000


def _run(program: str, bootstrap: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _HEAD.format(records=RECORDS, bootstrap=bootstrap) + program],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _written(bootstrap: str) -> int:
    """Records in the topic, by its end offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition("bench", partition), timeout=10)
            for partition in range(PARTITIONS)
        ]
        return sum(high for _, high in ends)
    finally:
        consumer.close()


def _least(work: Callable[[], float]) -> float:
    return min(work() for _ in range(9)) / _ENCODED * 1e9


def encode() -> dict[str, tuple[float, float]]:
    """Native code alone, in this process; nanoseconds per record, and those of copy and CRC."""
    import pyarrow
    from crc32c import crc32c

    from aioproducer.records import RecordBatchBuilder
    from aioproducer.records.arrow import ArrowColumns, ArrowSource
    from aioproducer.records.bulk import OpenBatches, Share

    table = pyarrow.table(
        {
            "value": pyarrow.array([os.urandom(100) for _ in range(_ENCODED)], pyarrow.binary()),
            "key": pyarrow.array([b"key-%d" % number for number in range(_ENCODED)]),
        }
    )

    def encoded(columns: ArrowColumns) -> tuple[float, int]:
        chunk = ArrowSource(table, columns).next()
        batches = OpenBatches(PARTITIONS, hashes_keys=True)
        builders = [RecordBatchBuilder(bytearray(_ENCODED * 140)) for _ in range(PARTITIONS)]
        for partition, builder in enumerate(builders):
            batches.add_batch(partition, Share(builder))
        batches.stick(0, 1 << 60)
        assert chunk is not None
        chunk.topics(0, _ENCODED)
        begin = time.process_time()
        done = chunk.fill([batches], 0, _ENCODED, 0, 1_700_000_000_000, 1 << 20, 1 << 60)
        spent = time.process_time() - begin
        assert done == (_ENCODED, False)
        return spent, sum(builder.size for builder in builders)

    found = {}
    for name, columns in (
        ("value", ArrowColumns("value")),
        ("key and value", ArrowColumns("value", "key")),
    ):
        size = encoded(columns)[1]
        source, target = os.urandom(size), bytearray(size)

        def inevitable(source: bytes = source, target: bytearray = target) -> float:
            begin = time.process_time()
            target[:] = source
            crc32c(target)
            return time.process_time() - begin

        ours = _least(lambda columns=columns: encoded(columns)[0])  # type: ignore[misc]
        theirs = _least(inevitable)
        print(
            f"  encode {name:14} {ours:6.1f} ns per record ({1e3 / ours:5.1f} M/s)   "
            f"{ours / theirs:5.2f} x copy and CRC-32C ({theirs:.1f} ns)"
        )
        found[name] = (ours, theirs)
    return found


def end_to_end() -> None:
    """Run each client in a separate process."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in PROGRAMS}
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdout is not None
        bootstrap = cluster.stdout.readline().strip()
        expected = 0
        for _ in range(ROUNDS):
            for name, program in PROGRAMS.items():
                results[name].append(_run(program, bootstrap))
                expected += RECORDS + _WARM_UP
                assert _written(bootstrap) == expected, f"{name} wrote another number of records"
    reference = statistics.median(run["cpu_us"] for run in results["confluent Producer"])
    for name, runs in results.items():
        cpu = sorted(run["cpu_us"] for run in runs)
        rate = statistics.median(run["rate"] for run in runs)
        print(
            f"  {name:20} {statistics.median(cpu):6.3f} µs CPU per record "
            f"({cpu[0]:.3f} to {cpu[-1]:.3f})   {statistics.median(cpu) / reference:5.2f} x "
            f"confluent   {rate:10,.0f} records/s"
        )


def main() -> None:
    print(f"100-byte values, {describe()}")
    encode()
    print(f"end to end, {RECORDS:,} records, embedded cluster, median of {ROUNDS} rounds:")
    end_to_end()


if __name__ == "__main__":
    main()
