"""The embedded coordinators answer as real ones do: both get the same requests, codes compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.clusters import unique_topic
from support.transaction_session import V1, V2, Identity, Session

from aioproducer.testing import EmbeddedCluster, create_topic
from aioproducer.testing.kafka import KafkaBackend
from aioproducer.testing.wire_client import WireClient


async def version_1_commits_aborts_and_repeats(s: Session) -> None:
    who = await s.init()
    await s.end(who, V1)
    await s.add(who, 0, 1)
    await s.produce(who, version=11)
    await s.end(who, V1)
    await s.end(who, V1)
    await s.end(who, V1, commit=False)
    await s.read()
    await s.add(who, 0)
    await s.produce(who, 1, version=11)
    await s.end(who, V1, commit=False)
    await s.end(who, V1, commit=False)
    await s.end(who, V1)
    await s.read()
    await s.read(1)


async def version_2_commits_aborts_and_repeats(s: Session) -> None:
    first = await s.init()
    await s.end(first, V2)
    await s.produce(first, version=12)
    await s.produce(first, version=12, index=1)
    second = await s.end(first, V2)
    await s.end(first, V2)
    await s.end(first, V2, commit=False)
    await s.end(second, V2)
    await s.read()
    third = await s.end(second, V2, commit=False)
    await s.end(second, V2, commit=False)
    await s.end(second, V2)
    await s.produce(third, version=12)
    await s.produce(first, 1, version=12)
    await s.end(third, V2, commit=False)
    await s.read()
    await s.read(offset=2)


async def before_version_2_a_partition_has_to_be_added(s: Session) -> None:
    who = await s.init()
    await s.produce(who, version=10)
    await s.produce(who, version=11)
    await s.add(who, 0, 99)
    await s.add(who, 0)
    await s.produce(who, version=11)
    await s.produce(who, version=10, index=1)
    await s.produce(who, version=11, index=1)
    await s.end(who, V1)
    await s.read()
    await s.produce(who, 1, version=11)


async def a_new_incarnation_fences_the_old(s: Session) -> None:
    old = await s.init()
    await s.add(old, 0)
    await s.produce(old, version=11)
    await s.init(once=True)
    new = await s.init()
    for version in (1, V1, V2):
        await s.end(old, version)
    for version in (1, 3):
        await s.add(old, 0, version=version)
    await s.produce(old, 1, version=11)
    await s.produce(old, 1, version=12)
    await s.init(old)
    await s.end(new, V1)
    await s.end(new, V2)
    await s.read()


async def a_fenced_producer_may_resume_until_another_is_initialized(s: Session) -> None:
    old = await s.init()
    await s.produce(old, version=12)
    await s.init(once=True)
    await s.init(old)
    next_one = await s.init(old)
    await s.produce(next_one, version=12)
    await s.end(next_one, V2)
    await s.init()
    await s.init(next_one)
    await s.read()


async def what_takes_too_long_is_aborted(s: Session) -> None:
    who = await s.init(timeout_ms=200)
    await s.produce(who, version=12)
    await s.read()
    await s.produce(who, 1, version=12)
    await s.end(who, V1)
    await s.end(who, V2)
    await s.end(who, V2, commit=False)
    await s.init(who)
    await s.read()


async def producers_resume_and_are_unknown(s: Session) -> None:
    who = await s.init()
    next_one = await s.init(who)
    await s.init(who)
    await s.init(next_one._replace(epoch=9))
    await s.init(Identity(who.producer_id + 10**6, 0))
    await s.init(Identity(who.producer_id, -1))
    await s.init(Identity(-1, 0))
    stranger = Identity(who.producer_id + 10**6, 0)
    await s.end(stranger, V1)
    await s.end(stranger, V2)
    await s.add(stranger, 0)
    await s.produce(stranger, version=11)
    await s.produce(stranger, version=12)
    for timeout_ms in (0, -1, 900_001, 900_000):
        await s.init(timeout_ms=timeout_ms)


async def an_epoch_begun_by_a_marker_begins_at_sequence_0(s: Session) -> None:
    who = await s.init()
    await s.produce(who, version=12)
    await s.produce(who, 1, version=12, transactional=False)
    who = await s.end(who, V2)
    await s.produce(who, 1, version=12)
    await s.produce(who, 0, version=12)
    await s.produce(who, 0, version=12)
    await s.produce(who, 2, version=12)
    await s.end(who, V2)
    await s.read()


async def offsets_belong_to_transactions(s: Session) -> None:
    who = await s.init()
    for version in (3, 4):
        await s.commit_offset(who, 1, version=version)
    await s.add_group(who)
    await s.commit_offset(who, 2, version=3)
    await s.read_offset(stable=True)
    await s.read_offset()
    await s.end(who, V1)
    await s.read_offset(decided=True)
    await s.commit_offset(who, 3, version=5)
    await s.commit_offset(who, 3, version=5, generation=1, member="m")
    await s.commit_offset(who, 3, version=5, member="m")
    who = await s.end(who, V2, commit=False)
    await s.read_offset(decided=True)  # the group hears of the new epoch by the marker
    await s.commit_offset(who._replace(epoch=who.epoch - 1), 4, version=5)
    await s.add_group(who._replace(epoch=who.epoch - 1))
    await s.read_offset(decided=True)


Story = Callable[[Session], Awaitable[None]]
TRIES = 3
"""Real coordinators that are moving, or late, answer otherwise now and then."""

STORIES: list[Story] = [
    version_1_commits_aborts_and_repeats,
    version_2_commits_aborts_and_repeats,
    before_version_2_a_partition_has_to_be_added,
    a_new_incarnation_fences_the_old,
    a_fenced_producer_may_resume_until_another_is_initialized,
    what_takes_too_long_is_aborted,
    producers_resume_and_are_unknown,
    an_epoch_begun_by_a_marker_begins_at_sequence_0,
    offsets_belong_to_transactions,
]


async def outcomes(servers: str, story: Story) -> list[Any]:
    """Return the answers of a cluster in the course of a story."""
    topic = unique_topic()
    await create_topic(servers, topic, 2, 1)
    async with WireClient(servers, timeout_s=120) as client:
        described = (await client.metadata([topic])).topics[0]
        leaders = {each.partition_index: each.leader_id for each in described.partitions}
        session = Session(client, topic, leaders)
        await story(session)
        return session.log


@pytest.mark.kafka
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_embedded_coordinators_answer_as_kafkas_do(
    kafka_cluster: KafkaBackend, story: Story
) -> None:
    async with EmbeddedCluster(1) as embedded:
        ours = await outcomes(embedded.bootstrap_servers, story)
    for _ in range(TRIES - 1):
        if ours == await outcomes(kafka_cluster.bootstrap_servers, story):
            return
    assert ours == await outcomes(kafka_cluster.bootstrap_servers, story)
