"""Exactly once under real Spark while tasks, workers and whole queries die.

    AIOPRODUCER_TEST_SPARK_FAULTS=20   so many times each, on real Kafka (`make cluster-spark`)

Without it one query loses its tasks and commits, and some are killed in their commits, on embedded
brokers. What the many came to is written down by `support.spark_faults.record`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.confluent import create_topic_confluent, grow_topic_confluent
from support.spark import EmbeddedKafka
from support.spark_cluster import standalone_cluster
from support.spark_faults.deaths import DRIVER_MOMENTS, MOMENTS, PHASES, PLANNED
from support.spark_faults.query import FaultyQuery
from support.spark_faults.record import judge
from support.spark_faults.session import FaultySession, Life

from aioproducer.testing.kafka import KafkaBackend

pytestmark = pytest.mark.slow  # Spark starts

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

MOST_RUNS = 40
LONG_LIFE_S = 1800.0
REPEATS = int(os.environ.get("AIOPRODUCER_TEST_SPARK_FAULTS") or 0)
AT_ONCE = min(5, REPEATS)
"""Queries in a session: whatever hits it is a repetition for each of them."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}
EXECUTORS = {"spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1"}
THREE_EXECUTORS = "local-cluster[3,2,1024]"
WITHIN_TASKS = ("before the write", "in the middle", "before the return")
TASK_DEATHS = [f"{way} {moment}" for way in ("raise", "kill") for moment in WITHIN_TASKS]
EXACTLY_ONCE = "exactly-once"
HIT = "hit by the death of a broker"
WITHOUT = ("at-least-once", "task-transactions")

long = pytest.mark.skipif(not REPEATS, reason="takes long (make cluster-spark)")
MakeSession = Callable[..., FaultySession]


@pytest.mark.slow
def test_commits_that_fail_anywhere_and_tasks_that_die_lose_and_repeat_nothing(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    """In one session, whose queries fail at the first failure and are started again."""
    from support.spark_faults.source import FaultySource

    spark.dataSource.register(FaultySource)
    query = FaultyQuery(tmp_path, embedded.servers, embedded.topic(2), files=2, lines=60)
    for moment in MOMENTS:
        run_in(spark, query, moment=moment, how="raise")
    for files in (query.files + 1, query.files + 2):  # so that there is something left to write
        query.set_goal(files)
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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_queries_killed_in_their_commits_are_whole_in_the_end(
    embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    """All at once, each at another moment of it."""
    moment_of = {f"{number}": moment for number, moment in enumerate(MOMENTS)}
    queries = [
        FaultyQuery(tmp_path / name, embedded.servers, embedded.topic(2), files=2, lines=60)
        for name in moment_of
    ]
    with closing(FaultySession(tmp_path, queries)) as session:
        life = session.start(moment=lambda query: moment_of[query.folder.name], batch=0)
        assert life.wait_until_paused() == queries, life.text()
        life.kill()
        session.finish()
    assert set(MOMENTS) <= set(session.notes)
    assert session.wrong() == (0, 0)


# -- many times, on real Kafka ---------------------------------------------------------------------


@pytest.fixture
def session(kafka_cluster: KafkaBackend, tmp_path: Path) -> Iterator[MakeSession]:
    """Make queries of one session, each to a separate topic, on three real brokers."""
    made: list[FaultySession] = []

    def make(
        files: int,
        guarantee: str = EXACTLY_ONCE,
        at_once: int = AT_ONCE,
        *,
        by_driver: bool = False,
    ) -> FaultySession:
        servers, options = kafka_cluster.bootstrap_servers, {"delivery.guarantee": guarantee}
        queries = []
        for _ in range(at_once):
            topic = f"spark-faults-{os.getpid()}-{time.monotonic_ns()}"
            asyncio.run(create_topic_confluent(servers, topic, partitions=4, replication_factor=3))
            folder = tmp_path / topic
            query = FaultyQuery(folder, servers, topic, files, options=options, by_driver=by_driver)
            queries.append(query)
        made.append(FaultySession(tmp_path, queries))
        return made[-1]

    yield make
    for each in made:
        each.close()


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, *WITHOUT])
def test_tasks_fail_and_workers_are_killed_at_any_moment(
    session: MakeSession, kafka_cluster: KafkaBackend, guarantee: str
) -> None:
    written = session(files_for(3), guarantee)

    def deaths(notes: Counter[str]) -> int:
        return min(notes[each] for each in TASK_DEATHS)

    go_on_until_it_has_happened(written, deaths, task_share=0.6)
    found = judge("tasks fail and workers are killed", written, kafka_cluster.description)
    check(guarantee, *found)


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, "at-least-once"])
def test_executors_are_killed_at_any_moment(
    session: MakeSession, kafka_cluster: KafkaBackend, guarantee: str
) -> None:
    written = session(files_for(1) + 1, guarantee)

    def deaths(notes: Counter[str]) -> int:
        return sum(notes[f"executor {moment}"] for moment in WITHIN_TASKS)

    go_on_until_it_has_happened(
        written,
        deaths,
        master=THREE_EXECUTORS,
        spark=EXECUTORS,
        task_share=0.3,
        task_ways=["executor"],
    )
    check(guarantee, *judge("executors are killed", written, kafka_cluster.description))


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 60 * REPEATS)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, "at-least-once"])
def test_speculative_attempts_write_nothing_twice(
    session: MakeSession, kafka_cluster: KafkaBackend, tmp_path: Path, guarantee: str
) -> None:
    written = session(files_for(1) + 1, guarantee)

    def attempts(notes: Counter[str]) -> int:
        return notes["another attempt"]

    with standalone_cluster(tmp_path, cores=AT_ONCE + 1) as master:
        go_on_until_it_has_happened(
            written,
            attempts,
            master=master,
            partitions=4,
            spark=SPECULATION,
            task_slow=5.0,
        )
    check(guarantee, *judge("speculation", written, kafka_cluster.description))


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 60 * REPEATS)
def test_executors_come_and_go_as_spark_needs_them(
    session: MakeSession, kafka_cluster: KafkaBackend, tmp_path: Path
) -> None:
    """Spark ends executors that have idled for a second, while other tasks are slow."""
    written = session(files_for(1) + 1)
    with standalone_cluster(tmp_path, cores=2) as master:
        go_on_until_it_has_happened(
            written,
            lambda notes: notes["another executor"],
            master=master,
            partitions=3,
            spark=DYNAMIC,
            task_slow=2.0,
            executors=True,
        )
    assert judge("dynamic allocation", written, kafka_cluster.description) == (0, 0)


def files_for(each: int, at_once: int = AT_ONCE) -> int:
    """Return how many files a query has, when a session of so many needs so many per repetition."""
    return -(-each * REPEATS // at_once)


def go_on_until_it_has_happened(
    written: FaultySession, count: Callable[[Counter[str]], int], **faults: Any
) -> None:
    """Lives, until it has happened so often."""
    for _ in range(MOST_RUNS):
        life = written.start(**faults)
        life.ended(LONG_LIFE_S)
        if written.is_done():
            missing = REPEATS - count(written.notes)
            if missing <= 0:
                return
            written.set_goal(-(-2 * missing // AT_ONCE))
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
    [(each, EXACTLY_ONCE) for each in (*MOMENTS, "any")] + [("ended", each) for each in WITHOUT],
)
def test_queries_are_killed_and_started_with_another_parallelism(
    session: MakeSession, kafka_cluster: KafkaBackend, moment: str, guarantee: str
) -> None:
    """Also while their topics grow, whose partitions keep the decisions."""
    written = session(1, guarantee)
    while written.notes["killed"] < REPEATS:
        kill_at_any_moment(written) if moment == "any" else kill_at(moment, written)
        if written.rng.random() < 0.5:
            grow_topic(written.rng.choice(written.queries))
    written.finish()
    check(guarantee, *judge(f"query killed: {moment}", written, kafka_cluster.description))


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize(
    ("moment", "guarantee"),
    [(each, EXACTLY_ONCE) for each in (*DRIVER_MOMENTS, "any")] + [("ended", "at-least-once")],
)
def test_queries_whose_driver_writes_are_killed(
    session: MakeSession, kafka_cluster: KafkaBackend, moment: str, guarantee: str
) -> None:
    """At any moment: in some lives tasks write the batches that the driver has begun before."""
    written = session(1, guarantee, by_driver=True)
    while written.notes["killed"] < REPEATS:
        if moment == "any":
            kill_at_any_moment(written, by_tasks=written.rng.random() < 0.3)
        else:
            kill_at(moment, written)
    written.finish()
    found = judge(f"by the driver, killed: {moment}", written, kafka_cluster.description)
    check(guarantee, *found)


def kill_at(moment: str, written: FaultySession) -> None:
    """All pause at it, each in a different batch."""
    # A batch that was decided when the query died is skipped by its next life: no moment there.
    earliest = 1 if written.lives and moment in {"decided", "half ended"} else 0

    def batch(query: FaultyQuery) -> int:
        chosen = query.batches() + query.rng.randint(earliest, earliest + 1)
        query.set_goal(chosen + 2)  # one more after it
        return chosen

    life = written.start(moment=moment, batch=batch)
    assert life.wait_until_paused() == written.queries, life.text()
    life.kill()
    for query in written.queries:
        query.note("killed")


def kill_at_any_moment(written: FaultySession, **faults: Any) -> None:
    """It counts for those that have begun with a batch and are not done with all."""
    for query in written.queries:
        query.set_goal(query.files_done() + 3)
    life = written.start(moment="any", **faults)
    goal = written.notes[PLANNED] + written.rng.randint(1, 2 * AT_ONCE)
    while written.notes[PLANNED] < goal and life.process.poll() is None:
        time.sleep(0.05)
    time.sleep(written.rng.uniform(0, 0.5))
    hit = life.planning()
    life.kill()
    for query in hit:
        query.note("killed")


def grow_topic(query: FaultyQuery) -> None:
    query.note("topic grown")
    count = 4 + query.notes["topic grown"]
    asyncio.run(grow_topic_confluent(query.servers, query.topic, count))


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, "at-least-once"])
def test_a_second_driver_on_the_same_checkpoint_shuts_out_the_first(
    session: MakeSession, kafka_cluster: KafkaBackend, guarantee: str
) -> None:
    """Each second one, while it pauses before its decision, is the next one's first."""
    written = session(files_for(2) + 3, guarantee)
    # Without decisions it is Spark that stops the first, once a second has noted its batch.
    earliest = 0 if guarantee == EXACTLY_ONCE else 1

    def standing(earliest: int, latest: int) -> Life:
        def batch(query: FaultyQuery) -> int:
            return query.batches() + query.rng.randint(earliest, latest)

        life = written.start(moment="before decision", batch=batch)
        assert life.wait_until_paused() == written.queries, life.text()
        return life

    first, shut_out = standing(0, 0), 0
    while shut_out < REPEATS:
        second = standing(earliest, 2)
        for query in written.queries:
            time.sleep(written.rng.uniform(0, 0.1))
            first.go_on(query)
        assert first.ended() > 0, first.text()
        failures = first.failures()
        assert len(failures) == AT_ONCE
        if guarantee == EXACTLY_ONCE:
            assert all("another driver has taken over" in each for each in failures), failures
        first, shut_out = second, shut_out + AT_ONCE
    for query in written.queries:
        first.go_on(query)
    assert first.ended() == 0, first.text()
    more = {"first driver shut out": shut_out}
    check(guarantee, *judge("a second driver", written, kafka_cluster.description, **more))


@long
@pytest.mark.kafka
@pytest.mark.timeout(600 + 120 * REPEATS)
@pytest.mark.parametrize(
    ("phase", "by_driver"),
    [(each, False) for each in (*PHASES, "any")]
    + [(each, True) for each in (*DRIVER_MOMENTS, "any")],
)
def test_brokers_are_killed_in_every_phase(
    session: MakeSession, kafka_cluster: KafkaBackend, phase: str, by_driver: bool
) -> None:
    if not kafka_cluster.disturbable:
        pytest.skip("this cluster is not ours to disturb")
    faults: dict[str, Any] = {"moment": phase}
    at_once = min(4, REPEATS)
    if phase == "any":
        faults["task_slow"] = 1.0
    if phase == "writing":  # each query pauses in a task
        faults["master"] = f"local[{at_once + 1},4]"
    files = files_for(5 if phase == "any" else 1, at_once)
    written, deaths = session(files + 1, at_once=at_once, by_driver=by_driver), 0
    for _ in range(MOST_RUNS):
        life = written.start(**faults)
        while hit := those_at(life, phase, written.rng):
            kill_a_broker(kafka_cluster, life, hit, written.rng)
            deaths += 1
        life.ended(LONG_LIFE_S)
        if written.is_done():
            if written.notes[HIT] >= REPEATS:
                break
            written.set_goal(files)
    assert written.is_done(), life.text()
    assert written.notes[HIT] >= REPEATS
    more = {"broker killed": deaths}
    way = "by the driver, " if by_driver else ""
    found = judge(f"{way}broker killed: {phase}", written, kafka_cluster.description, **more)
    assert found == (0, 0)


def those_at(life: Life, phase: str, rng: random.Random) -> list[FaultyQuery]:
    """Waits for the phase; none when all have ended."""
    if phase != "any":
        return life.wait_until_paused()
    while not life.planning() and life.process.poll() is None:
        time.sleep(0.05)
    time.sleep(rng.uniform(0, 3))
    return life.planning() if life.process.poll() is None else []


def kill_a_broker(
    cluster: KafkaBackend, life: Life, hit: list[FaultyQuery], rng: random.Random
) -> None:
    """Any of them: before a query goes on or right after that; and starts it again, in time."""
    node = rng.choice(cluster.node_ids)
    standing = [query for query in hit if query.pause(life.name).exists()]
    first = [query for query in standing if rng.random() < 0.5]
    for query in first:
        life.go_on(query)
        time.sleep(rng.uniform(0, 0.03))
    cluster.kill(node)
    for query in hit:
        query.note(HIT)
        if query in standing and query not in first:
            life.go_on(query)
    time.sleep(rng.uniform(0, 3))
    cluster.start(node)
    cluster.wait_ready()
