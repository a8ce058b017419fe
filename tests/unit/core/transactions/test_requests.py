"""Requests of a transactional producer: their coordinators, versions and groups."""

from __future__ import annotations

import pytest

from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import requests
from aioproducer.core.transactions.requests import (
    CoordinatorKey,
    CoordinatorKind,
    TransactionalRequest,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata

from ..support import TOPIC_ID
from .transaction_stage import T0

IDENTITY = ProducerIdentity(0, 0)
OFFSETS = {T0: OffsetAndMetadata(1)}
MEMBER = ConsumerGroupMetadata("group", 4, "member", "instance")


def offsets(group: ConsumerGroupMetadata, *, v2: bool, known: bool = True) -> TransactionalRequest:
    ids = {"t": TOPIC_ID} if known else {}
    return requests.commit_offsets("tx", IDENTITY, group, OFFSETS, ids, v2=v2)


def test_requests_of_a_group_name_it() -> None:
    group = CoordinatorKey(CoordinatorKind.GROUP, "group")
    owner = CoordinatorKey(CoordinatorKind.TRANSACTION, "tx")
    added = requests.add_offsets("tx", IDENTITY, "group")
    assert added.min_version == 0
    assert (added.coordinator, added.group) == (owner, "group")
    committed = offsets(ConsumerGroupMetadata("group"), v2=True)
    assert (committed.coordinator, committed.group) == (group, "group")
    assert requests.find_coordinator(group).group == "group"
    for other in (
        requests.find_coordinator(owner),
        requests.end("tx", IDENTITY, commit=True, v2=True),
        requests.add_partitions("tx", IDENTITY, [T0]),
    ):
        assert (other.coordinator, other.group) == (owner, None)


@pytest.mark.parametrize(
    ("request_", "versions"),
    [
        (offsets(ConsumerGroupMetadata("group"), v2=False), (0, 4)),
        (offsets(MEMBER, v2=False), (3, 4)),
        (offsets(MEMBER, v2=True), (5, None)),
        (offsets(MEMBER, v2=True, known=False), (5, 5)),
        (requests.init_producer_id("tx", 1, None), (0, 5)),
        (requests.init_producer_id("tx", 1, IDENTITY), (3, 5)),
        (requests.init_producer_id("tx", 1, None, two_phase=True), (6, None)),
        (requests.init_producer_id("tx", 1, IDENTITY, two_phase=True), (6, None)),
    ],
)
def test_versions_that_have_what_the_request_needs(
    request_: TransactionalRequest, versions: tuple[int, int | None]
) -> None:
    assert (request_.min_version, request_.max_version) == versions


def test_offsets_of_a_member_name_it_and_their_topic_by_version() -> None:
    request = offsets(MEMBER, v2=True)
    for version in (5, 6):
        sent = request.request_type.decode(request.make(version).encode(version), version)
        (topic,) = sent.topics  # type: ignore[attr-defined]
        assert (topic.name, topic.topic_id == TOPIC_ID) == (("t", False), ("", True))[version - 5]
        assert sent.member_id == "member"  # type: ignore[attr-defined]
        assert sent.group_instance_id == "instance"  # type: ignore[attr-defined]
        assert sent.generation_id_or_member_epoch == 4  # type: ignore[attr-defined]


def test_advice_about_two_phases_is_given_where_they_are_wanted() -> None:
    assert requests.init_producer_id("tx", 1, None).advice is None
    advice = requests.init_producer_id("tx", 1, None, two_phase=True).advice
    assert advice is not None
    assert "transaction_two_phase_commit_enable" in advice
