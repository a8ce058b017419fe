"""Thousands of topics: constant work and bounded memory for each, nothing left of idle ones."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import many_topics

from aioproducer.testing import run_virtual

_PER_TOPIC = (
    "BuiltInPartitioner",
    "LiveTopic",
    "PartitionQueue",
    "TopicMetadata",
    "TopicStats",
    "TopicState",
    "_TopicState",
)


@pytest.fixture(scope="module", params=["native", "pure"])
def figures(request):
    """The output of `many_topics`, run in a separate process."""
    environment = os.environ | {
        "AIOPRODUCER_IMPL": request.param,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    program = [sys.executable, str(Path(many_topics.__file__))]
    result = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.slow
def test_a_new_topic_costs_as_many_instructions_however_many_are_known(figures):
    few, many = figures["few"]["instructions"], figures["many"]["instructions"]
    assert few > 1_000
    assert many < few * 1.2  # chance may take one attempt more


def test_a_new_topic_copies_nothing_of_those_that_are_known(figures):
    few, many = figures["few"]["peak_bytes"], figures["many"]["peak_bytes"]
    # A dict with 1,800 names more takes 70 KB more.
    assert many < few + 16_384


def test_there_is_one_cluster_and_one_description_of_each_topic(figures):
    assert figures["clusters"] == 1
    assert figures["descriptions"] == 1.0


def test_a_topic_keeps_at_most_8_kib(figures):
    assert 100 < figures["bytes_per_topic"] <= 8 * 1024


def test_nothing_is_kept_of_topics_that_are_idle_for_metadata_max_idle_ms():
    async def act(kafka) -> Counter[str]:
        def kept() -> Counter[str]:
            gc.collect()
            kinds = (type(each).__name__ for each in gc.get_objects())
            return Counter(kind for kind in kinds if kind in _PER_TOPIC) - before

        before: Counter[str] = Counter()
        before = kept()
        options = {"metadata_max_idle_ms": 5_000, "metadata_max_age_ms": 1_000}
        async with kafka.producer(**options) as producer:
            for number in range(20):
                # Both ways into a batch: alone in a request, and with others.
                await producer.send_and_wait(f"topic-{number}", b"x")
                await (await producer.send(f"topic-{number}", b"x"))
            in_use = kept()
            for _ in range(10):
                await asyncio.sleep(1)
                await producer.send_and_wait("topic-7", b"x")
            assert len(in_use) == len(_PER_TOPIC) - 1
            assert set(in_use.values()) == {20}
            return kept()

    left = run_virtual(act, topics={f"topic-{number}": 1 for number in range(20)})
    assert set(left.values()) == {1}
    assert len(left) == len(_PER_TOPIC) - 1
