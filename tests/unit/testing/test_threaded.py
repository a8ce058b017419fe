"""The cluster in a thread answers callers that block."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from aioproducer import Producer
from aioproducer.blocking import Producer as BlockingProducer
from aioproducer.errors import IllegalStateError
from aioproducer.testing import ThreadedCluster


def test_it_serves_a_blocking_test() -> None:
    with ThreadedCluster(brokers=2, topics={"orders": 1}) as cluster:
        cluster.faults.next("produce").answers("NOT_LEADER_OR_FOLLOWER")
        with BlockingProducer(
            bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=1
        ) as producer:
            producer.send_and_wait("orders", b"1")
            cluster.move_leader("orders", 0)
            producer.send_and_wait("orders", b"2")
            cluster.freeze_broker(1)
            cluster.thaw_broker(1)
            cluster.drop_connections()
            cluster.stop_broker(2)
            cluster.start_broker(2)
            cluster.create_topic("more", 2)
            producer.send_and_wait("more", b"3", partition=1)
        assert cluster.values("orders") == [b"1", b"2"]
        assert [record.value for record in cluster.records("more")] == [b"3"]
        assert cluster.call(lambda inside: len(inside.state.brokers)) == 2
    names = [thread.name for thread in threading.enumerate()]
    assert "aioproducer cluster" not in names
    cluster.stop()


async def test_it_serves_a_test_with_another_loop() -> None:
    with ThreadedCluster(brokers=1, topics={"orders": 1}) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"1")
        assert cluster.values("orders") == [b"1"]


def test_nothing_is_left_when_a_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = ThreadedCluster(brokers=1, ports=[taken.getsockname()[1]])
        with pytest.raises(OSError, match=r"."):
            cluster.start()
    cluster.stop()
    assert "aioproducer cluster" not in [thread.name for thread in threading.enumerate()]


def test_calls_before_the_start_and_after_the_end_say_so() -> None:
    cluster = ThreadedCluster(brokers=1, topics={"orders": 1})
    with pytest.raises(IllegalStateError, match="the cluster does not run"):
        cluster.values("orders")
    with cluster:
        assert cluster.values("orders") == []
        with pytest.raises(IllegalStateError, match="starts once"):
            cluster.start()
    with pytest.raises(IllegalStateError, match="the cluster does not run"):
        cluster.create_topic("more")
    with pytest.raises(IllegalStateError, match="starts once"):
        cluster.start()


def test_stopping_what_never_started_ends_at_once() -> None:
    cluster = ThreadedCluster(brokers=1)
    cluster.stop()
    cluster.stop()
    with pytest.raises(IllegalStateError, match="starts once"):
        cluster.start()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_broker_stops_and_starts_while_a_forked_child_lives() -> None:
    with ThreadedCluster(brokers=1) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        connected = socket.create_connection((host, int(port)))
        counts = (cluster.call(lambda inside: inside.connection_count(1)) for _ in range(10_000))
        assert any(counts)  # until it is accepted
        reading, writing = os.pipe()
        begun, beginning = os.pipe()
        child = os.fork()
        if child == 0:
            connected.close()
            os.close(writing)
            os.write(beginning, b"!")
            os.read(reading, 1)  # until the parent closes its end
            os._exit(0)
        try:
            assert os.read(begun, 1) == b"!"
            cluster.stop_broker(1)
            connected.settimeout(30)
            assert connected.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))
            cluster.start_broker(1)
            socket.create_connection((host, int(port))).close()
        finally:
            for end in (reading, writing, begun, beginning):
                os.close(end)
            os.waitpid(child, 0)
            connected.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_may_stop_it_and_the_parent_goes_on() -> None:
    with ThreadedCluster(brokers=1, topics={"orders": 1}) as cluster:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                cluster.stop()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_and_wait("orders", b"1")
