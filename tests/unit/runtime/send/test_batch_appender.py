"""The choice between an open batch and a new one, and how much a turn of the loop may open."""

from __future__ import annotations

import asyncio
from itertools import groupby

import pytest
from support.stage import Stage, play
from support.turns import each_turn

from .fast_paths import Bench


@pytest.mark.usefixtures("fast_path_form")
@pytest.mark.parametrize("fast", [True, False])
async def test_keyless_records_change_the_partition_when_a_batch_is_full(fast):
    bench = Bench(fast=fast, batch_size=300)
    bench.know(a=50)
    partitions = [(await bench.producer.send("a", b"v" * 50)).partition for _ in range(90)]
    runs = [len(list(run)) for _, run in groupby(partitions)]
    # Four records fill a batch, and by chance two runs in a row may have the same partition.
    assert runs.count(4) >= 18
    assert set(runs) <= {4, 8, sum(runs) % 4}
    bench.end()


@pytest.mark.parametrize(
    ("options", "hashes_keys", "sticks"),
    [
        ({}, True, True),
        ({"partitioner_ignore_keys": True}, False, True),
        ({"partitioner": "round_robin"}, False, False),
        ({"partitioner": "round_robin", "partitioner_ignore_keys": True}, False, False),
    ],
)
async def test_only_the_default_partitioner_hashes_keys_and_stays_at_a_partition(
    options, hashes_keys, sticks
):
    bench = Bench(**options)
    appender = bench.appender.batch_appender
    assert (appender.hashes_keys, appender.sticks) == (hashes_keys, sticks)
    bench.end()


@pytest.mark.parametrize(
    ("is_lost", "linger_ms", "expected"),
    [
        (True, 0, [32, 64, 96]),
        (False, 0, [33, 65, 97]),  # the first batch leaves at once, and does not count then
        (True, 5, [32, 64, 96]),
        (False, 5, [32, 64, 96]),
    ],
)
def test_a_loop_of_sends_opens_512_kib_of_batches_between_two_turns(is_lost, linger_ms, expected):
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        if is_lost:
            stage.crash()
            await asyncio.sleep(1)
        began, accepted = stage.loop.time(), 0
        with each_turn(lambda: accepted) as between_turns:
            for _ in range(100):
                await producer.send("t", b"v" * 15_000)
                accepted += 1
        assert (between_turns, stage.loop.time()) == (expected, began)
        await producer.close(0)

    play(act, linger_ms=linger_ms, batch_size=16_384, buffer_memory=1 << 24)


def test_a_batch_larger_than_512_kib_is_opened_without_a_pause_in_a_new_turn():
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        for _ in range(3):
            sending = producer.send("t", bytes(900_000))
            with pytest.raises(StopIteration):
                sending.send(None)
            await asyncio.sleep(0.1)
        await producer.close()

    play(act, batch_size=1_000_000, max_request_size=1_000_000, buffer_memory=1 << 24)


@pytest.mark.usefixtures("fast_path_form")
async def test_an_acknowledgement_has_no_size_for_a_key_or_value_that_is_not_there():
    bench = Bench(fast=True)
    bench.know(a=1)
    sizes = []
    for key, value in [(b"key", None), (None, b"v"), (b"key", None), (None, b"v")]:
        delivery = await bench.producer.send("a", value, key)
        sizes.append((delivery._key_size, delivery._value_size))
    assert sizes == [(3, -1), (-1, 1)] * 2
    bench.end()


@pytest.mark.usefixtures("fast_path_form")
async def test_the_first_record_of_a_topic_may_name_its_partition():
    bench = Bench(fast=True)
    bench.know(a=2)
    first = await bench.producer.send("a", b"v", partition=1)
    keyless = [(await bench.producer.send("a", b"v")).partition for _ in range(3)]
    assert first.partition == 1
    assert len(set(keyless)) == 1
    bench.end()
