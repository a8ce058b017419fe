"""Sequences: duplicates recognised, gaps and fenced epochs refused."""

from __future__ import annotations

from collections.abc import Container

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.testing.broker.producers import (
    REMEMBERED_BATCHES,
    ProducerBatchKey,
    ProducerStates,
    sequence_after,
)
from aioproducer.testing.broker.refusal import RefusedError

MAX_SEQUENCE = 2**31 - 1


def key(first: int, count: int = 1, *, epoch: int = 0, producer_id: int = 9) -> ProducerBatchKey:
    return ProducerBatchKey(producer_id, epoch, first, sequence_after(first, count - 1))


def write(states: ProducerStates, batch: ProducerBatchKey, offset: int = 0) -> None:
    assert states.find_duplicate(batch) is None
    states.remember(batch, offset, -1)


def refusal(states: ProducerStates, batch: ProducerBatchKey) -> str:
    with pytest.raises(RefusedError) as caught:
        states.find_duplicate(batch)
    return caught.value.error.error_name


@given(st.integers(0, MAX_SEQUENCE), st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_exactly_the_last_five_batches_are_duplicates(start: int, counts: list[int]) -> None:
    states, sequence, keys = ProducerStates(), start, []
    for offset, count in enumerate(counts):
        batch = key(sequence, count)
        write(states, batch, offset)
        keys.append(batch)
        sequence = sequence_after(sequence, count)
    for offset, batch in list(enumerate(keys))[-REMEMBERED_BATCHES:]:
        written = states.find_duplicate(batch)
        assert written is not None
        assert written.base_offset == offset
    for batch in keys[:-REMEMBERED_BATCHES]:
        assert refusal(states, batch) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_gap_is_out_of_order() -> None:
    states = ProducerStates()
    write(states, key(0, 3))
    assert refusal(states, key(4)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(states, key(3))


def test_batch_that_overlaps_a_written_one_is_out_of_order() -> None:
    states = ProducerStates()
    write(states, key(0, 3))
    assert refusal(states, key(0, 2)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_sequence_zero_follows_the_largest_one() -> None:
    states = ProducerStates()
    write(states, key(MAX_SEQUENCE - 1, 2))
    write(states, key(0))


def test_older_epoch_is_fenced() -> None:
    states = ProducerStates()
    write(states, key(0, epoch=2))
    assert refusal(states, key(1, epoch=1)) == "INVALID_PRODUCER_EPOCH"


def test_newer_epoch_begins_at_sequence_zero() -> None:
    states = ProducerStates()
    write(states, key(0))
    assert refusal(states, key(1, epoch=1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(states, key(0, epoch=1))
    write(states, key(1, epoch=1))


def test_unknown_producer_may_begin_anywhere() -> None:
    states = ProducerStates()
    write(states, key(77))
    states.remove(9)
    write(states, key(200))


def expire(states: ProducerStates, now_ms: int, open_producers: Container[int] = ()) -> None:
    states.expire(
        now_ms, after_ms=100, every_ms=10, has_transaction=lambda each: each in open_producers
    )


def test_producer_expires_at_the_first_check_that_finds_its_last_batch_old_enough() -> None:
    states = ProducerStates()
    for sequence, timestamp_ms in enumerate((1000, 1005)):
        states.remember(key(sequence), sequence, timestamp_ms)
    expire(states, 1109)
    assert refusal(states, key(7)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    expire(states, 1110)
    write(states, key(7))


def test_producer_with_an_open_transaction_does_not_expire() -> None:
    states = ProducerStates()
    states.remember(key(0), 0, 1000)
    expire(states, 5000, {9})
    assert states.epoch_of(9) == 0
    expire(states, 5010)
    assert states.epoch_of(9) is None


def test_marker_keeps_a_producer_from_expiring() -> None:
    states = ProducerStates()
    states.remember(key(0), 0, 1000)
    states.see_epoch(9, 0, 1090)
    expire(states, 1150)
    assert states.epoch_of(9) == 0


def test_producers_do_not_see_each_other() -> None:
    states = ProducerStates()
    write(states, key(0, producer_id=1))
    write(states, key(0, producer_id=2))
