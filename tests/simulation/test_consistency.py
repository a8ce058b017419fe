"""Rules for derived state: each finds the state that breaks it, and no other."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.errors import AuthenticationError, KafkaConnectionError
from aioproducer.net.context import NodeState
from aioproducer.runtime.bulk.run import _Tracked
from aioproducer.runtime.tasks.flush import Flushing
from aioproducer.types import TopicPartition
from simulation.consistency import (
    LoginCounts,
    RequestCounts,
    WaitCounts,
    bulk_calls_are_paced,
    early_although_decided,
    inconsistent,
)

_VERSIONS = object()
_PLACE = ("t", 0)


class _Link(SimpleNamespace):
    __hash__ = object.__hash__


def _batch(count: int) -> Any:
    return SimpleNamespace(count=count, topic_partition=TopicPartition("t", 0), listeners={})


def _engine(**link: Any) -> Any:
    """Return a producer with one link, a connection with a request, and a batch of 3 records."""
    request = SimpleNamespace(deadline=9.0)
    connection = SimpleNamespace(
        is_open=True,
        in_handshake=False,
        in_flight=1,
        _answering=None,
        _awaiting=[request],
        _unflushed=[],
        _flush_task=None,
        _max_idle_s=60.0,
        _last_used=1.0,
        _timer=_timer(9.0),
        _correlation_id=5,
        _bytes_written=500,
    )
    state = {
        "node": SimpleNamespace(id=1),
        "is_dialing": False,
        "last_error": None,
        "versions": _VERSIONS,
        "_state": NodeState.READY,
        "_tasks": set(),
        "_dial_timer": None,
        "_session": SimpleNamespace(versions=_VERSIONS),
        "_connection": connection,
        "_opened": [],
        "_retiring": False,
    }
    links = [_Link(**state | link)]
    counted = SimpleNamespace(requests=5, responses=4, bytes_out=500)
    appender = SimpleNamespace(
        fast_path=SimpleNamespace(appended=9, waiting=1),
        _turn_is_counted=False,
        _opened_this_turn=0,
        _on_record_opens=None,
        _check=SimpleNamespace(choice=SimpleNamespace(_kept=None)),
    )
    route = SimpleNamespace(node_id=1, leader_epoch=2)
    return SimpleNamespace(
        client=SimpleNamespace(
            _links=lambda: links,
            _retired={},
            io_stats=SimpleNamespace(open_connections=1, of=lambda node_id: counted),
        ),
        config=SimpleNamespace(acks_value=-1),
        metadata=SimpleNamespace(
            version=7, _fetch=None, leader_of=lambda place: 1, leader_epoch=lambda *place: 2
        ),
        metadata_task=SimpleNamespace(_answer=None),
        sender_task=SimpleNamespace(
            _preparing={},
            _interrupted=[],
            _sender=SimpleNamespace(fatal_error=None),
            _routes={_PLACE: route},
            _routes_version=7,
        ),
        appender=SimpleNamespace(batch_appender=appender),
        stats=SimpleNamespace(
            records_acknowledged=4, records_failed=2, buffer_waits=0, buffer_wait_time=0.0
        ),
        memory=SimpleNamespace(lock=SimpleNamespace(_waiters=None, locked=lambda: True)),
        accumulator=SimpleNamespace(incomplete=lambda: [_batch(1), _batch(2)], _flushes=0),
        _failures_raised=2,
        unretrieved=SimpleNamespace(_unwritten={}, _timer=None, _next_line_at=0.0),
        loop=SimpleNamespace(pending_timers=list),
        pool=SimpleNamespace(_queue=[]),
    )


def _timer(at: float, *args: object) -> Any:
    return SimpleNamespace(when=lambda: at, cancelled=lambda: False, _args=args)


def _set(engine: Any, path: str, value: object) -> None:
    *names, last = path.split(".")
    for name in names:
        engine = engine._links()[0] if name == "link" else getattr(engine, name)
    setattr(engine, last, value)


def test_consistent_state_breaks_no_rule() -> None:
    assert list(inconsistent(_engine(), 2.0)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("client.io_stats.open_connections", 2),
        ("client.link.is_dialing", True),
        ("client.link._tasks", {1}),
        ("client.link._dial_timer", _timer(3.0)),
        ("client.link.versions", object()),
        ("client.link.last_error", KafkaConnectionError("refused")),
        ("client.link._connection.in_handshake", True),
        ("client.link._connection._answering", object()),
        ("client.link._connection._unflushed", [SimpleNamespace(deadline=10.0)]),
        ("client.link._connection._timer", None),
        ("client.link._connection._timer", _timer(9.5)),
        ("metadata._fetch", object()),
        ("sender_task._preparing", [SimpleNamespace(done=lambda: True)]),
        ("sender_task._interrupted", [object()]),
        ("sender_task._sender.fatal_error", KafkaConnectionError("refused")),
        ("metadata.leader_of", lambda place: 3),
        ("appender.batch_appender.fast_path.waiting", 0),
        ("appender.batch_appender.fast_path.appended", 10),
        ("appender.batch_appender._opened_this_turn", 100),
        ("appender.batch_appender._check.choice._kept", (None, b"value", object(), 1)),
        ("unretrieved._unwritten", {_PLACE: 1}),
        ("_failures_raised", 3),
    ],
)
def test_each_difference_is_found(path: str, value: object) -> None:
    engine = _engine()
    _set(engine, path, value)
    assert list(inconsistent(engine, 2.0))


def test_routes_of_earlier_metadata_are_not_used() -> None:
    engine = _engine()
    engine.metadata.leader_of, engine.metadata.version = (lambda place: 3), 8
    assert list(inconsistent(engine, 2.0)) == []


@pytest.mark.parametrize(("in_flight", "found"), [(1, 0), (0, 1)])
def test_a_link_that_has_left_has_a_request_in_flight(in_flight: int, found: int) -> None:
    engine = _engine(_retiring=True)
    _set(engine, "client.link._connection.in_flight", in_flight)
    assert len(list(inconsistent(engine, 2.0))) == found


@pytest.mark.parametrize(("versions", "found"), [(_VERSIONS, 0), (None, 1)])
def test_a_link_that_has_left_dials_only_to_renew_its_session(versions: object, found: int) -> None:
    engine = _engine(
        _state=NodeState.HANDSHAKING,
        is_dialing=True,
        versions=versions,
        _tasks={1},
        _dial_timer=_timer(3.0),
        _retiring=True,
    )
    _set(engine, "client.link._connection.in_handshake", True)
    assert len(list(inconsistent(engine, 2.0))) == found


@pytest.mark.parametrize(("state", "found"), [(NodeState.CLOSED, 0), (NodeState.DISCONNECTED, 1)])
def test_a_link_that_has_left_is_closed(state: NodeState, found: int) -> None:
    engine = _engine(_state=state, versions=None, _connection=None, _retiring=True)
    engine.client.io_stats.open_connections = 0
    assert len(list(inconsistent(engine, 2.0))) == found


def test_early_records_of_a_topic_with_metadata_are_found() -> None:
    described: dict[str, object] = {}
    engine = _engine()
    engine.appender.early = SimpleNamespace(topics=["t"], _topics={})
    engine.metadata.topic, engine.metadata.topic_failure = described.get, lambda topic: None
    engine.metadata.fatal_error = None
    assert list(early_although_decided(engine, 2.0)) == []
    described["t"] = object()
    assert len(list(early_although_decided(engine, 2.0))) == 1


@pytest.mark.parametrize(("partition", "found"), [(0, 0), (NO_PARTITION, 1)])
def test_early_records_that_nothing_queues_are_found(partition: int, found: int) -> None:
    batch: Any = SimpleNamespace(topic_partition=TopicPartition("t", partition))
    early = SimpleNamespace(topics=[], _topics={"t": [SimpleNamespace(batch=batch)]})
    engine: Any = SimpleNamespace(
        appender=SimpleNamespace(early=early),
        metadata=None,
        accumulator=SimpleNamespace(incomplete=lambda: [batch]),
    )
    assert list(early_although_decided(engine, 2.0)) == []
    engine.appender.early = None
    assert len(list(early_although_decided(engine, 2.0))) == found


@pytest.mark.parametrize(("flushes", "found"), [(1, 0), (0, 1)])
def test_the_listener_of_a_flush_that_has_ended_is_found(flushes: int, found: int) -> None:
    engine, batch = _engine(), _batch(3)
    batch.listeners = {1: Flushing.flush, 2: partial(print)}
    engine.accumulator = SimpleNamespace(incomplete=lambda: [batch], _flushes=flushes)
    assert len(list(inconsistent(engine, 2.0))) == found


async def test_the_listener_of_an_await_that_has_ended_is_found() -> None:
    engine, batch = _engine(), _batch(3)
    awaiter = asyncio.get_running_loop().create_future()
    batch.listeners = {awaiter: partial(print)}
    engine.accumulator = SimpleNamespace(incomplete=lambda: [batch], _flushes=0)
    assert list(inconsistent(engine, 2.0)) == []
    awaiter.cancel()
    assert len(list(inconsistent(engine, 2.0))) == 1


@pytest.mark.parametrize(("is_closing", "found"), [(True, 0), (False, 1)])
def test_a_failed_dial_leaves_no_transport_open(is_closing: bool, found: int) -> None:
    transport = SimpleNamespace(is_closing=lambda: is_closing)
    engine = _engine(
        _state=NodeState.DISCONNECTED,
        versions=None,
        _connection=None,
        _opened=[(None, SimpleNamespace(transport=transport))],
    )
    engine.client.io_stats.open_connections = 0
    assert len(list(inconsistent(engine, 2.0))) == found


async def test_the_timer_of_a_wait_that_has_ended_is_found() -> None:
    future = asyncio.get_running_loop().create_future()
    engine = _engine()
    engine.loop.pending_timers = lambda: [_timer(5.0, future, False)]
    assert list(inconsistent(engine, 2.0)) == []
    future.set_result(True)
    assert len(list(inconsistent(engine, 2.0))) == 1


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ({"requests": 6, "responses": 5, "bytes_out": 600}, 0),
        ({"requests": 5, "responses": 5, "bytes_out": 600}, 1),
        ({"requests": 6, "responses": 4, "bytes_out": 600}, 1),
        ({"requests": 6, "responses": 5, "bytes_out": 700}, 1),
    ],
)
def test_a_request_that_does_not_count_is_found(counted: dict[str, int], found: int) -> None:
    engine, steps = _engine(), RequestCounts()
    assert list(steps.check(engine, 1.0)) == []
    connection = engine.client._links()[0]._connection
    connection._correlation_id, connection._bytes_written = 6, 600
    vars(engine.client.io_stats.of(1)).update(counted)
    assert len(list(steps.check(engine, 2.0))) == found


@pytest.mark.parametrize("what", ["authentications", "failed_authentications"])
@pytest.mark.parametrize(("counted", "found"), [(1, 0), (0, 1)])
def test_a_login_that_does_not_count_is_found(what: str, counted: int, found: int) -> None:
    engine, steps = _engine(_state=NodeState.DISCONNECTED), LoginCounts()
    engine.config.security_protocol, link = "SASL_PLAINTEXT", engine.client._links()[0]
    totals = dict.fromkeys(
        ("authentications", "renewals", "failed_authentications", "failed_renewals"), 0
    )
    vars(engine.client.io_stats).update(totals)
    assert list(steps.check(engine, 1.0)) == []
    if what == "authentications":
        link._state, link.ready_since = NodeState.READY, 1.5
    else:
        link.last_error, link._retry_at = AuthenticationError("no such user"), 2.5
    setattr(engine.client.io_stats, what, counted)
    assert len(list(steps.check(engine, 2.0))) == found
    assert list(steps.check(engine, 2.1)) == []


@pytest.mark.parametrize(
    ("outstanding", "waits", "stalls", "found"),
    [
        (9, True, False, 0),
        (7, False, False, 0),
        (7, True, False, 1),
        (7, True, True, 0),
    ],
)
def test_a_bulk_call_that_waits_for_nothing_is_found(
    outstanding: int, waits: bool, stalls: bool, found: int
) -> None:
    run: Any = _Link(
        _batches_per_node=3.0,
        _outstanding=range(outstanding),
        _partitions=range(2),
        _caught_up=SimpleNamespace(done=lambda: not waits),
        _stalls=stalls,
    )
    batch: Any = Mock()
    batch.listeners = {_Tracked(run, batch, Mock(), 0): None, object(): None}
    engine = _engine()
    engine.accumulator.incomplete = lambda: [batch, batch]
    engine.metadata.cluster = SimpleNamespace(nodes=range(2))
    assert len(list(bulk_calls_are_paced(engine, 2.0))) == found


@pytest.mark.parametrize(("counted", "found"), [(2, 0), (1, 1)])
def test_a_wait_for_memory_that_does_not_count_is_found(counted: int, found: int) -> None:
    engine, steps = _engine(), WaitCounts()
    assert list(steps.check(engine, math.inf)) == []
    engine.pool._queue = [object(), object()]
    engine.stats.buffer_waits = counted
    assert len(list(steps.check(engine, math.inf))) == found


@pytest.mark.parametrize(("counted_s", "found"), [(1.5, 0), (0.0, 1)])
def test_the_time_of_a_wait_for_memory_that_does_not_count_is_found(
    counted_s: float, found: int
) -> None:
    engine, steps = _engine(), WaitCounts()
    engine.pool._queue, engine.stats.buffer_waits = [object()], 1
    assert list(steps.check(engine, 1.0)) == []
    assert list(steps.check(engine, 2.0)) == []
    engine.pool._queue, engine.stats.buffer_wait_time = [], counted_s
    assert len(list(steps.check(engine, 2.5))) == found
