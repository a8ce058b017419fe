"""The common interface of every kind of real Kafka cluster for tests.

All methods block and may be called from any thread; asyncio code calls them through
`asyncio.to_thread`, or uses `async with`, which does so.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Self

from aioproducer._util.arguments import seconds_of
from aioproducer.testing.kafka.errors import ClusterTimeoutError
from aioproducer.testing.kafka.probe import ProbeError, describe_cluster

READY_TIMEOUT_S = 120.0
_PROBE_TIMEOUT_S = 2.0
_PROBE_INTERVAL_S = 0.1


class KafkaBackend(ABC):
    """A real Kafka cluster that tests can write to and, where it is ours, disturb."""

    backend: ClassVar[str]
    """A short name: `jvm`, `docker` or `external`."""
    disturbable: ClassVar[bool]
    """Whether brokers may be stopped, killed and paused."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers, as clients take it."""

    @property
    @abstractmethod
    def node_ids(self) -> tuple[int, ...]:
        """The ids of the brokers."""

    @property
    @abstractmethod
    def description(self) -> str:
        """One line for people: what runs, and on what."""

    @abstractmethod
    def open(self) -> Self:
        """Start all brokers and wait until they are ready; close again when that fails."""

    @abstractmethod
    def close(self) -> None:
        """End all brokers and remove what they left; may be called twice."""

    @abstractmethod
    def kill(self, node_id: int) -> None:
        """End one broker at once (SIGKILL)."""

    @abstractmethod
    def stop(self, node_id: int) -> None:
        """End one broker properly: it hands its partitions over."""

    @abstractmethod
    def start(self, node_id: int) -> None:
        """Start a broker that was stopped or killed; `wait_ready` returns when it serves again."""

    @abstractmethod
    def pause(self, node_id: int) -> None:
        """Freeze one broker (SIGSTOP): its connections stay open and silent."""

    @abstractmethod
    def resume(self, node_id: int) -> None:
        """Let a frozen broker go on."""

    @abstractmethod
    def _running(self) -> dict[int, tuple[str, int]]:
        """Return node id and address of every broker that should run; raise if one has ended."""

    @abstractmethod
    def _evidence(self, node_ids: Iterable[int]) -> str:
        """Return the end of the logs of these brokers."""

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when every running broker has all the running brokers and a controller.

        Raises:
            ClusterError: A broker ended by itself.
            ClusterTimeoutError: It took longer than `timeout_s`.
        """
        deadline = time.monotonic() + seconds_of(timeout_s, "timeout_s")
        while True:
            nodes = self._running()
            late = {
                node_id: reason
                for node_id, address in nodes.items()
                if (reason := _why_not_ready(address, nodes)) is not None
            }
            if not late:
                return
            if time.monotonic() > deadline:
                reasons = "; ".join(f"node {node_id} {why}" for node_id, why in late.items())
                raise ClusterTimeoutError(
                    f"Kafka was not ready within {timeout_s:.0f} s: {reasons}\n"
                    f"{self._evidence(late)}"
                )
            time.sleep(_PROBE_INTERVAL_S)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            return await asyncio.to_thread(self.open)
        except asyncio.CancelledError:
            # The thread goes on starting brokers until `close` stops it.
            await asyncio.shield(asyncio.to_thread(self.close))
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _why_not_ready(address: tuple[str, int], nodes: Iterable[int]) -> str | None:
    try:
        view = describe_cluster(*address, timeout_s=_PROBE_TIMEOUT_S)
    except ProbeError as error:
        return f"does not answer ({error})"
    if view.broker_ids != frozenset(nodes):
        return f"sees the brokers {sorted(view.broker_ids)}, not {sorted(nodes)}"
    if view.controller_id < 0:
        return "sees no controller"
    return None
