"""Causes of exceptions: each once, also where they are a cycle."""

from __future__ import annotations

import pytest

from aioproducer._util.causes import causes_of, chain_of, root_of
from aioproducer.errors import (
    BatchRefusedError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from aioproducer.refusal import Refusal


def test_the_causes_begin_with_the_exception() -> None:
    outer, inner = ValueError("outer"), KeyError("inner")
    outer.__cause__ = inner
    outer.__context__ = TypeError("no cause")
    assert list(causes_of(outer)) == [outer, inner]


@pytest.mark.parametrize("walk", [causes_of, chain_of])
def test_a_cycle_of_causes_has_an_end(walk: object) -> None:
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    assert callable(walk)
    assert list(walk(one)) == [one, two]


def test_the_root_is_what_wrappers_were_raised_from() -> None:
    wrapper, base = (BatchRefusedError, TransactionAbortableError), KafkaError
    outer, inner, root = wrapper[0](), wrapper[1](), RecordTooLargeError()
    outer.__cause__, inner.__cause__, root.__cause__ = inner, root, KafkaTimeoutError()
    assert root_of(outer, wrapper, base) is root
    assert root_of(root, wrapper, base) is root
    inner.__cause__ = OSError()
    assert root_of(outer, wrapper, base) is inner
    inner.__cause__ = outer
    assert root_of(outer, wrapper, base) is inner


def test_a_chain_has_contexts_and_members_of_groups_but_not_the_outer_exception() -> None:
    context, member, outer = ValueError("context"), KeyError("member"), TypeError("outer")
    group = ExceptionGroup("group", [member])
    group.__context__, context.__context__ = context, outer
    assert set(chain_of(group, outer)) == {group, context, member}


def test_a_timeout_that_is_its_own_cause_is_answered_as_a_timeout() -> None:
    error = KafkaTimeoutError("no answer")
    error.__cause__ = error
    found = Refusal.of(error, retry_after_s=1)
    assert found is not None
    assert found.status == 503
