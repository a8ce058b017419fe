"""Kafka from before KRaft: brokers and a ZooKeeper as JVM processes on this machine.

Invariants: as for `KafkaCluster`; ZooKeeper comes from the same jars and ends with the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from aioproducer._util.arguments import seconds_of
from aioproducer.testing.kafka.base import READY_TIMEOUT_S
from aioproducer.testing.kafka.cluster import KafkaCluster
from aioproducer.testing.kafka.errors import ClusterError, ClusterTimeoutError
from aioproducer.testing.kafka.node import BrokerProcess
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.kafka.probe import ProbeError, describe_cluster
from aioproducer.testing.kafka.release import LegacyRelease
from aioproducer.testing.kafka.settings import NodeAddress

_HOST = "127.0.0.1"
_ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ZOOKEEPER_ID = 0
_FIRST_TO_LIST_BROKERS = (0, 9)
"""Before, a cluster without topics names no brokers (KAFKA-1867): there an answer is enough."""
_PROBE_TIMEOUT_S = 2.0
_PROBE_INTERVAL_S = 0.2
_LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %m (%c)%n
"""


class LegacyKafkaCluster(KafkaCluster):
    """Kafka brokers of 0.8.2 to 2.8 with their ZooKeeper.

    Args:
        version: A release of Apache Kafka; its jars come through the user's Maven.
        brokers: How many; their ids are 1, 2, ...
        config: Broker settings that override ours.
        data_dir: Directory of storage and logs; kept after `close()` when given.
        java: A `java` to use instead of the one that would be found.
        heap_mb: The heap of each broker.
        ready_timeout_s: The bound of `open()`'s wait for readiness.

    Raises:
        ClusterError: The version cannot be run.
        JavaError: No fitting Java.
    """

    release: LegacyRelease

    def __init__(
        self,
        version: str,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        *,
        java: str | Path | None = None,
        heap_mb: int = 256,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        super().__init__(
            version,
            brokers,
            config,
            data_dir,
            java=java,
            heap_mb=heap_mb,
            ready_timeout_s=ready_timeout_s,
        )
        self._zookeeper: BrokerProcess | None = None

    @staticmethod
    def _parse(version: str) -> LegacyRelease:
        return LegacyRelease.parse(version)

    @property
    def zookeeper(self) -> str:
        """`host:port` of the ZooKeeper."""
        if self._zookeeper is None:
            raise ClusterError("the cluster is not open")
        return f"{_HOST}:{self._zookeeper.address.port}"

    def close(self) -> None:
        """Kill all brokers, then ZooKeeper, and remove their directory; may be called twice."""
        super().close()
        if self._zookeeper is not None and self._closing.is_set():
            self._zookeeper.kill()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when every running broker has all the running brokers in its metadata.

        Raises:
            ClusterError: A broker ended by itself.
            ClusterTimeoutError: It took longer than `timeout_s`.
        """
        deadline = time.monotonic() + seconds_of(timeout_s, "timeout_s")
        while True:
            nodes = self._running()
            ready = [set(nodes)]
            if self.release.number < _FIRST_TO_LIST_BROKERS:
                ready.append(set())
            late = [id_ for id_, place in nodes.items() if _seen_by(place) not in ready]
            if not late:
                return
            if time.monotonic() > deadline:
                raise ClusterTimeoutError(
                    f"Kafka was not ready within {timeout_s:.0f} s: node(s) {late} lack brokers in "
                    f"their metadata\n{self._evidence(late)}"
                )
            time.sleep(_PROBE_INTERVAL_S)

    def _new_nodes(self, classpath: list[Path], directory: Path) -> dict[int, BrokerProcess]:
        zookeeper_port, *ports = free_ports(1 + self._brokers, _HOST)
        log4j = directory / "log4j.properties"
        log4j.parent.mkdir(parents=True, exist_ok=True)
        log4j.write_text(_LOG4J, encoding="ascii")

        def process(node_id: int, port: int, main_class: str, home: Path) -> BrokerProcess:
            data = home / "data"
            settings = _zookeeper_settings(port, data)
            if node_id != _ZOOKEEPER_ID:
                settings = _broker_settings(node_id, port, zookeeper_port, data, self._brokers)
                settings |= self._config
            return BrokerProcess(
                NodeAddress(node_id, _HOST, port, 0),
                java=self.java,
                classpath=classpath,
                directory=home,
                settings=settings,
                heap_mb=self._heap_mb,
                features={},
                jvm_options=(*self.release.jvm_options, f"-Dlog4j.configuration=file:{log4j}"),
                main_class=main_class,
            )

        self._zookeeper = process(
            _ZOOKEEPER_ID, zookeeper_port, _ZOOKEEPER, directory / "zookeeper"
        )
        self._zookeeper.prepare(None)
        self._zookeeper.start()
        return {
            id_: process(id_, ports.pop(), "kafka.Kafka", directory / f"node-{id_}")
            for id_ in self.node_ids
        }

    def _new_cluster_id(self) -> None:
        """ZooKeeper keeps it, where there is one at all (KIP-78)."""


def _seen_by(address: tuple[str, int]) -> set[int] | None:
    """Return the brokers in a broker's metadata; None when it does not answer."""
    try:
        view = describe_cluster(*address, timeout_s=_PROBE_TIMEOUT_S, version=0)
    except ProbeError:
        return None
    return set(view.broker_ids)


def _zookeeper_settings(port: int, data: Path) -> dict[str, str]:
    return {
        "tickTime": "500",
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": _HOST,
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "log.dirs": str(data),
    }


def _broker_settings(
    node_id: int, port: int, zookeeper_port: int, data: Path, brokers: int
) -> dict[str, str]:
    replicas = str(min(3, brokers))
    return {
        "broker.id": str(node_id),
        "host.name": _HOST,
        "port": str(port),
        "zookeeper.connect": f"{_HOST}:{zookeeper_port}",
        "zookeeper.connection.timeout.ms": "30000",
        "log.dirs": str(data),
        "num.partitions": "3",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "auto.create.topics.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.enable": "false",
        # The timestamps of tests may be older than any retention; -1 is not for the oldest brokers.
        "log.retention.hours": str(100 * 365 * 24),
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
        "log.index.size.max.bytes": str(2 << 20),
    }
