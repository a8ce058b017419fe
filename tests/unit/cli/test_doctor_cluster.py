"""The doctor on what brokers say: addresses, topics, permissions, clocks, transactions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from aioproducer import Producer
from aioproducer.cli.checkup import Finding, Status, verdict
from aioproducer.cli.checkup.advertised import out_of_reach, shared
from aioproducer.cli.checkup.clock import by_append_time, by_newest_record
from aioproducer.cli.checkup.topic import topic_findings, write_permission
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.testing import read_topic
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.types import Node
from aioproducer.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from cli.checkup_places import closed_port, examined, failures, only

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(2, topics={"t": TopicSpec(2, 2)}) as cluster:
        yield cluster


def first_of(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers.split(",")[0]


# -- advertised addresses -------------------------------------------------------------------------


async def test_an_advertised_address_that_cannot_be_reached_is_reported(
    cluster: EmbeddedCluster,
) -> None:
    server = first_of(cluster)
    with closed_port() as elsewhere:
        host, _, port = elsewhere.partition(":")
        cluster.state.set_broker_address(2, host, int(port))
        findings = await examined(server)
    finding = only(findings, "advertised-unreachable")
    assert f"broker 2 advertises {elsewhere}" in finding.found
    assert "advertised.listeners" in (finding.advice or "")
    assert verdict(findings) == (Status.FAIL, ExitCode.UNREACHABLE)


async def test_brokers_that_share_an_address_are_reported(cluster: EmbeddedCluster) -> None:
    server = first_of(cluster)
    host, _, port = server.partition(":")
    cluster.state.set_broker_address(2, host, int(port))
    assert only(await examined(server), "address-shared").status is Status.WARN


def unreachable(check: str, host: str) -> Finding:
    failed = Finding(check, f"{host}:9092", Status.FAIL, "x", "no address", "advice")
    return out_of_reach(Node(2, host, 9092), failed, ["kafka.example"])


def test_a_name_of_a_container_gets_the_advice_for_containers() -> None:
    finding = unreachable("name", "kafka-2")
    assert "container" in (finding.advice or "")
    assert "INTERNAL://kafka-2:9092,EXTERNAL://" in (finding.advice or "")


def test_a_broker_that_advertises_localhost_is_reported_with_the_host_that_this_is() -> None:
    assert "this machine, not the broker's" in (unreachable("port", "localhost").advice or "")


def test_a_broker_that_refuses_us_where_it_advertises_keeps_the_advice() -> None:
    finding = unreachable("tls", "kafka-2")
    assert (finding.code, finding.advice) == ("advertised-refused", "advice")


# -- topics ---------------------------------------------------------------------------------------


async def test_a_missing_topic_is_reported_and_not_created(cluster: EmbeddedCluster) -> None:
    findings = await examined(first_of(cluster), "missing")
    assert "topics create missing" in (only(findings, "topic-missing").advice or "")
    assert "missing" not in cluster.state.topics
    assert verdict(findings) == (Status.FAIL, ExitCode.REFUSED)


async def test_a_topic_that_may_not_be_seen_is_reported(cluster: EmbeddedCluster) -> None:
    cluster.faults.every("metadata", topic="t").answers("TOPIC_AUTHORIZATION_FAILED")
    assert "DESCRIBE" in (
        only(await examined(first_of(cluster), "t"), "topic-unauthorized").advice or ""
    )


async def test_too_few_replicas_in_sync_fail_with_acks_all_alone(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("strict", TopicSpec(1, 2, {"min.insync.replicas": "2"}))
    await cluster.stop_broker(2)
    findings = await examined(first_of(cluster), "strict")
    assert next(e for e in findings if e.code == "too-few-in-sync").status is Status.FAIL
    findings = await examined(first_of(cluster), "strict", acks="1", enable_idempotence=False)
    assert next(e for e in findings if e.code == "too-few-in-sync").status is Status.WARN


async def test_a_partition_without_a_leader_is_reported(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("single", TopicSpec(2, 1))
    await cluster.stop_broker(2)
    findings = await examined(first_of(cluster), "single")
    finding = next(each for each in findings if each.code == "partition-without-leader")
    assert finding.found.startswith("partition ")


def described(*in_sync: int, operations: int = -(2**31)) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            partition_index=number,
            leader_id=1,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2, 3][:count],
        )
        for number, count in enumerate(in_sync)
    ]
    return MetadataResponseTopic(
        name="t", partitions=partitions, topic_authorized_operations=operations
    )


def test_thousands_of_partitions_are_judged_in_little_time() -> None:
    def partition(number: int, in_sync: int) -> MetadataResponsePartition:
        return MetadataResponsePartition(
            partition_index=number, replica_nodes=[1, 2, 3], isr_nodes=list(range(in_sync))
        )

    partitions = [partition(number, number % 2 + 1) for number in range(40_000)]
    topic = MetadataResponseTopic(name="t", partitions=partitions)
    began = time.process_time()
    scarce, lagging = topic_findings("t", topic, {"min.insync.replicas": "2"}, acks="all")
    assert time.process_time() - began < 2
    assert "partitions 0, 2, 4" in scarce.found
    assert "partitions 1, 3, 5" in lagging.found


def test_addresses_that_brokers_share_are_reported_up_to_a_number() -> None:
    nodes = [Node(number, f"a{number // 2}.example", 9092) for number in range(10_000)]
    assert len(list(shared(nodes))) == 20
    assert len(list(shared(nodes[:9]))) == 4


def test_an_address_of_ipv6_that_brokers_share_has_brackets() -> None:
    (finding,) = shared([Node(1, "2001:db8::1", 9092), Node(2, "2001:db8::1", 9092)])
    assert finding.about == "[2001:db8::1]:9092"


def test_replicas_that_lag_are_a_warning_that_names_the_partitions() -> None:
    topic = described(3, 2, 3, 2)
    (finding,) = topic_findings("t", topic, {"min.insync.replicas": "2"}, acks="all")
    assert (finding.code, finding.status) == ("under-replicated", Status.WARN)
    assert finding.found == "partitions 1, 3 with replicas out of sync"


@pytest.mark.parametrize("reported", ["", "x", "-1", "1.5", "\x1b[2J", "9" * 5000])
def test_an_option_that_is_no_number_is_no_error(reported: str) -> None:
    (finding,) = topic_findings("t", described(3), {"min.insync.replicas": reported}, acks="all")
    assert finding.status is Status.OK


def test_options_that_may_not_be_seen_are_said_to_be_so() -> None:
    (finding,) = topic_findings("t", described(3), None, acks="all")
    assert finding.found.endswith("min.insync.replicas may not be seen")


@pytest.mark.parametrize(
    ("operations", "code"),
    [(1 << 4 | 1 << 8, "ok"), (1 << 8, "write-unauthorized"), (-(2**31), "skipped")],
)
def test_the_permission_to_write_is_read_off_the_brokers_word(operations: int, code: str) -> None:
    assert write_permission("t", described(3, operations=operations)).code == code


# -- writing, clocks ------------------------------------------------------------------------------


async def test_nothing_is_written_unless_asked_for(cluster: EmbeddedCluster) -> None:
    await examined(first_of(cluster), "t")
    assert await read_topic(cluster.bootstrap_servers, "t") == {0: [], 1: []}
    findings = await examined(first_of(cluster), "t", write=True)
    assert failures(findings) == []
    assert "offset 0" in next(each for each in findings if each.check == "write").found


@pytest.mark.parametrize("acks", ["all", "0"])
async def test_a_refused_write_is_reported(cluster: EmbeddedCluster, acks: str) -> None:
    cluster.faults.every("produce", topic="t").answers("TOPIC_AUTHORIZATION_FAILED")
    findings = await examined(first_of(cluster), "t", write=True, acks=acks)
    assert only(findings, "write-unauthorized").exit_code is ExitCode.REFUSED


async def test_a_transaction_of_the_doctors_leaves_nothing_to_read(
    cluster: EmbeddedCluster,
) -> None:
    findings = await examined(first_of(cluster), "t", write=True, transactional_id="x")
    assert failures(findings) == []
    assert "CompleteAbort" in findings[-1].found


@pytest.mark.parametrize(("ahead_s", "words"), [(60, "behind"), (-60, "ahead of")])
async def test_the_clocks_are_compared_by_the_append_time(ahead_s: int, words: str) -> None:
    spec = TopicSpec(1, 1, {"message.timestamp.type": "LogAppendTime"})
    brokers_clock = lambda: time.time_ns() // 1_000_000 + ahead_s * 1000  # noqa: E731
    async with EmbeddedCluster(1, topics={"t": spec}, clock_ms=brokers_clock) as cluster:
        findings = await examined(cluster.bootstrap_servers, "t", write=True)
    finding = only(findings, "clock-skewed")
    assert f" s {words} the broker's, by the append time" in finding.found
    assert finding.status is Status.WARN


async def test_a_record_from_the_future_gives_a_clock_away(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"", timestamp_ms=NOW_MS + 1_800_000)
    finding = only(await examined(first_of(cluster), "t"), "clock-skewed")
    assert "by the newest record's timestamp" in finding.found


# -- transactional ids ----------------------------------------------------------------------------


async def test_a_transactional_id_is_checked_without_fencing_any_producer(
    cluster: EmbeddedCluster,
) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "x"}
    async with Producer(**options) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1")
        await producer.flush()
        findings = await examined(first_of(cluster), transactional_id="x")
        assert failures(findings) == []
        assert "state Ongoing" in findings[-1].found
        await producer.commit_transaction()


async def test_a_transactional_id_that_may_not_be_used_is_reported(
    cluster: EmbeddedCluster,
) -> None:
    cluster.faults.every("find_coordinator").answers("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    findings = await examined(first_of(cluster), transactional_id="x")
    assert only(findings, "transactional-id-unauthorized").exit_code is ExitCode.REFUSED


async def test_a_coordinator_that_is_not_there_is_reported(cluster: EmbeddedCluster) -> None:
    cluster.faults.every("find_coordinator").answers("COORDINATOR_NOT_AVAILABLE")
    only(await examined(first_of(cluster), transactional_id="x"), "coordinator-unavailable")


@pytest.mark.parametrize(
    ("newest_ms", "why"), [(None, "no leader returned"), (-1, "no record there to compare with")]
)
def test_without_a_record_the_clocks_cannot_be_compared(newest_ms: int | None, why: str) -> None:
    finding = by_newest_record("t", NOW_MS, newest_ms)
    assert finding.status is Status.SKIP
    assert why in finding.found


def test_a_clock_an_hour_ahead_is_a_failure() -> None:
    hour_ms = 3_600_000
    finding = by_append_time("t", NOW_MS + hour_ms, NOW_MS + hour_ms + 5, NOW_MS)
    assert (finding.code, finding.status) == ("clock-skewed", Status.FAIL)
    assert "3,600.0 s ahead of the broker's" in finding.found
    assert by_append_time("t", NOW_MS, NOW_MS + 9, NOW_MS + 5).status is Status.OK
