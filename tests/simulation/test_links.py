"""Rules for links: each finds the state that breaks it, and no other."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from aioproducer.errors import KafkaConnectionError, NodeDisconnectedError
from aioproducer.net.context import NodeState
from aioproducer.net.versions import BrokerVersions
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.produce import ProduceRequest
from simulation.links import (
    Dials,
    dialed_too_long,
    earlier_dials_count,
    not_asked,
    not_dialed,
    older_features_count,
    unsupported_versions,
)

_CONFIG = SimpleNamespace(
    reconnect_backoff_ms=50,
    reconnect_backoff_max_ms=1000,
    request_timeout_ms=400,
    socket_connection_setup_timeout_ms=500,
    socket_connection_setup_timeout_max_ms=4000,
    metadata_recovery_strategy="rebootstrap",
)


class _Watched:
    """A link that changes between idle moments."""

    def __init__(self) -> None:
        self.link = Mock(
            is_dialing=False,
            _state=NodeState.READY,
            _setup_failures=0,
            last_attempt_at=0.0,
            last_error=KafkaConnectionError("refused"),
            lost_at=-math.inf,
            ready_since=-math.inf,
            _connection=None,
            _proved_useful=False,
            _retry_at=-math.inf,
            throttled_until=-math.inf,
        )
        self._engine: Any = SimpleNamespace(
            config=_CONFIG,
            client=SimpleNamespace(_links=lambda: [self.link]),
            metadata=SimpleNamespace(next_update_at=lambda now: math.inf),
        )
        self._steps = Dials()

    def found(self, now: float, **state: Any) -> int:
        for name, value in state.items():
            setattr(self.link, name, value)
        steps = self._steps.check(self._engine, now)
        return len([*steps, *dialed_too_long(self._engine, now)])


@pytest.mark.parametrize(("pause_s", "found"), [(0.05, 1), (0.16, 0)])
def test_pauses_that_do_not_grow_with_failed_dials_are_found_out(
    pause_s: float, found: int
) -> None:
    node = _Watched()
    assert [node.found(1.0, _retry_at=1.05), node.found(2.0, _retry_at=2.1)] == [0, 0]
    assert node.found(3.0, _retry_at=3.0 + pause_s) == found


@pytest.mark.parametrize(
    ("proved_useful", "ready_since", "found"), [(True, 2.5, 0), (False, 2.5, 1), (False, 1.0, 0)]
)
def test_only_a_useful_connection_ends_a_row_of_failures(
    proved_useful: bool, ready_since: float, found: int
) -> None:
    node = _Watched()
    for now in (0.3, 0.6):
        node.found(now, _retry_at=now + 1.0)
    state = {"_proved_useful": proved_useful, "ready_since": ready_since, "lost_at": 3.0}
    assert node.found(3.0, _retry_at=3.05, **state) == found


@pytest.mark.parametrize(("until", "found"), [(2.0, 1), (5.0, 0), (6.0, 0)])
def test_a_throttle_time_that_becomes_shorter_is_found_out(until: float, found: int) -> None:
    node = _Watched()
    assert node.found(1.0, throttled_until=5.0) == 0
    assert node.found(1.5, throttled_until=until) == found


def test_an_idle_connection_ends_a_row_of_failures() -> None:
    node = _Watched()
    for now in (0.3, 0.6):
        node.found(now, _retry_at=now + 1.0)
    node.found(1.0, _connection=SimpleNamespace(is_open=True))
    node.found(2.0, _connection=SimpleNamespace(is_open=False))
    assert node.found(3.0, _retry_at=3.05) == 0


@pytest.mark.parametrize(
    ("cause", "began", "found"),
    [(TimeoutError(), 2.0, 1), (TimeoutError(), 1.0, 0), (OSError(), 2.0, 0)],
)
def test_a_dial_that_times_out_before_its_time_is_found_out(
    cause: OSError, began: float, found: int
) -> None:
    error = NodeDisconnectedError("lost")
    error.__cause__ = cause
    assert _Watched().found(2.0, _retry_at=2.05, last_attempt_at=began, last_error=error) == found


@pytest.mark.parametrize(
    ("state", "now", "found"),
    [
        ({"_state": NodeState.CONNECTING}, 0.8, 1),
        ({"_state": NodeState.CONNECTING}, 0.6, 0),
        ({"_state": NodeState.CONNECTING, "_setup_failures": 1}, 0.8, 0),
        ({"_state": NodeState.CONNECTING, "_setup_failures": 9}, 4.2, 1),
        ({"_state": NodeState.HANDSHAKING}, 4.4, 0),
        ({"_state": NodeState.HANDSHAKING}, 4.6, 1),
        ({"_state": NodeState.READY, "is_dialing": False}, 4.6, 0),
    ],
)
def test_a_dial_that_takes_too_long_is_found_out(
    state: dict[str, Any], now: float, found: int
) -> None:
    assert _Watched().found(now, **{"is_dialing": True, **state}) == found


def _undialed(strategy: str = "none", **state: Any) -> Any:
    known = {"is_dialing": False, "_retry_at": 0.8, "last_attempt_at": 0.0, "versions": None}
    broker = Mock(**known | state)
    broker._state = NodeState.CONNECTING if broker.is_dialing else NodeState.DISCONNECTED
    server = Mock(
        is_dialing=False, _retry_at=-math.inf, _state=NodeState.DISCONNECTED, versions=None
    )
    client = SimpleNamespace(
        _brokers={1: broker}, _bootstrap={-1: server}, _links=lambda: [broker, server]
    )
    return SimpleNamespace(
        client=client,
        metadata=SimpleNamespace(next_update_at=lambda now: now),
        config=SimpleNamespace(metadata_recovery_strategy=strategy),
    )


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, 1),
        ({"_retry_at": 0.95}, 0),
        ({"_retry_at": 1.5}, 0),
        ({"versions": object()}, 0),
        ({"_retry_at": 1.5, "strategy": "rebootstrap"}, 1),
        ({"is_dialing": True, "strategy": "rebootstrap", "last_attempt_at": 0.5}, 0),
        ({"is_dialing": True, "strategy": "rebootstrap", "last_attempt_at": -0.2}, 1),
    ],
)
def test_a_broker_that_is_not_dialed_is_found_out(state: dict[str, Any], found: int) -> None:
    assert len(list(not_dialed(_undialed(**state), 1.0))) == found


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, 1),
        ({"in_flight": 2, "kinds": [ProduceRequest] * 2}, 1),
        ({"in_flight": 3, "kinds": [ProduceRequest] * 3}, 0),
        ({"in_flight": 1, "kinds": [MetadataRequest]}, 0),
        ({"ready_since": 0.95}, 0),
        ({"_renew_at": 0.9}, 0),
        ({"is_dialing": True}, 0),
        ({"state": lambda now: NodeState.THROTTLED}, 0),
    ],
)
def test_a_broker_that_is_not_asked_is_found_out(state: dict[str, Any], found: int) -> None:
    requests = [SimpleNamespace(kind=kind) for kind in state.get("kinds", ())]
    connection = SimpleNamespace(_awaiting=requests, _unflushed=[])
    ready = {"in_flight": 0, "ready_since": 0.0, "_renew_at": math.inf, "_connection": connection}
    engine = _undialed(**{**ready, "state": lambda now: NodeState.READY, **state})
    engine.config = SimpleNamespace(max_in_flight_requests_per_connection=2)
    assert len(list(not_asked(engine, 1.0))) == found
    engine.metadata.next_update_at = lambda now: now + 1.0
    assert not list(not_asked(engine, 1.0))


def test_no_dial_is_missing_before_metadata_are_due() -> None:
    engine = _undialed()
    engine.metadata.next_update_at = lambda now: now + 1.0
    assert not list(not_dialed(engine, 1.0))


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({}, 1),
        ({"_failures": 1}, 0),
        ({"_proved_useful": False}, 0),
        ({"last_attempt_at": 3.0}, 0),
        ({"versions": object()}, 0),
    ],
)
def test_failed_dials_that_count_after_a_useful_connection_are_found_out(
    state: dict[str, Any], found: int
) -> None:
    known = {"_failures": 2, "_proved_useful": True, "last_attempt_at": 1.0, "versions": None}
    link = SimpleNamespace(lost_at=2.0, node=SimpleNamespace(id=7), **known | state)
    engine: Any = SimpleNamespace(client=SimpleNamespace(_links=lambda: [link]))
    assert len(list(earlier_dials_count(engine, 3.0))) == found


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        (BrokerVersions({0: (3, 9)}), 1),
        (BrokerVersions({0: (3, 12)}), 0),
        (BrokerVersions({}), 1),
        (None, 0),
    ],
)
def test_a_request_in_a_version_that_the_broker_lacks_is_found_out(
    versions: BrokerVersions | None, found: int
) -> None:
    request = SimpleNamespace(kind=ProduceRequest, version=12)
    connection = SimpleNamespace(_awaiting=[request], _unflushed=[])
    link = SimpleNamespace(_connection=connection, versions=versions, node=SimpleNamespace(id=7))
    engine: Any = SimpleNamespace(client=SimpleNamespace(_links=lambda: [link]))
    assert len(list(unsupported_versions(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("level", "has_v2", "counts", "found"),
    [(2, True, 2, 0), (2, True, 1, 1), (0, True, 2, 1), (2, False, 1, 0), (2, False, 2, 1)],
)
def test_older_features_that_count_are_found_out(
    level: int, has_v2: bool, counts: int, found: int
) -> None:
    links = [
        SimpleNamespace(
            versions=SimpleNamespace(
                features={"transaction.version": each},
                features_epoch=epoch,
                has_transactions_v2=has_v2,
            )
        )
        for each, epoch in [(level, 5), (1, 4)]
    ]
    client = SimpleNamespace(_links=lambda: links, transaction_version=lambda: counts)
    engine: Any = SimpleNamespace(client=client, transactions=Mock())
    assert len(list(older_features_count(engine, 1.0))) == found
    engine.transactions = None
    assert not list(older_features_count(engine, 1.0))
