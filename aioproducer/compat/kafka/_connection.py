"""The blocking producer with what kafka-python's interface asks beyond its public calls."""

from __future__ import annotations

import asyncio
from typing import Final

from aioproducer.blocking import Producer
from aioproducer.blocking.loop_side import LoopSideProducer
from aioproducer.config import ProducerConfig
from aioproducer.core.metadata.cluster import Cluster
from aioproducer.errors import BootstrapError, KafkaError
from aioproducer.types import TopicMetadata
from aioproducer.wire.api_keys import ApiKey

_RELEASES: Final = (
    (13, (4, 1)),
    (12, (4, 0)),
    (11, (3, 8)),
    (10, (3, 7)),
    (9, (2, 8)),
    (8, (2, 4)),
    (7, (2, 1)),
    (6, (2, 0)),
    (5, (1, 0)),
    (3, (0, 11)),
    (2, (0, 10, 0)),
    (1, (0, 9)),
    (0, (0, 8, 2)),
)
"""The highest version of Produce, and the first release that had it."""


class Connection(Producer):
    """One start of a `KafkaProducer`."""

    def __init__(self, config: ProducerConfig, bootstrap_timeout: float) -> None:
        super().__init__(config)
        self._thread.warns = False  # as kafka-python
        self._bootstrap_timeout = bootstrap_timeout

    async def _start(self, init_transactions: bool, wait: bool) -> LoopSideProducer:
        limit = self._bootstrap_timeout
        try:
            async with asyncio.timeout(limit):
                loop_side = await super()._start(init_transactions, wait)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            servers = ", ".join(self.config.bootstrap_servers)
            raise BootstrapError(
                f"no broker of {servers} answered within bootstrap_timeout_ms={limit * 1000:.0f}"
            ) from error
        loop_side.engine.appender.early = None  # `send()` waits for metadata from the start
        return loop_side

    @property
    def is_here(self) -> bool:
        """Whether the caller is a callback."""
        return self._thread.is_here

    @property
    def has_ended(self) -> bool:
        """Whether it is closed, be it by the interpreter's exit."""
        return not (self._thread.is_alive or self._thread.forked)

    def topic(self, name: str) -> TopicMetadata:
        """Return what is known of a topic, waiting for the metadata of a new one."""
        while (known := self.cluster.topics.get(name)) is None:
            self.partitions_for(name)  # it may be gone again when this thread goes on
        return known

    @property
    def cluster(self) -> Cluster:
        """The known part of the cluster; it is updated, never replaced."""
        return self._usable().engine.metadata.cluster

    def request_update(self) -> None:
        """Have newer metadata fetched soon."""
        engine = self._usable().engine

        def request() -> None:
            engine.metadata.request_update()
            engine._on_event()

        self._thread.post(request)

    def release(self) -> tuple[int, ...]:
        """Return the release of the oldest connected broker, as far as its versions show."""
        highest = self._usable().engine.client.highest_version(ApiKey.PRODUCE)
        return next(
            (release for version, release in _RELEASES if highest is None or version <= highest)
        )

    def run_callbacks(self) -> None:
        """Return when the callbacks of all that is done have run."""
        self._thread.call(asyncio.sleep(0))

    def close_soon(self) -> None:
        """Close in the background; what was handed over is delivered."""
        if self._started is not None and not self._thread.forked:
            self._started.close_soon()

    def __del__(self) -> None:
        """Close without a warning: kafka-python's producer may be dropped."""
        if not hasattr(self, "_state") or self._thread.forked:
            return
        if self._started is not None and self._state is type(self._state).RUNNING:
            self._started.close_soon()
