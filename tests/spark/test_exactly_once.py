"""Exactly once under real Spark while tasks, workers and whole queries die.

    AIOPRODUCER_TEST_SPARK_FAULTS=20   so many times each, on real Kafka (`make cluster-spark`)

Without it one query loses its tasks and commits, and one is killed, on embedded brokers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.confluent import create_topic_confluent
from support.spark import EmbeddedKafka
from support.spark_faults.deaths import MOMENTS
from support.spark_faults.query import FaultyQuery

from aioproducer.testing.kafka import KafkaBackend

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

MOST_LIVES = 40
REPEATS = int(os.environ.get("AIOPRODUCER_TEST_SPARK_FAULTS") or 0)
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
}

long = pytest.mark.skipif(not REPEATS, reason="takes long (make cluster-spark)")
MakeQuery = Callable[..., FaultyQuery]


def test_commits_that_fail_anywhere_and_tasks_that_die_lose_and_repeat_nothing(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    """In one session, whose queries fail at the first failure and are started again."""
    from support.spark_faults.source import FaultySource

    spark.dataSource.register(FaultySource)
    query = FaultyQuery(tmp_path, embedded.servers, embedded.topic(2), files=2, lines=60)
    for moment in MOMENTS:
        run_in(spark, query, driver_moment=moment, driver_batch=None, driver_raises=True)
    for _ in range(2):
        run_in(spark, query, task_share=1.0)
    assert query.notes["task"] >= 2
    run_in(spark, query)
    assert set(MOMENTS) <= set(query.notes)
    assert query.batches() == query.files
    assert query.wrong() == (0, 0)


def run_in(spark: Any, query: FaultyQuery, **faults: Any) -> None:
    named = {name.replace("_", "."): value for name, value in faults.items()}
    named["notes"] = str(query.folder / "notes")
    before = query.notes.total()
    running = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", "1")
        .load(str(query.folder / "input"))
        .repartition(random.randint(1, 3))
        .writeStream.format("faulty")
        .option("kafka.bootstrap.servers", query.servers)
        .option("topic", query.topic)
        .option("delivery.guarantee", "exactly-once")
        .option("faults", json.dumps(named))
        .option("checkpointLocation", str(query.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        running.awaitTermination(120)
    except Exception as error:
        assert query.notes.total() > before, error
    assert not running.isActive


def test_a_query_killed_in_the_middle_of_its_commit_is_whole_in_the_end(
    embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    query = FaultyQuery(tmp_path, embedded.servers, embedded.topic(2), files=2, lines=60)
    life = query.start(driver_moment="half ended", driver_batch=1)
    assert life.ended() < 0, life.text()
    assert query.notes["half ended"] == 1
    query.finish()
    assert query.wrong() == (0, 0)


# -- many times, on real Kafka ---------------------------------------------------------------------


@pytest.fixture
def query(kafka_cluster: KafkaBackend, tmp_path: Path) -> Iterator[MakeQuery]:
    """Makes queries to a topic of their own, on three real brokers."""
    made: list[FaultyQuery] = []

    def make(files: int, **options: str) -> FaultyQuery:
        topic = f"spark-faults-{os.getpid()}-{time.monotonic_ns()}"
        servers = kafka_cluster.bootstrap_servers
        asyncio.run(create_topic_confluent(servers, topic, partitions=4, replication_factor=3))
        folder = tmp_path / topic
        folder.mkdir()
        made.append(FaultyQuery(folder, servers, topic, files, options=options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@long
@pytest.mark.kafka
@pytest.mark.timeout(300 + 60 * REPEATS)
def test_tasks_fail_and_workers_are_killed_at_any_moment(query: MakeQuery) -> None:
    written = query(REPEATS)
    for _ in range(MOST_LIVES):
        life = written.start(task_share=0.4)
        life.ended()
        if written.batches() == written.files:
            if written.notes["task"] >= REPEATS:
                break
            written.set_goal(written.files + REPEATS)
    assert written.batches() == written.files, life.text()
    assert written.notes["task"] >= REPEATS
    assert written.wrong() == (0, 0)


@long
@pytest.mark.kafka
@pytest.mark.timeout(300 + 120 * REPEATS)
@pytest.mark.parametrize("moment", [*MOMENTS, "any"])
def test_the_query_is_killed_and_started_with_another_parallelism(
    query: MakeQuery, moment: str
) -> None:
    written = query(3 * REPEATS)
    for _ in range(REPEATS):
        kill_once(written, moment)
    written.finish()
    assert written.wrong() == (0, 0)


def kill_once(written: FaultyQuery, moment: str) -> None:
    done = written.batches()
    if moment == "any":
        life = written.start()
        written.wait_for_batch(life, done + written.rng.randint(0, 2))
        time.sleep(written.rng.uniform(0, 0.5))
        life.kill()
        return
    before = written.notes[moment]
    # A batch that was decided when the query died is skipped by its next life: no moment there.
    earliest = 1 if before and moment in {"decided", "half ended"} else 0
    batch = done + written.rng.randint(earliest, 2)
    life = written.start(driver_moment=moment, driver_batch=batch)
    assert life.ended() < 0, life.text()
    assert written.notes[moment] == before + 1


@long
@pytest.mark.kafka
@pytest.mark.timeout(300 + 120 * REPEATS)
def test_a_second_driver_on_the_same_checkpoint_shuts_out_the_first(query: MakeQuery) -> None:
    written = query(2)
    for number in range(REPEATS):
        written.set_goal(2 * number + 2)
        batch = written.batches() + written.rng.randint(0, 1)
        stalled = written.notes["stall"]
        first = written.start(driver_moment="stall", driver_batch=batch)
        deadline = time.monotonic() + 120
        while written.notes["stall"] == stalled:
            assert first.process.poll() is None, first.text()
            assert time.monotonic() < deadline, first.text()
            time.sleep(0.05)
        written.finish()
        (written.folder / "go on").touch()
        assert first.ended() != 0
        assert "another driver has taken over" in first.output.read_text(errors="replace")
        (written.folder / "go on").unlink()
    assert written.wrong() == (0, 0)


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 30 * REPEATS)
def test_speculative_attempts_write_nothing_twice(query: MakeQuery) -> None:
    written = query(REPEATS)
    life = written.start(master="local-cluster[2,2,1024]", spark=SPECULATION, task_slow=1.0)
    assert life.ended(600 + 30 * REPEATS) == 0, life.text()
    assert written.notes["slow"] >= REPEATS
    assert written.wrong() == (0, 0)


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 60 * REPEATS)
def test_brokers_are_killed_at_any_moment(query: MakeQuery, kafka_cluster: KafkaBackend) -> None:
    if not kafka_cluster.disturbable:
        pytest.skip("this cluster is not ours to disturb")
    written = query(3 * REPEATS)
    with dying_brokers(kafka_cluster) as deaths:
        for _ in range(MOST_LIVES):
            life = written.start(task_slow=0.3)
            life.ended()
            if written.batches() == written.files:
                break
    assert written.batches() == written.files, life.text()
    assert deaths
    assert written.wrong() == (0, 0)


@contextmanager
def dying_brokers(cluster: KafkaBackend) -> Iterator[list[int]]:
    """Kills one broker after the other, each for a while."""
    over, deaths = threading.Event(), list[int]()

    def work() -> None:
        while not over.wait(random.uniform(1, 6)):
            deaths.append(random.choice(cluster.node_ids))
            cluster.kill(deaths[-1])
            over.wait(random.uniform(1, 6))
            cluster.start(deaths[-1])
            cluster.wait_ready()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield deaths
    finally:
        over.set()
        thread.join()


@long
@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions"])
def test_without_it_the_same_deaths_leave_duplicates(query: MakeQuery, guarantee: str) -> None:
    written = query(4, **{"delivery.guarantee": guarantee})
    kill_once(written, "ended")
    written.finish()
    twice, missing = written.wrong()
    assert twice > 0, "the deaths prove nothing"
    assert missing == 0
