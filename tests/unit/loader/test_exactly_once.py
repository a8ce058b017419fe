"""The position of a load that brokers return."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aioproducer.client.source_position import SourcePosition
from aioproducer.loader.errors import StateError
from aioproducer.loader.exactly_once import LoadTransactions
from aioproducer.types import OffsetAndMetadata


@pytest.mark.parametrize("text", ["[" + "[]," * 2_000 + "[]]", '"' + "a" * 1_100_000 + '"'])
async def test_a_position_that_is_too_large_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    async def read(*_: object) -> OffsetAndMetadata:
        return OffsetAndMetadata(1, text)

    def decode(*_: object) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(SourcePosition, "read", read)
    monkeypatch.setattr("json.loads", decode)
    config = SimpleNamespace(transactional_id="job", transaction_timeout_ms=1000)
    producer = cast("Any", SimpleNamespace(config=config))
    with pytest.raises(StateError, match="no position of a load"):
        await LoadTransactions(producer, "t", "rows", "", rows=1, seconds=1).read()
