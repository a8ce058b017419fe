"""The checks of calls that send much at once, or are serialized for long."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from aioproducer.core.batching.partitioners import BuiltInPartitioner
from aioproducer.errors import KafkaError, KafkaTimeoutError, ProducerClosedError
from aioproducer.runtime.bulk.result import SendManyResult
from aioproducer.runtime.send.appender import RecordAppender
from aioproducer.runtime.send.serialization_queue import SerializationQueue
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.types import TopicPartition
from simulation.bursts import Bursts
from simulation.ledger import Entry, Ledger
from simulation.simulation import run_seed


def _bursts(ledger: Ledger, **producer: Any) -> Any:
    config = SimpleNamespace(
        value_serializer=bytes,
        max_block_ms=0,
        buffer_max_records=None,
        buffer_memory=80,
        batch_size=1,
        max_request_size=1,
        max_in_flight_requests_per_connection=1,
        request_timeout_ms=30_000,
    )
    topic = SimpleNamespace(config=SimpleNamespace(max_message_bytes=5000))
    world: Any = SimpleNamespace(
        now=lambda: 0.0,
        spec=SimpleNamespace(nodes=(1,)),
        cluster=SimpleNamespace(topics={"t": topic}, faults=Mock()),
    )
    return Bursts(SimpleNamespace(config=config, **producer), world, ledger)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ending", "error", "false", "late"),
    [
        (KafkaTimeoutError(), None, 0, 0),
        (ProducerClosedError(), None, 1, 0),
        (KafkaTimeoutError(), KafkaTimeoutError(), 0, 1),
    ],
)
async def test_a_slow_serializer_that_is_not_refused_or_refuses_others_is_found_out(
    ending: KafkaError, error: KafkaError | None, false: int, late: int
) -> None:
    ledger = Ledger()
    bursts = _bursts(ledger, send=AsyncMock(side_effect=ending))
    entry = Entry(b"<1>", -2, "t", None, None, b"<1>", (), None, 0.0)
    entry.error = error
    bursts._sent = AsyncMock(return_value=entry)
    await bursts._check_endless_serializer()
    assert (len(ledger.false_reports), len(ledger.unrecovered)) == (false, late)


@pytest.mark.parametrize(("after_s", "found"), [(0.0, 0), (1.1, 1)])
def test_a_record_that_waits_for_too_long_after_a_slow_serializer_is_found_out(
    after_s: float, found: int
) -> None:
    loop, ledger, is_refused = VirtualLoop(Random(1)), Ledger(), asyncio.Event()

    async def send(*_: object) -> None:
        await asyncio.sleep(1.5)
        is_refused.set()
        raise KafkaTimeoutError

    async def sent(*_: object) -> Entry:
        await is_refused.wait()
        await asyncio.sleep(after_s)
        return Entry(b"<1>", -2, "t", None, None, b"<1>", (), None, 0.0)

    bursts = _bursts(ledger, send=send)
    bursts._config.max_block_ms, bursts._world.now, bursts._sent = 1500, loop.time, sent
    loop.run_until_complete(asyncio.sleep(126.7))  # what comes 1.5 s after this is rounded down
    loop.run_until_complete(bursts._check_endless_serializer())
    loop.close()
    assert len(ledger.unrecovered) == found


@pytest.mark.parametrize(("count", "found"), [(60, 0), (59, 1)])
async def test_a_slow_bulk_call_that_counts_wrong_is_found_out(count: int, found: int) -> None:
    ledger = Ledger()
    bursts = _bursts(ledger, send_many=AsyncMock(return_value=SimpleNamespace(count=count)))
    await bursts._check_pace()
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(("last_offsets", "found"), [((0, 3), 0), ((0, 2, 3), 1)])
async def test_rows_of_one_call_in_several_batches_are_found_out(
    last_offsets: tuple[int, ...], found: int
) -> None:
    ledger, result = Ledger(), SendManyResult(3, 3, [], {TopicPartition("t", 0): (1, 3)})
    bursts = _bursts(ledger, flush=AsyncMock(), send_many=AsyncMock(return_value=result))
    bursts._config.batch_size, bursts._config.buffer_memory = 2000, 4000
    bursts._config.value_serializer = bursts._config.batch_max_records = None
    bursts._sent = bursts._outcome_of = AsyncMock()
    bases = (0, *(last + 1 for last in last_offsets))
    log = SimpleNamespace(
        batches=[
            SimpleNamespace(base_offset=base, last_offset=last)
            for base, last in zip(bases, last_offsets, strict=False)
        ]
    )
    bursts._world.cluster.topics["t"].partitions = [SimpleNamespace(log=log)]
    await bursts._check_one_batch()
    assert len(ledger.false_reports) == found


def _found_by(seed: int) -> str:
    return " ".join(violation.text for violation in run_seed(seed).violations)


def test_a_call_that_takes_no_place_after_others_ran_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RecordAppender, "_may_append", True)
    assert "records more than allowed" in _found_by(199)


def test_a_partition_that_is_kept_for_too_many_records_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BuiltInPartitioner, "_next_partition", lambda *_: 0)
    assert "changed their partition 0 times" in _found_by(13)


def test_a_row_that_overtakes_a_record_that_is_serialized_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SerializationQueue, "is_queued", lambda *_: False)
    assert "a row of send_arrow is at" in _found_by(32)
