"""The simulation can fail: spoilt producers and spoilt clusters are found out."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer._util.tasks import start_later
from aioproducer.blocking.submission_queue import SubmissionQueue
from aioproducer.core.batching import partitioners
from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.partitioners import (
    BuiltInPartitioner,
    StickyPartitioners,
)
from aioproducer.core.batching.readiness import AdaptiveLinger
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.idempotence import (
    AcknowledgedOffsets,
    LostRecords,
    ProducerIdentity,
    Sequencer,
    _Partition,
)
from aioproducer.core.sending.sender import Sender
from aioproducer.core.transactions.contents import TransactionContents
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.sequencer import TransactionalSequencer
from aioproducer.errors import (
    BufferExhaustedError,
    ConcurrentTransactionsError,
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    FatalTransactionError,
    IllegalStateError,
    InvalidPartitionError,
    KafkaError,
    NodeDisconnectedError,
    ProducerClosedError,
    ProducerFencedError,
    SaslAuthenticationFailedError,
    TransactionAbortedError,
)
from aioproducer.net.client import NetworkClient
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.runtime.bulk.target import BulkTarget
from aioproducer.runtime.delivery.unhandled import UnretrievedFailures
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.runtime.send import appender
from aioproducer.runtime.send.appender import RecordAppender
from aioproducer.runtime.send.early import EarlyRecords
from aioproducer.runtime.send.serialization_queue import SerializationQueue
from aioproducer.runtime.tasks.closing import UserObjects
from aioproducer.runtime.tasks.metadata_waiters import MetadataWaiters
from aioproducer.runtime.tasks.sender import SenderTask
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.broker.log import PartitionLog, StoredBatch
from aioproducer.testing.broker.replication import ReplicatedPartition
from aioproducer.types import PartitionMetadata, Persistence, TopicMetadata, TopicPartition
from aioproducer.wire.api_keys import ApiKey
from simulation import Result, Setup, SimProducer, Simulation, run_seed
from simulation.ledger import EARLY, CallState, Entry
from simulation.liveness import (
    LivenessWatch,
    _not_asked_after_failure,
    _not_asked_for,
    _oversleeps_expiry,
    _parts_are_wrong,
    _repeated_too_often,
    _successor_not_asked_for,
    _unreachable_coordinator_kept,
)
from simulation.oracles import (
    a_duplicate_is_written,
    early_records_are_refused,
    failures_state_persistence,
    no_producer_fails_by_itself,
    nothing_ends_before_its_time,
    recoveries,
    what_brokers_have_is_known,
)
from simulation.scenario import Pause
from simulation.themes import (
    IDLE_DAYS,
    IDLE_DAYS_REDPANDA,
    MANY_TOPICS,
    RECREATIONS,
    REPLACEMENTS,
    seeds_of,
)

_SEEDS = range(1, 31)
_SEED_THAT_PREPARES = 5
_SEED_WITH_LINGER = 93
_SEED_THAT_HANDS_OVER = 104
_SEED_THAT_LINGERS = 28
_SEED_WITH_SERIALIZER, _SEED_THAT_DROPS = 36, 35
_SEED_WITH_DEAD_BROKERS, _SEED_WITH_OLD_METADATA = 3, 13


def _oracles_that_notice(
    setup: Setup, enough: str | None = None, seeds: Iterable[int] = _SEEDS
) -> set[str]:
    """Runs seeds until one finds the fault, or all of them."""
    found: set[str] = set()
    for seed in seeds:
        found |= {violation.oracle for violation in run_seed(seed, setup).violations}
        if (enough in found) if enough else found:
            break
    return found


def test_a_producer_that_dials_while_no_task_sends_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        NetworkClient, "has_no_live_connections", lambda self: not self.any_connected()
    )
    idle_half_hour = replace(IDLE_DAYS, pauses=(Pause(15.0, 1800.0),))
    setup = Setup(theme=idle_half_hour, options={"connections_max_idle_ms": 2000})
    assert "an_idle_producer_opens_no_connections" in _oracles_that_notice(
        setup, "an_idle_producer_opens_no_connections", seeds_of(IDLE_DAYS)
    )


def test_a_producer_that_keeps_topics_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StickyPartitioners, "drop_expired_topics", lambda self, metadata: None)
    seeds = itertools.islice(seeds_of(MANY_TOPICS), 3)
    noticed = _oracles_that_notice(Setup(), "what_calls_return_is_true", seeds)
    assert "what_calls_return_is_true" in noticed


def test_a_producer_that_dials_without_growing_pauses_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delay = ExponentialBackoff.delay

    def least(self: ExponentialBackoff, failures: int, rng: Random) -> float:
        return delay(self, 0, rng)

    monkeypatch.setattr(ExponentialBackoff, "delay", least)
    seeds = (_SEED_WITH_DEAD_BROKERS, *_SEEDS)
    noticed = _oracles_that_notice(Setup(), "a_dead_broker_is_left_alone", seeds)
    assert "a_dead_broker_is_left_alone" in noticed


def test_a_producer_that_does_not_refresh_its_metadata_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    init = Metadata.__init__

    def never(self: Metadata, **arguments: Any) -> None:
        init(self, **{**arguments, "max_age_s": 1e9})

    monkeypatch.setattr(Metadata, "__init__", never)
    seeds = (_SEED_WITH_OLD_METADATA, *_SEEDS)
    noticed = _oracles_that_notice(Setup(), "calm_brings_progress", seeds)
    assert "calm_brings_progress" in noticed


def test_a_producer_that_asks_for_no_topic_of_send_nowait_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request_topic = Metadata.request_topic

    def known_only(self: Metadata, name: str, now: float) -> None:
        if name in self.topics_in_use:
            request_topic(self, name, now)

    monkeypatch.setattr(Metadata, "request_topic", known_only)
    assert "calm_brings_progress" in _oracles_that_notice(Setup(), "calm_brings_progress")


def test_a_producer_that_is_sure_of_what_another_process_may_have_ended_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(TransactionContents, "handed_out", never, raising=False)
    noticed = _oracles_that_notice(Setup(), "reports_of_an_end_agree", [_SEED_THAT_PREPARES])
    assert "reports_of_an_end_agree" in noticed


def test_a_producer_that_acknowledges_before_the_broker_answers_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatched = Sender.on_dispatched

    def acknowledge(self: Sender, node_id: int, batches: list[ProducerBatch]) -> None:
        dispatched(self, node_id, batches)
        for batch in batches:
            self.accumulator.complete(batch, BatchOutcome(base_offset=0))

    monkeypatch.setattr(Sender, "on_dispatched", acknowledge)
    assert "misplaced" in _oracles_that_notice(Setup(), "misplaced")


def test_a_cluster_that_drops_an_acknowledged_record_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose_the_last_batch(simulation: Simulation) -> None:
        def lose() -> None:
            for topic in simulation.world.cluster.topics.values():
                for partition in topic.partitions:
                    partition.log._batches[-1:] = []

        simulation.loop.call_at(55.0, lose)

    setup = Setup(sabotage=lose_the_last_batch)
    assert "lost" in _oracles_that_notice(setup, "lost")


def test_a_log_that_changes_a_record_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def shift(self: PartitionLog, *args: object, **kwargs: object) -> StoredBatch:
        stored = append(self, *args, **kwargs)  # type: ignore[arg-type]
        spoilt = stored._replace(data=stored.data[:-1] + bytes([stored.data[-1] ^ 1]))
        self._batches[-1] = spoilt
        return stored

    monkeypatch.setattr(PartitionLog, "append", shift)
    assert _oracles_that_notice(Setup())


def test_a_failure_that_wrongly_says_not_persisted_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProducerBatch, "persistence", lambda self: Persistence.NOT_PERSISTED)
    assert "wrongly not persisted" in _oracles_that_notice(Setup(), "wrongly not persisted")


def test_a_loss_that_is_reported_without_proof_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def report(self: AcknowledgedOffsets, place: TopicPartition, log_start: int) -> None:
        self._on_data_loss(LostRecords(place, 0, log_start))

    monkeypatch.setattr(AcknowledgedOffsets, "on_unknown_predecessor", report)
    forgetful = itertools.islice(seeds_of(IDLE_DAYS_REDPANDA), 3)
    noticed = _oracles_that_notice(Setup(), "alarms_are_true", forgetful)
    assert "alarms_are_true" in noticed


def _lose_the_ends_of_logs(simulation: Simulation) -> None:
    """Leaders lose what was acknowledged, and go on before it."""

    def lose() -> None:
        for topic in simulation.world.cluster.topics.values():
            for partition in topic.partitions:
                assert isinstance(partition, ReplicatedPartition)
                partition._truncate_to(partition.log.end_offset // 2)

    simulation.loop.call_at(30.0, lose)


_LOSING = Setup(
    schedule=[],
    sabotage=_lose_the_ends_of_logs,
    options={"enable_idempotence": True, "acks": "all"},
    unclean_elections=True,
)


def test_a_loss_that_is_reported_is_in_order() -> None:
    result = run_seed(3, _LOSING)
    assert result.violations == []
    assert any("on_data_loss" in line for line in result.trace.lines)


def test_a_loss_that_is_not_reported_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    init = AcknowledgedOffsets.__init__

    def mute(self: AcknowledgedOffsets, on_data_loss: object, on_producer_expired: Any) -> None:
        init(self, lambda lost: None, on_producer_expired)

    monkeypatch.setattr(AcknowledgedOffsets, "__init__", mute)
    assert _oracles_that_notice(_LOSING) == {"alarms_are_true"}


@pytest.mark.slow
def test_a_record_that_is_overtaken_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_remembered(self: _Partition, now: float) -> bool:
        return self.was_acknowledged

    monkeypatch.setattr(_Partition, "is_remembered", is_remembered)
    idle = itertools.islice(seeds_of(IDLE_DAYS), 10)
    noticed = _oracles_that_notice(Setup(), "order_costs_no_record", idle)
    assert "order_costs_no_record" in noticed


def test_a_retry_after_younger_batches_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_the_end(self: RecordAccumulator, batch: ProducerBatch, now: float, delay: float) -> None:
        batch.retry_at = now + delay
        queue = self._queue_of(*batch.topic_partition)
        queue.batches.append(batch)
        self.readiness.replan(queue)

    monkeypatch.setattr(RecordAccumulator, "reenqueue", at_the_end)
    options = {
        "max_in_flight_requests_per_connection": 1,
        "batch_size": 300,
        "enable_idempotence": False,
    }
    assert "reordered" in _oracles_that_notice(Setup(options=options), "reordered")


def test_a_lost_request_that_is_not_counted_as_an_attempt_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_failure = Sender.on_failure

    def forgive(
        self: Sender, node_id: int, batches: list[ProducerBatch], error: Any, now: float
    ) -> None:
        for batch in batches:
            batch.attempts -= 1
        on_failure(self, node_id, batches, error, now)

    monkeypatch.setattr(Sender, "on_failure", forgive)
    options = {"retries": 1, "enable_idempotence": False}
    assert "retries_are_obeyed" in _oracles_that_notice(
        Setup(options=options), "retries_are_obeyed", range(50, 81)
    )


def test_memory_that_is_reused_while_it_may_still_be_sent_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpin = RecordAccumulator.unpin

    def scribble(self: RecordAccumulator, batch: ProducerBatch) -> None:
        buffer = batch.buffer
        unpin(self, batch)
        if buffer is not None and not batch.pins:
            buffer[:] = b"\xee" * len(buffer)

    def pin_nothing(self: RecordAccumulator, batch: ProducerBatch) -> None:
        batch.pins += 1
        asyncio.get_running_loop().call_soon(scribble, self, batch)

    monkeypatch.setattr(RecordAccumulator, "pin", pin_nothing)
    monkeypatch.setattr(RecordAccumulator, "unpin", lambda self, batch: None)
    assert "brokers_do_not_complain" in _oracles_that_notice(Setup(), "brokers_do_not_complain")


def test_memory_that_never_comes_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    deallocate = BufferPool.deallocate
    returned = 0

    def keep_one(self: BufferPool, buffer: bytearray, size: int) -> None:
        nonlocal returned
        returned += 1
        if returned != 7:
            deallocate(self, buffer, size)

    monkeypatch.setattr(BufferPool, "deallocate", keep_one)
    assert "memory_is_returned" in _oracles_that_notice(Setup(), "memory_is_returned")


def test_memory_that_is_never_handed_over_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BufferPool, "_serve", lambda self: None)
    options = {"max_block_ms": 20_000, "batch_size": 2000, "buffer_memory": 5000}
    noticed = _oracles_that_notice(Setup(options=options), "calm_brings_progress")
    assert "calm_brings_progress" in noticed


def test_a_sender_that_sleeps_through_wake_ups_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SenderTask, "wake", lambda self: None)
    assert _oracles_that_notice(Setup(), "waits_are_bounded")


class _Messy(SimProducer):
    async def start(self, *, init_transactions: bool = True) -> None:
        await super().start(init_transactions=init_transactions)
        self.leaked = asyncio.ensure_future(asyncio.sleep(10_000))


class _Noisy(SimProducer):
    async def start(self, *, init_transactions: bool = True) -> None:
        await super().start(init_transactions=init_transactions)
        asyncio.get_running_loop().call_soon(_raise)


def _raise() -> None:
    raise LookupError("this is not caught")


@pytest.mark.parametrize(
    ("producer", "oracle"),
    [(_Messy, "nothing_is_left"), (_Noisy, "nothing_surprising_is_raised")],
)
def test_a_producer_that_leaves_tasks_or_timers_is_found_out(
    producer: type[SimProducer], oracle: str
) -> None:
    assert oracle in _oracles_that_notice(Setup(producer=producer), oracle)


class _WaitsForTheFirstClose(SimProducer):
    is_closing = False

    async def close(self, timeout: float | None = None) -> None:
        bound = None if self.is_closing else timeout
        self.is_closing = True
        await super().close(bound)


def test_a_close_with_a_bound_that_waits_for_another_one_is_found_out() -> None:
    setup = Setup(producer=_WaitsForTheFirstClose, options={"delivery_timeout_ms": 30_000})
    assert "waits_are_bounded" in _oracles_that_notice(setup, "waits_are_bounded", [32])


def test_a_wait_for_memory_that_begins_a_new_bound_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = RecordAppender._wait_bound

    def begin_anew(
        self: RecordAppender, now: float, deadline: float | None, topic: str
    ) -> tuple[str, float | None]:
        return bound(self, now, None, topic)

    monkeypatch.setattr(RecordAppender, "_wait_bound", begin_anew)
    setup = Setup(options={"max_block_ms": 3000})
    assert "waits_are_bounded" in _oracles_that_notice(setup, "waits_are_bounded")


def test_a_linger_that_does_not_end_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: AdaptiveLinger, *arguments: object, lingered: bool) -> bool:
        return lingered

    monkeypatch.setattr(AdaptiveLinger, "should_flush", never)
    noticed = _oracles_that_notice(Setup(), "waits_are_bounded", [_SEED_THAT_LINGERS])
    assert "waits_are_bounded" in noticed


def test_an_exception_in_the_sender_does_not_end_the_simulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drain: Callable[..., list[ProducerBatch]] = RecordAccumulator.drain

    def fail_late(self: RecordAccumulator, node_id: int, now: float) -> list[ProducerBatch]:
        if now > 20:
            raise ZeroDivisionError
        return drain(self, node_id, now)

    monkeypatch.setattr(RecordAccumulator, "drain", fail_late)
    result: Result = run_seed(1)
    assert {violation.oracle for violation in result.violations} >= {"nothing_surprising_is_raised"}


def test_a_producer_that_keeps_its_id_in_another_cluster_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keep(self: Sequencer) -> None:
        for partition in self._partitions.values():
            partition.begin_new_log()

    monkeypatch.setattr(Sequencer, "on_other_cluster", keep)
    oracle = "producer_ids_are_the_clusters_own"
    seeds = itertools.islice(seeds_of(REPLACEMENTS), 3)
    assert oracle in _oracles_that_notice(Setup(), oracle, seeds)


@pytest.mark.parametrize(
    ("is_awaited", "age_s", "found"), [(False, 9.0, 1), (True, 9.0, 0), (False, 7.0, 0)]
)
def test_old_metadata_that_name_a_leader_out_of_reach_are_found_out(
    is_awaited: bool, age_s: float, found: int
) -> None:
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(refreshed_at=100.0, is_awaited=is_awaited),
        accumulator=SimpleNamespace(readiness=SimpleNamespace(nodes=lambda: [1, 2])),
        client=SimpleNamespace(connection_failures={1: "refused", 2: None}.get),
    )
    assert len(list(_successor_not_asked_for(engine, 100.0 + age_s))) == found


def _engine_with(batch: object, **parts: object) -> Any:
    accumulator = SimpleNamespace(
        incomplete=lambda: [batch], settings=SimpleNamespace(delivery_timeout=30.0)
    )
    return SimpleNamespace(accumulator=accumulator, **parts)


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        (IllegalStateError("not possible"), 1),
        (IndexError(), 1),
        (TransactionAbortedError(), 1),
        (ProducerClosedError(), 0),
        (ProducerFencedError(), 0),
    ],
)
def test_a_producer_that_fails_by_itself_is_found_out(cause: Exception, found: int) -> None:
    failure = FatalTransactionError("the producer cannot go on")
    failure.__cause__ = cause
    evidence: Any = SimpleNamespace(failures=[failure])
    assert len(list(no_producer_fails_by_itself(evidence))) == found


@pytest.mark.parametrize(
    ("state", "may_lose", "codes", "found"),
    [
        ({}, False, (), 1),
        ({"producers_expired": 1}, False, (), 0),
        ({"producers_lost": 1}, False, (), 0),
        ({"deleted": ["t"]}, False, (), 0),
        ({}, True, (), 0),
        ({}, False, (45,), 0),
        ({}, False, (7,), 1),
    ],
)
def test_a_broker_that_is_said_to_have_no_state_is_found_out(
    state: dict[str, Any], may_lose: bool, codes: tuple[int, ...], found: int
) -> None:
    known = {"producers_expired": 0, "producers_lost": 0, "deleted": []}
    evidence: Any = SimpleNamespace(
        cluster=SimpleNamespace(**known | state),
        may_lose=may_lose,
        scripted_codes=frozenset(codes),
        expirations=["the broker does not have the last batch"],
    )
    assert len(list(what_brokers_have_is_known(evidence))) == found


@pytest.mark.parametrize(
    ("error", "settled_at", "enqueue_timeout_ms", "hands_over", "found"),
    [
        (DeliveryTimeoutError("late", elapsed_ms=1999), 9.0, None, False, 1),
        (DeliveryTimeoutError("late", elapsed_ms=2000), 9.0, None, False, 0),
        (BufferExhaustedError("full"), 5.9, None, False, 1),
        (BufferExhaustedError("full"), 6.0, None, False, 0),
        (BufferExhaustedError("full"), 5.9, 500, False, 0),
        (BufferExhaustedError("full"), 5.0, None, True, 0),
    ],
)
def test_a_wait_that_ends_before_its_time_is_found_out(
    error: KafkaError,
    settled_at: float,
    enqueue_timeout_ms: int | None,
    hands_over: bool,
    found: int,
) -> None:
    entry = SimpleNamespace(label="a record", error=error, asked_at=5.0, settled_at=settled_at)
    config = SimpleNamespace(
        max_block_ms=1000, delivery_timeout_ms=2000, enqueue_timeout_ms=enqueue_timeout_ms
    )
    ledger = SimpleNamespace(entries=[entry], hands_over=hands_over)
    evidence: Any = SimpleNamespace(config=config, ledger=ledger)
    assert len(list(nothing_ends_before_its_time(evidence))) == found


@pytest.mark.parametrize(
    ("error", "logins_were_refused", "found"),
    [
        (InvalidPartitionError(), False, 0),
        (SaslAuthenticationFailedError(), True, 0),
        (SaslAuthenticationFailedError(), False, 1),
        (TransactionAbortedError(), True, 1),
    ],
)
def test_an_early_record_that_fails_for_another_reason_is_found_out(
    error: KafkaError, logins_were_refused: bool, found: int
) -> None:
    evidence = _evidence_of(_entry(EARLY, error, asked_at=5.0, settled_at=5.0))
    evidence.logins_were_refused = logins_were_refused
    assert len(list(early_records_are_refused(evidence))) == found


@pytest.mark.parametrize(("appended_at", "found"), [(9.0, 1), (11.0, 0)])
def test_a_refusal_of_early_records_ends_with_the_healing(appended_at: float, found: int) -> None:
    entry = _entry(EARLY, DeliveryTimeoutError(), asked_at=5.0, settled_at=35.0)
    entry.partition = None
    evidence = _evidence_of(entry)
    log = SimpleNamespace(append_times=[appended_at])
    evidence.partitions = lambda: [(TopicPartition("t", 0), log)]
    evidence.cluster.has_had = lambda *_: False
    assert len(list(early_records_are_refused(evidence))) == found


@pytest.mark.parametrize(
    ("is_in_bulk", "asked_at", "settled_at", "took"),
    [(False, 5.0, 9.0, 29.0), (True, 5.0, 35.0, 25.0), (True, 11.0, 41.0, 30.0)],
)
def test_an_outcome_is_counted_from_the_healing(
    is_in_bulk: bool, asked_at: float, settled_at: float, took: float
) -> None:
    entry = _entry(b"<1>", DeliveryTimeoutError(), asked_at=asked_at, settled_at=settled_at)
    if is_in_bulk:
        entry.call, entry.done_at = (entry,), settled_at
    assert max(seconds for seconds, _ in recoveries(_evidence_of(entry))) == took


def _entry(name: bytes, error: KafkaError, *, asked_at: float, settled_at: float) -> Entry:
    entry = Entry(name, -1, "t", 7, None, name, (), None, asked_at, CallState.ACCEPTED, settled_at)
    entry.error = error
    return entry


def _evidence_of(entry: Entry) -> Any:
    """A cluster that was healed at 10.0."""
    return SimpleNamespace(
        config=SimpleNamespace(delivery_timeout_ms=30_000),
        healed_at=10.0,
        ledger=SimpleNamespace(entries=[entry], calls=[]),
        cluster=SimpleNamespace(has_had=lambda *_: True),
        logins_were_refused=False,
        partitions=list,
    )


@pytest.mark.parametrize(("until", "found"), [(130.0, 0), (130.05, 0), (130.2, 1), (math.inf, 1)])
def test_a_sender_that_sleeps_beyond_an_expiry_is_found_out(until: float, found: int) -> None:
    sleeping = SimpleNamespace(sleeping_until=until)
    engine = _engine_with(SimpleNamespace(created_at=100.0), sender_task=sleeping)
    assert len(list(_oversleeps_expiry(engine, 110.0))) == found


@pytest.mark.parametrize(("attempts", "found"), [(20, 0), (32, 0), (33, 1)])
def test_a_batch_that_is_repeated_without_pauses_is_found_out(attempts: int, found: int) -> None:
    engine = _engine_with(SimpleNamespace(created_at=100.0, attempts=attempts))
    assert len(list(_repeated_too_often(engine, 101.0))) == found


@pytest.mark.parametrize(
    ("refreshed_at", "is_awaited", "possibly_persisted", "found"),
    [
        (99.0, False, True, 1),
        (101.0, False, True, 0),
        (99.0, True, True, 0),
        (99.0, False, False, 0),
    ],
)
def test_a_lost_request_after_which_no_metadata_are_wanted_is_found_out(
    refreshed_at: float, is_awaited: bool, possibly_persisted: bool, found: int
) -> None:
    batch = SimpleNamespace(
        pins=0,
        last_error=NodeDisconnectedError("the connection broke"),
        last_attempt_at=100.0,
        possibly_persisted=possibly_persisted,
    )
    metadata = SimpleNamespace(refreshed_at=refreshed_at, is_awaited=is_awaited)
    engine = _engine_with(batch, metadata=metadata)
    assert len(list(_not_asked_after_failure(engine, 102.0))) == found


@pytest.mark.parametrize(
    ("code", "error", "pending", "is_wanted", "asked", "found"),
    [
        (5, None, (), False, None, 1),
        (5, None, (), False, "u", 1),
        (5, None, (), False, "t", 0),
        (5, None, ("t",), False, None, 0),
        (5, None, (), True, None, 0),
        (5, KafkaError("gone"), (), False, None, 0),
        (-1, None, (), False, None, 0),
    ],
)
def test_errors_of_partitions_after_which_no_metadata_are_wanted_are_found_out(
    code: int,
    error: KafkaError | None,
    pending: tuple[str, ...],
    is_wanted: bool,
    asked: str | None,
    found: int,
) -> None:
    live = SimpleNamespace(partition_errors={0: code}, error=error)
    metadata = SimpleNamespace(
        _topics={"t": live},
        _pending=dict.fromkeys(pending),
        _wanted=is_wanted,
        _fetch=asked and SimpleNamespace(topics=[asked]),
    )
    readiness = SimpleNamespace(leaderless={})
    engine: Any = SimpleNamespace(
        metadata=metadata, accumulator=SimpleNamespace(readiness=readiness)
    )
    assert len(list(_not_asked_for(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("error", "ready_at", "wanted", "nodes", "due_at", "found"),
    [
        (NodeDisconnectedError("refused"), 101.0, Rpc.END, [1], 101.0, 1),
        (NodeDisconnectedError("refused"), 101.0, None, [1], 101.0, 0),
        (NodeDisconnectedError("refused"), 101.0, Rpc.COMMIT_OFFSETS, [1], 101.0, 0),
        (NodeDisconnectedError("refused"), math.inf, Rpc.END, [1], 101.0, 0),
        (ConcurrentTransactionsError(), 101.0, Rpc.END, [1], 101.0, 0),
        (None, math.inf, Rpc.END, [2], 100.0, 1),
        (None, math.inf, Rpc.END, [2], 101.0, 0),
    ],
)
def test_a_coordinator_that_is_kept_out_of_reach_is_found_out(
    error: KafkaError | None,
    ready_at: float,
    wanted: Rpc | None,
    nodes: list[int],
    due_at: float,
    found: int,
) -> None:
    keys = [
        CoordinatorKey(CoordinatorKind.TRANSACTION, "tx"),
        CoordinatorKey(CoordinatorKind.GROUP, "later"),
    ]
    offsets = SimpleNamespace(group=SimpleNamespace(group_id="first"))
    manager = SimpleNamespace(
        is_busy=True,
        coordinator_error=error,
        transactional_id="tx",
        contents=SimpleNamespace(_offsets=[offsets]),
    )
    session = SimpleNamespace(
        _in_flight=None,
        wanted=wanted,
        _coordinators=dict.fromkeys(keys, 1),
        due_at=lambda now: due_at,
    )
    cluster = SimpleNamespace(nodes=dict.fromkeys(nodes))
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(cluster=cluster),
        transactions=SimpleNamespace(manager=manager, _coordinator_session=session),
        client=SimpleNamespace(
            connection_failures=lambda node_id: error, ready_at=lambda node_id, now: ready_at
        ),
    )
    assert len(list(_unreachable_coordinator_kept(engine, 100.0))) == found


@pytest.mark.parametrize(
    ("error", "found"), [(DuplicateSequenceNumberError(), 1), (KafkaError("no"), 0), (None, 0)]
)
def test_a_duplicate_that_fails_is_found_out(error: KafkaError | None, found: int) -> None:
    entry = SimpleNamespace(label="a record", error=error)
    evidence: Any = SimpleNamespace(ledger=SimpleNamespace(entries=[entry]))
    assert len(list(a_duplicate_is_written(evidence))) == found


@pytest.mark.parametrize(
    ("created_at", "count", "size", "found"),
    [
        (98.0, 2, 1000, 1),
        (99.0, 2, 1000, 0),
        (100.0, 1, 1001, 0),
        (100.0, 2, 1001, 1),
        (100.5, 2, 1000, 1),
    ],
)
def test_a_part_of_another_age_than_its_records_or_above_a_batch_is_found_out(
    created_at: float, count: int, size: int, found: int
) -> None:
    part = SimpleNamespace(
        created_at=created_at, topic_partition="t-0", count=count, uncompressed_size=size
    )
    batch = SimpleNamespace(created_at=100.0, parts=[part])
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(pinned=[batch]), config=SimpleNamespace(batch_size=1000)
    )
    assert len(list(_parts_are_wrong(engine, 101.0))) == found


def _producer_that_uses_a_topic() -> Any:
    producer = Mock()
    producer.engine.metadata._topics = {"t": Mock(before_hint=None)}
    return producer


def test_a_leader_epoch_that_goes_back_is_found_out() -> None:
    topics: dict[str, TopicMetadata] = {}
    producer = _producer_that_uses_a_topic()
    producer.engine.metadata.cluster.topics = topics
    cluster: Any = Mock()
    cluster.partition.return_value = Mock(leader_epoch=6)
    watch = LivenessWatch(lambda: 0.0, cluster)
    found = []
    for topic_id, epoch in [(1, 5), (1, 6), (2, 0), (2, 3), (2, 2)]:
        partition = PartitionMetadata(0, 1, epoch)
        topics["t"] = TopicMetadata("t", UUID(int=topic_id), (partition,))
        found.append(len(list(watch._older_leaders(producer))))
    assert found == [0, 0, 0, 0, 1]


def test_a_leader_epoch_that_goes_back_while_its_topic_is_missing_is_found_out() -> None:
    partition = PartitionMetadata(0, 1, 5)
    topic = TopicMetadata("t", UUID(int=1), (partition,))
    older = TopicMetadata("t", UUID(int=1), (partition._replace(leader_epoch=4),))
    producer = _producer_that_uses_a_topic()
    cluster: Any = Mock()
    cluster.partition.return_value = Mock(leader_epoch=6)
    watch = LivenessWatch(lambda: 0.0, cluster)
    found = []
    for topics in ({"t": topic}, {}, {"t": older}):
        producer.engine.metadata.cluster.topics = topics
        found.append(len(list(watch._older_leaders(producer))))
    assert found == [0, 0, 1]


def test_partitions_that_a_topic_loses_are_found_out() -> None:
    producer = _producer_that_uses_a_topic()
    cluster: Any = Mock()
    cluster.partition.return_value = Mock(leader_epoch=6)
    watch = LivenessWatch(lambda: 0.0, cluster)
    found = []
    for topic_id, count in [(1, 1), (1, 2), (1, 1), (2, 1)]:
        partitions = tuple(PartitionMetadata(number, 1, 5) for number in range(count))
        topic = TopicMetadata("t", UUID(int=topic_id), partitions)
        producer.engine.metadata.cluster.topics = {"t": topic}
        found.append(len(list(watch._older_leaders(producer))))
    assert found == [0, 0, 1, 0]


def test_a_leader_epoch_that_the_topic_has_not_reached_may_go_back() -> None:
    producer, cluster = _producer_that_uses_a_topic(), Mock()
    cluster.partition.return_value = Mock(leader_epoch=1)
    watch = LivenessWatch(lambda: 0.0, cluster)
    for epoch in (5, 1):
        topic = TopicMetadata("t", UUID(int=1), (PartitionMetadata(0, 1, epoch),))
        producer.engine.metadata.cluster.topics = {"t": topic}
        assert not list(watch._older_leaders(producer))


def test_a_topic_that_expires_may_begin_with_an_older_leader_epoch() -> None:
    topics: dict[str, TopicMetadata] = {}
    producer: Any = Mock()
    producer.engine.metadata.cluster.topics = topics
    watch = LivenessWatch(lambda: 0.0, Mock())
    for epoch in (5, 4):
        partition = PartitionMetadata(0, 1, epoch)
        topics["t"] = TopicMetadata("t", UUID(int=1), (partition,))
        producer.engine.metadata._topics = {"t": Mock(before_hint=None)}
        assert not list(watch._older_leaders(producer))


def test_a_batch_that_is_renumbered_on_the_wire_is_found_out() -> None:
    batch = SimpleNamespace(
        ordinal=(1,), attempts=1, on_wire=True, producer_id=7, producer_epoch=0, base_sequence=3
    )
    producer: Any = Mock()
    producer.engine.accumulator.pinned = [batch]
    watch = LivenessWatch(lambda: 0.0, Mock())
    found = []
    for attempts, epoch in [(1, 0), (1, 0), (2, 1), (2, 2)]:
        batch.attempts, batch.producer_epoch = attempts, epoch
        found.append(len(list(watch._renumbered(producer))))
    assert found == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("failures", "allowed_at", "found"), [(1, 0.0, 1), (1, 0.1, 0), (0, 0.0, 0)]
)
@pytest.mark.parametrize("is_about_id", [False, True])
def test_a_request_right_after_a_failed_one_is_found_out(
    failures: int, allowed_at: float, found: int, is_about_id: bool
) -> None:
    producer: Any = Mock()
    producer.config.retry_backoff_ms = 100
    metadata, identity = producer.engine.metadata, producer.engine.driver.sender.producer_id
    metadata._failures, metadata._allowed_at = 0, 0.0
    identity.failures, identity._retry_at = 0, 0.0
    if is_about_id:
        identity.failures, identity._retry_at = failures, allowed_at
    else:
        metadata._failures, metadata._allowed_at = failures, allowed_at
    watch = LivenessWatch(lambda: 0.0, Mock())
    assert len(list(watch._asked_again_at_once(producer))) == found
    assert not list(watch._asked_again_at_once(producer))


@pytest.mark.parametrize(
    ("acknowledged_at", "epoch", "topic_id", "metadata_version", "found"),
    [
        (1.0, None, 1, 13, 1),
        (-inf, None, 1, 13, 0),
        (1.0, 0, 1, 13, 0),
        (1.0, None, 2, 13, 0),
        (1.0, None, 1, 9, 0),
    ],
)
def test_an_acknowledgement_of_a_deleted_log_that_counts_for_the_new_one_is_found_out(
    acknowledged_at: float, epoch: int | None, topic_id: int, metadata_version: int, found: int
) -> None:
    sequencer = TransactionalSequencer(5, Mock())
    partition = sequencer._partition(TopicPartition("t", 0))
    partition.identity, partition.acknowledged_at = ProducerIdentity(7, 1), acknowledged_at
    producer: Any = Mock()
    producer.engine.accumulator.sequencer = sequencer
    producer.engine.metadata.topic.return_value = Mock(topic_id=topic_id)
    settings = ClusterSettings(api_versions={ApiKey.METADATA: (0, metadata_version)})
    cluster: Any = Mock(topics={"t": Mock(topic_id=1)}, producers_lost_at={}, settings=settings)
    cluster.topics["t"].partition.return_value.producers.epoch_of.return_value = epoch
    watch = LivenessWatch(lambda: 0.0, cluster)
    assert len(list(watch._acknowledged_by_a_deleted_log(producer))) == found


def test_sequences_that_go_on_in_a_new_topic_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sequencer, "on_recreated", lambda self, topic: None)
    oracle = "no_epoch_goes_on_in_a_new_topic"
    assert oracle in _oracles_that_notice(Setup(), oracle, seeds_of(RECREATIONS))


def test_a_send_that_raises_what_it_does_not_document_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def peek(self: BuiltInPartitioner, topic: TopicMetadata) -> int:
        raise IndexError("no such partition")

    monkeypatch.setattr(BuiltInPartitioner, "peek", peek)
    oracle = "send_raises_what_it_documents"
    assert oracle in _oracles_that_notice(Setup(), oracle)


def test_a_failure_that_is_reported_although_it_was_read_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProducerBatch, "mark_retrieved", lambda self, index: None)
    oracle = "no_failure_is_unhandled_that_was_read"
    assert oracle in _oracles_that_notice(Setup(), oracle)


def test_a_failure_of_a_bulk_call_that_is_reported_as_unread_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fold_one = BulkRun._fold_one

    def fold_unread(self: BulkRun, batch: ProducerBatch, number: int, index: int) -> None:
        fold_one(self, batch, number, index)
        batch.retrieved -= batch.record_error(index) is not None

    monkeypatch.setattr(BulkRun, "_fold_one", fold_unread)
    oracle = "no_failure_is_unhandled_that_was_read"
    assert oracle in _oracles_that_notice(Setup(), oracle, [15])


def test_an_unread_failure_that_is_not_reported_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark_retrieved = ProducerBatch.mark_retrieved

    def mark_twice(self: ProducerBatch, index: int) -> None:
        mark_retrieved(self, index)
        mark_retrieved(self, index)

    monkeypatch.setattr(ProducerBatch, "mark_retrieved", mark_twice)
    oracle = "no_failure_is_unhandled_that_was_read"
    assert oracle in _oracles_that_notice(Setup(), oracle, [40])


def test_an_unread_failure_that_is_not_logged_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UnretrievedFailures, "_write_sums", lambda self: None)
    oracle = "no_failure_is_unhandled_that_was_read"
    assert oracle in _oracles_that_notice(Setup(), oracle, range(6, 31))


def test_an_early_record_of_a_refused_topic_that_waits_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EarlyRecords, "_fail", lambda self, topic, error: None)
    oracle = "early_records_are_refused"
    assert oracle in _oracles_that_notice(Setup(), oracle, [4])


def test_a_call_that_is_serialized_after_a_close_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SerializationQueue, "close", lambda self, error: None)
    oracle = "waits_are_bounded"
    assert oracle in _oracles_that_notice(Setup(), oracle, [36])


def test_a_loop_of_sends_that_lets_no_other_task_run_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appender, "RECORDS_PER_TURN", 10**6)
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_that_notice(Setup(), oracle, [125])


def test_a_call_that_overtakes_others_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordAppender, "_may_append", True)
    oracle = "calls_for_a_topic_are_served_in_order"
    assert oracle in _oracles_that_notice(Setup(), oracle)


def test_a_call_that_is_kept_after_its_end_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(self: MetadataWaiters, deadline: float) -> bool:
        answered = self._loop.create_future()
        answered.set_result(True)
        self._refreshes[answered] = 0
        return await refresh(self, deadline)

    refresh = MetadataWaiters.refresh
    monkeypatch.setattr(MetadataWaiters, "refresh", keep)
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_that_notice(Setup(), oracle)


def test_a_purge_that_counts_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    abort = Sender.abort

    def count_batches(self: Sender, error: KafkaError, **which: bool) -> int:
        return min(1, abort(self, error, **which))

    monkeypatch.setattr(Sender, "abort", count_batches)
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_that_notice(Setup(), oracle, range(5, 31))


def test_an_error_that_names_another_partition_is_found_out() -> None:
    entry = Entry(b"1", 0, "t", 0, None, b"1", (), None, 0.0, CallState.ACCEPTED, 0.0)
    evidence: Any = SimpleNamespace(ledger=SimpleNamespace(entries=[entry]))
    for topic, partition, found in (("t", 0, 0), ("t", None, 0), ("t", 1, 1), ("u", 0, 1)):
        entry.error = KafkaError(
            "no", topic=topic, partition=partition, persistence=Persistence.NOT_PERSISTED
        )
        assert len(list(failures_state_persistence(evidence))) == found


def test_a_cancelled_bulk_call_that_reads_outcomes_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BulkRun, "_detach", lambda self: None)
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_that_notice(Setup(), oracle, range(3, 31))


def test_a_bulk_call_that_keeps_the_number_of_partitions_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refresh = BulkTarget._refresh

    def refresh_once(self: BulkTarget) -> None:
        if self._meta is None:
            refresh(self)

    monkeypatch.setattr(BulkTarget, "_refresh", refresh_once)
    oracle = "partition_is_obeyed"
    assert oracle in _oracles_that_notice(Setup(), oracle, range(_SEED_WITH_LINGER, 120))


def test_a_partition_without_a_leader_that_is_chosen_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def any_partition(topic: TopicMetadata, rng: Random, preferred: Sequence[int] = ()) -> int:
        return rng.randrange(len(topic.partitions))

    monkeypatch.setattr(partitioners, "uniform_partition", any_partition)
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_that_notice(Setup(), oracle, range(3, 31))


def test_a_hand_over_that_a_flush_does_not_wait_for_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drain_nothing(self: SubmissionQueue) -> None:
        pass

    monkeypatch.setattr(SubmissionQueue, "drained", drain_nothing)
    oracle = "what_calls_return_is_true"
    assert oracle in _oracles_that_notice(Setup(), oracle, range(_SEED_THAT_HANDS_OVER, 200))


def test_a_serializer_that_is_not_closed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close_nothing(self: UserObjects) -> None:
        self._open.clear()

    monkeypatch.setattr(UserObjects, "close", close_nothing)
    oracle = "what_the_user_gave_is_closed"
    assert oracle in _oracles_that_notice(Setup(), oracle, [_SEED_WITH_SERIALIZER])


def test_a_dropped_producer_that_gives_records_up_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def close_at_once(self: ProducerEngine) -> None:
        self._close_task = start_later(self.loop, self.close(0), name="aioproducer-close")

    monkeypatch.setattr(ProducerEngine, "_start_close", close_at_once)
    oracle = "calm_brings_progress"
    assert oracle in _oracles_that_notice(Setup(), oracle, [_SEED_THAT_DROPS])
