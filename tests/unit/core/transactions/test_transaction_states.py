"""The table of transitions: every pair of states, and the diagrams that show it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import aioproducer
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operations import ADVICE, CALLABLE_IN
from aioproducer.core.transactions.states import TRANSITIONS, TransactionState
from aioproducer.errors import IllegalStateError, ProducerClosedError

S = TransactionState
ARCHITECTURE = Path(aioproducer.__file__).with_name("ARCHITECTURE.md")

ALLOWED = {
    (S.UNINITIALIZED, S.INITIALIZING),
    (S.INITIALIZING, S.READY),
    (S.INITIALIZING, S.UNINITIALIZED),
    (S.READY, S.IN_TRANSACTION),
    (S.READY, S.INITIALIZING),
    (S.IN_TRANSACTION, S.PREPARED),
    (S.IN_TRANSACTION, S.COMMITTING),
    (S.IN_TRANSACTION, S.ABORTING),
    (S.IN_TRANSACTION, S.ABORTABLE_ERROR),
    (S.PREPARED, S.COMMITTING),
    (S.PREPARED, S.ABORTING),
    (S.PREPARED, S.ABORTABLE_ERROR),
    (S.PREPARED, S.UNINITIALIZED),
    (S.COMMITTING, S.READY),
    (S.COMMITTING, S.INITIALIZING),
    (S.COMMITTING, S.ABORTABLE_ERROR),
    (S.ABORTING, S.READY),
    (S.ABORTING, S.INITIALIZING),
    (S.ABORTABLE_ERROR, S.ABORTING),
}


@pytest.mark.parametrize(("source", "target"), list(product(S, S)))
def test_every_pair_of_states(source: TransactionState, target: TransactionState) -> None:
    assert (target in TRANSITIONS[source]) == ((source, target) in ALLOWED)
    manager = TransactionManager("tx", 1000)
    manager.state = source
    if (source, target) in ALLOWED:
        manager._move(target)
        assert manager.state is target
    else:
        with pytest.raises(IllegalStateError):
            manager._move(target)
        assert manager.state is source


def test_every_state_can_be_reached_and_left_but_the_last() -> None:
    assert set().union(*TRANSITIONS.values()) == set(S) - {S.FATAL_ERROR}
    assert [state for state in S if not TRANSITIONS[state]] == [S.FATAL_ERROR]


@pytest.mark.parametrize("state", S)
def test_every_state_may_end_in_a_fatal_error(state: TransactionState) -> None:
    manager = TransactionManager("tx", 1000)
    manager.state = state
    manager.fail(ProducerClosedError())
    assert manager.state is S.FATAL_ERROR


def test_every_refusal_says_what_to_do() -> None:
    raises_its_own_error = {S.ABORTABLE_ERROR, S.FATAL_ERROR}
    assert set(ADVICE) == set(S) - raises_its_own_error
    assert set().union(*CALLABLE_IN.values()) <= set(S)


def test_the_diagram_in_the_documentation_is_the_table() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    (rows,) = re.findall(r"<!-- transaction states -->\n(.*?)<!-- end -->", text, re.S)
    drawn = set()
    for source, targets in re.findall(r"^ *([A-Z_]+) +-> +([A-Z_, ]+)$", rows, re.M):
        drawn |= {
            (TransactionState[source], TransactionState[target]) for target in targets.split(", ")
        }
    assert drawn == ALLOWED
