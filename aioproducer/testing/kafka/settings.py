"""The server.properties of one broker of a small test cluster.

Each broker is a controller as well (KRaft, combined mode). Internal topics are small, replicated
three times where there are three brokers, so that any one of them may be killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The addresses of one combined broker and controller."""

    node_id: int
    host: str
    port: int
    controller_port: int
    more_ports: Mapping[str, int] = field(default_factory=dict)
    """Ports of further listeners, by name."""


def common_settings(
    brokers: int, listeners: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the settings of all brokers of a cluster of this size, wherever they run.

    `listeners` are those besides PLAINTEXT: security protocols by name.
    """
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **listeners}
    replicas = str(min(3, brokers))
    in_sync = str(min(2, brokers))
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "num.partitions": "3",
        "default.replication.factor": replicas,
        "auto.create.topics.enable": "true",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "3",
        "log.retention.ms": "-1",  # the timestamps of tests may be older than any retention
        # An overdue transaction is aborted by the next check but one; they are 10 s apart.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker is noticed within seconds; a busy one must not be taken for a dead one.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "10000",
        # Little memory and few threads: three brokers share a small machine with the tests. The
        # cleaner's buffer alone is 128 MiB of heap by default.
        "log.cleaner.dedupe.buffer.size": str(2 << 20),
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
        "log.index.size.max.bytes": str(2 << 20),
    }


def node_settings(
    address: NodeAddress, quorum: Sequence[NodeAddress], log_dir: Path
) -> dict[str, str]:
    """Return the settings of one broker alone."""
    ports = {"PLAINTEXT": address.port, **address.more_ports}
    public = ",".join(f"{name}://{address.host}:{port}" for name, port in ports.items())
    return {
        "node.id": str(address.node_id),
        "controller.quorum.voters": ",".join(
            f"{peer.node_id}@{peer.host}:{peer.controller_port}" for peer in quorum
        ),
        "listeners": f"{public},CONTROLLER://{address.host}:{address.controller_port}",
        "advertised.listeners": public,
        "log.dirs": str(log_dir),
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write a Java properties file; backslashes and line ends in values are escaped."""
    lines = (f"{name}={_escaped(value)}\n" for name, value in settings.items())
    path.write_text("".join(lines), encoding="latin-1")


def _escaped(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in plain)
