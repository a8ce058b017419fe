"""The tables from request and error code to reaction."""

from __future__ import annotations

import pytest

from aioproducer import errors
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.transactions.rules import (
    Reaction,
    Rpc,
    concurrent_backoff,
    gravest,
    may_have_worked,
    reaction_to,
)
from aioproducer.errors import error_for_code

R = Reaction
TO_COORDINATORS = [rpc for rpc in Rpc if rpc is not Rpc.FIND_COORDINATOR]


@pytest.mark.parametrize("rpc", Rpc)
@pytest.mark.parametrize("code", range(-1, 140))
def test_every_code_has_a_reaction_and_none_is_taken_for_success(rpc: Rpc, code: int) -> None:
    if code == 0:
        return
    reaction = reaction_to(rpc, code)
    if reaction is R.RETRY:
        assert error_for_code(code).retriable


@pytest.mark.parametrize("rpc", TO_COORDINATORS)
@pytest.mark.parametrize(
    ("codes", "reaction"),
    [((15, 16), R.FIND_COORDINATOR), ((14, 51), R.RETRY), ((47, 90), R.FENCED)],
)
def test_what_all_coordinators_have_in_common(
    rpc: Rpc, codes: tuple[int, ...], reaction: Reaction
) -> None:
    assert {reaction_to(rpc, code) for code in codes} == {reaction}


def test_an_end_is_never_confirmed_by_an_error() -> None:
    assert reaction_to(Rpc.END, -1) is R.FATAL
    assert reaction_to(Rpc.END, -1, ending=True) is R.FATAL


def test_a_busy_group_coordinator_is_looked_up_anew() -> None:
    assert reaction_to(Rpc.COMMIT_OFFSETS, 7) is R.FIND_COORDINATOR
    assert reaction_to(Rpc.COMMIT_OFFSETS, 3) is R.RETRY


@pytest.mark.parametrize("rpc", [Rpc.ADD_PARTITIONS, Rpc.ADD_OFFSETS, Rpc.END])
def test_an_unknown_producer_id_is_repaired_by_a_new_epoch(rpc: Rpc) -> None:
    assert reaction_to(rpc, 59) is R.BUMP
    assert reaction_to(rpc, 59, ending=True) is R.BUMP


def test_only_the_abort_itself_cannot_be_aborted() -> None:
    assert reaction_to(Rpc.END, 120) is R.ABORTABLE
    assert reaction_to(Rpc.END, 120, ending=True) is R.FATAL
    assert reaction_to(Rpc.FIND_COORDINATOR, 120, ending=True) is R.RETRY


def test_the_gravest_of_several_codes_counts() -> None:
    assert gravest(Rpc.ADD_PARTITIONS, [3, 29, 16]) == 29
    assert gravest(Rpc.ADD_PARTITIONS, [29, 53]) == 53
    assert gravest(Rpc.COMMIT_OFFSETS, [3, 16]) == 16


def test_concurrent_transactions_are_waited_for_shortly_at_first() -> None:
    assert concurrent_backoff(ExponentialBackoff(0.1, 1.0)).initial_s == 0.02
    assert concurrent_backoff(ExponentialBackoff(0.01, 1.0)).initial_s == 0.01


def test_only_errors_that_precede_every_change_prove_that_nothing_has_changed() -> None:
    certain = [
        errors.UnknownTopicOrPartitionError,
        errors.TopicAuthorizationFailedError,
        errors.GroupAuthorizationFailedError,
        errors.UnsupportedVersionError,
        errors.InvalidRequestError,
        errors.InvalidProducerEpochError,
        errors.InvalidTxnStateError,
        errors.InvalidProducerIdMappingError,
        errors.ConcurrentTransactionsError,
        errors.TransactionalIdAuthorizationFailedError,
        errors.OperationNotAttemptedError,
        errors.UnknownProducerIdError,
        errors.ProducerFencedError,
        errors.TransactionAbortableError,
    ]
    proof = {error_for_code(code) for code in range(-1, 140) if not may_have_worked(code)}
    assert proof == set(certain)
