"""Batches without an outcome, and when they expire."""

from __future__ import annotations

from itertools import count
from math import inf
from random import Random

from aioproducer.core.batching.accumulator import IncompleteBatches
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.types import TopicPartition

ordinals = count(1)


def made_at(now: float) -> ProducerBatch:
    where, ordinal = TopicPartition("t", 0), (next(ordinals),)
    return ProducerBatch(where, bytearray(100), 100, now=now, ordinal=ordinal)


def test_nothing_expires_where_there_is_nothing() -> None:
    incomplete = IncompleteBatches(10.0)
    assert (bool(incomplete), len(incomplete), list(incomplete)) == (False, 0, [])
    assert (incomplete.next_expiry_at, incomplete.expired(1e9)) == (inf, [])


def test_the_oldest_batches_expire_first_and_at_their_timeout() -> None:
    incomplete = IncompleteBatches(10.0)
    first, second, third = batches = [made_at(now) for now in (1.0, 2.0, 3.0)]
    for batch in batches:
        incomplete.add(batch)
    assert (bool(incomplete), len(incomplete), list(incomplete)) == (True, 3, batches)
    assert incomplete.next_expiry_at == 11.0
    assert incomplete.expired(10.9) == []
    assert incomplete.expired(12.0) == [first, second]
    incomplete.discard(first)
    incomplete.discard(first)
    assert incomplete.next_expiry_at == 12.0
    assert (first in incomplete, third in incomplete) == (False, True)


def test_parts_are_as_old_as_the_batch_that_was_split() -> None:
    incomplete = IncompleteBatches(10.0)
    whole, late, early = made_at(5.0), made_at(4.0), made_at(3.0)
    incomplete.add_part(late)
    assert (bool(incomplete), incomplete.next_expiry_at) == (True, 14.0)
    incomplete.add(whole)
    incomplete.add_part(early)
    assert (len(incomplete), list(incomplete)) == (3, [late, early, whole])
    assert incomplete.next_expiry_at == 13.0
    assert incomplete.expired(13.5) == [early]
    assert incomplete.expired(15.0) == [late, early, whole]
    incomplete.discard(early)
    assert (early in incomplete, late in incomplete) == (False, True)
    incomplete.discard(late)
    assert incomplete.next_expiry_at == 15.0


def test_parts_expire_by_their_age_in_whatever_order_they_end() -> None:
    incomplete, rng = IncompleteBatches(10.0), Random(1)
    parts = [made_at(float(rng.randrange(50))) for _ in range(100)]
    for part in parts:
        incomplete.add_part(part)
    rng.shuffle(parts)
    while parts:
        ages = sorted(part.created_at for part in parts)
        assert incomplete.next_expiry_at == ages[0] + 10.0
        expired = incomplete.expired(ages[len(ages) // 2] + 10.0)
        assert sorted(part.created_at for part in expired) == [
            age for age in ages if age <= ages[len(ages) // 2]
        ]
        incomplete.discard(parts.pop())
    assert (bool(incomplete), incomplete.next_expiry_at) == (False, inf)


class CountingBatch(ProducerBatch):
    """Counts how often its age is read."""

    age = 0.0
    reads = 0

    @property
    def created_at(self) -> float:
        CountingBatch.reads += 1
        return self.age

    @created_at.setter
    def created_at(self, age: float) -> None:
        self.age = age


def test_a_part_is_read_no_more_often_the_more_there_are() -> None:
    incomplete = IncompleteBatches(10.0)
    where = TopicPartition("t", 0)
    parts = [
        CountingBatch(where, bytearray(100), 100, now=float(n), ordinal=(n,)) for n in range(500)
    ]
    CountingBatch.reads = 0
    for part in parts:
        incomplete.add_part(part)
        assert incomplete.next_expiry_at == 10.0
    for part in parts:
        incomplete.discard(part)
        assert incomplete.expired(5.0) == []
    assert CountingBatch.reads <= 2 * len(parts)
