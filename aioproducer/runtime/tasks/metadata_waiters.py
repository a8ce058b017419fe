"""Waits for a topic, a partition, or the first response of the cluster: `MetadataWaiters`.

Invariants
- A waiter ends exactly once: with a result, an error, a timeout or a cancellation. It is removed in
  the same turn of the loop.
- A response that does not end a wait requests the topic again, so that the wait does not last until
  the next periodic refresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.core.metadata.cluster import check_topic_name
from aioproducer.errors import (
    BootstrapError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
)

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.types import TopicMetadata


@dataclass(slots=True, eq=False)
class _Waiter:
    """One waiting call; without a topic it waits for the first response of any broker.

    With `ignores_errors`, no error of a broker ends the wait.
    """

    topic: str | None
    partition: int | None
    since: float
    future: asyncio.Future[TopicMetadata | None]
    ignores_errors: bool


class MetadataWaiters:
    """The waiting calls of one producer, kept by topic."""

    def __init__(self, metadata: Metadata, loop: asyncio.AbstractEventLoop) -> None:
        self._metadata = metadata
        self._loop = loop
        self._waiting: dict[str | None, dict[_Waiter, None]] = {}
        self._refreshes: dict[asyncio.Future[bool], int] = {}
        self._failure: KafkaError | None = None
        self.also_wanted: Collection[str] = ()
        """Topics that are requested like those of waiting calls; read at each request."""
        self.requests_sent: int = 0

    async def wait_for_bootstrap(self, deadline: float | None) -> None:
        """Return once a broker has described the cluster; raise `BootstrapError` at `deadline`.

        None waits forever, even with refused credentials.
        """
        if self._metadata.version == 0:
            await self._wait(None, None, deadline)

    def end_bootstrap(self) -> None:
        """End the waits for bootstrap: a broker has answered, but has nothing to describe yet."""
        for waiter in list(self._waiting.get(None, ())):
            self._finish(waiter, None)

    async def wait_for_topic(self, topic: str, deadline: float) -> TopicMetadata:
        """Return once the topic has metadata; raise early if a longer wait would not help."""
        return await self._wait_for(topic, None, deadline)

    async def wait_for_partition(
        self, topic: str, partition: int, deadline: float
    ) -> TopicMetadata:
        """Return once the topic has that partition; raises as `wait_for_topic` does."""
        if partition < 0:
            raise InvalidPartitionError(
                f"a partition cannot be negative, got {partition}", topic=topic
            )
        return await self._wait_for(topic, partition, deadline)

    async def refresh(self, deadline: float) -> bool:
        """Ask for every topic in use again; return whether a broker has answered by `deadline`."""
        if self._failure is not None:
            raise self._failure.with_context()
        future: asyncio.Future[bool] = self._loop.create_future()
        # The responses to earlier requests may be older than the call.
        self._refreshes[future] = self.requests_sent
        timer = self._loop.call_at(deadline, _end_refresh, future, False)
        try:
            self._metadata.request_update()
            return await future
        finally:
            timer.cancel()
            del self._refreshes[future]
            if future.done() and not future.cancelled():
                future.exception()

    def resume_refreshes(self) -> None:
        """Resume the callers of `refresh` after a full answer to the last request."""
        for future, before in self._refreshes.items():
            if before < self.requests_sent:
                _end_refresh(future, True)
            else:
                self._metadata.request_update()

    def resume_decided(self, now: float, topics: Iterable[str] | None = None) -> None:
        """Resume the callers whose result is decided, after a response or a failed attempt.

        `topics` are those of the response; all when left out.
        """
        for topic in [*self._waiting, *self.also_wanted] if topics is None else topics:
            for waiter in list(self._waiting.get(topic, ())):
                self._resume_if_decided(waiter)
            if topic is not None and (topic in self._waiting or topic in self.also_wanted):
                self._metadata.request_topic(topic, now)

    def keep_alive(self, now: float) -> None:
        """Keep the topics of waiting calls from expiring."""
        for topic in (*self._waiting, *self.also_wanted):
            if topic is not None:
                self._metadata.add_topic(topic, now)

    def fail(self, error: KafkaError) -> None:
        """Fail all current and later waits."""
        self._failure = error
        for waiters in list(self._waiting.values()):
            for waiter in list(waiters):
                self._finish(waiter, error.with_context(topic=waiter.topic))
        for future in self._refreshes:
            if not future.done():
                future.set_exception(error.with_context())

    async def _wait_for(self, topic: str, partition: int | None, deadline: float) -> TopicMetadata:
        check_topic_name(topic)
        known = await self._wait(topic, partition, deadline)
        if known is None:
            raise RuntimeError(f"a wait for topic {topic!r} ended without the topic")
        return known

    async def _wait(
        self, topic: str | None, partition: int | None, deadline: float | None
    ) -> TopicMetadata | None:
        if self._failure is not None:
            raise self._failure.with_context(topic=topic)
        now = self._loop.time()
        waiter = _Waiter(topic, partition, now, self._loop.create_future(), deadline is None)
        if topic is not None:
            self._metadata.add_topic(topic, now)
        self._resume_if_decided(waiter, before_asking=True)
        if waiter.future.done():
            return waiter.future.result()
        self._waiting.setdefault(topic, {})[waiter] = None
        timer = None if deadline is None else self._loop.call_at(deadline, self._time_out, waiter)
        try:
            if topic is not None:
                self._metadata.request_topic(topic, now)
            return await waiter.future
        finally:
            if timer is not None:
                timer.cancel()
            self._discard(waiter)
            del waiter, timer  # they have the error, whose traceback keeps the callers' frames

    def _resume_if_decided(self, waiter: _Waiter, *, before_asking: bool = False) -> None:
        metadata, topic = self._metadata, waiter.topic
        if topic is None:
            if metadata.version > 0:
                self._finish(waiter, None)
        else:
            known = metadata.topic(topic)
            if known is not None and (waiter.partition or 0) < len(known.partitions):
                self._finish(waiter, known)
                return
            failure = metadata.topic_failure(topic)
            # A name stays invalid; a permission may have been granted since it was last asked for.
            if failure is not None and not (
                before_asking and not isinstance(failure, InvalidTopicError)
            ):
                self._finish(waiter, self._with_facts(failure, waiter))
        fatal = None if waiter.ignores_errors else metadata.fatal_error
        if fatal is not None and not waiter.future.done():
            self._finish(waiter, self._with_facts(fatal, waiter))

    def _finish(self, waiter: _Waiter, outcome: TopicMetadata | KafkaError | None) -> None:
        self._discard(waiter)
        if waiter.future.done():
            return
        if isinstance(outcome, KafkaError):
            waiter.future.set_exception(outcome)
        else:
            waiter.future.set_result(outcome)

    def _discard(self, waiter: _Waiter) -> None:
        waiters = self._waiting.get(waiter.topic)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiting[waiter.topic]

    def _time_out(self, waiter: _Waiter) -> None:
        metadata, topic, partition = self._metadata, waiter.topic, waiter.partition
        error: KafkaError
        if topic is None:
            reason = metadata.explain_failures()
            why = reason.text or "none has answered yet"
            error = BootstrapError(f"no bootstrap server described the cluster in time: {why}")
        else:
            known = metadata.topic(topic)
            missing = "topic" if partition is None or known is None else "partition"
            reason = metadata.explain(topic, partition)
            error = MetadataTimeoutError(f"the {missing} is not present in metadata: {reason.text}")
            error.__cause__ = metadata.absence(topic, partition)
        self._finish(waiter, self._with_facts(error.with_context(advice=reason.advice), waiter))

    def _with_facts(self, error: KafkaError, waiter: _Waiter) -> KafkaError:
        return error.with_context(
            topic=waiter.topic,
            partition=waiter.partition,
            elapsed_ms=round((self._loop.time() - waiter.since) * 1000),
        )


def _end_refresh(future: asyncio.Future[bool], answered: bool) -> None:
    if not future.done():
        future.set_result(answered)
