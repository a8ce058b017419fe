"""Well-formed answers with a wrong value: calls end by errors of this package, and work again.

AIOPRODUCER_TEST_ANSWERS=2000   so many seeds each, instead of 60
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial

import pytest
from support.changed_answers import ChangedAnswers

from aioproducer import Producer, TopicPartition
from aioproducer.errors import KafkaError, ProducerFailedError
from aioproducer.testing import TopicSpec, VirtualKafka, run_virtual

SEEDS = int(os.environ.get("AIOPRODUCER_TEST_ANSWERS") or 60)
TOPICS = {"t": TopicSpec(2, 3)}
WHILE_CHANGED_S = 20.0
UNTIL_WELL_S = 400.0
"""Longer than metadata, coordinators and a delivery's time limit live."""


async def play(kafka: VirtualKafka, seed: int, transactional_id: str | None) -> None:
    rng = random.Random(seed)
    answers = ChangedAnswers(kafka.world.cluster, rng)
    if is_early := rng.random() < 0.5:
        answers.begin(rng.choice((0.05, 0.1, 0.3)))
    producer = kafka.producer(transactional_id=transactional_id, metadata_max_age_ms=5_000)
    try:
        await producer.start()
    except KafkaError as error:
        assert is_early, error
        await producer.close()
        return
    answers.begin(rng.choice((0.05, 0.1, 0.3)))
    until = kafka.now + WHILE_CHANGED_S
    while kafka.now < until:
        try:
            await write(producer, transactional_id is not None)
        except ProducerFailedError as error:
            assert isinstance(error.__cause__, KafkaError), error
        except KafkaError:
            pass
        await asyncio.sleep(rng.uniform(0, 2))
    answers.end()
    for node in (1, 2, 3):  # the versions that a connection has agreed on hold for its life
        kafka.stop_broker(node)
        kafka.start_broker(node)
    producer.health()
    producer.statistics()
    await asyncio.sleep(UNTIL_WELL_S)
    if transactional_id is None:
        await write(producer, False)
    await producer.close()


async def write(producer: Producer, in_transaction: bool) -> None:
    if not in_transaction:
        await producer.send_and_wait("t", b"value")
        return
    async with producer.transaction() as transaction:
        await producer.send("t", b"value")
        await transaction.send_offsets({TopicPartition("t", 0): 1}, "group")


@pytest.mark.timeout(60 + SEEDS)
@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_calls_end_by_known_errors_and_records_arrive_once_answers_are_right(
    transactional_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(SEEDS):
        caplog.clear()
        play_once = partial(play, seed=seed, transactional_id=transactional_id)
        run_virtual(play_once, topics=TOPICS, seed=seed)
        raised = [each.exc_info[1] for each in caplog.records if each.exc_info]
        assert all(isinstance(each, KafkaError) for each in raised), (seed, raised)
