"""Requests for a producer id: their times, and the consequences of a refusal."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.sending.actions import RECHECK_S, Connect, RequestIdentity
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.producer_id import IdentityFailure, ProducerIdRequests
from aioproducer.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    InvalidRequestError,
    KafkaError,
    NodeDisconnectedError,
    ProtocolError,
    UnsupportedVersionError,
)

from ..support import Nodes

NOW = 100.0
IDENTITY = ProducerIdentity(9, 0)


def requests(sequencer: Sequencer | None = None) -> ProducerIdRequests:
    backoff = ExponentialBackoff(0.1, 1.0, jitter=0)
    return ProducerIdRequests(sequencer or Sequencer(5), backoff, Random(1))


def test_an_id_is_wanted_until_a_request_for_it_is_in_flight() -> None:
    of_id = requests()
    assert of_id.is_wanted
    assert of_id.action(NOW, Nodes()) == RequestIdentity(1)
    of_id.on_sent()
    assert not of_id.is_wanted
    assert of_id.on_identity(IDENTITY)
    assert not of_id.is_wanted
    assert not of_id.in_flight


def test_a_node_that_cannot_be_asked_is_connected_to() -> None:
    of_id, nodes = requests(), Nodes()
    nodes.unready = {1: NOW, 2: inf, 3: NOW}
    assert of_id.action(NOW, nodes) == Connect(2)
    nodes.unready = {1: NOW + 5, 2: NOW + 4, 3: NOW + 6}
    assert of_id.action(NOW, nodes) is None
    assert NOW < of_id.due_at(NOW, nodes) <= NOW + RECHECK_S


def test_a_lost_connection_after_a_refusal_counts_as_no_refusal() -> None:
    of_id = requests()
    of_id.on_failure(ClusterAuthorizationFailedError("no"), NOW)
    assert of_id.on_failure(NodeDisconnectedError("gone"), NOW) is IdentityFailure.RETRY
    assert not of_id.refused


def test_failures_back_off_until_a_success() -> None:
    of_id, error = requests(), CoordinatorLoadInProgressError("loading")
    for failures, pause in ((1, 0.1), (2, 0.2), (3, 0.4)):
        of_id.on_sent()
        assert of_id.on_failure(error, NOW) is IdentityFailure.RETRY
        assert (of_id.failures, of_id.last_error, of_id.is_wanted) == (failures, error, True)
        assert of_id.due_at(NOW, Nodes()) == pytest.approx(NOW + pause)
        assert of_id.action(NOW + pause * 0.99, Nodes()) is None
        assert of_id.action(NOW + pause, Nodes()) == RequestIdentity(1)
    assert of_id.on_identity(IDENTITY)
    assert (of_id.failures, of_id.last_error) == (0, None)


@pytest.mark.parametrize(
    ("error", "consequence", "refused"),
    [
        (NodeDisconnectedError("gone"), IdentityFailure.RETRY, False),
        (ProtocolError("garbage"), IdentityFailure.RETRY, False),
        (ClusterAuthorizationFailedError("no"), IdentityFailure.REFUSED, True),
        (InvalidRequestError("no"), IdentityFailure.FATAL, False),
        (UnsupportedVersionError("old"), IdentityFailure.FATAL, False),
    ],
)
def test_consequences_of_a_failure(
    error: KafkaError, consequence: IdentityFailure, refused: bool
) -> None:
    of_id = requests()
    of_id.on_sent()
    assert of_id.on_failure(error, NOW) is consequence
    assert (of_id.refused, of_id.in_flight, of_id.failures) == (refused, False, 1)
    assert of_id.on_identity(IDENTITY)
    assert not of_id.refused


def test_a_response_that_is_garbage_is_a_lost_connection() -> None:
    of_id = requests()
    of_id.on_failure(ProtocolError("garbage"), NOW)
    assert isinstance(of_id.last_error, NodeDisconnectedError)
    assert "garbage" in str(of_id.last_error)


def test_where_idempotence_may_be_given_up_old_brokers_are_no_failure() -> None:
    given_up: list[bool] = []
    of_id = requests(Sequencer(5, lambda: given_up.append(True)))
    of_id.on_failure(NodeDisconnectedError("gone"), NOW)
    assert of_id.on_failure(UnsupportedVersionError("old"), NOW) is IdentityFailure.NOT_NEEDED
    assert (of_id.failures, of_id.last_error, of_id.is_wanted) == (0, None, False)
    assert given_up == [True]


def test_an_id_of_the_previous_cluster_is_not_taken() -> None:
    sequencer = Sequencer(5)
    of_id = requests(sequencer)
    of_id.on_sent()
    of_id.on_other_cluster()
    assert not of_id.on_identity(IDENTITY)
    assert (sequencer.identity, of_id.is_wanted) == (None, True)
    of_id.on_sent()
    assert of_id.on_identity(IDENTITY)


def test_a_change_of_the_cluster_concerns_only_a_request_in_flight() -> None:
    of_id = requests()
    of_id.on_other_cluster()
    of_id.on_sent()
    assert of_id.on_identity(IDENTITY)
    again = requests()
    again.on_sent()
    again.on_other_cluster()
    again.on_failure(NodeDisconnectedError("gone"), NOW)
    again.on_sent()
    assert again.on_identity(IDENTITY)
