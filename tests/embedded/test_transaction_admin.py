"""`TransactionAdmin` against coordinators that move, vanish, lose responses and refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioproducer import OffsetAndMetadata, PreparedTransaction, Producer, TopicPartition
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    FatalTransactionError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
    WrongLoopError,
)
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.transaction_admin import TransactionAdmin, finish_transaction
from aioproducer.wire.api_keys import ApiKey

PLACE = TopicPartition("t", 0)


@pytest.fixture(params=[1, 2])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 1}) as cluster:
        cluster.set_transaction_version(request.param)
        yield cluster


@pytest.fixture
async def admin(brokers: EmbeddedCluster) -> AsyncIterator[TransactionAdmin]:
    servers = brokers.bootstrap_servers
    async with TransactionAdmin(bootstrap_servers=servers, retry_backoff_ms=5) as opened:
        yield opened


async def prepare(
    brokers: EmbeddedCluster, name: str = "tx", **options: Any
) -> PreparedTransaction:
    given = {"bootstrap_servers": brokers.bootstrap_servers, "transactional_id": name} | options
    async with Producer(**given) as producer, producer.transaction() as tx:
        await producer.send("t", name.encode())
        await tx.send_offsets({PLACE: OffsetAndMetadata(5, "note")}, "group")
        return await tx.prepare()


async def visible(brokers: EmbeddedCluster) -> list[bytes | None]:
    found = await read_topic(brokers.bootstrap_servers, "t", isolation_level="read_committed")
    return [record.value for record in found[0]]


async def test_an_end_is_repeated_until_it_is_known(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    prepared = await prepare(brokers)
    faults = brokers.state.faults
    scripted = [
        faults.error(ApiKey.FIND_COORDINATOR, 15),
        faults.error(ApiKey.END_TXN, 14),
        faults.error(ApiKey.END_TXN, 16),
        faults.error(ApiKey.END_TXN, 51),
        faults.drop(ApiKey.END_TXN, apply=True),
        faults.drop(ApiKey.END_TXN, apply=False),
    ]
    await admin.finish(prepared, commit=True)
    assert all(fault.struck for fault in scripted)
    assert await visible(brokers) == [b"tx"]


async def cut_off(
    brokers: EmbeddedCluster, *, arrives: bool, **options: Any
) -> PreparedTransaction:
    """The part that finds out about a commit whose producer was closed before the answer came."""
    servers = brokers.bootstrap_servers
    producer = Producer(bootstrap_servers=servers, transactional_id="tx", **options)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"tx")
    fault = brokers.state.faults.swallow(ApiKey.END_TXN, apply=arrives)
    committing = asyncio.ensure_future(producer.commit_transaction())
    async with asyncio.timeout(20):
        while not fault.struck:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
    await producer.close(0)
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        await committing
    assert caught.value.transaction is not None
    return caught.value.transaction


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_unknown_commit_is_found_out_and_completed(
    brokers: EmbeddedCluster, admin: TransactionAdmin, arrives: bool
) -> None:
    transaction = await cut_off(brokers, arrives=arrives)
    assert await admin.still_prepared(transaction) is not arrives
    for _ in range(2):
        await admin.finish(transaction, commit=True)
    assert await visible(brokers) == [b"tx"]


async def test_an_unknown_commit_that_was_aborted_by_its_timeout_is_no_success(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    transaction = await cut_off(brokers, arrives=False, transaction_timeout_ms=500)
    async with asyncio.timeout(20):
        while await admin.still_prepared(transaction):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    # V1 leaves the same state as a later producer that aborts.
    expected = (
        PreparedTransactionUnknownError
        if transaction.transaction_version == 1
        else PreparedTransactionEndedError
    )
    with pytest.raises(expected):
        await admin.finish(transaction, commit=True)
    assert await visible(brokers) == []


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_unknown_commit_cannot_be_found_out_once_its_id_is_used_again(
    brokers: EmbeddedCluster, admin: TransactionAdmin, arrives: bool
) -> None:
    transaction = await cut_off(brokers, arrives=arrives)
    servers = brokers.bootstrap_servers
    async with Producer(bootstrap_servers=servers, transactional_id="tx") as producer:
        for commit in (True, False):
            with pytest.raises(PreparedTransactionUnknownError):
                await admin.finish(transaction, commit=commit)
        async with producer.transaction():
            await producer.send("t", b"next")
    assert await visible(brokers) == ([b"tx", b"next"] if arrives else [b"next"])


async def test_the_coordinator_may_have_moved(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    names = [f"tx-{number}" for number in range(6)]
    prepared = [await prepare(brokers, name) for name in names]
    assert all([await admin.still_prepared(each) for each in prepared])
    await brokers.stop_broker(2)
    for each in prepared:
        await admin.finish(each, commit=True)
    assert sorted(await visible(brokers)) == [name.encode() for name in names]
    assert not any([await admin.still_prepared(each) for each in prepared])


async def test_without_brokers_a_call_ends_in_time(brokers: EmbeddedCluster) -> None:
    prepared = await prepare(brokers)
    for node_id in (1, 2, 3):
        await brokers.stop_broker(node_id)
    servers = brokers.bootstrap_servers
    async with asyncio.timeout(10):
        with pytest.raises(KafkaTimeoutError, match="max_block_ms=300"):
            await finish_transaction(
                prepared, commit=True, bootstrap_servers=servers, max_block_ms=300
            )


async def test_an_authorization_error_is_not_repeated(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    prepared = await prepare(brokers)
    brokers.state.faults.error(ApiKey.END_TXN, 53)
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        await admin.finish(prepared, commit=True)
    assert await admin.still_prepared(prepared)


async def test_a_refusal_of_what_is_open_still_is_reported_as_it_is(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    prepared = await prepare(brokers)
    brokers.state.faults.error(ApiKey.END_TXN, 48)
    with pytest.raises(InvalidTxnStateError):
        await admin.finish(prepared, commit=True)
    assert await admin.still_prepared(prepared)
    await admin.finish(prepared, commit=True)
    assert await visible(brokers) == [b"tx"]


async def test_a_refusal_that_cannot_be_checked_is_no_success(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    prepared = await prepare(brokers)
    brokers.state.faults.error(ApiKey.END_TXN, 90)
    brokers.state.faults.error(ApiKey.DESCRIBE_TRANSACTIONS, 105)
    with pytest.raises(PreparedTransactionUnknownError):
        await admin.finish(prepared, commit=True)


async def test_positions_are_read_from_every_partition_that_has_one(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    brokers.create_topic("u", 3)
    await admin.finish(await prepare(brokers), commit=True)
    for error in (14, 16, 88):
        brokers.state.faults.error(ApiKey.OFFSET_FETCH, error)
    asked = [PLACE, TopicPartition("u", 2), TopicPartition("nowhere", 0)]
    assert await admin.committed_offsets("group", asked) == {PLACE: OffsetAndMetadata(5, "note")}
    assert await admin.committed_offsets("another", asked) == {}


@pytest.mark.parametrize("versions", [(1, 7), (0, 9), (6, 10)])
async def test_positions_in_every_version_that_can_wait_for_transactions(
    versions: tuple[int, int],
) -> None:
    settings = ClusterSettings(api_versions={ApiKey.OFFSET_FETCH: versions})
    async with EmbeddedCluster(brokers=1, topics={"t": 1}, settings=settings) as brokers:
        prepared = await prepare(brokers)
        async with TransactionAdmin(bootstrap_servers=brokers.bootstrap_servers) as admin:
            await admin.finish(prepared, commit=True)
            found = await admin.committed_offsets("group", [PLACE])
    assert found == {PLACE: OffsetAndMetadata(5, "note")}


async def test_brokers_that_cannot_wait_for_transactions_are_refused() -> None:
    settings = ClusterSettings(api_versions={ApiKey.OFFSET_FETCH: (1, 6)})
    async with (
        EmbeddedCluster(brokers=1, settings=settings) as brokers,
        TransactionAdmin(bootstrap_servers=brokers.bootstrap_servers) as admin,
    ):
        with pytest.raises(UnsupportedVersionError):
            await admin.committed_offsets("group", [PLACE])


@pytest.mark.parametrize("versions", [(0, 0), (0, 1), (0, 2)])
async def test_orphans_are_found_in_every_version_of_the_list(versions: tuple[int, int]) -> None:
    settings = ClusterSettings(api_versions={ApiKey.LIST_TRANSACTIONS: versions})
    async with EmbeddedCluster(brokers=3, topics={"t": 1}, settings=settings) as brokers:
        for name in ("a.b-1", "a.b-2", "axb-3"):
            await prepare(brokers, name)
        async with TransactionAdmin(bootstrap_servers=brokers.bootstrap_servers) as admin:
            aborted = await admin.abort_orphans("a.b")
            assert [each.transactional_id for each in aborted] == ["a.b-1", "a.b-2"]
            left = await admin.open_transactions()
            assert [each.transactional_id for each in left] == ["axb-3"]


async def test_an_open_admin_is_not_opened_again(admin: TransactionAdmin) -> None:
    with pytest.raises(IllegalStateError, match="open already"):
        async with admin:
            pass
    assert await admin.open_transactions() == []


async def test_orphans_to_be_kept_may_be_an_iterator_or_one_name(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    for name in ("job-1", "job-12", "job-3"):
        await prepare(brokers, name)
    names: Any = iter(["job-3", "job-12", "job-1"])
    assert await admin.abort_orphans("job-", keep=names) == []
    aborted = await admin.abort_orphans("job-", keep="job-12")
    assert [each.transactional_id for each in aborted] == ["job-1", "job-3"]


async def test_a_coordinator_is_asked_once_about_all_open_transactions() -> None:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as brokers:
        for number in range(5):
            await prepare(brokers, f"tx-{number}")
        faults = brokers.state.faults
        asked = [
            faults.delay(0, api, times=None)
            for api in (ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_TRANSACTIONS)
        ]
        async with TransactionAdmin(bootstrap_servers=brokers.bootstrap_servers) as admin:
            assert len(await admin.open_transactions()) == 5
        assert [each.struck for each in asked] == [1, 1]


async def test_an_orphan_that_was_revived_meanwhile_is_left_alone(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    await prepare(brokers, "job-1")
    brokers.state.faults.error(ApiKey.END_TXN, 90)
    brokers.state.faults.error(ApiKey.INIT_PRODUCER_ID, 90)
    assert await admin.abort_orphans("job-") == []


@pytest.mark.parametrize("offered", [True, False])
async def test_where_brokers_offer_two_phases_there_is_no_timeout(offered: bool) -> None:
    settings = ClusterSettings(
        two_phase_commit=offered, api_versions={ApiKey.INIT_PRODUCER_ID: (0, 6)}
    )
    async with EmbeddedCluster(brokers=1, topics={"t": 1}, settings=settings) as brokers:
        preparing = prepare(brokers, transaction_two_phase_commit_enable=True)
        if not offered:
            with pytest.raises(TransactionalIdAuthorizationFailedError):
                await preparing
            return
        prepared = await preparing
        async with TransactionAdmin(bootstrap_servers=brokers.bootstrap_servers) as admin:
            (found,) = await admin.open_transactions("tx")
            assert found.timeout_ms == 2**31 - 1
            await admin.finish(prepared, commit=True)
        assert await visible(brokers) == [b"tx"]


async def test_brokers_without_two_phases_are_reported_at_the_start(
    brokers: EmbeddedCluster,
) -> None:
    with pytest.raises(FatalTransactionError, match="leave out transaction_two_phase"):
        await prepare(brokers, transaction_two_phase_commit_enable=True)


async def test_a_closed_admin_says_so(admin: TransactionAdmin) -> None:
    await admin.close()
    await admin.close()
    with pytest.raises(IllegalStateError, match="async with"):
        await admin.describe("tx")


async def test_many_calls_at_a_time_share_the_connections(
    brokers: EmbeddedCluster, admin: TransactionAdmin
) -> None:
    prepared = [await prepare(brokers, f"tx-{number}") for number in range(8)]
    await asyncio.gather(*(admin.finish(each, commit=True) for each in prepared))
    assert len(await visible(brokers)) == 8


async def test_calls_in_another_event_loop_are_refused(admin: TransactionAdmin) -> None:
    with pytest.raises(WrongLoopError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, admin.describe("tx"))
    with pytest.raises(WrongLoopError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, admin.close())
    assert await admin.describe("tx") is None
