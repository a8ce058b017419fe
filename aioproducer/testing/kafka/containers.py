"""Real Kafka brokers in containers, through testcontainers.

Invariants: every broker keeps one port of this machine for its whole life, so that clients find
it again after a restart; testcontainers' reaper removes what a dead test run leaves.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from aioproducer._util.arguments import seconds_of
from aioproducer.testing.kafka.base import READY_TIMEOUT_S, KafkaBackend
from aioproducer.testing.kafka.errors import ClusterError
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.kafka.release import DEFAULT_VERSION, KafkaRelease
from aioproducer.testing.kafka.settings import common_settings

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

_HOST = "127.0.0.1"
_DEFAULT_ENGINE = "unix:///var/run/docker.sock"
_DEFAULT_ENGINE_PORT = 2375
_PING_TIMEOUT_S = 3
_STOP_TIMEOUT_S = 60
_TAIL_LINES = 30
_INSIDE_PORT, _CONTROLLER_PORT, _OUTSIDE_PORT = 9091, 9093, 9092


def docker_answers() -> bool:
    """Return whether testcontainers is installed and a Docker engine answers in a few seconds."""
    try:
        import docker  # type: ignore[import-untyped]
        import testcontainers.core.container  # noqa: F401
    except ImportError:
        return False
    # The library leaves its socket unclosed when no engine listens, so we check first.
    # Windows has another default, a named pipe.
    engine = os.environ.get("DOCKER_HOST") or _DEFAULT_ENGINE
    if hasattr(socket, "AF_UNIX") and not _engine_listens(engine):
        return False
    try:
        client = docker.from_env(timeout=_PING_TIMEOUT_S)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return False


def _engine_listens(engine: str) -> bool:
    url = urlsplit(engine)
    try:
        if url.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_PING_TIMEOUT_S)
                connection.connect(url.path)
        else:
            address = (url.hostname or "localhost", url.port or _DEFAULT_ENGINE_PORT)
            socket.create_connection(address, timeout=_PING_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def container_environment(
    node_id: int, outside_port: int, brokers: int, config: Mapping[str, str], prefix: str
) -> dict[str, str]:
    """Return the environment of one `apache/kafka` container: settings as KAFKA_* names.

    Clients outside come through their own listener, which advertises this machine's port.
    """
    settings = common_settings(brokers)
    settings |= {
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{peer}@{prefix}-{peer}:{_CONTROLLER_PORT}" for peer in range(1, brokers + 1)
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "listeners": (
            f"PLAINTEXT://:{_INSIDE_PORT},OUTSIDE://:{_OUTSIDE_PORT},"
            f"CONTROLLER://:{_CONTROLLER_PORT}"
        ),
        "advertised.listeners": (
            f"PLAINTEXT://{prefix}-{node_id}:{_INSIDE_PORT},OUTSIDE://{_HOST}:{outside_port}"
        ),
    }
    settings |= config
    return {_variable(name): value for name, value in settings.items()}


def _variable(setting: str) -> str:
    """`num.io.threads` is KAFKA_NUM_IO_THREADS; the image reads `-` as `___`, `_` as `__`."""
    return "KAFKA_" + setting.replace("_", "__").replace("-", "___").replace(".", "_").upper()


class ContainerCluster(KafkaBackend):
    """Kafka brokers in containers of the image `apache/kafka`.

    Args:
        version: The tag of the image.
        brokers: How many; their ids are 1, 2, ...
        config: Broker settings that override ours.
        ready_timeout_s: The bound of `open()`'s wait for readiness.
    """

    backend = "docker"
    disturbable = True

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self._ready_timeout_s = seconds_of(ready_timeout_s, "ready_timeout_s")
        self._image = f"apache/kafka:{KafkaRelease.parse(version).version}"
        self._brokers = brokers
        self._config = dict(config or {})
        self._prefix = f"kafka-{uuid.uuid4().hex[:8]}"
        self._ports: dict[int, int] = {}
        self._network: Network | None = None
        self._containers: dict[int, DockerContainer] = {}
        self._expected: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers; fixed from `open()` on."""
        return ",".join(f"{_HOST}:{port}" for port in self._ports.values())

    @property
    def node_ids(self) -> tuple[int, ...]:
        """1, 2, ..."""
        return tuple(range(1, self._brokers + 1))

    @property
    def description(self) -> str:
        """The Kafka release and the image."""
        return f"{self._brokers} container(s) of {self._image}"

    def open(self) -> Self:
        """Start all containers and wait until the brokers are ready."""
        from testcontainers.core.network import Network

        self._ports = dict(zip(self.node_ids, free_ports(self._brokers, _HOST), strict=True))
        try:
            self._network = Network().create()
            for node_id in self.node_ids:
                self._containers[node_id] = container = self._new_container(node_id, self._network)
                container.start()
                self._expected.add(node_id)
            self.wait_ready(self._ready_timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Remove the containers and their network; may be called twice."""
        self._expected.clear()
        while self._containers:
            _, container = self._containers.popitem()
            container.stop()
        if self._network is not None:
            self._network.remove()
            self._network = None

    def kill(self, node_id: int) -> None:
        """End one broker at once (SIGKILL)."""
        self._expected.discard(node_id)
        self._command(node_id, lambda container: container.kill())

    def stop(self, node_id: int) -> None:
        """End one broker properly (SIGTERM, controlled shutdown)."""
        self._expected.discard(node_id)
        self._command(node_id, lambda container: container.stop(timeout=_STOP_TIMEOUT_S))

    def start(self, node_id: int) -> None:
        """Start a stopped or killed broker on its old port, with its old data."""
        self._command(node_id, lambda container: container.start())
        self._expected.add(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze one broker."""
        self._command(node_id, lambda container: container.pause())
        self._expected.discard(node_id)

    def resume(self, node_id: int) -> None:
        """Let a frozen broker go on."""
        self._command(node_id, lambda container: container.unpause())
        self._expected.add(node_id)

    def _new_container(self, node_id: int, network: Network) -> DockerContainer:
        from testcontainers.core.container import DockerContainer

        port = self._ports[node_id]
        container = DockerContainer(self._image).with_bind_ports(_OUTSIDE_PORT, port)
        container.with_network(network).with_network_aliases(f"{self._prefix}-{node_id}")
        environment = container_environment(
            node_id, port, self._brokers, self._config, self._prefix
        )
        for name, value in environment.items():
            container.with_env(name, value)
        return container.with_env("KAFKA_HEAP_OPTS", "-Xmx320m")

    def _running(self) -> dict[int, tuple[str, int]]:
        for node_id in self._expected:
            container = self._wrapped(node_id)
            container.reload()
            if container.status not in {"created", "running"}:
                raise ClusterError(
                    f"the container of node {node_id} is {container.status}\n"
                    f"{self._evidence([node_id])}"
                )
        return {node_id: (_HOST, self._ports[node_id]) for node_id in sorted(self._expected)}

    def _evidence(self, node_ids: Iterable[int]) -> str:
        logs = (
            self._wrapped(id_).logs(tail=_TAIL_LINES).decode(errors="replace") for id_ in node_ids
        )
        return "\n---\n".join(logs)

    def _command(self, node_id: int, command: Callable[[Any], object]) -> None:
        from docker.errors import DockerException  # type: ignore[import-untyped]

        try:
            command(self._wrapped(node_id))
        except DockerException as error:
            raise ClusterError(f"node {node_id}: {error}") from error

    def _wrapped(self, node_id: int) -> Any:
        """Return the engine's own handle of the container; its library has no types."""
        if node_id not in self._containers:
            raise ClusterError(f"no node {node_id}; there are {sorted(self._containers)}")
        return self._containers[node_id].get_wrapped_container()
