"""Rules for a waiting producer: each finds the state that breaks it, and no other."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operations import Operation, OperationKind
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    KafkaError,
    NodeDisconnectedError,
    RebootstrapRequiredError,
    UnknownTopicOrPartitionError,
)
from aioproducer.net.client import NodeNotReady
from aioproducer.net.connection import IdleConnectionError
from aioproducer.runtime.bulk.run import _Tracked
from aioproducer.types import Node, PartitionMetadata, TopicMetadata, TopicPartition
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.produce import ProduceRequest
from simulation.waiting import (
    CoordinatorSteps,
    ExtraTurns,
    IdleConnections,
    MemoryLine,
    MetadataSteps,
    NewLogs,
    NewTopics,
    Numbers,
    RepeatedEnds,
    Repeats,
    SentBatches,
    Throttling,
    _absent_and_not_wanted,
    _awaited_too_long,
    _beyond_limits,
    _derived_state_is_old,
    _differs_from_its_request,
    _kept_without_use,
    _never_lingers,
    _new_topic_waits,
    _not_asked_after_last_connection,
    _not_asked_after_refusal,
    _pauses_too_long,
    _placed_elsewhere,
    _placed_without_batches,
    _planned_late,
    _refreshed_late,
    _renewed_late,
    _several_before_the_first,
    _sleeps_although_woken,
    _sleeps_past_a_node,
    _split_in_doubt,
    _topic_not_in_use,
    _waits_for_free_memory,
    _waits_for_what_has_come,
    _waits_though_leader_changed,
    _waits_though_overtaken,
    _without_records,
    _written_too_early,
    asked_in_vain,
    asks_before_the_pause_ends,
    keeps_refused_brokers,
    lingers_although_awaited,
    links_are_old,
    numbers_on_wire,
    waits_although_closed,
    waits_although_decided,
)

_WHERE = TopicPartition("t", 0)
_TOPIC_ID = UUID(int=1)


def _batch(**state: Any) -> Any:
    known = {"topic_partition": _WHERE, "on_wire": True, "pins": 1, "attempts": 1}
    known |= {"producer_id": -1}
    return SimpleNamespace(**known | state)


@pytest.mark.parametrize(
    ("was_woken", "is_asleep", "found"), [(True, True, 1), (False, True, 0), (True, False, 0)]
)
def test_a_task_that_sleeps_although_it_was_woken_is_found_out(
    was_woken: bool, is_asleep: bool, found: int
) -> None:
    task = SimpleNamespace(_wakeup=SimpleNamespace(_woken=was_woken, is_asleep=is_asleep))
    engine: Any = SimpleNamespace(sender_task=task, metadata_task=None, transactions=None)
    assert len(list(_sleeps_although_woken(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("on_wire", "newest", "acknowledged_epoch", "log_is_new", "found"),
    [
        ((True, True), (), 5, False, 1),
        ((True, False), (), 5, False, 0),
        ((True, True), (3,), 5, False, 0),
        ((True, True), (3,), 4, False, 1),
        ((True, False), (3,), 4, False, 0),
        ((True, True), (), 5, True, 0),
    ],
)
def test_batches_sent_together_before_the_first_acknowledgement_are_found_out(
    on_wire: tuple[bool, ...],
    newest: tuple[int, ...],
    acknowledged_epoch: int,
    log_is_new: bool,
    found: int,
) -> None:
    sequencer = Sequencer(5)
    sequencer.on_identity(ProducerIdentity(7, 0))
    partition = sequencer._partition(_WHERE)
    partition.newest, partition.log_is_new = newest, log_is_new
    partition.acknowledged_epoch = acknowledged_epoch
    partition.in_flight += [_batch(on_wire=each, leader_epoch=5) for each in on_wire]
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(sequencer=sequencer), transactions=None
    )
    assert len(list(_several_before_the_first(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("pins", "attempts", "leader_epoch", "retry_at", "found"),
    [
        (0, 1, 4, 1.5, 1),
        (0, 1, 5, 1.5, 0),
        (0, 1, 4, 1.0, 0),
        (0, 4, 4, 1.5, 0),
        (0, 0, -1, 1.5, 0),
        (1, 1, 4, 1.5, 0),
    ],
)
def test_a_batch_that_waits_although_its_leader_has_changed_is_found_out(
    pins: int, attempts: int, leader_epoch: int, retry_at: float, found: int
) -> None:
    batch = _batch(pins=pins, attempts=attempts, leader_epoch=leader_epoch, retry_at=retry_at)
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(incomplete=lambda: [batch]),
        metadata=SimpleNamespace(leader_epoch=lambda topic, partition: 5),
    )
    assert len(list(_waits_though_leader_changed(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("renew_at", "sent_at", "is_dialing", "found"),
    [
        (19.0, 18.0, False, 0),
        (20.0, 18.0, False, 0),
        (20.1, 18.0, False, 1),
        (19.0, 19.1, False, 1),
        (19.0, 19.1, True, 0),
    ],
)
def test_a_session_that_is_renewed_after_its_end_or_use_is_found_out(
    renew_at: float, sent_at: float, is_dialing: bool, found: int
) -> None:
    request = SimpleNamespace(sent_at=sent_at)
    link = SimpleNamespace(
        versions=object(),
        node=SimpleNamespace(id=1),
        ready_since=10.0,
        is_dialing=is_dialing,
        _session=SimpleNamespace(lifetime_s=10.0),
        _renew_at=renew_at,
        _connection=SimpleNamespace(is_open=True, _awaiting=[request], _unflushed=[]),
    )
    engine: Any = SimpleNamespace(client=SimpleNamespace(_links=lambda: [link]))
    assert len(list(_renewed_late(engine, 1.0))) == found


def test_the_numbers_on_the_wire_are_those_of_each_attempt() -> None:
    numbers = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
    sent = _batch(ordinal=(4,), attempts=2, **numbers)
    queued = _batch(ordinal=(5,), attempts=1, on_wire=False, **numbers)
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(pinned=[sent, queued]))
    assert numbers_on_wire(engine) == {((4,), 2): Numbers(7, 1, 3)}


@pytest.mark.parametrize(
    ("ready_at", "until", "preparing", "found"),
    [(3.0, 5.0, (), 1), (3.0, 3.0, (), 0), (math.inf, 9.0, (), 0), (3.0, 5.0, (7,), 0)],
)
def test_a_sender_that_sleeps_past_the_backoff_of_a_node_is_found_out(
    ready_at: float, until: float, preparing: tuple[int, ...], found: int
) -> None:
    engine: Any = SimpleNamespace(
        driver=SimpleNamespace(
            sender=SimpleNamespace(_preparing=set(preparing), _wants_identity=False)
        ),
        sender_task=SimpleNamespace(sleeping_until=until),
        accumulator=SimpleNamespace(readiness=SimpleNamespace(nodes=lambda: [7])),
        client=SimpleNamespace(ready_at=lambda node_id, now: ready_at),
    )
    assert len(list(_sleeps_past_a_node(engine, 1.0))) == found


@pytest.mark.parametrize(("leader", "found"), [(7, 0), (8, 1), (None, 1)])
def test_a_partition_that_waits_for_a_former_leader_is_found_out(
    leader: int | None, found: int
) -> None:
    queue = SimpleNamespace(topic_partition=_WHERE)
    readiness = SimpleNamespace(_ready={7: [queue]}, leader_of=lambda where: leader)
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(readiness=readiness))
    assert len(list(_placed_elsewhere(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("error", "is_awaited", "refreshed_at", "found"),
    [
        (UnknownTopicOrPartitionError(), False, 0.5, 1),
        (UnknownTopicOrPartitionError(), True, 0.5, 0),
        (UnknownTopicOrPartitionError(), False, 1.9, 0),
        (ConcurrentTransactionsError(), False, 0.5, 0),
    ],
)
def test_a_refusal_of_a_coordinator_that_refreshes_no_metadata_is_found_out(
    error: KafkaError, is_awaited: bool, refreshed_at: float, found: int
) -> None:
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(retry_backoff_max_ms=1000),
        metadata=SimpleNamespace(is_awaited=is_awaited, refreshed_at=refreshed_at),
        transactions=SimpleNamespace(
            manager=SimpleNamespace(coordinator_error=error),
            _coordinator_session=SimpleNamespace(_retry_at=2.5),
        ),
    )
    assert len(list(_not_asked_after_refusal(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("left", "error", "found"),
    [((), None, 1), ((), KafkaError("no answer"), 0), (("group",), None, 0)],
)
def test_a_coordinator_that_is_dropped_without_an_error_is_found_out(
    left: tuple[str, ...], error: KafkaError | None, found: int
) -> None:
    def engine(names: tuple[str, ...]) -> Any:
        keys = {CoordinatorKey(CoordinatorKind.GROUP, name): 1 for name in names}
        session = SimpleNamespace(_coordinators=keys)
        manager = SimpleNamespace(coordinator_error=error)
        return SimpleNamespace(
            transactions=SimpleNamespace(manager=manager, _coordinator_session=session)
        )

    steps = CoordinatorSteps()
    assert not list(steps.check(engine(("group",)), 1.0))
    assert len(list(steps.check(engine(left), 2.0))) == found


@pytest.mark.parametrize(
    ("new_id", "state", "found"),
    [
        (UUID(int=2), {}, 2),
        (UUID(int=2), {"log_is_new": True}, 1),
        (UUID(int=2), {"log_may_be_new": True}, 1),
        (UUID(int=2), {"identity": ProducerIdentity(7, 1)}, 1),
        (_TOPIC_ID, {}, 0),
    ],
)
def test_what_is_kept_of_a_deleted_topic_is_found_out(
    new_id: UUID, state: dict[str, Any], found: int
) -> None:
    last, identity = object(), ProducerIdentity(7, 0)

    def engine(topic_id: UUID, **state: Any) -> Any:
        known = {"identity": identity, "log_is_new": False, "log_may_be_new": False}
        sequencer = SimpleNamespace(_partitions={_WHERE: SimpleNamespace(**known | state)})
        offsets = SimpleNamespace(_last={_WHERE: last})
        return SimpleNamespace(
            metadata=SimpleNamespace(_topic_ids={"t": topic_id}),
            driver=SimpleNamespace(sender=SimpleNamespace(_offsets=offsets)),
            accumulator=SimpleNamespace(sequencer=sequencer),
        )

    steps = NewTopics()
    assert not list(steps.check(engine(_TOPIC_ID), 1.0))
    assert len(list(steps.check(engine(new_id, **state), 2.0))) == found


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, 0),
        ({"flushes": 1}, 1),
        ({"queued": 1}, 1),
        ({"closing": True}, 1),
        ({"closing": True, "is_cut": True}, 0),
        ({"operations": {OperationKind.COMMIT: None}}, 1),
        ({"operations": {OperationKind.BEGIN: None}}, 0),
        ({"bulk_end": Mock()}, 1),
        ({"bulk_end": None}, 0),
    ],
)
def test_a_partition_that_lingers_although_a_call_waits_is_found_out(
    state: dict[str, Any], found: int
) -> None:
    manager = SimpleNamespace(_operations=state.get("operations", {}))
    batch = SimpleNamespace(listeners={})
    if "bulk_end" in state:
        run: Any = SimpleNamespace(_all_done=state["bulk_end"])
        batch.listeners[_Tracked(run, Mock(), Mock(), 0)] = Mock()
    lingering = SimpleNamespace(topic_partition=_WHERE, batches=[batch])
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(
            readiness=SimpleNamespace(_lingering=[lingering]),
            _flushes=state.get("flushes", 0),
        ),
        failure=None,
        closing=state.get("closing", False),
        _drain_is_cut=state.get("is_cut", False),
        pool=SimpleNamespace(queued=state.get("queued", 0)),
        transactions=SimpleNamespace(manager=manager),
    )
    assert len(list(lingers_although_awaited(engine, 2.0))) == found


def _topic(leader: int, epoch: int = 0) -> TopicMetadata:
    return TopicMetadata("t", _TOPIC_ID, (PartitionMetadata(0, leader, epoch),))


def _described(topic: TopicMetadata, **state: Any) -> Any:
    known = {
        "version": 1,
        "_allowed_at": 1.1,
        "_failures": 0,
        "_fetch": None,
        "cluster": SimpleNamespace(topics={"t": topic}, nodes={}),
        "last_answer_is_full": True,
        "is_awaited": False,
        "_wanted": False,
        "refreshed_at": 1.0,
        "leader_epoch": lambda topic, partition: 5,
    }
    return SimpleNamespace(
        config=SimpleNamespace(retry_backoff_ms=100),
        metadata=SimpleNamespace(**known | state),
        accumulator=SimpleNamespace(pinned=[]),
    )


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"_allowed_at": 2.4}, 1),
        ({"_allowed_at": 2.11}, 0),
        ({"_allowed_at": 2.4, "version": 3}, 0),
        ({"_allowed_at": 2.4, "_failures": 1}, 0),
    ],
)
def test_a_long_pause_after_metadata_that_have_changed_is_found_out(
    state: dict[str, Any], found: int
) -> None:
    steps = MetadataSteps()
    assert not list(steps.check(_described(_topic(1)), 1.0))
    later = _described(_topic(2), **{"version": 2, **state})
    assert len(list(steps.check(later, 2.0))) == found


@pytest.mark.parametrize(
    ("leader", "is_full", "is_awaited", "found"),
    [(2, False, False, 1), (2, True, False, 0), (2, False, True, 0), (1, False, False, 0)],
)
def test_a_moved_leader_after_which_not_all_topics_are_requested_is_found_out(
    leader: int, is_full: bool, is_awaited: bool, found: int
) -> None:
    steps = MetadataSteps()
    assert not list(steps.check(_described(_topic(1)), 1.0))
    later = _described(
        _topic(leader),
        version=2,
        _allowed_at=2.1,
        last_answer_is_full=is_full,
        is_awaited=is_awaited,
    )
    assert len(list(steps.check(later, 2.0))) == found


@pytest.mark.parametrize(
    ("partial", "state", "found"),
    [
        (False, {}, 1),
        (False, {"is_awaited": True}, 0),
        (True, {}, 1),
        (True, {"is_awaited": True}, 0),
        (True, {"_pending": {"t": None}}, 0),
        (True, {"_topics": {}}, 0),
        (True, {"_failures": 0}, 0),
    ],
)
def test_a_request_for_metadata_that_fails_and_is_not_repeated_is_found_out(
    partial: bool, state: dict[str, Any], found: int
) -> None:
    steps, fetch = MetadataSteps(), SimpleNamespace(partial=partial, topics=["t"])
    assert not list(steps.check(_described(_topic(1), _fetch=fetch), 1.0))
    known = {"_failures": 1, "_pending": {}, "_topics": {"t": None}}
    assert len(list(steps.check(_described(_topic(1), **known | state), 2.0))) == found


@pytest.mark.parametrize(
    ("sent_at", "leader_epoch", "found"), [(1.1, 4, 1), (1.1, 5, 0), (1.0, 4, 0)]
)
def test_a_batch_that_is_sent_to_a_former_leader_is_found_out(
    sent_at: float, leader_epoch: int, found: int
) -> None:
    steps, engine = MetadataSteps(), _described(_topic(1))
    assert not list(steps.check(engine, 1.0))
    engine.accumulator.pinned.append(_batch(last_attempt_at=sent_at, leader_epoch=leader_epoch))
    assert len(list(steps.check(engine, 2.0))) == found


def _with_sent(batch: Any, **metadata: Any) -> Any:
    known = {"_allowed_at": 0.0, "is_awaited": False, "_pending": {}}
    return SimpleNamespace(
        accumulator=SimpleNamespace(
            pinned=[batch], incomplete=lambda: [batch], sequencer=Sequencer(5)
        ),
        metadata=SimpleNamespace(**known | metadata),
        transactions=None,
    )


@pytest.mark.parametrize(
    ("error", "wanted", "described_at", "found"),
    [
        (UnknownTopicOrPartitionError(), (), 0.0, 1),
        (UnknownTopicOrPartitionError(), ("t",), 0.0, 0),
        (UnknownTopicOrPartitionError(), (), 2.1, 0),
        (ConcurrentTransactionsError(), (), 0.0, 0),
    ],
)
def test_a_refusal_after_which_no_metadata_are_wanted_is_found_out(
    error: KafkaError, wanted: tuple[str, ...], described_at: float, found: int
) -> None:
    batch = _batch(ordinal=(4,), last_error=None, possibly_persisted=False)
    engine, sent = _with_sent(batch), SentBatches()
    assert not list(sent.check(engine, 1.0))
    batch.on_wire, batch.last_error = False, error
    engine.metadata._pending, engine.metadata._allowed_at = dict.fromkeys(wanted), described_at
    assert len(list(sent.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("state", "is_awaited", "refreshed_at", "found"),
    [
        ({}, False, 1.0, 1),
        ({"versions": object()}, False, 1.0, 0),
        ({"is_dialing": True}, False, 1.0, 0),
        ({"ready_since": 2.1}, False, 1.0, 0),
        ({}, True, 1.0, 0),
        ({}, False, 2.1, 0),
    ],
)
def test_a_last_connection_after_which_no_metadata_are_wanted_is_found_out(
    state: dict[str, Any], is_awaited: bool, refreshed_at: float, found: int
) -> None:
    known = {"lost_at": 2.0, "ready_since": 0.5, "versions": None, "is_dialing": False}
    client = SimpleNamespace(_links=lambda: [SimpleNamespace(**known | state)])
    metadata = SimpleNamespace(is_awaited=is_awaited, refreshed_at=refreshed_at)
    engine: Any = SimpleNamespace(client=client, metadata=metadata)
    assert len(list(_not_asked_after_last_connection(engine, 3.0))) == found


@pytest.mark.parametrize("who", ["producer id", "coordinator", "metadata"])
@pytest.mark.parametrize(
    ("error", "failures", "retry_at", "found"),
    [
        (None, 0, -math.inf, 0),
        (None, 2, -math.inf, 1),
        (KafkaError("lost"), 1, 1.1, 0),
        (KafkaError("lost"), 1, 1.4, 1),
        (KafkaError("lost"), 3, 1.4, 0),
        (KafkaError("lost"), 9, 3.0, 1),
        (ConcurrentTransactionsError(), 1, 1.02, 0),
        (ConcurrentTransactionsError(), 1, 1.2, 1),
    ],
)
def test_a_pause_that_the_failures_do_not_explain_is_found_out(
    error: KafkaError | None, failures: int, retry_at: float, found: int, who: str
) -> None:
    quiet = SimpleNamespace(failures=0, last_error=None, _retry_at=-math.inf)
    pause = SimpleNamespace(failures=failures, last_error=error, _retry_at=retry_at)
    requests, session, metadata = (
        pause if who == each else quiet for each in ("producer id", "coordinator", "metadata")
    )
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(retry_backoff_ms=100, retry_backoff_max_ms=1000),
        driver=SimpleNamespace(sender=SimpleNamespace(producer_id=requests)),
        metadata=SimpleNamespace(
            _last_failure=metadata.last_error,
            _failures=metadata.failures,
            _allowed_at=metadata._retry_at,
        ),
        transactions=SimpleNamespace(
            manager=SimpleNamespace(coordinator_error=session.last_error),
            _coordinator_session=session,
        ),
    )
    is_other = isinstance(error, ConcurrentTransactionsError) and who != "coordinator"
    assert len(list(_pauses_too_long(engine, 1.0))) == (0 if is_other else found)


@pytest.mark.parametrize(
    ("refreshed_at", "allowed_at", "is_in_flight", "until", "found"),
    [
        (0.0, 0.0, False, 5.0, 0),
        (0.0, 0.0, False, 6.2, 1),
        (0.0, 9.0, False, 9.5, 0),
        (0.0, 0.0, True, math.inf, 0),
        (-math.inf, 0.0, False, 2.5, 1),
        (-math.inf, 0.0, False, 2.0, 0),
    ],
)
def test_a_task_that_sleeps_while_the_metadata_are_too_old_is_found_out(
    refreshed_at: float, allowed_at: float, is_in_flight: bool, until: float, found: int
) -> None:
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(metadata_max_age_ms=5000),
        metadata=SimpleNamespace(
            refreshed_at=refreshed_at,
            _allowed_at=allowed_at,
            _fetch=object() if is_in_flight else None,
        ),
        metadata_task=SimpleNamespace(sleeping_until=until),
    )
    assert len(list(_refreshed_late(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("topic", "partition", "version", "found"),
    [
        ("t", 0, 1, 1),
        ("t", None, 1, 1),
        ("t", 1, 1, 0),
        ("u", 0, 1, 0),
        (None, None, 1, 1),
        (None, None, 0, 0),
    ],
)
def test_a_call_that_waits_for_metadata_that_have_come_is_found_out(
    topic: str | None, partition: int | None, version: int, found: int
) -> None:
    known = TopicMetadata("t", _TOPIC_ID, (PartitionMetadata(0, 1, 0),))
    waits = SimpleNamespace(_waiting={topic: [SimpleNamespace(partition=partition)]})
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(version=version, topic={"t": known}.get),
        metadata_task=SimpleNamespace(waits=waits),
        transactions=None,
    )
    assert len(list(_waits_for_what_has_come(engine, 1.0))) == found


@pytest.mark.parametrize(("is_done", "found"), [(True, 1), (False, 0)])
def test_a_call_that_waits_although_it_has_its_outcome_is_found_out(
    is_done: bool, found: int
) -> None:
    operation = Operation(OperationKind.COMMIT)
    operation.add_listener(lambda: None)
    operation.done = is_done
    operations = SimpleNamespace(unreceived=operation)
    engine: Any = SimpleNamespace(
        metadata=None,
        metadata_task=SimpleNamespace(waits=SimpleNamespace(_waiting={})),
        transactions=SimpleNamespace(manager=SimpleNamespace(_operations=operations)),
    )
    assert len(list(_waits_for_what_has_come(engine, 1.0))) == found


_NODE = Node(1, "a", 9092)


@pytest.mark.parametrize(
    ("linked", "is_reported", "found"),
    [
        (_NODE, True, 0),
        (Node(1, "b", 9092), True, 1),
        (None, True, 1),
        (None, False, 0),
    ],
)
def test_links_to_other_brokers_than_those_of_the_metadata_are_found_out(
    linked: Node | None, is_reported: bool, found: int
) -> None:
    brokers = {} if linked is None else {linked.id: SimpleNamespace(node=linked)}
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(cluster=SimpleNamespace(nodes={1: _NODE})),
        metadata_task=SimpleNamespace(_reported_nodes={} if is_reported else None),
        client=SimpleNamespace(_brokers=brokers),
    )
    assert len(list(links_are_old(engine, 1.0))) == found


@pytest.mark.parametrize(("kept", "found"), [({}, 0), ({"begun": True}, 1)])
def test_contents_of_a_transaction_that_has_ended_are_found_out(
    kept: dict[str, bool], found: int
) -> None:
    manager = TransactionManager("x", 1000)
    manager.state = TransactionState.READY
    vars(manager.contents).update(kept)
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(cluster=SimpleNamespace(nodes={}, topics={})),
        transactions=SimpleNamespace(manager=manager),
    )
    assert len(list(_derived_state_is_old(engine, 1.0))) == found


@pytest.mark.parametrize(("nodes", "found"), [({1: _NODE}, 0), ({}, 1)])
def test_partitions_that_count_as_available_without_a_leader_are_found_out(
    nodes: dict[int, Node], found: int
) -> None:
    topic = TopicMetadata("t", _TOPIC_ID, (PartitionMetadata(0, 1, 0),), known_nodes={1: _NODE})
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(cluster=SimpleNamespace(nodes=nodes, topics={"t": topic})),
        transactions=None,
    )
    assert len(list(_derived_state_is_old(engine, 1.0))) == found


class _SleepingTask:
    """A task that does something, or sleeps less, after another turn."""

    def __init__(self, until: float, then: float) -> None:
        self._wakeup = SimpleNamespace(is_asleep=True)
        self.sleeping_until = until
        self._then = then

    def wake(self) -> None:
        self.sleeping_until = self._then


@pytest.mark.parametrize(
    ("then", "sends", "ends", "found"),
    [(9.0, False, False, 0), (8.0, False, False, 1), (9.0, True, False, 1), (9.0, False, True, 1)],
)
def test_another_turn_that_has_something_to_do_is_found_out(
    then: float, sends: bool, ends: bool, found: int
) -> None:
    batches = [SimpleNamespace(ordinal=(1,))]
    request = SimpleNamespace(kind=TopicMetadata, sent_at=1.0)
    connection = SimpleNamespace(is_open=True, _awaiting=[], _unflushed=[])
    link = SimpleNamespace(node=SimpleNamespace(id=1), _connection=connection)
    engine: Any = SimpleNamespace(
        sender_task=_SleepingTask(9.0, then),
        metadata_task=None,
        transactions=None,
        client=SimpleNamespace(_links=lambda: [link]),
        accumulator=SimpleNamespace(incomplete=lambda: batches),
    )
    turns = ExtraTurns(engine)
    if sends:
        connection._awaiting = [request]
    if ends:
        batches.clear()
    assert len(list(turns.broken())) == found


_OPEN = {"attempts": 0, "full": False, "urgent": False, "gathering": False, "created_at": 0.5}


@pytest.mark.parametrize(
    ("head", "planned_for", "state", "found"),
    [
        ({"retry_at": 2.0}, 3.0, {}, 1),
        ({"retry_at": 2.0}, 2.0, {}, 0),
        ({"retry_at": 2.0}, 1.9, {}, 1),
        ({"retry_at": 1.0}, 3.0, {}, 1),
        ({"retry_at": 1.0}, math.inf, {}, 0),
        ({"retry_at": 2.0}, 3.0, {"muted": True}, 0),
        ({"retry_at": 2.0}, math.inf, {"placed": 7}, 0),
        (_OPEN, 1.5, {}, 0),
        (_OPEN, 1.6, {}, 1),
        (_OPEN | {"full": True}, 1.5, {}, 1),
        (_OPEN | {"urgent": True}, 1.5, {}, 1),
        (_OPEN | {"gathering": True}, math.inf, {}, 0),
    ],
)
def test_a_partition_that_is_planned_too_late_is_found_out(
    head: dict[str, Any], planned_for: float, state: dict[str, Any], found: int
) -> None:
    batch = _batch(**head)
    known = {"batches": [batch], "muted": False, "placed": None, "ready_at": planned_for}
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(
            expedited=False,
            incomplete=lambda: [batch],
            queue=lambda topic, partition: SimpleNamespace(**known | state),
            settings=SimpleNamespace(linger=1.0),
        )
    )
    assert len(list(_planned_late(engine, 1.0))) == found


@pytest.mark.parametrize(("until", "is_wanted", "found"), [(5.0, True, 1), (5.0, False, 0)])
def test_a_sender_that_sleeps_although_a_producer_id_is_wanted_is_found_out(
    until: float, is_wanted: bool, found: int
) -> None:
    sender = SimpleNamespace(
        _preparing=set(),
        _wants_identity=is_wanted,
        producer_id=SimpleNamespace(due_at=lambda now, client: 3.0),
    )
    engine: Any = SimpleNamespace(
        driver=SimpleNamespace(sender=sender),
        sender_task=SimpleNamespace(sleeping_until=until),
        accumulator=SimpleNamespace(readiness=SimpleNamespace(nodes=list)),
        client=None,
    )
    assert len(list(_sleeps_past_a_node(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"is_awaited": True, "_wanted": True}, 0),
        ({}, 1),
        ({"is_awaited": True, "_fetch": SimpleNamespace(partial=True)}, 1),
        ({"is_awaited": True, "_fetch": SimpleNamespace(partial=False)}, 0),
        ({"is_awaited": True, "_wanted": True, "refreshed_at": 2.0}, 0),
        (
            {
                "is_awaited": True,
                "_wanted": True,
                "refreshed_at": 2.0,
                "last_answer_is_full": False,
            },
            1,
        ),
    ],
)
def test_a_description_of_some_topics_that_counts_as_one_of_all_is_found_out(
    state: dict[str, Any], found: int
) -> None:
    steps = MetadataSteps()
    wanted = _described(_topic(1), _wanted=True, is_awaited=True)
    assert not list(steps.check(wanted, 1.0))
    assert len(list(steps.check(_described(_topic(1), **state), 2.0))) == found


@pytest.mark.parametrize(
    ("error", "possibly_persisted", "on_wire", "found"),
    [
        (NodeDisconnectedError(), False, False, 1),
        (NodeDisconnectedError(), True, False, 0),
        (NodeDisconnectedError("the broker left the cluster"), True, False, 1),
        (NodeDisconnectedError(), False, True, 0),
        (UnknownTopicOrPartitionError(), False, False, 0),
    ],
)
def test_a_batch_that_is_given_up_or_counts_as_not_written_without_a_response_is_found_out(
    error: KafkaError, possibly_persisted: bool, on_wire: bool, found: int
) -> None:
    batch = _batch(ordinal=(4,), last_error=None, possibly_persisted=False)
    engine = _with_sent(batch, is_awaited=True)
    sent = SentBatches()
    assert not list(sent.check(engine, 1.0))
    batch.on_wire, batch.last_error = on_wire, error
    batch.possibly_persisted = possibly_persisted
    assert len(list(sent.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("state", "epoch", "topic_id", "found"),
    [
        ({"retry_at": 2.4}, 5, _TOPIC_ID, 0),
        ({"retry_at": 2.0}, 5, _TOPIC_ID, 1),
        ({"retry_at": 2.0}, 6, _TOPIC_ID, 0),
        ({"retry_at": 2.0}, 5, UUID(int=2), 0),
        ({"retry_at": 2.8}, 5, _TOPIC_ID, 1),
        ({"retry_at": 2.8}, 6, _TOPIC_ID, 1),
        ({"retry_at": 2.0, "last_error": ConcurrentTransactionsError()}, 5, _TOPIC_ID, 0),
        ({"pins": 1}, 5, _TOPIC_ID, 0),
        ({"pins": 1, "attempts": 4}, 5, _TOPIC_ID, 1),
        ({"pins": 1, "attempts": 4, "leader_epoch": 6}, 5, _TOPIC_ID, 0),
    ],
)
def test_a_pause_that_the_attempts_of_a_batch_do_not_explain_is_found_out(
    state: dict[str, Any], epoch: int, topic_id: UUID, found: int
) -> None:
    batch = _batch(ordinal=(4,), attempts=3, leader_epoch=5, last_error=None)
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(pinned=[batch], incomplete=lambda: [batch]),
        config=SimpleNamespace(retry_backoff_ms=100, retry_backoff_max_ms=1000),
        metadata=SimpleNamespace(
            leader_epoch=lambda topic, partition: epoch, _topic_ids={"t": _TOPIC_ID}
        ),
    )
    repeats = Repeats()
    assert not list(repeats.check(engine, 1.0))
    vars(batch).update({"pins": 0} | state)
    engine.metadata._topic_ids["t"] = topic_id
    assert len(list(repeats.check(engine, 2.0))) == found


@pytest.mark.parametrize(
    ("kind", "deadline", "throttled_until", "found"),
    [
        (int, 2.0, -math.inf, 0),
        (int, 3.0, -math.inf, 1),
        (int, 1.0, -math.inf, 1),
        (int, 1.0, 1.5, 1),
        (int, 9.0, 1.5, 0),
        (int, 9.3, 1.5, 1),
        (int, 1.9, -math.inf, 0),
        (ProduceRequest, 2.0, -math.inf, 0),
        (ProduceRequest, 1.9, -math.inf, 1),
    ],
)
def test_a_response_that_is_awaited_for_another_time_is_found_out(
    kind: type, deadline: float, throttled_until: float, found: int
) -> None:
    request = SimpleNamespace(kind=kind, sent_at=1.0, deadline=deadline)
    connection = SimpleNamespace(is_open=True, _awaiting=[request], _unflushed=[])
    link = SimpleNamespace(_connection=connection, throttled_until=throttled_until)
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(request_timeout_ms=1000),
        client=SimpleNamespace(_links=lambda: [link]),
    )
    assert len(list(_awaited_too_long(engine, 1.2))) == found


@pytest.mark.parametrize(
    ("asked", "failures", "can_ask", "found"),
    [(False, 0, True, 1), (True, 0, True, 0), (False, 1, True, 0), (False, 0, False, 0)],
)
def test_a_new_topic_that_waits_for_a_backoff_is_found_out(
    asked: bool, failures: int, can_ask: bool, found: int
) -> None:
    live = SimpleNamespace(asked=asked)
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(_fetch=None, _failures=failures, _topics={"t": live}),
        client=SimpleNamespace(
            least_loaded_node=lambda now: 7, can_ask=lambda node_id, now: can_ask
        ),
    )
    assert len(list(_new_topic_waits(engine, 1.0))) == found


@pytest.mark.parametrize(("batches", "found"), [((), 1), ((_batch(),), 0)])
@pytest.mark.parametrize("has_leader", [True, False])
def test_a_partition_that_is_placed_without_a_batch_is_found_out(
    batches: tuple[Any, ...], found: int, has_leader: bool
) -> None:
    queue = SimpleNamespace(topic_partition=_WHERE, batches=batches)
    readiness = SimpleNamespace(
        _ready={7: [queue] if has_leader else []}, leaderless=[] if has_leader else [queue]
    )
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(readiness=readiness))
    assert len(list(_placed_without_batches(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("available", "ceiling", "found"), [(99, 5, 0), (100, 5, 1), (100, 6, 0), (100, 0, 1)]
)
def test_a_call_that_waits_for_memory_that_is_free_is_found_out(
    available: int, ceiling: int, found: int
) -> None:
    head = SimpleNamespace(size=300, granted=200, ceiling=ceiling)
    engine: Any = SimpleNamespace(
        pool=SimpleNamespace(_queue=[head], available=available, ceiling=5)
    )
    assert len(list(_waits_for_free_memory(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("parts", "possibly_persisted", "has_sequence", "found"),
    [(1, True, False, 1), (0, True, False, 0), (1, False, False, 0), (1, True, True, 0)],
)
def test_a_batch_without_sequences_that_is_split_in_doubt_is_found_out(
    parts: int, possibly_persisted: bool, has_sequence: bool, found: int
) -> None:
    batch = _batch(
        parts=[_batch()] * parts,
        possibly_persisted=possibly_persisted,
        has_sequence=has_sequence,
    )
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(pinned=[batch]))
    assert len(list(_split_in_doubt(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("ordinal", "pins", "possibly_persisted", "found"),
    [((3,), 0, False, 1), ((3,), 1, False, 0), ((3,), 0, True, 0), ((5,), 0, False, 0)],
)
def test_a_batch_that_waits_although_a_later_one_is_written_is_found_out(
    ordinal: tuple[int, ...], pins: int, possibly_persisted: bool, found: int
) -> None:
    sequencer = Sequencer(5)
    partition = sequencer._partition(_WHERE)
    partition.newest = (4,)
    partition.in_flight.append(
        _batch(ordinal=ordinal, pins=pins, possibly_persisted=possibly_persisted)
    )
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(sequencer=sequencer))
    assert len(list(_waits_though_overtaken(engine, 1.0))) == found


@pytest.mark.parametrize(("count", "found"), [(0, 1), (1, 0)])
def test_a_batch_without_records_is_found_out(count: int, found: int) -> None:
    batch = _batch(count=count)
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(incomplete=lambda: [batch]))
    assert len(list(_without_records(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("is_described", "error", "pending", "is_awaited", "found"),
    [
        (False, None, (), False, 1),
        (True, None, (), False, 0),
        (False, KafkaError("no"), (), False, 0),
        (False, None, ("t",), False, 0),
        (False, None, (), True, 0),
    ],
)
def test_a_topic_that_no_response_describes_and_none_is_to_describe_is_found_out(
    is_described: bool,
    error: KafkaError | None,
    pending: tuple[str, ...],
    is_awaited: bool,
    found: int,
) -> None:
    metadata = SimpleNamespace(
        is_awaited=is_awaited,
        topic=lambda name: object() if is_described else None,
        _topics={"t": SimpleNamespace(error=error)},
        _pending=dict.fromkeys(pending),
    )
    engine: Any = SimpleNamespace(metadata=metadata)
    assert len(list(_absent_and_not_wanted(engine, 1.0))) == found


@pytest.mark.parametrize(("acknowledged_at", "found"), [(1.0, 1), (-math.inf, 0), (2.0, 0)])
def test_an_acknowledgement_of_a_deleted_log_that_counts_for_the_new_one_is_found_out(
    acknowledged_at: float, found: int
) -> None:
    sequencer, watch = Sequencer(5), NewLogs()
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(sequencer=sequencer))
    partition = sequencer._partition(_WHERE)
    partition.acknowledged_at = 1.0
    assert list(watch.check(engine, 1.0)) == []
    partition.log_may_be_new, partition.acknowledged_at = True, acknowledged_at
    assert len(list(watch.check(engine, 2.0))) == found


@pytest.mark.parametrize(("producer_id", "found"), [(7, 1), (8, 0), (None, 0)])
def test_a_producer_id_that_is_kept_after_a_broker_has_refused_it_is_found_out(
    producer_id: int | None, found: int
) -> None:
    batch = _batch(ordinal=(4,), last_error=None, producer_id=7)
    engine = _with_sent(batch)
    sent = SentBatches()
    assert not list(sent.check(engine, 1.0))
    batch.on_wire, batch.last_error = False, InvalidProducerIdMappingError()
    if producer_id is not None:
        engine.accumulator.sequencer.on_identity(ProducerIdentity(producer_id, 0))
    assert len(list(sent.check(engine, 2.0))) == found


_LIMITS = {
    "max_in_flight_requests_per_connection": 2,
    "max_request_size": 1000,
    "buffer_max_records": 4,
    "buffer_memory": 2000,
}


def _within_limits(requests: Sequence[Any], batches: Sequence[Any]) -> Any:
    connection = SimpleNamespace(is_open=True, _awaiting=requests, _unflushed=[])
    link = SimpleNamespace(_connection=connection, node=SimpleNamespace(id=7))
    return SimpleNamespace(
        config=SimpleNamespace(**_LIMITS),
        client=SimpleNamespace(_links=lambda: [link]),
        accumulator=SimpleNamespace(incomplete=lambda: batches, pinned=set()),
        appender=_with_sticky(1),
    )


def _with_sticky(room: int) -> Any:
    partitioners = {"t": SimpleNamespace(room=room, current=3)}
    sticky = SimpleNamespace(_partitioners=partitioners)
    return SimpleNamespace(batch_appender=SimpleNamespace(_sticky_partitioners=sticky))


@pytest.mark.parametrize(("room", "found"), [(1, 0), (0, 1)])
def test_a_partition_that_sticks_for_too_many_bytes_is_found_out(room: int, found: int) -> None:
    engine = _within_limits([], [])
    engine.appender = _with_sticky(room)
    assert len(list(_beyond_limits(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ((ProduceRequest,) * 2, 0),
        ((ProduceRequest,) * 3, 1),
        ((ProduceRequest, ProduceRequest, MetadataRequest), 0),
    ],
)
def test_more_requests_in_flight_than_allowed_are_found_out(
    kinds: Sequence[type], found: int
) -> None:
    requests = [SimpleNamespace(kind=each, on_end=None, buffers=[b"x"]) for each in kinds]
    assert len(list(_beyond_limits(_within_limits(requests, []), 1.0))) == found


@pytest.mark.parametrize(
    ("batches", "size", "found"), [(2, 1600, 0), (2, 1601, 1), (1, 4000, 0), (0, 1, 0)]
)
def test_a_request_that_is_larger_than_allowed_is_found_out(
    batches: int, size: int, found: int
) -> None:
    on_end = partial(print, 7, [_batch()] * batches)
    request = SimpleNamespace(kind=ProduceRequest, on_end=on_end, buffers=[bytes(size)])
    assert len(list(_beyond_limits(_within_limits([request], []), 1.0))) == found


@pytest.mark.parametrize(
    ("version", "topic_id", "sequence", "found"),
    [(13, 1, 5, 0), (13, 0, 5, 1), (13, 2, 5, 1), (12, 0, 5, 0), (12, 1, 5, 1), (13, 1, 6, 1)],
)
def test_a_batch_that_differs_from_its_request_is_found_out(
    version: int, topic_id: int, sequence: int, found: int
) -> None:
    batch = _batch(producer_id=7, producer_epoch=0, base_sequence=sequence, has_sequence=True)
    batch.topic_id = UUID(int=topic_id)
    request = SimpleNamespace(
        kind=ProduceRequest,
        version=version,
        on_end=partial(print, 7, [batch]),
        buffers=[_TOPIC_ID.bytes, struct.pack(">qhi", 7, 0, 5)],
    )
    engine = _within_limits([request], [])
    assert len(list(_differs_from_its_request(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("counts", "indivisible", "size", "found"),
    [
        ((2, 2), False, 1000, 0),
        ((2, 3), False, 1000, 1),
        ((2, 3), True, 1000, 0),
        ((1, 1), False, 1001, 1),
    ],
)
def test_more_records_or_memory_than_allowed_are_found_out(
    counts: Sequence[int], indivisible: bool, size: int, found: int
) -> None:
    batches = [Mock(count=each, indivisible=indivisible, size=size) for each in counts]
    assert len(list(_beyond_limits(_within_limits([], batches), 1.0))) == found


@pytest.mark.parametrize(
    ("state", "has_left", "found"),
    [
        ({}, True, 1),
        ({"in_flight": 1}, True, 0),
        ({"is_open": False}, True, 0),
        ({}, False, 0),
        ({"_last_used": 1.0}, False, 1),
        ({"_last_used": 1.0, "in_flight": 1}, False, 0),
        ({"_last_used": 1.0, "is_dialing": True}, False, 0),
    ],
)
def test_a_connection_that_is_kept_without_use_is_found_out(
    state: dict[str, Any], has_left: bool, found: int
) -> None:
    known = {"is_open": True, "in_flight": 0, "_last_used": 2.0, "is_dialing": False}
    connection = SimpleNamespace(**known | state)
    link = Mock(_connection=connection, is_dialing=connection.is_dialing)
    client = SimpleNamespace(
        _links=lambda: [] if has_left else [link], _retired={link} if has_left else set()
    )
    config = SimpleNamespace(connections_max_idle_ms=1000)
    engine: Any = SimpleNamespace(client=client, config=config)
    assert len(list(_kept_without_use(engine, 3.0))) == found


@pytest.mark.parametrize(
    ("error", "used_at", "found"),
    [
        (IdleConnectionError("idle"), 2.0, 0),
        (IdleConnectionError("idle"), 2.5, 1),
        (NodeDisconnectedError("closed"), 2.5, 0),
        (None, 2.5, 0),
    ],
)
def test_a_connection_that_is_closed_as_idle_too_early_is_found_out(
    error: KafkaError | None, used_at: float, found: int
) -> None:
    connection = Mock(node_id=7, is_open=True, _last_used=used_at, error=None)
    engine: Any = SimpleNamespace(
        client=SimpleNamespace(_links=lambda: [SimpleNamespace(_connection=connection)]),
        config=SimpleNamespace(connections_max_idle_ms=1000),
    )
    idle = IdleConnections()
    assert not list(idle.check(engine, 2.6))
    connection.error, connection.is_open = error, error is None
    assert len(list(idle.check(engine, 3.0))) == found


@pytest.mark.parametrize(("in_flight", "left", "found"), [(0, 5, 1), (0, 0, 0), (1, 5, 0)])
def test_a_request_that_counts_as_written_before_it_has_left_is_found_out(
    in_flight: int, left: int, found: int
) -> None:
    transport = SimpleNamespace(get_write_buffer_size=lambda: left)
    connection = SimpleNamespace(is_open=True, in_flight=in_flight, _transport=transport)
    link = SimpleNamespace(_connection=connection, node=SimpleNamespace(id=7))
    engine: Any = SimpleNamespace(client=SimpleNamespace(_links=lambda: [link]))
    assert len(list(_written_too_early(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("used_at", "state", "found"),
    [
        (8.0, {}, 0),
        (7.0, {}, 1),
        (None, {}, 1),
        (None, {"created_at": 5.0}, 0),
        (7.0, {"topic_partition": TopicPartition("t", -1)}, 0),
        (7.0, {"size": 0}, 0),
    ],
)
def test_a_topic_that_expires_although_it_has_got_a_batch_is_found_out(
    used_at: float | None, state: dict[str, Any], found: int
) -> None:
    topics = {} if used_at is None else {"t": SimpleNamespace(used_at=used_at)}
    known = {"created_at": 8.0, "size": 100}
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(_topics=topics),
        config=SimpleNamespace(metadata_max_idle_ms=5000),
        accumulator=SimpleNamespace(incomplete=lambda: [_batch(**known | state)]),
    )
    assert len(list(_topic_not_in_use(engine, 10.0))) == found


@pytest.mark.parametrize(
    ("throttled_until", "asked_until", "found"), [(3.0, 3.0, 0), (3.2, 3.0, 1), (1.5, 0.0, 0)]
)
def test_a_broker_that_is_throttled_for_longer_than_it_asks_is_found_out(
    throttled_until: float, asked_until: float, found: int
) -> None:
    transport = SimpleNamespace(quiet_until=asked_until)
    link = Mock(throttled_until=throttled_until, _connection=SimpleNamespace(_transport=transport))
    engine: Any = SimpleNamespace(client=SimpleNamespace(_links=lambda: [link]))
    throttling = Throttling()
    assert len(list(throttling.check(engine, 1.5))) == found
    link._connection = None
    assert len(list(throttling.check(engine, 1.5))) == found


@pytest.mark.parametrize(
    ("is_same", "appended", "found"), [(True, 1, 1), (True, 0, 0), (False, 1, 0)]
)
def test_records_that_overtake_a_call_that_waits_for_memory_are_found_out(
    is_same: bool, appended: int, found: int
) -> None:
    first, line = Mock(), MemoryLine()
    fast_path = SimpleNamespace(appended=5)
    pool = SimpleNamespace(_queue=[first])
    engine: Any = SimpleNamespace(pool=pool, appender=SimpleNamespace(fast_path=fast_path))
    assert not list(line.check(engine, 1.0))
    pool._queue = [first if is_same else Mock()]
    fast_path.appended += appended
    assert len(list(line.check(engine, 2.0))) == found


@pytest.mark.parametrize("where", ["metadata", "producer id", "coordinator", ""])
def test_a_request_to_a_node_that_takes_none_is_found_out(where: str) -> None:
    def error(which: str) -> KafkaError:
        return NodeNotReady() if which == where else NodeDisconnectedError()

    requests = SimpleNamespace(last_error=error("producer id"))
    manager = SimpleNamespace(coordinator_error=error("coordinator"))
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(_last_failure=error("metadata")),
        driver=SimpleNamespace(sender=SimpleNamespace(producer_id=requests)),
        transactions=SimpleNamespace(manager=manager),
    )
    assert len(list(asked_in_vain(engine, 1.0))) == bool(where)


@pytest.mark.parametrize(
    ("error", "strategy", "brokers", "found"),
    [
        (RebootstrapRequiredError(), "rebootstrap", {1: None}, 1),
        (RebootstrapRequiredError(), "rebootstrap", {}, 0),
        (RebootstrapRequiredError(), "none", {1: None}, 0),
        (NodeDisconnectedError(), "rebootstrap", {1: None}, 0),
    ],
)
def test_brokers_that_are_kept_after_a_request_for_a_rebootstrap_are_found_out(
    error: KafkaError, strategy: str, brokers: dict[int, None], found: int
) -> None:
    engine: Any = SimpleNamespace(
        config=SimpleNamespace(metadata_recovery_strategy=strategy),
        metadata=SimpleNamespace(_last_failure=error),
        client=SimpleNamespace(_brokers=brokers),
    )
    assert len(list(keeps_refused_brokers(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("flushes", "is_idle", "is_busy", "found"),
    [(1, True, False, 1), (0, True, False, 0), (1, False, False, 0), (1, True, True, 0)],
)
def test_linger_that_stays_off_is_found_out(
    flushes: int, is_idle: bool, is_busy: bool, found: int
) -> None:
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(_flushes=flushes, is_idle=is_idle),
        transactions=SimpleNamespace(manager=SimpleNamespace(is_busy=is_busy)),
    )
    assert len(list(_never_lingers(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("what", "until", "failures", "found"),
    [
        (None, 2.0, 1, 0),
        ("metadata", 2.0, 1, 1),
        ("metadata", 2.0, 0, 0),
        ("metadata", 0.5, 1, 0),
        ("an id", 2.0, 0, 1),
        ("an id", 0.5, 0, 0),
        ("a coordinator", 2.0, 0, 1),
        ("a coordinator", 0.5, 0, 0),
    ],
)
def test_requests_before_the_end_of_a_pause_are_found_out(
    what: str | None, until: float, failures: int, found: int
) -> None:
    def in_flight(name: str) -> object:
        return object() if what == name else None

    session = SimpleNamespace(_in_flight=in_flight("a coordinator"), _retry_at=until)
    identity = SimpleNamespace(in_flight=what == "an id", _retry_at=until)
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(
            _fetch=in_flight("metadata"), _failures=failures, _allowed_at=until
        ),
        driver=SimpleNamespace(sender=SimpleNamespace(producer_id=identity)),
        transactions=SimpleNamespace(_coordinator_session=session),
    )
    assert len(list(asks_before_the_pause_ends(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("partition", "described", "failure", "fatal", "found"),
    [
        (None, 0, None, None, 0),
        (None, 1, None, None, 1),
        (1, 1, None, None, 0),
        (1, 2, None, None, 1),
        (None, 0, KafkaError("no"), None, 1),
        (None, 0, None, KafkaError("no"), 1),
    ],
)
def test_a_wait_for_metadata_that_is_decided_is_found_out(
    partition: int | None,
    described: int,
    failure: KafkaError | None,
    fatal: KafkaError | None,
    found: int,
) -> None:
    waiter = SimpleNamespace(
        partition=partition, ignores_errors=False, future=SimpleNamespace(done=lambda: False)
    )
    topic = SimpleNamespace(partitions=range(described)) if described else None
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(
            version=1,
            topic=lambda _: topic,
            topic_failure=lambda _: failure,
            fatal_error=fatal,
        ),
        metadata_task=SimpleNamespace(waits=SimpleNamespace(_waiting={"t": [waiter]})),
    )
    assert len(list(waits_although_decided(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("rpc", "failures", "numbers", "found"),
    [
        (Rpc.END, 0, [1] * 9, 1),
        (Rpc.END, 0, [1, 2] * 5, 0),
        (Rpc.END, 1, [1] * 9, 0),
        (Rpc.ADD_PARTITIONS, 0, [1] * 9, 0),
    ],
)
def test_an_end_that_is_requested_again_after_a_success_is_found_out(
    rpc: Rpc, failures: int, numbers: list[int], found: int
) -> None:
    steps, broken = RepeatedEnds(), []
    for number in numbers:
        session = SimpleNamespace(_in_flight=SimpleNamespace(rpc=rpc), failures=failures)
        manager = SimpleNamespace(number=number, identity=None)
        transactions = SimpleNamespace(_coordinator_session=session, manager=manager)
        engine: Any = SimpleNamespace(transactions=transactions)
        broken += [*steps.check(engine, 1.0), *steps.check(engine, 1.1)]
    assert len(broken) == found


@pytest.mark.parametrize(
    ("closing", "failure", "topics", "queued", "found"),
    [
        (True, None, [], 0, 0),
        (True, None, ["t"], 0, 1),
        (True, None, [], 2, 1),
        (False, KafkaError("no"), ["t"], 1, 2),
        (False, None, ["t"], 1, 0),
    ],
)
def test_a_call_that_waits_for_a_closed_producer_is_found_out(
    closing: bool, failure: KafkaError | None, topics: list[str], queued: int, found: int
) -> None:
    engine: Any = SimpleNamespace(
        closing=closing,
        failure=failure,
        metadata_task=SimpleNamespace(waits=SimpleNamespace(_waiting=dict.fromkeys(topics))),
        pool=SimpleNamespace(queued=queued),
    )
    assert len(list(waits_although_closed(engine, 1.0))) == found
