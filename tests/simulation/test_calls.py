"""The checks of the calls that most runs do not make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.errors import (
    BufferExhaustedError,
    BufferFullError,
    KafkaError,
    RecordsFailedError,
)
from aioproducer.runtime.bulk.result import FailedRecord, SendManyResult
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.broker import ClusterSettings
from aioproducer.types import Record, RecordMetadata, TimestampType, TopicPartition
from simulation.evidence import Log
from simulation.ledger import CallState, Entry, Ledger
from simulation.oracles import (
    contents_are_kept,
    interceptors_see_every_record_once,
    offsets_are_reported,
    offsets_of_bulk_calls_are_true,
    partition_is_obeyed,
    waits_for_memory_are_bounded,
    whole_batches_are_whole,
)
from simulation.scenario import Observer
from simulation.waiting import (
    buffers_with_two_owners,
    gathers_although_waiting,
    more_records_than_allowed,
)
from simulation.workload import Workload

_LOG = Log(TopicPartition("t", 0), 0)
_METADATA = RecordMetadata("t", 0, 4, 0, TimestampType.CREATE_TIME, -1, 3)


def _entry(name: bytes) -> Entry:
    return Entry(name, 0, "t", 0, None, name, (), None, 0.0, CallState.ACCEPTED, 0.0)


def _evidence(*entries: Entry, **parts: object) -> Any:
    return SimpleNamespace(ledger=SimpleNamespace(entries=entries), **parts)


def _evidence_of_one(entry: Entry, record: object) -> Any:
    """Return the evidence of a record at offset 4 of a cluster that keeps timestamps."""
    cluster = SimpleNamespace(settings=ClusterSettings())
    log = {_LOG: {4: record}}
    return _evidence(entry, copies={}, log_of=lambda entry: _LOG, logs=log, cluster=cluster)


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        (([], []), 0),
        (([4], [5]), 0),
        (([4, 8], [5, 9]), 0),
        (([4], []), 1),
        (([], [5]), 1),
        (([4], [6]), 1),
        (([5], [4]), 1),
    ],
)
def test_a_whole_batch_that_is_torn_is_found_out(
    offsets: tuple[list[int], list[int]], found: int
) -> None:
    first, second = _entry(b"1"), _entry(b"2")
    first.whole = second.whole = (first, second)
    copies = {
        entry.name: [SimpleNamespace(log=_LOG, record=SimpleNamespace(offset=at)) for at in places]
        for entry, places in zip((first, second), offsets, strict=True)
    }
    evidence = _evidence(first, second, copies=copies)
    assert len(list(whole_batches_are_whole(evidence))) == found


def test_a_whole_batch_with_several_outcomes_is_found_out() -> None:
    first, second = _entry(b"1"), _entry(b"2")
    first.whole = second.whole = (first, second)
    first.delivered_in_bulk = True
    assert len(list(whole_batches_are_whole(_evidence(first, second, copies={})))) == 1


@pytest.mark.parametrize(
    ("allowed_ms", "elapsed_ms", "found"),
    [(None, 3000, 0), (500, 500, 0), (500, 3000, 1), (500, 20, 1), (0, 0, 1), (-1, 3000, 1)],
)
def test_a_call_that_waits_for_memory_too_long_or_too_short_is_found_out(
    allowed_ms: int | None, elapsed_ms: int, found: int
) -> None:
    entry = _entry(b"1")
    entry.error = BufferExhaustedError("no memory", elapsed_ms=elapsed_ms)
    config = SimpleNamespace(enqueue_timeout_ms=allowed_ms)
    assert len(list(waits_for_memory_are_bounded(_evidence(entry, config=config)))) == found


@pytest.mark.parametrize(
    ("reported", "leaves_out", "found"),
    [
        ((4, 6), 0, 0),
        ((4, 7), 0, 1),
        ((5, 6), 0, 1),
        ((4, 4), 0, 1),
        ((4, 4), 1, 0),
        ((4, 7), 1, 1),
    ],
)
def test_offsets_of_a_bulk_call_that_are_not_true_are_found_out(
    reported: tuple[int, int], leaves_out: bool, found: int
) -> None:
    draft = [_entry(b"1"), _entry(b"2")]
    for entry in draft:
        entry.delivered_in_bulk = True
    copies = {
        entry.name: [SimpleNamespace(where=_LOG.where, record=SimpleNamespace(offset=offset))]
        for entry, offset in zip(draft, (6, 4), strict=True)
    }
    ledger = SimpleNamespace(offsets=[(draft, {_LOG.where: reported})])
    evidence: Any = SimpleNamespace(
        ledger=ledger, copies=copies, may_lose=False, leaves_out_offsets=leaves_out
    )
    assert len(list(offsets_of_bulk_calls_are_true(evidence))) == found


@pytest.mark.parametrize(
    ("reported", "found"), [((-1, 3), 0), ((-1, 0), 1), ((0, 3), 1), ((3, -1), 1)]
)
def test_sizes_of_a_record_that_are_not_true_are_found_out(
    reported: tuple[int, int], found: int
) -> None:
    entry = _entry(b"<1>")
    entry.metadata = RecordMetadata("t", 0, 4, 0, TimestampType.CREATE_TIME, *reported)
    record = SimpleNamespace(offset=4, key=None, value=b"<1>", headers=(), timestamp_ms=0)
    assert len(list(contents_are_kept(_evidence_of_one(entry, record)))) == found


@pytest.mark.parametrize(
    ("offset", "acks", "leaves_out", "found"),
    [(None, -1, False, 1), (None, -1, True, 0), (None, 0, False, 0), (0, -1, False, 0)],
)
def test_a_record_that_is_acknowledged_without_its_offset_is_found_out(
    offset: int | None, acks: int, leaves_out: bool, found: int
) -> None:
    entry = _entry(b"<1>")
    entry.metadata = _METADATA._replace(offset=offset)
    config = SimpleNamespace(acks_value=acks)
    evidence = _evidence(entry, config=config, leaves_out_offsets=leaves_out)
    assert len(list(offsets_are_reported(evidence))) == found


@pytest.mark.parametrize(
    ("sent", "stored", "found"), [(None, 0, 0), (0, 0, 0), (7, 0, 1), (7, 7, 1)]
)
def test_a_timestamp_that_is_not_true_is_found_out(
    sent: int | None, stored: int, found: int
) -> None:
    entry = _entry(b"<1>")
    entry.metadata, entry.timestamp_ms = _METADATA, sent  # which says 0
    record = SimpleNamespace(offset=4, key=None, value=b"<1>", headers=(), timestamp_ms=stored)
    assert len(list(contents_are_kept(_evidence_of_one(entry, record)))) == found


async def test_a_callback_before_the_outcome_is_found_out() -> None:
    calls: list[Any] = []
    pending: Any = Mock(Delivery, done=lambda: False, add_done_callback=calls.append)
    pending.remove_done_callback = calls.remove
    entry = _entry(b"1")
    entry.delivery = pending
    ledger = Ledger()
    nothing: Any = None
    work = Workload(nothing, nothing, ledger, nothing, nothing, purges=False)
    work._count_notices(entry)
    assert len(calls) == 1
    calls[0](pending)
    assert len(ledger.false_reports) == 1


@pytest.mark.parametrize(("context_of", "found"), [(copy_context, 0), (Context, 1)])
async def test_a_callback_in_another_context_is_found_out(
    context_of: Callable[[], Context], found: int
) -> None:
    calls: list[Any] = []
    done: Any = Mock(Delivery, done=lambda: True, add_done_callback=calls.append)
    entry = _entry(b"1")
    entry.delivery = done
    ledger, nothing = Ledger(), Mock()
    Workload(nothing, nothing, ledger, nothing, nothing, purges=False)._count_notices(entry)
    context_of().run(calls[0], done)
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(
    ("before", "after", "found"), [(False, True, False), (True, True, True), (False, False, True)]
)
async def test_a_delivery_that_is_wrongly_cancelled_is_found_out(
    before: bool, after: bool, found: bool
) -> None:
    calls: list[Any] = []
    pending: Any = Mock(
        Delivery,
        done=lambda: False,
        cancelled=Mock(side_effect=[before, after]),
        exception=Mock(side_effect=[asyncio.InvalidStateError, asyncio.CancelledError]),
    )
    pending.add_done_callback = lambda callback: calls.append((callback, copy_context()))
    pending.cancel = lambda: calls[0][1].run(calls[0][0], pending) or True
    entry = _entry(b"1")
    entry.delivery = pending
    ledger, nothing = Ledger(), Mock()
    await Workload(nothing, nothing, ledger, nothing, nothing, purges=False)._give_up(entry)
    assert bool(ledger.false_reports) == found


async def test_a_removed_callback_that_is_called_is_found_out() -> None:
    calls: list[Any] = []
    pending: Any = Mock(Delivery, done=lambda: False, add_done_callback=calls.append)
    entry = _entry(b"1")
    entry.delivery = pending
    ledger, nothing = Ledger(), Mock()
    Workload(nothing, nothing, ledger, nothing, nothing, purges=False)._count_notices(entry)
    calls[-1](pending)
    assert len(ledger.false_reports) == 1


@pytest.mark.parametrize(("left", "found"), [(0, 1), (1, 1), (2, 0)])
async def test_a_flush_that_counts_wrong_is_found_out(left: int, found: int) -> None:
    async def flush(timeout: float) -> int:
        return left

    producer: Any = SimpleNamespace(flush=flush)
    ledger, nothing = Ledger(), Mock()
    work = Workload(producer, nothing, ledger, nothing, nothing, purges=False)
    batch = ProducerBatch(_LOG.where, bytearray(), 0, now=0.0)
    for index in (0, 1):
        entry = _entry(b"1")
        entry.delivery = Mock(done=lambda: False, batch_and_index=lambda at=index: (batch, at))
        work._sent.append(entry)
    await work._flush(0.1)
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(
    ("shown", "reported", "found"),
    [(1, [4], 0), (2, [4], 1), (1, [4, 4], 1), (1, [5], 1), (1, [], 2)],
)
def test_an_interceptor_that_does_not_see_each_outcome_once_is_found_out(
    shown: int, reported: list[int], found: int
) -> None:
    entry, observer = _entry(b"1"), Observer()
    entry.metadata = _METADATA._replace(offset=4)
    observer.shown = shown
    for offset in reported:
        observer.on_acknowledgement(_METADATA._replace(offset=offset), None, ())
    config = SimpleNamespace(interceptor_classes=(observer,))
    evidence = _evidence(entry, config=config, transactions=None)
    assert len(list(interceptors_see_every_record_once(evidence))) == found


@pytest.mark.parametrize(("topic", "found"), [("t", 0), (None, 1)])
def test_a_record_that_an_interceptor_gets_without_its_topic_is_found_out(
    topic: str | None, found: int
) -> None:
    observer = Observer()
    observer.on_send(Record(b"1", topic=topic))
    observer.on_acknowledgement(_METADATA, None, ())
    config = SimpleNamespace(interceptor_classes=(observer,))
    evidence = _evidence(config=config, transactions=None)
    assert len(list(interceptors_see_every_record_once(evidence))) == found


@pytest.mark.parametrize(
    ("is_gathering", "is_full", "found"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
def test_a_batch_that_is_kept_open_by_a_waiting_call_is_found_out(
    is_gathering: bool, is_full: bool, found: int
) -> None:
    batch = SimpleNamespace(
        gathering=is_gathering, full=is_full, attempts=0, topic_partition=_LOG.where
    )
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(incomplete=lambda: [batch]))
    assert len(list(gathers_although_waiting(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("appended", "whole", "found"), [(5, 0, 0), (6, 0, 1), (6, 3, 1), (6, 4, 0), (7, 4, 1)]
)
def test_a_record_beyond_those_that_may_be_buffered_is_found_out(
    appended: int, whole: int, found: int
) -> None:
    batch = Mock(indivisible=whole > 0, count=whole)
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(buffer_max_records=3),
        appender=SimpleNamespace(fast_path=SimpleNamespace(appended=appended)),
        pool=SimpleNamespace(ceiling=5),
        accumulator=SimpleNamespace(incomplete=lambda: [], pinned=[batch]),
    )
    assert len(list(more_records_than_allowed(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("pooled", "spare", "found"), [((1,), 1, 0), ((1,), 2, 1), ((0, 1), 1, 1), ((1, 1), None, 1)]
)
def test_a_buffer_with_two_owners_is_found_out(
    pooled: tuple[int, ...], spare: int | None, found: int
) -> None:
    buffers = [bytearray(1) for _ in range(3)]
    batch = Mock(size=1, buffer=buffers[0])
    of_spare = None if spare is None else SimpleNamespace(buffer=buffers[spare])
    engine: Any = SimpleNamespace(
        pool=SimpleNamespace(_free=[buffers[number] for number in pooled]),
        accumulator=Mock(incomplete=lambda: [batch], pinned={batch}),
        appender=SimpleNamespace(batch_appender=SimpleNamespace(_spare=of_spare)),
    )
    assert len(list(buffers_with_two_owners(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("counts", "partition", "found"),
    [(range(2, 3), 1, 0), (range(2, 3), 0, 1), (range(1, 3), 0, 0), (range(0), 0, 0)],
)
def test_a_key_in_a_wrong_partition_is_found_out(counts: range, partition: int, found: int) -> None:
    entry = _entry(b"1")
    entry.partition, entry.key, entry.partitions = None, b"k0", counts
    copies = {b"1": [SimpleNamespace(where=TopicPartition("t", partition))]}
    evidence = _evidence(entry, copies=copies, cluster=SimpleNamespace(deleted=[]))
    assert len(list(partition_is_obeyed(evidence))) == found


@pytest.mark.parametrize(("reported", "found"), [(0, 1), (2, 0), (3, 1)])
async def test_a_flush_that_reports_other_failures_is_found_out(reported: int, found: int) -> None:
    async def flush(timeout: None = None, *, raise_failures: bool) -> int:
        if reported:
            raise RecordsFailedError(count=reported)
        return 0

    stats = SimpleNamespace(records_failed=2)
    producer: Any = SimpleNamespace(flush=flush, _usable=lambda: SimpleNamespace(stats=stats))
    ledger, nothing = Ledger(), Mock()
    work = Workload(producer, nothing, ledger, nothing, nothing, purges=False)
    await work._flush(None)
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ([BufferExhaustedError("no memory"), BufferExhaustedError("no memory")], 1),
        ([BufferExhaustedError("no memory"), BufferFullError("no memory")], 0),
        ([BufferExhaustedError("no memory"), None, BufferExhaustedError("no memory")], 0),
    ],
)
async def test_rows_of_a_bulk_call_that_wait_after_each_other_are_found_out(
    errors: list[KafkaError | None], found: int
) -> None:
    ledger, nothing = Ledger(), Mock()
    failed = [FailedRecord(i, error) for i, error in enumerate(errors) if error is not None]
    call: asyncio.Future[SendManyResult] = asyncio.get_running_loop().create_future()
    call.set_result(SendManyResult(len(errors), len(errors) - len(failed), failed))
    work = Workload(nothing, nothing, ledger, nothing, nothing, purges=False)
    await work.call_in_bulk([_entry(b"%d" % i) for i in range(len(errors))], call, "send_many")
    assert (len(ledger.late_ends), ledger.false_reports) == (found, [])
