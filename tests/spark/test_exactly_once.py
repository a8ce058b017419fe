"""Exactly once under real Spark while tasks, workers and whole queries die.

    AIOPRODUCER_TEST_SPARK_FAULTS=20   so many times each, on real Kafka (`make cluster-spark`)

Without it one query loses its tasks and commits, and one is killed, on embedded brokers. What the
many came to is written down by `support.spark_faults.record`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.confluent import create_topic_confluent
from support.spark import EmbeddedKafka
from support.spark_cluster import standalone_cluster
from support.spark_faults.deaths import MOMENTS, PHASES
from support.spark_faults.query import FaultyQuery, Life
from support.spark_faults.record import judge

from aioproducer.testing.kafka import KafkaBackend

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

MOST_LIVES = 40
LONG_LIFE_S = 1800.0
REPEATS = int(os.environ.get("AIOPRODUCER_TEST_SPARK_FAULTS") or 0)
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
}
EXECUTORS = {"spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1"}
TWO_EXECUTORS = "local-cluster[2,2,1024]"
WITHIN_TASKS = ("before the write", "in the middle", "before the return")
TASK_DEATHS = [f"{way} {moment}" for way in ("raise", "kill") for moment in WITHIN_TASKS]
WITHOUT = ("at-least-once", "task-transactions")

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
        run_in(spark, query, moment=moment, how="raise")
    for _ in range(2):
        run_in(spark, query, task_share=1.0)
    assert sum(query.notes[death] for death in TASK_DEATHS) >= 2
    run_in(spark, query)
    assert set(MOMENTS) <= set(query.notes)
    assert query.files_done() == query.files
    assert query.wrong() == (0, 0)


def run_in(spark: Any, query: FaultyQuery, **faults: Any) -> None:
    named = {name.replace("_", "."): value for name, value in faults.items()}
    named |= {"batch": None, "notes": str(query.folder / "notes")}
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
    life = query.start(moment="half ended", batch=1)
    assert life.ended() < 0, life.text()
    assert query.notes["half ended"] == 1
    query.finish()
    assert query.wrong() == (0, 0)


# -- many times, on real Kafka ---------------------------------------------------------------------


@pytest.fixture
def query(kafka_cluster: KafkaBackend, tmp_path: Path) -> Iterator[MakeQuery]:
    """Makes queries to a topic of their own, on three real brokers."""
    made: list[FaultyQuery] = []

    def make(files: int, guarantee: str = "exactly-once") -> FaultyQuery:
        topic = f"spark-faults-{os.getpid()}-{time.monotonic_ns()}"
        servers = kafka_cluster.bootstrap_servers
        asyncio.run(create_topic_confluent(servers, topic, partitions=4, replication_factor=3))
        folder = tmp_path / topic
        folder.mkdir()
        options = {"delivery.guarantee": guarantee}
        made.append(FaultyQuery(folder, servers, topic, files, options=options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize("guarantee", ["exactly-once", *WITHOUT])
def test_tasks_fail_and_workers_are_killed_at_any_moment(
    query: MakeQuery, kafka_cluster: KafkaBackend, guarantee: str
) -> None:
    written = query(2 * REPEATS, guarantee)
    go_on_until_all_have_happened(written, TASK_DEATHS, task_share=0.6)
    found = judge("tasks fail and workers are killed", written, kafka_cluster.description)
    check(guarantee, *found)


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
def test_executors_are_killed_at_any_moment(query: MakeQuery, kafka_cluster: KafkaBackend) -> None:
    written, deaths = query(REPEATS), [f"executor {moment}" for moment in WITHIN_TASKS]
    go_on_until_all_have_happened(
        written,
        deaths,
        master=TWO_EXECUTORS,
        spark=EXECUTORS,
        task_share=0.3,
        task_ways=["executor"],
    )
    assert judge("executors are killed", written, kafka_cluster.description) == (0, 0)


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 60 * REPEATS)
def test_speculative_attempts_write_nothing_twice(
    query: MakeQuery, kafka_cluster: KafkaBackend, tmp_path: Path
) -> None:
    written = query(REPEATS)
    with standalone_cluster(tmp_path) as master:
        go_on_until_all_have_happened(
            written,
            ["another attempt"],
            master=master,
            partitions=4,
            spark=SPECULATION | {"spark.executor.memory": "512m"},
            task_slow=5.0,
        )
    assert judge("speculation", written, kafka_cluster.description) == (0, 0)


def go_on_until_all_have_happened(written: FaultyQuery, wanted: list[str], **faults: Any) -> None:
    """Lives, until each of these has happened so often."""
    for _ in range(MOST_LIVES):
        life = written.start(**faults)
        life.ended(LONG_LIFE_S)
        if written.files_done() == written.files:
            missing = REPEATS - min(written.notes[each] for each in wanted)
            if missing <= 0:
                return
            written.set_goal(written.files + 2 * missing)
    raise AssertionError(f"{written.notes}\n{life.text()}")


def check(guarantee: str, duplicates: int, losses: int) -> None:
    """Nothing is lost; nothing is there twice with exactly once, and something without."""
    assert losses == 0
    if guarantee in WITHOUT:
        assert duplicates > 0, "the deaths prove nothing"
    else:
        assert duplicates == 0


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize(
    ("moment", "guarantee"),
    [(each, "exactly-once") for each in (*MOMENTS, "any")] + [("ended", each) for each in WITHOUT],
)
def test_the_query_is_killed_and_started_with_another_parallelism(
    query: MakeQuery, kafka_cluster: KafkaBackend, moment: str, guarantee: str
) -> None:
    written = query(3 * REPEATS, guarantee)
    for _ in range(REPEATS):
        kill_once(written, moment)
    written.finish()
    check(guarantee, *judge(f"query killed: {moment}", written, kafka_cluster.description))


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
    life = written.start(moment=moment, batch=done + written.rng.randint(earliest, 2))
    assert life.ended() < 0, life.text()
    assert written.notes[moment] == before + 1


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
def test_a_second_driver_on_the_same_checkpoint_shuts_out_the_first(
    query: MakeQuery, kafka_cluster: KafkaBackend
) -> None:
    """Each second one, while it stands itself before its decision, is the next one's first."""
    written = query(2 * REPEATS + 3)

    def standing(behind: int) -> Life:
        batch = written.batches() + behind
        life = written.start(moment="before decision", batch=batch, how="pause")
        assert life.pauses(), life.text()
        return life

    first, shut_out = standing(0), 0
    for _ in range(REPEATS):
        second = standing(written.rng.randint(0, 2))
        first.go_on()
        assert first.ended() > 0, first.text()
        assert "another driver has taken over" in first.output.read_text(errors="replace")
        first, shut_out = second, shut_out + 1
    first.go_on()
    assert first.ended() == 0, first.text()
    more = {"first driver shut out": shut_out}
    assert judge("a second driver", written, kafka_cluster.description, **more) == (0, 0)


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize("phase", [*PHASES, "any"])
def test_brokers_are_killed_in_every_phase(
    query: MakeQuery, kafka_cluster: KafkaBackend, phase: str
) -> None:
    if not kafka_cluster.disturbable:
        pytest.skip("this cluster is not ours to disturb")
    written, deaths = query(2 * REPEATS), 0
    for _ in range(MOST_LIVES):
        if phase == "any":
            life = written.start(task_slow=0.3)
        else:
            life = written.start(moment=phase, how="pause")
        while is_at(life, phase, written.rng):
            kill_a_broker(kafka_cluster, life, written.rng)
            deaths += 1
        life.ended(LONG_LIFE_S)
        if written.files_done() == written.files:
            if deaths >= REPEATS:
                break
            written.set_goal(written.files + REPEATS)
    assert written.files_done() == written.files, life.text()
    assert deaths >= REPEATS
    more = {"broker killed": deaths}
    assert judge(f"broker killed: {phase}", written, kafka_cluster.description, **more) == (0, 0)


def is_at(life: Life, phase: str, rng: random.Random) -> bool:
    """Waits for the phase; False when the query has ended."""
    if phase != "any":
        return life.pauses()
    time.sleep(rng.uniform(0.5, 3))
    return life.process.poll() is None


def kill_a_broker(cluster: KafkaBackend, life: Life, rng: random.Random) -> None:
    """Any of them: before the query goes on or right behind that; and starts it again, in time."""
    node = rng.choice(cluster.node_ids)
    is_standing, goes_first = life.pause.exists(), rng.random() < 0.5
    if is_standing and goes_first:
        life.go_on()
        time.sleep(rng.uniform(0, 0.03))
    cluster.kill(node)
    if is_standing and not goes_first:
        life.go_on()
    time.sleep(rng.uniform(0, 3))
    cluster.start(node)
    cluster.wait_ready()
