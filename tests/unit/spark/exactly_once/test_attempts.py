"""Attempts: which ids they get, and which epochs they skip."""

from __future__ import annotations

import os
import pickle
import tracemalloc

import pytest

from aioproducer.errors import IllegalStateError
from aioproducer.spark.errors import CheckpointBehindError
from aioproducer.spark.exactly_once.attempts import AttemptNumbers, Plan
from aioproducer.spark.exactly_once.writes import prefix_for_checkpoint, prefix_for_job
from aioproducer.types import PreparedTransaction

DRIVER = PreparedTransaction("q-driver", 5, 0, 2)


def plan(decided: int | None = None, owner: str = "me") -> Plan:
    return Plan("q", DRIVER, decided, None if decided is None else owner)


def number(numbers: AttemptNumbers, epoch: int, decided: int | None, owner: str = "me") -> str:
    name = plan(decided, owner).attempt_id(epoch, owner, numbers)
    return name.split("-", 2)[2]


def test_an_epoch_uses_its_ids_once_and_those_of_its_parity_again() -> None:
    numbers = AttemptNumbers()
    assert [number(numbers, 0, None) for _ in range(3)] == ["0-0", "0-1", "0-2"]
    assert [number(numbers, 1, 0) for _ in range(2)] == ["1-0", "1-1"]
    assert [number(numbers, 2, 1) for _ in range(2)] == ["0-0", "0-1"]
    assert number(numbers, 3, 2) == "1-0"


def test_ids_are_not_used_again_while_their_end_may_have_to_be_repeated() -> None:
    numbers = AttemptNumbers()
    assert number(numbers, 3, 2) == "1-0"
    # Epoch 4 had no tasks and so no decision: the last one is that of epoch 3.
    assert number(numbers, 5, 3) == "1-1"
    # A new query with the same prefix: the last decision may be the old one's.
    assert number(numbers, 1, None, "you") == "1-2"
    assert number(numbers, 7, 6) == "1-3"


def test_an_attempt_at_an_epoch_that_is_over_gets_no_id() -> None:
    numbers = AttemptNumbers()
    number(numbers, 4, 3)
    with pytest.raises(IllegalStateError, match="epoch 2 is over"):
        number(numbers, 2, 1)


def test_a_process_keeps_the_numbers_of_few_jobs_and_uses_no_id_again() -> None:
    numbers = AttemptNumbers()
    prefixes = [f"job-{each}" for each in range(3000)]
    found = [Plan(each, DRIVER).attempt_id(0, "me", numbers) for each in prefixes * 2]
    assert len(set(found)) == len(found)
    tracemalloc.start()
    try:
        for each in range(20_000):
            Plan(f"other-{each}", DRIVER).attempt_id(0, "me", numbers)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_has_a_new_name() -> None:
    numbers = AttemptNumbers()
    mine = plan().attempt_id(0, "me", numbers)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, plan().attempt_id(0, "me", numbers).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert theirs.endswith("-0-0")
    assert theirs != mine


def test_only_the_last_epoch_of_the_same_owner_is_skipped() -> None:
    assert not plan().is_decided(0, "me")
    assert plan(4).is_decided(4, "me")
    assert not plan(4).is_decided(5, "me")
    assert not plan(4).is_decided(4, "another query that took over the prefix")
    with pytest.raises(
        CheckpointBehindError, match="epoch 3 is to be written, but epoch 4"
    ) as found:
        plan(4).is_decided(3, "me")
    assert pickle.loads(pickle.dumps(found.value)).epoch == 3


def test_a_decision_replaces_that_of_another_query_only() -> None:
    assert not plan().replaces_another("me")
    assert not plan(4).replaces_another("me")
    assert plan(4).replaces_another("a query with a new checkpoint")


def test_a_plan_pickles() -> None:
    assert pickle.loads(pickle.dumps(plan(4))) == plan(4)


def test_prefixes_are_the_same_at_every_start_and_differ_between_queries() -> None:
    same = ["/c/1", "/c/1/", "//c/1", "file:/c/1", "file:///c/1"]
    assert len({prefix_for_checkpoint(each) for each in same}) == 1
    assert prefix_for_checkpoint("/c//1") == prefix_for_checkpoint("/c/1")
    assert prefix_for_checkpoint("s3a://c//1//") == prefix_for_checkpoint("s3a://c/1")
    assert prefix_for_checkpoint("hdfs:///c") != prefix_for_checkpoint("hdfs://c")
    found = {prefix_for_checkpoint("s3a://c/1"), prefix_for_checkpoint("c/1")}
    found |= {
        prefix_for_checkpoint("/c/1"),
        prefix_for_checkpoint("/c/2"),
        prefix_for_job("1", "t"),
    }
    found |= {prefix_for_job("2", "t"), prefix_for_job("1", "t", "daily")}
    found |= {prefix_for_job("1", "u"), prefix_for_job("1", None)}
    assert len(found) == 9
