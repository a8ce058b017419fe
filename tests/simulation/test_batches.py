"""State of batches that differs from what it is computed from is found out, in a real core."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from unit.core.support import Core

from aioproducer.core.batching.batch import BatchOutcome
from aioproducer.core.batching.partitioners import NodeLatencies, PartitionLoad
from aioproducer.core.sending.failures import refused_because_of_others
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.reasons import Obstacle, Wait
from aioproducer.errors import (
    KafkaError,
    ProtocolError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from aioproducer.metrics.totals import FailedBatch
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.produce import ProduceRequest
from simulation import batches
from simulation.batches import (
    Acknowledgements,
    Choices,
    Doubts,
    EarlyAges,
    Failures,
    Gaps,
    RefusedIds,
    derived_state_differs,
)

_WHERE = TopicPartition("t", 0)
_STICKY = SimpleNamespace(_partitioners={"t": None, "gone": None})


def _engine(latencies: NodeLatencies | None = None) -> Any:
    """A core with a batch in flight, one that is queued and one that lingers."""
    sequencer = Sequencer(5)
    sequencer.on_identity(ProducerIdentity(7, 0))
    core = Core(linger=1.0, sequencer=sequencer, latencies=latencies or NodeLatencies(5.0))
    core.append()
    core.now += 2
    (dispatch,) = core.poll()
    queued, lingering = core.fill(), core.append(1)
    core.nodes.unready[1] = inf
    assert not core.poll()
    request = SimpleNamespace(
        kind=ProduceRequest, on_end=SimpleNamespace(args=(1, dispatch.batches))
    )
    connection = SimpleNamespace(is_open=True, _awaiting=[request], _unflushed=[])
    link = SimpleNamespace(_connection=connection, node=core.metadata.cluster.nodes[1])
    accumulator = core.accumulator
    return SimpleNamespace(
        core=core,
        sent=dispatch.batches[0],
        queued=queued,
        lingering=lingering,
        queue=accumulator.queue(*_WHERE),
        lingering_queue=accumulator.queue("t", 1),
        sequences=sequencer._partitions[_WHERE],
        accumulator=accumulator,
        pool=core.pool,
        config=SimpleNamespace(buffer_max_records=None),
        metadata=core.metadata,
        transactions=None,
        driver=SimpleNamespace(sender=core.sender),
        sender_task=SimpleNamespace(_preparing={}),
        client=SimpleNamespace(_links=lambda: [link], _retired={}),
        appender=SimpleNamespace(batch_appender=SimpleNamespace(_sticky_partitioners=_STICKY)),
    )


def test_state_that_equals_what_it_is_computed_from_breaks_no_rule() -> None:
    engine = _engine()
    assert not list(derived_state_differs(engine, engine.core.now))


@pytest.mark.parametrize(
    ("owner", "name", "value", "text"),
    [
        ("queue", "batches", deque(), "queued, of"),
        ("accumulator", "_queues", {}, "are in no queue"),
        ("queued", "full", False, "several batches with room"),
        ("queue", "placed", None, "is placed 1 times"),
        ("lingering_queue", "muted", True, "nothing to linger for"),
        ("queue", "muted", True, "is placed or planned"),
        ("lingering_queue", "muted", True, "no batch is in flight"),
        ("lingering", "created_at", 1.0, "lingers until"),
        ("lingering_queue", "ready_at", inf, "is not planned, and waits for nothing"),
        ("accumulator.readiness", "_heap", [], "not in the heap"),
        ("accumulator.readiness", "_heap", [], "the next partition is due"),
        ("accumulator._incomplete", "_timeout", 1.0, "the first batch expires"),
        ("sent", "pins", 2, "has 2 pins, not 1"),
        ("accumulator", "pinned", set(), "has 1 pins, not 1"),
        ("sent", "on_wire", False, "on the wire: False"),
        ("sent", "outcome", BatchOutcome(error=ProtocolError("x")), "not written on the wire"),
        ("driver.sender", "_preparing", {1}, "are prepared"),
        ("queued", "size", 1, "bytes of memory are in use"),
        ("queued", "size", 1000, "has 1000 bytes of memory"),
        ("sequences", "in_flight", [], "in flight, of"),
        ("accumulator.sequencer", "_max_in_flight", 0, "brokers know 0"),
        ("sequences", "next_sequence", 9, "then 9"),
        ("accumulator.sequencer", "_partitions", {}, "sequences that are not kept"),
        ("driver.sender.producer_id", "in_flight", True, "a producer id are in flight"),
        ("driver.sender.producer_id", "_outdated", True, "its response is to be ignored"),
        ("driver.sender.producer_id", "refused", True, "counts as refused"),
        ("driver.sender.producer_id", "last_error", ProtocolError("x"), "still requested"),
        ("driver.sender._latencies", "_timeout", 0.0, "measured: True"),
        ("driver.sender._latencies", "_waits", {}, "measured: False"),
        ("driver.sender._latencies", "_waits", {1: (9.0, 102.0)}, "which does not count"),
        ("driver.sender._latencies", "_waits", {1: (9.0, 8.0)}, "took data"),
        ("driver.sender", "wait_of", lambda batch: Wait(Obstacle.METADATA), "and it is not"),
    ],
)
def test_state_that_differs_is_found_out(owner: str, name: str, value: object, text: str) -> None:
    engine = _engine()
    setattr(attrgetter(owner)(engine), name, value)
    assert any(text in each for each in derived_state_differs(engine, engine.core.now))


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (PartitionLoad([0, 1, 1], [0, 1, 2], 3), ""),
        (PartitionLoad([0, 1, 1], [0, 1, 2], 1), "partitions [0] of t may be chosen"),
        (None, "of t do not count"),
    ],
)
def test_partitions_that_are_left_out_are_found_out(
    monkeypatch: pytest.MonkeyPatch, load: PartitionLoad | None, text: str
) -> None:
    engine = _engine()
    engine.core.append(2)
    monkeypatch.setattr(batches, "partition_load", lambda *_: load)
    texts = list(derived_state_differs(engine, engine.core.now))
    assert [text in each for each in texts] == [True] * bool(text)


@pytest.mark.parametrize(
    ("cause", "found"), [(TopicAuthorizationFailedError(), 1), (RecordTooLargeError(), 0)]
)
def test_a_batch_that_is_split_after_a_final_refusal_is_found_out(
    cause: KafkaError, found: int
) -> None:
    engine = _engine()
    engine.queued.last_error = refused_because_of_others(cause, are_named=False)
    texts = derived_state_differs(engine, engine.core.now)
    assert sum("was split after" in text for text in texts) == found


def test_places_of_records_that_no_batch_has_are_found_out() -> None:
    engine = _engine()
    engine.config.buffer_max_records, engine.pool.ceiling = 10, 10
    engine.appender = SimpleNamespace(fast_path=SimpleNamespace(appended=9))
    assert any("9 places" in each for each in derived_state_differs(engine, engine.core.now))


@pytest.mark.parametrize("is_done", [False, True])
def test_a_batch_that_has_ended_before_its_parts_is_found_out(is_done: bool) -> None:
    engine = _engine()
    engine.sent.done = True
    engine.sent.parts = (SimpleNamespace(done=is_done),)
    broken = list(derived_state_differs(engine, engine.core.now))
    assert any("its parts are sent" in each for each in broken) != is_done


def test_several_batches_of_a_partition_that_keeps_the_order_are_found_out() -> None:
    engine = _engine()
    engine.accumulator.settings = replace(engine.accumulator.settings, guarantee_order=True)
    engine.accumulator.pin(engine.queued)
    broken = list(derived_state_differs(engine, engine.core.now))
    assert any("several batches of a partition" in each for each in broken)


def test_a_batch_in_flight_that_has_overtaken_a_queued_one_is_found_out() -> None:
    engine = _engine()
    engine.accumulator.settings = replace(engine.accumulator.settings, guarantee_order=True)
    assert not any("overtaken" in each for each in derived_state_differs(engine, engine.core.now))
    engine.sent.ordinal = (9,)
    assert any("overtaken" in each for each in derived_state_differs(engine, engine.core.now))


@pytest.mark.parametrize("is_muted", [False, True])
def test_a_batch_in_flight_that_another_may_follow_is_found_out(is_muted: bool) -> None:
    engine = _engine()
    engine.accumulator.settings = replace(engine.accumulator.settings, guarantee_order=True)
    engine.queue.muted = is_muted
    broken = list(derived_state_differs(engine, engine.core.now))
    assert any("another may follow" in each for each in broken) != is_muted


@pytest.mark.parametrize("awaited", [0, 1, 2])
def test_a_linger_that_may_end_before_all_records_are_awaited_is_found_out(awaited: int) -> None:
    engine = _engine()
    for batch in engine.accumulator.incomplete():
        for number in range(batch.count * awaited // 2):
            batch.add_listener((batch, number), lambda key: None)
    readiness = engine.accumulator.readiness
    assert not any("early" in each for each in derived_state_differs(engine, engine.core.now))
    readiness.adaptive_linger = Mock(should_flush=lambda *_, **__: True)
    broken = list(derived_state_differs(engine, engine.core.now))
    assert any("linger may end early" in each for each in broken) == (awaited < 2)


@pytest.mark.parametrize(
    ("failures", "refused", "left", "found"),
    [(1, True, [(2,)], 1), (1, True, [(3,)], 0), (1, False, [(2,)], 0), (0, True, [(2,)], 0)],
)
def test_a_batch_that_waits_on_for_a_refused_producer_id_is_found_out(
    failures: int, refused: bool, left: list[tuple[int, ...]], found: int
) -> None:
    batches = [SimpleNamespace(ordinal=(2,), pins=0)]
    identity = SimpleNamespace(failures=0, refused=refused, last_error=None)
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(incomplete=lambda: batches),
        driver=SimpleNamespace(sender=SimpleNamespace(producer_id=identity)),
    )
    steps = RefusedIds()
    assert not list(steps.check(engine, 1.0))
    identity.failures = failures
    batches[:] = [SimpleNamespace(ordinal=each, pins=0) for each in left]
    assert len(list(steps.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"newest": (1,), "acknowledged_at": 102.5, "acknowledged_epoch": 1}, 0),
        ({"newest": (1,), "acknowledged_at": 102.0, "acknowledged_epoch": 1}, 1),
        ({"newest": (1,), "acknowledged_at": -inf, "acknowledged_epoch": 1}, 1),
        ({"newest": (1,), "acknowledged_at": 102.5, "acknowledged_epoch": 0}, 1),
        ({"newest": (1,), "acknowledged_at": -inf, "log_may_be_new": True}, 0),
        ({}, 0),
    ],
)
def test_an_acknowledgement_that_does_not_count_is_found_out(
    state: dict[str, Any], found: int
) -> None:
    engine, steps = _engine(), Acknowledgements()
    assert not list(steps.check(engine, engine.core.now))
    for name, value in state.items():
        setattr(engine.sequences, name, value)
    assert len(list(steps.check(engine, 103.0))) == found


@pytest.mark.parametrize(("more", "now", "found"), [(1, 1.05, 0), (1, 1.2, 1), (0, 9.0, 0)])
def test_a_record_that_joins_an_older_one_before_metadata_is_found_out(
    more: int, now: float, found: int
) -> None:
    batch = SimpleNamespace(created_at=0.0, topic_partition=TopicPartition("t", -1))
    waiting = Mock(batch=batch, partitions=[None])
    early = SimpleNamespace(_topics={"t": deque([waiting])})
    engine: Any = SimpleNamespace(appender=SimpleNamespace(early=early))
    steps = EarlyAges()
    assert not list(steps.check(engine, 0.0))
    waiting.partitions += [None] * more
    assert len(list(steps.check(engine, now))) == found


@pytest.mark.parametrize(
    ("rack", "slow_ms", "weights_due_at", "chosen", "found"),
    [
        ("", 0, 2.0, 2, 0),
        ("a", 0, 2.0, 0, 0),
        ("a", 0, 2.0, 2, 1),
        ("a", 500, 2.0, 2, 0),
        ("a", 0, 1.0, 2, 0),
        ("b", 0, 2.0, 2, 0),
        ("c", 0, 2.0, 2, 0),
    ],
)
def test_a_partition_outside_of_the_rack_that_is_chosen_is_found_out(
    rack: str, slow_ms: int, weights_due_at: float, chosen: int, found: int
) -> None:
    core, partitioner = Core(), SimpleNamespace(current=None, weights_due_at=1.0)
    nodes = {each: SimpleNamespace(rack="ab"[each > 2]) for each in (1, 2, 3)}
    cluster = SimpleNamespace(nodes=nodes, topics={"t": core.metadata.topic("t")})
    sticky = SimpleNamespace(_partitioners={"t": partitioner})
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(
            client_rack=rack,
            partitioner_rack_aware=True,
            partitioner_adaptive_partitioning_enable=True,
            partitioner_availability_timeout_ms=slow_ms,
        ),
        metadata=SimpleNamespace(cluster=cluster, version=1, topic=cluster.topics.get),
        appender=SimpleNamespace(
            batch_appender=SimpleNamespace(_sticky_partitioners=sticky),
            fast_path=SimpleNamespace(waiting=0),
        ),
    )
    steps = Choices()
    assert not list(steps.check(engine, 1.0))
    partitioner.weights_due_at = weights_due_at
    assert not list(steps.check(engine, 1.5))
    partitioner.current = chosen
    assert len(list(steps.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("gap", "new_gap", "ordinal", "epoch", "found"),
    [
        ((1,), (1,), (9,), 0, 1),
        ((1,), (1,), (9,), 1, 0),
        ((1,), (1,), (1, 0), 0, 0),
        ((1,), None, (9,), 0, 0),
        (None, (1,), (9,), 0, 0),
        (None, None, (9,), 0, 0),
    ],
)
def test_a_new_batch_after_a_gap_is_found_out(
    gap: tuple[int, ...] | None,
    new_gap: tuple[int, ...] | None,
    ordinal: tuple[int, ...],
    epoch: int,
    found: int,
) -> None:
    engine, steps = _engine(), Gaps()
    engine.sequences.unknown_gap = gap
    assert not list(steps.check(engine, 1.0))
    engine.sequences.unknown_gap = new_gap
    batch = SimpleNamespace(ordinal=ordinal, producer_id=7, producer_epoch=epoch)
    engine.sequences.in_flight.append(batch)
    assert len(list(steps.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("changes", "in_flight", "found"),
    [
        ({}, [], 1),
        ({"unknown_gap": (1,)}, [], 1),
        ({"unknown_gap": (2,)}, [], 0),
        ({"unwritten_from": (1,)}, [], 0),
        ({"newest": (3,)}, [], 0),
        ({"identity": ProducerIdentity(7, 1)}, [], 0),
        ({"log_is_new": True}, [], 0),
        ({}, [(2, 0)], 0),
        ({}, [(2,)], 0),
    ],
)
def test_a_failed_batch_without_a_gap_is_found_out(
    changes: dict[str, object], in_flight: list[tuple[int, ...]], found: int
) -> None:
    engine, steps = _engine(), Failures()
    engine.sequences.in_flight = [SimpleNamespace(ordinal=(2,))]
    assert not list(steps.check(engine, 1.0))
    engine.sequences.in_flight = [SimpleNamespace(ordinal=each) for each in in_flight]
    for name, value in changes.items():
        setattr(engine.sequences, name, value)
    assert len(list(steps.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("in_doubt", "created_at", "error", "found"),
    [
        (True, 5.0, "out of time [not persisted]", 1),
        (True, 5.0, "out of time [possibly persisted]", 0),
        (False, 5.0, "out of time [not persisted]", 0),
        (True, 6.0, "out of time [not persisted]", 0),
    ],
)
def test_a_batch_in_doubt_that_fails_as_not_persisted_is_found_out(
    in_doubt: bool, created_at: float, error: str, found: int
) -> None:
    batch = SimpleNamespace(topic_partition=_WHERE, created_at=5.0, possibly_persisted=in_doubt)
    failures: list[FailedBatch] = []
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(incomplete=lambda: [batch]),
        stats=SimpleNamespace(recent_failures=failures),
    )
    steps = Doubts()
    assert not list(steps.check(engine, 6.0))
    failures.append(FailedBatch(_WHERE, 1, created_at, error))
    assert len(list(steps.check(engine, 7.0))) == found
    assert not list(steps.check(engine, 8.0))
