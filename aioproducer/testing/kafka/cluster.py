"""Real Kafka brokers as JVM processes on this machine.

Invariants: brokers and their directory are gone after `close()`, after the process ends and after
a failed `open()`, except the logs of a failed start; only the process that opened a cluster
closes it (a fork inherits the object, not the brokers).
"""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from aioproducer._util import log
from aioproducer._util.arguments import seconds_of
from aioproducer.testing.kafka.base import READY_TIMEOUT_S, KafkaBackend
from aioproducer.testing.kafka.errors import ClusterError
from aioproducer.testing.kafka.java import Java, find_java
from aioproducer.testing.kafka.node import BrokerProcess
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.kafka.release import DEFAULT_VERSION, KafkaRelease
from aioproducer.testing.kafka.settings import NodeAddress, common_settings, node_settings

_HOST = "127.0.0.1"
_logger = log.get("testing")


class KafkaCluster(KafkaBackend):
    """Kafka brokers in separate JVMs, each a controller as well (KRaft).

    Args:
        version: A release of Apache Kafka; its jars come through the user's Maven.
        brokers: How many; their ids are 1, 2, ...
        config: Broker settings that override ours.
        data_dir: Directory of storage and logs; kept after `close()` when given.
        java: A `java` to use instead of the one that would be found.
        heap_mb: The heap of each broker.
        ready_timeout_s: The bound of `open()`'s wait for readiness.
        features: Levels of features that differ from the release's own, such as
            `{"transaction.version": 1}`.
        listeners: Listeners besides the plain one, such as `{"SECURE": "SASL_SSL"}`; `config` says
            how they authenticate, `listener` where they are.
        jvm_options: More options of Java for the brokers, such as `-Djava.security.krb5.conf=...`.
        host: The address of this machine where the brokers listen.
        classpath: Jars or directories of classes besides Kafka's own: the brokers' plugins.

    Raises:
        ClusterError: The version cannot be run.
        JavaError: No fitting Java.
    """

    backend = "jvm"
    disturbable = True

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        *,
        java: str | Path | None = None,
        heap_mb: int = 256,
        ready_timeout_s: float = READY_TIMEOUT_S,
        features: Mapping[str, int] | None = None,
        listeners: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        host: str = _HOST,
        classpath: Sequence[Path] = (),
    ) -> None:
        if brokers < 1:
            raise ClusterError(f"a cluster needs at least one broker, not {brokers}")
        if not hasattr(os, "killpg"):
            raise ClusterError(
                "Java processes as brokers need Linux or macOS; use the embedded cluster, Docker "
                "or a cluster that runs"
            )
        self._ready_timeout_s = seconds_of(ready_timeout_s, "ready_timeout_s")
        self.release: KafkaRelease = self._parse(version)
        self.java: Java = find_java(self.release.java, executable=java)
        self._brokers = brokers
        self._config = dict(config or {})
        self._kept_dir = Path(data_dir).resolve() if data_dir is not None else None
        self._heap_mb = heap_mb
        self._features = dict(features or {})
        self._listeners = dict(listeners or {})
        self._jvm_options = tuple(jvm_options)
        self._host = host
        self._more_classes = tuple(classpath)
        self._nodes: dict[int, BrokerProcess] = {}
        self._expected: set[int] = set()
        self._directory: Path | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @staticmethod
    def _parse(version: str) -> KafkaRelease:
        return KafkaRelease.parse(version)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers; fixed from `open()` on."""
        addresses = (node.address for node in self._nodes.values())
        return ",".join(f"{address.host}:{address.port}" for address in addresses)

    def listener(self, name: str) -> str:
        """`host:port` of all brokers at one of `listeners`."""
        addresses = (node.address for node in self._nodes.values())
        return ",".join(f"{address.host}:{address.more_ports[name]}" for address in addresses)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """1, 2, ..."""
        return tuple(range(1, self._brokers + 1))

    @property
    def description(self) -> str:
        """The Kafka release and the Java."""
        return f"{self._brokers} JVM broker(s), Kafka {self.release.version} on {self.java}"

    @property
    def pids(self) -> dict[int, int]:
        """Node id and process id of the brokers that run."""
        return {id_: node.pid for id_, node in self._nodes.items() if node.pid is not None}

    @property
    def data_dirs(self) -> dict[int, Path]:
        """Node id and the directory of its partitions' logs."""
        return {id_: node.data_dir for id_, node in self._nodes.items()}

    def open(self) -> Self:
        """Start all brokers and wait until they are ready.

        Raises:
            ClusterError: A broker did not start; the message carries the end of its log.
            MavenError: The jars could not be fetched.
        """
        self._closing.clear()
        classpath = [*self.release.broker_classpath(), *self._more_classes]
        try:
            with self._lock:
                self._start_all(classpath)
            self.wait_ready(self._ready_timeout_s)
        except BaseException:
            if not self._closing.is_set():
                # After a failed start the logs are worth more than a tidy temporary directory.
                self._kept_dir = self._kept_dir or self._directory
            self.close()
            raise
        _logger.info("%s serve at %s", self.description, self.bootstrap_servers)
        return self

    def close(self) -> None:
        """Kill all brokers and remove their directory; may be called twice."""
        if os.getpid() != self._owner:
            return
        self._closing.set()
        with self._lock:
            self._expected.clear()
            for node in self._nodes.values():
                node.kill()
            if self._directory is not None and self._directory != self._kept_dir:
                shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
            atexit.unregister(self.close)

    def kill(self, node_id: int) -> None:
        """End one broker at once (SIGKILL)."""
        self._expected.discard(node_id)
        self._node(node_id).kill()

    def stop(self, node_id: int) -> None:
        """End one broker properly (SIGTERM, controlled shutdown)."""
        self._expected.discard(node_id)
        self._node(node_id).stop()

    def start(self, node_id: int) -> None:
        """Start a stopped or killed broker on its old port, with its old data."""
        self._node(node_id).start()
        self._expected.add(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze one broker (SIGSTOP)."""
        self._node(node_id).pause()
        self._expected.discard(node_id)

    def resume(self, node_id: int) -> None:
        """Let a frozen broker go on (SIGCONT)."""
        self._node(node_id).resume()
        self._expected.add(node_id)

    def _new_nodes(self, classpath: list[Path], directory: Path) -> dict[int, BrokerProcess]:
        ports = free_ports((2 + len(self._listeners)) * self._brokers, self._host)
        addresses = [
            NodeAddress(
                id_,
                self._host,
                ports.pop(),
                ports.pop(),
                {name: ports.pop() for name in self._listeners},
            )
            for id_ in self.node_ids
        ]
        nodes = {}
        for address in addresses:
            home = directory / f"node-{address.node_id}"
            settings = common_settings(self._brokers, self._listeners)
            settings |= node_settings(address, addresses, home / "data") | self._config
            nodes[address.node_id] = BrokerProcess(
                address,
                java=self.java,
                classpath=classpath,
                directory=home,
                settings=settings,
                heap_mb=self._heap_mb,
                features=self._features,
                jvm_options=self._jvm_options,
            )
        return nodes

    def _new_cluster_id(self) -> str | None:
        """Return the arguments for formatting the storage, if it has to be."""
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        return cluster_id.replace("-", "_")  # a leading "-" would be taken for an option

    def _start_all(self, classpath: list[Path]) -> None:
        """Side by side: most of a broker's start is waiting for the others."""
        if self._directory is not None:
            raise ClusterError("this cluster is open already")
        self._directory = self._kept_dir or Path(tempfile.mkdtemp(prefix="aioproducer-kafka-"))
        atexit.register(self.close)
        self._nodes = self._new_nodes(classpath, self._directory)
        cluster_id = self._new_cluster_id()

        def bring_up(node: BrokerProcess) -> None:
            node.prepare(cluster_id)
            if not self._closing.is_set():
                node.start()

        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(bring_up, self._nodes.values()))
        self._expected = set(self._nodes)

    def _running(self) -> dict[int, tuple[str, int]]:
        if self._closing.is_set():
            raise ClusterError("the cluster was closed")
        expected = {id_: self._nodes[id_] for id_ in sorted(self._expected)}
        ended = [id_ for id_, node in expected.items() if node.exit_code is not None]
        if ended:
            raise ClusterError(
                f"node(s) {ended} ended by themselves with exit code(s) "
                f"{[expected[id_].exit_code for id_ in ended]}\n{self._evidence(ended)}"
            )
        return {id_: (node.address.host, node.address.port) for id_, node in expected.items()}

    def _evidence(self, node_ids: Iterable[int]) -> str:
        return "\n".join(self._nodes[id_].log_tail() for id_ in node_ids)

    def _node(self, node_id: int) -> BrokerProcess:
        try:
            return self._nodes[node_id]
        except KeyError:
            raise ClusterError(f"no node {node_id}; there are {sorted(self._nodes)}") from None
