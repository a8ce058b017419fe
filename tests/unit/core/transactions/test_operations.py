"""Listeners of a pending call hear of its outcome once."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.operations import Operation, OperationKind


@pytest.mark.parametrize("is_finished_before", [False, True])
def test_listener_is_called_once_when_there_is_an_outcome(is_finished_before: bool) -> None:
    operation = Operation(OperationKind.COMMIT)
    calls: list[bool] = []
    if is_finished_before:
        operation.finish()
    operation.add_listener(lambda: calls.append(operation.done))
    assert calls == [True] * is_finished_before
    operation.finish()
    assert calls == [True]
