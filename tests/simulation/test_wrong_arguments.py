"""Whole runs in which a call that has to raise an error does not."""

from __future__ import annotations

import pytest

from aioproducer.client.lifecycle import ProducerLifecycle
from aioproducer.runtime.bulk import send_many
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.runtime.send import validation
from simulation.simulation import run_seed

_SEED, _OF_A_CLOSE = 3, 16


def _found_by(seed: int) -> str:
    return " ".join(violation.text for violation in run_seed(seed).violations)


def test_wrong_items_that_are_taken_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_many, "check_items", lambda _: None)
    assert "send_many(b'xx') returns" in _found_by(_SEED)


def test_a_timestamp_that_is_taken_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "checked_timestamp", lambda *_: 1)
    text = _found_by(_SEED)
    assert "send with timestamp -5 returns" in text
    assert "records are buffered" in text


def test_calls_of_a_closed_producer_that_go_on_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def engine_of(self: ProducerLifecycle) -> ProducerEngine:
        assert self._engine is not None
        return self._engine

    monkeypatch.setattr(ProducerLifecycle, "_usable", engine_of)
    assert "flush returns 0" in _found_by(_OF_A_CLOSE)
