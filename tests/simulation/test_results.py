"""The checks of what calls and metrics report: what is not so is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.checker import Kind

from aioproducer.blocking.handle import DeliveryHandle
from aioproducer.blocking.submission_queue import SubmissionQueue
from aioproducer.client import producer
from aioproducer.core.sending.idempotence import AcknowledgedOffsets
from aioproducer.core.sending.sender import Sender
from aioproducer.errors import BufferExhaustedError, KafkaError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.runtime.delivery import Delivery
from aioproducer.serializers.calling import header_pairs
from aioproducer.types import HeaderPairs, HeadersInput
from simulation import Setup, SimProducer, Simulation, run_seed

_SEED = 3
"""Of a run in peace, whose last close is cancelled."""
_SEED_THAT_HANDS_OVER, _IDEMPOTENT_SEED = 104, 2
_SEED_WITH_LATE_TIMERS = 6
"""Of a run in which the timeout of a request comes before that of its record, both late."""


def _oracles_of(seed: int, setup: Setup | None = None) -> set[str]:
    return {violation.oracle for violation in run_seed(seed, setup).violations}


def test_headers_of_one_name_of_which_one_is_lost_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_earlier(topic: str, headers: HeadersInput) -> HeaderPairs:
        return tuple(dict(header_pairs(topic, headers)).items())

    monkeypatch.setattr(producer, "header_pairs", without_earlier)
    assert "contents_are_kept" in _oracles_of(_SEED)


def test_first_attempts_that_count_as_retries_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_batch_sent = ProducerStats.on_batch_sent

    def count_retry(self: ProducerStats, topic: str, records: int, **details: Any) -> None:
        on_batch_sent(self, topic, records, **{**details, "is_retry": True})

    monkeypatch.setattr(ProducerStats, "on_batch_sent", count_retry)
    assert "what_calls_return_is_true" in _oracles_of(_SEED)


def test_refused_rows_with_wrong_numbers_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = BulkRun.feed

    async def number_from_0(self: BulkRun, *arguments: Any) -> None:
        await feed(self, *arguments[:-1], 0)

    monkeypatch.setattr(BulkRun, "feed", number_from_0)
    setup = Setup(options={"max_block_ms": 3000})
    assert "what_calls_return_is_true" in _oracles_of(_SEED, setup)


def test_a_bulk_call_that_waits_for_each_refused_row_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(BulkRun, "_may_wait", always, raising=False)
    monkeypatch.setattr(BulkRun, "_is_absent", lambda self, topic, partition: False)
    setup = Setup(options={"max_block_ms": 3000})
    assert "waits_are_bounded" in _oracles_of(_SEED, setup)


class _ClosesInTheBackground(SimProducer):
    async def close(self, timeout: float | None = None) -> None:
        await asyncio.shield(super().close(timeout))


def test_a_cancelled_close_that_goes_on_delivering_is_found_out() -> None:
    setup = Setup(producer=_ClosesInTheBackground, options={"delivery_timeout_ms": 30_000})
    assert "waits_are_bounded" in _oracles_of(_SEED, setup)


def test_failures_that_are_not_passed_to_on_delivery_error_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Simulation, "_note_unread", lambda self, *arguments: None)
    assert "no_failure_is_unhandled_that_was_read" in _oracles_of(_SEED)


def test_a_record_out_of_time_with_the_error_of_its_connection_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_failure = Sender.on_failure

    def fail_first(self: Sender, node_id: int, batches: Any, error: KafkaError, now: float) -> None:
        for batch in batches:
            if not batch.done and now - batch.created_at >= self._settings.delivery_timeout:
                self.fail(batch, error)
        on_failure(self, node_id, batches, error, now)

    monkeypatch.setattr(Sender, "on_failure", fail_first)
    setup = Setup(options={"compression_type": "none"})
    assert "what_calls_return_is_true" in _oracles_of(_SEED_WITH_LATE_TIMERS, setup)


class _WarmsUpTheFirst(SimProducer):
    async def warm_up(self, topics: Sequence[str]) -> None:
        await super().warm_up(topics[:1])


def test_a_warm_up_of_one_topic_only_is_found_out() -> None:
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_of(_SEED, Setup(producer=_WarmsUpTheFirst))


class _RaisesUndocumented(SimProducer):
    def send_nowait(self, *arguments: Any, **options: Any) -> Delivery:
        raise IndexError("no such partition")


def test_a_send_nowait_that_raises_what_it_does_not_document_is_found_out() -> None:
    assert "send_raises_what_it_documents" in _oracles_of(
        _SEED, Setup(producer=_RaisesUndocumented)
    )


def test_a_callback_of_a_handle_that_is_not_called_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop(self: DeliveryHandle, callback: Callable[[DeliveryHandle], object]) -> None:
        pass

    monkeypatch.setattr(DeliveryHandle, "add_done_callback", drop)
    assert Kind.UNRESOLVED in _oracles_of(_SEED_THAT_HANDS_OVER)


def test_a_record_handed_over_that_is_refused_too_early_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(self: SubmissionQueue, parts: Any, retry_until: float) -> Delivery:
        raise BufferExhaustedError("no memory", topic=parts[0])

    monkeypatch.setattr(SubmissionQueue, "_append", refuse)
    assert "what_calls_return_is_true" in _oracles_of(_SEED_THAT_HANDS_OVER)


def test_an_acknowledged_offset_that_is_kept_wrongly_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_acknowledged = AcknowledgedOffsets.on_acknowledged

    def keep_earlier(self: AcknowledgedOffsets, batch: Any, base_offset: int, records: int) -> None:
        on_acknowledged(self, batch, base_offset, records - 1)

    monkeypatch.setattr(AcknowledgedOffsets, "on_acknowledged", keep_earlier)
    assert "what_calls_return_is_true" in _oracles_of(_IDEMPOTENT_SEED)
