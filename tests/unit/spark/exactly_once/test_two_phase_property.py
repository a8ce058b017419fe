"""Exactly once, whatever dies when: a whole query on virtual time, again and again.

AIOPRODUCER_TEST_QUERIES=1000   how many queries are played (12)
AIOPRODUCER_TEST_SEED=7         from which seed on (any)
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest
from support.broken_drivers import WithoutFencing, WithoutMemory
from support.two_phase import Query, play_query

from aioproducer.spark.exactly_once.attempts import Plan
from aioproducer.spark.exactly_once.decision import Decision, TransactionNames
from aioproducer.spark.exactly_once.ledger import Ledger
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.testing.world.producer import SimProducer
from aioproducer.types import PreparedTransaction

QUERIES = int(os.environ.get("AIOPRODUCER_TEST_QUERIES") or 12)
SEED = int(os.environ.get("AIOPRODUCER_TEST_SEED") or random.randrange(2**32))
MOST_TRIES = 150

pytestmark = pytest.mark.timeout(120 + 2 * QUERIES)


@pytest.mark.slow
def test_every_row_is_there_once_whatever_dies_when() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEED, SEED + QUERIES):
        wrong, more = play_query(seed)
        assert not wrong, f"seed {seed}: {wrong}"
        happened += more
    expected = {"driver killed", "worker killed", "second driver", "broker crash", "speculation"}
    assert expected <= set(happened), f"seed {SEED}: hardly anything happened: {happened}"


class WithoutTwoPhases(Query):
    """Every task commits what it has written."""

    def _producer(self, worker: object, name: str) -> SimProducer:
        producer = super()._producer(worker, name)  # type: ignore[arg-type]
        prepare = producer.prepare_transaction

        async def commit() -> PreparedTransaction:
            prepared = await prepare()
            await producer.commit_transaction()
            return PreparedTransaction(*_fields(prepared), empty=True)

        producer.prepare_transaction = commit  # type: ignore[method-assign]
        return producer


def _fields(prepared: PreparedTransaction) -> tuple[str, int, int, int]:
    return (
        prepared.transactional_id,
        prepared.producer_id,
        prepared.epoch,
        prepared.transaction_version,
    )


def is_noticed(play: Callable[[int], list[str]]) -> bool:
    return any(play(seed) for seed in range(MOST_TRIES))


class AmongRivals(Query):
    """Two drivers more often than one.

    Their attempts do not look: one that does stops when another driver has taken over, which would
    hide nearly always what a driver does that does not notice it.
    """

    RIVALRY = 0.9

    async def _look(self, worker: object, plan: Plan) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "query"), [(WithoutFencing, AmongRivals), (WithoutMemory, Query)]
)
def test_a_driver_that_leaves_out_a_step_is_noticed(
    broken: type[TwoPhaseCommit], query: type[Query]
) -> None:
    assert is_noticed(lambda seed: _failure(seed, broken, query))


def test_tasks_that_commit_by_themselves_leave_duplicates() -> None:
    assert is_noticed(lambda seed: play_query(seed, make=WithoutTwoPhases)[0])


def test_ids_without_a_parity_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    named = TransactionNames.attempt
    monkeypatch.setattr(
        TransactionNames,
        "attempt",
        lambda self, worker, epoch, number: named(self, worker, 0, number),
    )

    class Forgetful(TwoPhaseCommit):
        """Does not note that all ends were acknowledged, as when it dies before that."""

        async def _finish(self, decision: Decision) -> None:
            self._ledger.record_completion = _nothing  # type: ignore[method-assign]
            await super()._finish(decision)

    assert is_noticed(lambda seed: _failure(seed, Forgetful))


async def _nothing(decision: Decision) -> None:
    pass


def _failure(
    seed: int, protocol: Callable[[Ledger], TwoPhaseCommit], make: type[Query] = Query
) -> list[str]:
    try:
        return play_query(seed, protocol=protocol, make=make)[0]
    except Exception as error:  # the calm life at the end has failed
        return [repr(error)]
