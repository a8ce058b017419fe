"""The embedded cluster in a thread, for tests that have no event loop, or another one.

Invariants
- The brokers answer while the test blocks, whatever it runs: threads, subprocesses, another loop.
- Every call here has a bound; `stop` leaves neither thread nor socket.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from aioproducer._util.clock import use_system_clock
from aioproducer.errors import IllegalStateError
from aioproducer.records.batch import DecodedRecord
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.reader import IsolationLevel, read_topic

T = TypeVar("T")

_LONGEST_S = 60.0


class ThreadedCluster:
    """An `EmbeddedCluster` whose loop runs in a thread; its calls block, and work from any thread.

        with ThreadedCluster(brokers=1, topics={"orders": 3}) as cluster:
            subprocess.run(["my-app", "--bootstrap", cluster.bootstrap_servers])
            assert cluster.values("orders") == [b"..."]

    Args:
        **arguments: as `EmbeddedCluster` takes them.

    Attributes:
        cluster: what runs in the thread; only to be touched there, by `call`.
    """

    def __init__(self, **arguments: Any) -> None:
        self.cluster: EmbeddedCluster = EmbeddedCluster(**arguments)
        self._loop = asyncio.new_event_loop()
        use_system_clock(self._loop)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="aioproducer cluster", daemon=True
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen on all ports.

        Raises:
            OSError: a port is taken.
            IllegalStateError: it was started or stopped before.
        """
        if self._loop.is_closed() or self._thread.is_alive():
            raise IllegalStateError("a ThreadedCluster starts once", advice="create a new one")
        self._thread.start()
        try:
            self.run(self.cluster.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Close every connection and port, and end the thread; may be called twice.

        In a forked child it has no effect: the thread is the parent's.
        """
        if self._loop.is_closed():
            return
        if not self._thread.is_alive():
            if not self._loop.is_running():  # never started; in a forked child it seems to run
                self._loop.close()
            return
        try:
            self.run(self.cluster.stop())
        finally:
            self._end()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, up or down."""
        return self.cluster.bootstrap_servers

    @property
    def faults(self) -> FaultScript:
        """The faults, to be set as `faults.next("produce").answers(...)`."""
        return self.cluster.faults

    def create_topic(self, name: str, topic: int | TopicSpec = 1) -> None:
        """See `EmbeddedCluster.create_topic`."""
        self.call(lambda cluster: cluster.create_topic(name, topic))

    def move_leader(self, topic: str, partition: int, node_id: int | None = None) -> int:
        """See `EmbeddedCluster.move_leader`."""
        return self.call(lambda cluster: cluster.move_leader(topic, partition, node_id))

    def stop_broker(self, node_id: int) -> None:
        """See `EmbeddedCluster.stop_broker`."""
        self.run(self.cluster.stop_broker(node_id))

    def start_broker(self, node_id: int) -> None:
        """See `EmbeddedCluster.start_broker`."""
        self.run(self.cluster.start_broker(node_id))

    def freeze_broker(self, node_id: int) -> None:
        """See `EmbeddedCluster.freeze_broker`."""
        self.call(lambda cluster: cluster.freeze_broker(node_id))

    def thaw_broker(self, node_id: int) -> None:
        """See `EmbeddedCluster.thaw_broker`."""
        self.call(lambda cluster: cluster.thaw_broker(node_id))

    def drop_connections(self, node_id: int | None = None) -> None:
        """See `EmbeddedCluster.drop_connections`."""
        self.call(lambda cluster: cluster.drop_connections(node_id))

    def records(
        self, topic: str, *, isolation_level: IsolationLevel = "read_committed"
    ) -> list[DecodedRecord]:
        """Return the records of a topic as a consumer reads them, partition by partition."""
        reading = read_topic(
            self.bootstrap_servers, topic, timeout_s=_LONGEST_S, isolation_level=isolation_level
        )
        found = self.run(reading)
        return [record for partition in sorted(found) for record in found[partition]]

    def values(
        self, topic: str, *, isolation_level: IsolationLevel = "read_committed"
    ) -> list[bytes | None]:
        """Return the values of `records`."""
        return [record.value for record in self.records(topic, isolation_level=isolation_level)]

    def call(self, work: Callable[[EmbeddedCluster], T]) -> T:
        """Call a function with the cluster, in its thread."""

        async def calling() -> T:
            return work(self.cluster)

        return self.run(calling())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the cluster's thread.

        Raises:
            TimeoutError: it took longer than a minute.
            IllegalStateError: the cluster was not started, or has stopped.
        """
        if not self._thread.is_alive():
            work.close()
            raise IllegalStateError(
                "the cluster does not run", advice="call it between start() and stop()"
            )
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_LONGEST_S)
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LONGEST_S)
        self._loop.close()
