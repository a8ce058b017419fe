"""Prepared transactions, ended by other processes, on embedded and on real brokers."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from support.clusters import (
    ClusterUnderTest,
    embedded_cluster,
    real_cluster,
    transactional,
    unique_topic,
    visible,
)

from aioproducer import OffsetAndMetadata, PreparedTransaction, Producer, TopicPartition
from aioproducer.client.source_position import SourcePosition
from aioproducer.errors import (
    FatalTransactionError,
    IllegalStateError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from aioproducer.transaction_admin import TransactionAdmin, finish_transaction, still_prepared

KINDS = ["embedded-v1", "embedded-v2", pytest.param("kafka", marks=pytest.mark.kafka)]
BOTH = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest_asyncio.fixture(params=KINDS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ClusterUnderTest]:
    """Both protocols leave an open transaction in their own way."""
    if request.param == "kafka":
        yield real_cluster(request.getfixturevalue("kafka_cluster"))
        return
    async with embedded_cluster() as embedded:
        embedded.handle.set_transaction_version(1 if request.param == "embedded-v1" else 2)
        yield embedded


@asynccontextmanager
async def admin_of(cluster: ClusterUnderTest, **options: object) -> AsyncIterator[TransactionAdmin]:
    async with TransactionAdmin(bootstrap_servers=cluster.bootstrap_servers, **options) as admin:
        yield admin


async def prepare(cluster: ClusterUnderTest, topic: str, **options: object) -> PreparedTransaction:
    """Written and prepared by a producer that is gone."""
    async with transactional(cluster, **options) as producer, producer.transaction() as tx:
        await producer.send(topic, b"prepared", partition=0)
        await producer.send(topic, b"prepared", partition=1)
        return await tx.prepare()


async def test_a_producer_that_goes_by_another_name_writes_in_that_name(
    cluster: ClusterUnderTest,
) -> None:
    """Spark's tasks hand their producers on; each attempt has a separate name."""
    topic = await cluster.create_topic(2)
    async with transactional(cluster) as producer:
        for _ in range(3):
            async with producer.transaction() as tx:
                await producer.send(topic, b"prepared")
                prepared = await tx.prepare()
            await producer._transactions().assume(unique_topic())
            await finish_transaction(
                prepared, commit=True, bootstrap_servers=cluster.bootstrap_servers
            )
    assert await visible(cluster, topic) == [b"prepared"] * 3


@BOTH
async def test_another_process_ends_it_after_its_producer_is_gone(
    cluster: ClusterUnderTest, commit: bool
) -> None:
    topic = await cluster.create_topic(2)
    prepared = await prepare(cluster, topic)
    prepared = PreparedTransaction.from_dict(json.loads(json.dumps(prepared.as_dict())))
    assert pickle.loads(pickle.dumps(prepared)) == prepared
    options = {"bootstrap_servers": cluster.bootstrap_servers}
    assert await still_prepared(prepared, **options)
    for _ in range(3):
        await finish_transaction(prepared, commit=commit, **options)
    assert not await still_prepared(prepared, **options)
    assert await visible(cluster, topic) == ([b"prepared"] * 2 if commit else [])
    with pytest.raises(PreparedTransactionEndedError):
        await finish_transaction(prepared, commit=not commit, **options)


@BOTH
async def test_its_own_producer_may_end_it_and_go_on(
    cluster: ClusterUnderTest, commit: bool
) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send(topic, b"1")
        prepared = await producer.prepare_transaction()
        assert delivery.done()
        with pytest.raises(IllegalStateError, match="commit or abort"):
            await producer.send(topic, b"x")
        with pytest.raises(IllegalStateError):
            await producer.prepare_transaction()
        with pytest.raises(IllegalStateError):
            await producer.begin_transaction()
        await (producer.commit_transaction if commit else producer.abort_transaction)()
        async with producer.transaction():
            await producer.send(topic, b"2")
        # A late decision must not touch what came after it.
        with pytest.raises(PreparedTransactionUnknownError):
            await finish_transaction(
                prepared, commit=False, bootstrap_servers=cluster.bootstrap_servers
            )
    assert await visible(cluster, topic) == ([b"1", b"2"] if commit else [b"2"])


@BOTH
async def test_a_decision_made_elsewhere_can_be_repeated_by_the_producer(
    cluster: ClusterUnderTest, commit: bool
) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer, admin_of(cluster) as admin:
        await producer.begin_transaction()
        await producer.send(topic, b"1")
        prepared = await producer.prepare_transaction()
        await admin.finish(prepared, commit=commit)
        await (producer.commit_transaction if commit else producer.abort_transaction)()
        async with producer.transaction():
            await producer.send(topic, b"2")
    assert await visible(cluster, topic) == ([b"1", b"2"] if commit else [b"2"])


async def test_leaving_the_block_by_an_exception_does_not_end_what_is_prepared(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer, admin_of(cluster) as admin:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await producer.send(topic, b"x")
                prepared = await tx.prepare()
                raise ZeroDivisionError
        assert await admin.still_prepared(prepared)
        await admin.finish(prepared, commit=True)
    assert await visible(cluster, topic) == [b"x"]


async def refused_for_its_size(producer: Producer, topic: str) -> None:
    with pytest.raises(RecordTooLargeError):
        await producer.send(topic, b"x" * 50_000)


async def refused_for_its_size_by_the_broker(producer: Producer, topic: str) -> None:
    await producer.send(topic, b"x" * 15_000)


@pytest.mark.parametrize("lose", [refused_for_its_size, refused_for_its_size_by_the_broker])
async def test_what_has_lost_a_record_cannot_be_prepared(
    cluster: ClusterUnderTest, lose: Callable[[Producer, str], Awaitable[None]]
) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "10000"})
    async with transactional(cluster, max_request_size=20_000) as producer:
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction() as tx:
                await producer.send_and_wait(topic, b"before")
                await lose(producer, topic)
                await tx.prepare()
        async with producer.transaction():
            await producer.send(topic, b"after")
    assert await visible(cluster, topic) == [b"after"]


async def test_an_empty_one_is_ended_without_asking(cluster: ClusterUnderTest) -> None:
    async with transactional(cluster) as producer:
        async with producer.transaction() as tx:
            prepared = await tx.prepare()
        assert prepared.empty
        await producer.commit_transaction()
    async with admin_of(cluster) as admin:
        assert await admin.still_prepared(prepared)
        for commit in (True, False):
            await admin.finish(prepared, commit=commit)


async def test_a_newer_producer_aborts_it_and_the_outcome_is_unknown(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(2)
    name = unique_topic()
    prepared = await prepare(cluster, topic, transactional_id=name)
    async with transactional(cluster, transactional_id=name) as producer:
        async with admin_of(cluster) as admin:
            assert not await admin.still_prepared(prepared)
            for commit in (True, False):
                with pytest.raises(PreparedTransactionUnknownError):
                    await admin.finish(prepared, commit=commit)
        async with producer.transaction():
            await producer.send(topic, b"new")
    assert await visible(cluster, topic) == [b"new"]


async def test_one_of_an_unknown_transactional_id_is_nobodys(cluster: ClusterUnderTest) -> None:
    async with admin_of(cluster) as admin:
        prepared = PreparedTransaction(unique_topic(), 123_456, 3, transaction_version=1)
        assert not await admin.still_prepared(prepared)
        with pytest.raises(PreparedTransactionUnknownError):
            await admin.finish(prepared, commit=True)
        assert await admin.describe(prepared.transactional_id) is None


async def test_orphans_are_found_by_prefix_and_aborted_but_for_those_to_keep(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(2)
    prefix = unique_topic() + "-job.1-"
    kept, lost, other = [
        await prepare(cluster, topic, transactional_id=name)
        for name in (f"{prefix}kept", f"{prefix}lost", f"x{prefix}")
    ]
    async with admin_of(cluster) as admin:
        found = await admin.open_transactions(prefix)
        assert [each.transactional_id for each in found] == [f"{prefix}kept", f"{prefix}lost"]
        assert all(each.started_ms > 0 and each.timeout_ms == 60_000 for each in found)
        assert set(found[0].partitions) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert await admin.open_transactions(prefix, older_than_ms=3_600_000) == []
        aborted = await admin.abort_orphans(prefix, keep=[kept.transactional_id])
        assert [each.transactional_id for each in aborted] == [lost.transactional_id]
        assert await admin.abort_orphans(prefix, keep=[kept.transactional_id]) == []
        assert not await admin.still_prepared(lost)
        for each in (kept, other):
            await admin.finish(each, commit=True)
        with pytest.raises(ValueError, match="all producers"):
            await admin.abort_orphans("")
    assert await visible(cluster, topic) == [b"prepared"] * 4


async def test_the_producer_of_an_aborted_orphan_is_shut_out(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer, admin_of(cluster) as admin:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"1")
        (aborted,) = await admin.abort_orphans(producer.config.transactional_id or "")
        assert aborted.state == "Ongoing"
        # It may be written before the marker of the abort, which then covers it as well.
        await producer.send(topic, b"2")
        await producer.flush()
        with pytest.raises((ProducerFencedError, TransactionAbortableError)):
            await producer.commit_transaction()
    assert await visible(cluster, topic) == []


async def test_preparing_is_given_up_by_an_abort(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"no")
        preparing = asyncio.create_task(producer.prepare_transaction())
        await asyncio.sleep(0)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await preparing
        async with producer.transaction():
            await producer.send(topic, b"yes")
    assert await visible(cluster, topic) == [b"yes"]


async def test_one_whose_preparing_was_cancelled_is_aborted(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    sent = asyncio.Event()
    async with transactional(cluster) as producer:

        async def work() -> None:
            async with producer.transaction() as tx:
                await producer.send(topic, b"no")
                sent.set()
                await tx.prepare()

        task = asyncio.create_task(work())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(topic, b"yes")
    assert await visible(cluster, topic) == [b"yes"]


async def test_offsets_are_prepared_with_the_rest(cluster: ClusterUnderTest) -> None:
    topic, group = await cluster.create_topic(1), unique_topic()
    place = TopicPartition(topic, 0)
    async with admin_of(cluster) as admin:
        async with transactional(cluster) as producer, producer.transaction() as tx:
            await tx.send_offsets({place: OffsetAndMetadata(7, "ü" * 500)}, group)
            prepared = await tx.prepare()
        reading = asyncio.create_task(admin.committed_offsets(group, [place]))
        done, _ = await asyncio.wait([reading], timeout=0.3)
        assert not done, "an open transaction may change the position"
        await admin.finish(prepared, commit=True)
        assert await reading == {place: OffsetAndMetadata(7, "ü" * 500)}


async def test_a_source_position_is_read_back_as_the_last_commit_left_it(
    cluster: ClusterUnderTest,
) -> None:
    topic, name = await cluster.create_topic(1), unique_topic()
    position = SourcePosition(name, topic)
    async with transactional(cluster, transactional_id=name) as producer:
        assert await position.read(producer) is None
        async with producer.transaction() as tx:
            await producer.send(topic, b"row 1")
            await position.write(tx, 1, "file")
        assert await position.read(producer) == OffsetAndMetadata(1, "file")
        await producer.begin_transaction()
        await producer.send(topic, b"row 2")
        await producer.send_offsets_to_transaction(
            {TopicPartition(topic, 0): OffsetAndMetadata(2)}, name
        )
        await producer.close()
    async with transactional(cluster, transactional_id=name) as producer:
        assert await position.read(producer) == OffsetAndMetadata(1, "file")
    assert await visible(cluster, topic) == [b"row 1"]


@pytest.mark.timeout(180)
async def test_the_broker_aborts_what_takes_too_long_and_that_is_reported(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(2)
    prepared = await prepare(cluster, topic, transaction_timeout_ms=500)
    async with admin_of(cluster) as admin, asyncio.timeout(60):
        while await admin.still_prepared(prepared):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.2)
        if prepared.transaction_version == 1:
            # A later incarnation that aborts would leave the same state.
            with pytest.raises(PreparedTransactionUnknownError):
                await admin.finish(prepared, commit=True)
        else:
            with pytest.raises(PreparedTransactionEndedError, match="nothing of it is visible"):
                await admin.finish(prepared, commit=True)
            await admin.finish(prepared, commit=False)
    assert await visible(cluster, topic) == []


async def test_two_phase_commit_needs_brokers_that_offer_it(cluster: ClusterUnderTest) -> None:
    producer = Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id=unique_topic(),
        transaction_two_phase_commit_enable=True,
    )
    with pytest.raises(FatalTransactionError, match="KIP-939"):
        await producer.start()
