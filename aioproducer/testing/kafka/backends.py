"""Chooses what kind of real Kafka this machine can offer to tests.

Variables that decide instead:

    AIOPRODUCER_TEST_BOOTSTRAP   host:port[,host:port] of a cluster to use as it is
    AIOPRODUCER_TEST_BACKEND     jvm or docker, instead of finding out
    AIOPRODUCER_TEST_KAFKA       the version of Kafka, instead of the default
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NoReturn, Self

from aioproducer._util.arguments import seconds_of
from aioproducer.testing.kafka.base import READY_TIMEOUT_S, KafkaBackend
from aioproducer.testing.kafka.cluster import KafkaCluster
from aioproducer.testing.kafka.containers import ContainerCluster, docker_answers
from aioproducer.testing.kafka.errors import ClusterError, NotSupportedByBackendError
from aioproducer.testing.kafka.probe import ProbeError, describe_cluster
from aioproducer.testing.kafka.release import DEFAULT_VERSION

BOOTSTRAP_VARIABLE = "AIOPRODUCER_TEST_BOOTSTRAP"
BACKEND_VARIABLE = "AIOPRODUCER_TEST_BACKEND"
VERSION_VARIABLE = "AIOPRODUCER_TEST_KAFKA"
_CONNECT_TIMEOUT_S = 10.0


def choose_backend(
    version: str | None = None, brokers: int = 3, config: Mapping[str, str] | None = None
) -> KafkaBackend:
    """Return the cluster to test against, not opened yet.

    A cluster that the user names; else containers where a Docker engine answers; else JVMs.

    Raises:
        ClusterError: A variable has a value that means nothing.
        JavaError: JVMs were chosen and there is no fitting Java.
    """
    if bootstrap := os.environ.get(BOOTSTRAP_VARIABLE):
        return ExternalCluster(bootstrap)
    version = version or os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION
    wanted = os.environ.get(BACKEND_VARIABLE) or ("docker" if docker_answers() else "jvm")
    if wanted == "docker":
        return ContainerCluster(version, brokers, config)
    if wanted == "jvm":
        return KafkaCluster(version, brokers, config)
    raise ClusterError(f"{BACKEND_VARIABLE} must be jvm or docker, not {wanted!r}")


class ExternalCluster(KafkaBackend):
    """An existing cluster: it is used, never disturbed."""

    backend = "external"
    disturbable = False

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = bootstrap_servers
        self._addresses = [_parse_address(part) for part in bootstrap_servers.split(",")]
        self._node_ids: tuple[int, ...] = ()

    @property
    def bootstrap_servers(self) -> str:
        """As the user gave it."""
        return self._bootstrap

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Return the nodes that the cluster had when it was opened."""
        return self._node_ids

    @property
    def description(self) -> str:
        """The cluster's name for people."""
        return f"the cluster at {self._bootstrap} ({BOOTSTRAP_VARIABLE})"

    def open(self) -> Self:
        """See that one of the named brokers answers.

        Raises:
            ClusterError: None does.
        """
        self.wait_ready(_CONNECT_TIMEOUT_S)
        return self

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Ask the named brokers once each; there is no point in waiting for an existing cluster."""
        seconds_of(timeout_s, "timeout_s")
        reasons = []
        for host, port in self._addresses:
            try:
                view = describe_cluster(host, port, timeout_s=timeout_s)
            except ProbeError as error:
                reasons.append(f"{host}:{port}: {error}")
            else:
                self._node_ids = tuple(sorted(view.broker_ids))
                return
        raise ClusterError(f"{self.description} does not answer: {'; '.join(reasons)}")

    def close(self) -> None:
        """Do nothing: an existing cluster stays open."""

    def kill(self, node_id: int) -> None:
        """Refuse: an existing cluster's broker is not killed."""
        self._refuse()

    def stop(self, node_id: int) -> None:
        """Refuse: an existing cluster's broker is not stopped."""
        self._refuse()

    def start(self, node_id: int) -> None:
        """Refuse: an existing cluster's broker is not started."""
        self._refuse()

    def pause(self, node_id: int) -> None:
        """Refuse: an existing cluster's broker is not paused."""
        self._refuse()

    def resume(self, node_id: int) -> None:
        """Refuse: an existing cluster's broker is not resumed."""
        self._refuse()

    def _running(self) -> dict[int, tuple[str, int]]:
        return dict(enumerate(self._addresses))

    def _evidence(self, node_ids: Iterable[int]) -> str:
        return ""

    def _refuse(self) -> NoReturn:
        raise NotSupportedByBackendError(f"{self.description} is not ours to disturb")


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"{BOOTSTRAP_VARIABLE}: {text!r} is not of the form host:port")
    return host.strip("[]"), int(port)
