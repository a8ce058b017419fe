"""The check of a producer that a broker refuses for good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from aioproducer.errors import (
    ClusterAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from simulation.endings import Endings
from simulation.ledger import Entry, Ledger


@pytest.mark.parametrize(
    ("error", "failure", "linger_ms", "found"),
    [
        (ClusterAuthorizationFailedError(), None, 0, 1),
        (ClusterAuthorizationFailedError(), None, 5, 0),
        (ClusterAuthorizationFailedError(), KafkaError("it ended"), 0, 0),
        (KafkaTimeoutError(), None, 0, 0),
    ],
)
async def test_a_producer_that_goes_on_after_a_final_refusal_is_found_out(
    error: KafkaError, failure: KafkaError | None, linger_ms: int, found: int
) -> None:
    ledger = Ledger()
    sequencer = SimpleNamespace(is_idempotent=True)
    engine = SimpleNamespace(
        failure=failure, transactions=None, accumulator=SimpleNamespace(sequencer=sequencer)
    )
    config = SimpleNamespace(linger_ms=linger_ms)
    producer = Mock(config=config, engine=engine, flush=AsyncMock())
    if failure is not None:
        producer.flush.side_effect = [None, ClusterAuthorizationFailedError()]
        for name in ("send", "send_nowait", "send_and_wait", "send_many", "purge"):
            getattr(producer, name).side_effect = ClusterAuthorizationFailedError()
        producer.partitions_for.side_effect = ClusterAuthorizationFailedError()
        producer.start.side_effect = IllegalStateError("started before")
    world: Any = SimpleNamespace(cluster=SimpleNamespace(topics={"t": None}, faults=Mock()))
    endings: Any = Endings(producer, world, ledger)
    entry = Entry(b"<1>", -2, "t", None, None, b"<1>", (), None, 0.0)
    entry.error = error
    endings._sent = AsyncMock(return_value=entry)
    endings._outcome_of = AsyncMock()
    await endings._check_final_refusal()
    assert len(ledger.late_ends) == found
    # Only `warm_up` goes on.
    assert [text[:8] for text in ledger.false_reports] == ["warm_up "] * (failure is not None)
