"""`Producer.start(wait=False)`: connects in the background, however long that takes."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from typing import Any

import pytest
from support import hostile
from support.hostile import HostileServer
from support.waiting import until

from aioproducer import Producer
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    ConfigError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    ProducerClosedError,
    TlsError,
    TransactionalIdAuthorizationFailedError,
)
from aioproducer.testing import EmbeddedCluster, read_topic
from aioproducer.testing.security.gate import ListenerSecurity
from aioproducer.testing.virtual import VirtualKafka, run_virtual

WAIT_S = 5.0
QUICK: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 20}


def cluster_down(**options: Any) -> EmbeddedCluster:
    """A cluster that is still to be started, on ports that are known."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return EmbeddedCluster(1, ports=[port], topics={"t": 1}, **options)


async def test_it_returns_at_once_and_says_why_it_is_not_ready() -> None:
    cluster = cluster_down()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK)
    await asyncio.wait_for(producer.start(wait=False), 1)
    assert producer.health().state == "connecting"
    await until(lambda: "127.0.0.1" in (producer.health().error or ""))
    health = producer.health()
    assert not health.ready
    assert "not connected to the cluster yet" in (health.error or "")
    assert "nothing listens there" in (health.error or "")
    await asyncio.wait_for(producer.close(), 2)
    assert producer.health().state == "closed"


async def test_what_was_sent_before_goes_out_in_order_when_the_cluster_appears() -> None:
    cluster = cluster_down()
    async with asyncio.timeout(WAIT_S):
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK)
        await producer.start(wait=False)
        sends = [asyncio.create_task(producer.send_and_wait("t", b"%d" % i)) for i in range(20)]
        await until(lambda: "127.0.0.1" in (producer.health().error or ""))
        async with cluster:
            await asyncio.gather(*sends)
            await until(lambda: producer.health().ready)
            assert producer.health().state == "running"
            assert producer.health().error is None
            await producer.close()
            found = await read_topic(cluster.bootstrap_servers, "t")
    assert [record.value for record in found[0]] == [b"%d" % i for i in range(20)]


async def test_closing_while_it_connects_ends_every_send() -> None:
    cluster = cluster_down()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK)
    await producer.start(wait=False)
    sends = [asyncio.create_task(producer.send_and_wait("t", b"x")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.wait_for(producer.close(0.2), 3)
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert all(isinstance(outcome, ProducerClosedError) for outcome in outcomes)
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"x")


async def test_a_cancelled_send_leaves_nothing() -> None:
    cluster = cluster_down()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK)
    await producer.start(wait=False)
    waiting = asyncio.create_task(producer.partitions_for("t"))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await producer.close(0)
    health = producer.health()
    assert health.buffer_available == health.buffer_total
    assert producer._engine is not None
    assert producer._engine.metadata_task.waits._waiting == {}


SASL = ListenerSecurity(mechanisms=("PLAIN",), users={"u": "right"})


async def lasting_failure(
    servers: str, kind: type[KafkaError], caplog: pytest.LogCaptureFixture, **options: Any
) -> None:
    """Start with brokers that never take the producer, and check everything that reports it."""
    caplog.set_level(logging.WARNING, "aioproducer")
    producer = Producer(bootstrap_servers=servers, **QUICK, **options)
    await producer.start(wait=False)
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(KafkaError) as pending:
            await producer.send_and_wait("t", b"x")
        with pytest.raises(KafkaError) as later:
            await producer.send("t", b"x")
    for caught in (pending, later):
        assert isinstance(caught.value, kind)
    health = producer.health()
    assert not health.ready
    assert pending.value.message in (health.error or "")
    await asyncio.sleep(0.2)
    logged = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert [r.name for r in logged] == ["aioproducer.runtime"]
    assert pending.value.message in logged[0].getMessage()
    await asyncio.wait_for(producer.close(), 2)


async def test_wrong_credentials_are_logged_once_and_fail_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}, security=SASL) as cluster:
        await lasting_failure(
            cluster.bootstrap_servers,
            AuthenticationError,
            caplog,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="wrong",
        )


async def test_refused_tls_is_logged_once_and_fails_sends(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        await lasting_failure(cluster.bootstrap_servers, TlsError, caplog, security_protocol="SSL")


async def test_another_service_is_logged_once_and_fails_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def http(peer: hostile.Peer) -> None:
        await peer.reader.read(4)
        peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.writer.drain()
        await peer.reader.read(1000)

    async with HostileServer(http) as server:
        await lasting_failure(f"{server.host}:{server.port}", BootstrapError, caplog)


async def test_corrected_credentials_end_the_failure() -> None:
    security = ListenerSecurity(mechanisms=("PLAIN",), users={"u": "other"})
    async with EmbeddedCluster(1, topics={"t": 1}, security=security) as cluster:
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="right",
            **QUICK,
        )
        await producer.start(wait=False)
        with pytest.raises(AuthenticationError):
            await producer.send_and_wait("t", b"x")
        security.users = {"u": "right"}
        await until(lambda: producer.health().ready)
        assert (await producer.send_and_wait("t", b"x")).offset == 0
        await producer.close()


async def test_a_name_that_does_not_resolve_yet_is_waited_for() -> None:
    producer = Producer(bootstrap_servers="no-such-host.invalid:9092", **QUICK)
    await producer.start(wait=False)
    await until(lambda: "no-such-host" in (producer.health().error or ""))
    sending = asyncio.create_task(producer.send_and_wait("t", b"x"))
    done, _ = await asyncio.wait([sending], timeout=0.3)
    assert not done
    await producer.close(0)
    with pytest.raises(ProducerClosedError):
        await sending


async def test_what_the_options_contradict_still_raises() -> None:
    with pytest.raises(ConfigError):
        Producer(bootstrap_servers="localhost:1", acks=0, enable_idempotence=True)
    producer = Producer(bootstrap_servers="localhost:1")
    await producer.start(wait=False)
    with pytest.raises(IllegalStateError, match="starts once"):
        await producer.start(wait=False)
    await producer.close(0)


async def test_a_transactional_producer_is_initialized_in_the_background() -> None:
    cluster = cluster_down()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="id", **QUICK)
    await producer.start(wait=False)

    async def work() -> None:
        async with producer.transaction():
            await producer.send("t", b"x")

    working = asyncio.create_task(work())
    await until(lambda: "127.0.0.1" in (producer.health().error or ""))
    async with cluster:
        await asyncio.wait_for(working, WAIT_S)
        assert producer.health().ready
        await producer.close()
        found = await read_topic(cluster.bootstrap_servers, "t")
    assert [record.value for record in found[0]] == [b"x"]


async def test_a_transaction_waits_at_most_max_block_ms_for_the_start() -> None:
    cluster = cluster_down()
    producer = Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id="id",
        max_block_ms=200,
        **QUICK,
    )
    await producer.start(wait=False)
    for call in (producer.begin_transaction, producer.init_transactions):
        with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1"):
            await asyncio.wait_for(call(), 2)
    await producer.close()


async def test_a_transactional_id_that_is_refused_is_said_and_can_be_granted_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        request = cluster.faults.every("init_producer_id")
        denied = request.answers("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="id")
        await producer.start(wait=False)
        for _ in range(2):
            with pytest.raises(TransactionalIdAuthorizationFailedError):
                await producer.begin_transaction()
        health = producer.health()
        assert not health.ready
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in (health.error or "")
        assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
        cluster.faults.remove(denied)
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"x")
        assert producer.health().ready
        await producer.close()


async def test_a_transaction_fails_at_once_where_the_credentials_are_wrong() -> None:
    async with EmbeddedCluster(1, topics={"t": 1}, security=SASL) as cluster:
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            transactional_id="id",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="wrong",
        )
        await producer.start(wait=False)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(AuthenticationError):
                await producer.begin_transaction()
        await producer.close()


def test_a_program_that_ends_while_it_connects_ends_quietly() -> None:
    program = """
import asyncio, warnings
from aioproducer import Producer
async def main():
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    await producer.start(wait=False)
    await asyncio.sleep(0)
warnings.simplefilter("ignore", ResourceWarning)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_broker_that_appears_after_an_hour_gets_the_records() -> None:
    async def late(kafka: VirtualKafka) -> list[bytes | None]:
        for node in (1, 2, 3):
            kafka.unplug_broker(node)
        hours = 7_200_000
        producer = kafka.producer(max_block_ms=hours, delivery_timeout_ms=hours)
        await producer.start(wait=False)
        sends = [asyncio.create_task(producer.send_and_wait("t", b"%d" % i)) for i in range(50)]
        await asyncio.sleep(3600)
        assert not producer.health().ready
        for node in (1, 2, 3):
            kafka.start_broker(node)
        await asyncio.gather(*sends)
        await producer.close()
        return [record.value for record in kafka.records("t")]

    assert run_virtual(late, topics={"t": 1}) == [b"%d" % i for i in range(50)]


async def test_each_failure_of_a_bulk_call_says_why_the_topic_is_not_known() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{held.getsockname()[1]}",
            max_block_ms=300,
            request_timeout_ms=300,
            delivery_timeout_ms=400,
        )
        await producer.start(wait=False)
        result = await producer.send_many("t", [b"1", b"2", b"3"])
        assert len(result.failed) == 3
        for each in result.failed:
            assert "connection refused" in str(each.error)
            assert "-> start the broker" in str(each.error)
        await producer.close(0)
