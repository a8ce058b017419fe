"""`AIOProducer`: confluent-kafka's asyncio producer, without its threads.

    from aioproducer.compat.confluent.aio import AIOProducer  # was: from confluent_kafka.aio import

A delivery is awaited in two steps: `message = await (await producer.produce("orders", b"value"))`.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn, Self

from aioproducer._checks.event_loop import running_loop
from aioproducer._util import log
from aioproducer._util.secrets import hides_arguments
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer._util.threads import for_future
from aioproducer.compat._forwarding import forwarded
from aioproducer.compat.confluent import _errors as errors
from aioproducer.compat.confluent._cluster import (
    ClusterMetadata,
    asking,
    check_topic_asked_for,
    known_cluster_id,
)
from aioproducer.compat.confluent._errors import KafkaError
from aioproducer.compat.confluent._loop_side import LoopSide
from aioproducer.compat.confluent._reports import Failure, Group, Report, Reports, call
from aioproducer.compat.confluent._settings import settings_of
from aioproducer.compat.confluent._statistics import Clock
from aioproducer.compat.confluent._transactions import TransactionalCalls, check_produce
from aioproducer.compat.confluent._translation import translated, translating
from aioproducer.compat.confluent.message import Message
from aioproducer.compat.confluent.producer import first_given, in_time, limit_of, record_of
from aioproducer.errors import KafkaError as OwnError

__all__ = ["AIOProducer"]
__path__: list[str] = []  # a package there: its modules come from confluent-kafka

_log = log.get("producer")
_closing: Final[set[asyncio.Future[None]]] = set()
"""Producers that are being closed: the loop has only weak references to tasks."""


class AIOProducer:
    """confluent-kafka's producer for asyncio; make it in the loop that it is used in.

    It connects in the background. Records are batched by `linger.ms` and `batch.size`.

    Args:
        producer_conf: librdkafka's properties with confluent-kafka's callbacks, which are called
            in the loop. Of these, `error_cb`, `stats_cb` and `on_delivery` may be coroutine
            functions.
        max_workers: No effect, as the other three: there are no threads and no second buffer.
        executor: No effect.
        batch_size: No effect.
        buffer_timeout: No effect.

    Raises:
        KafkaException: A property is unknown or has a wrong value.
        RuntimeError: No event loop runs.
    """

    _own_closed: bool = True  # until the constructor is through, and when it was never called

    @hides_arguments
    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Any = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        del max_workers, executor, batch_size, buffer_timeout
        loop = running_loop()
        settings = settings_of(producer_conf)
        self._own_callbacks = _Callbacks()
        settings = settings._replace(
            error_cb=self._own_callbacks.logged(settings.error_cb, "error_cb"),
            stats_cb=self._own_callbacks.logged(settings.stats_cb, "stats_cb"),
        )
        self._own_settings = settings
        self._own_limit = settings.config.max_request_size
        self._own_transactional = settings.config.transactional_id is not None
        self._own_reports = _Outcomes(settings.error_cb, settings.max_records, settings.max_bytes)
        self._own_loop_side = LoopSide(settings, _Loop(loop), self._own_reports)
        self._own_loop_side.begin()
        self._own_calls = TransactionalCalls(self._own_transactional)
        self._own_loop = loop
        self._own_closed = False
        self._own_end: asyncio.Future[None] | None = None
        self._own_clock = Clock(settings, self._own_reports)
        self._own_timer: asyncio.TimerHandle | None = None
        if self._own_clock.is_on:
            _report_statistics(weakref.ref(self))

    async def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = -1,
        timestamp: int | None = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
        on_delivery: Callable[[Any, Any], object] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> asyncio.Future[Message]:
        """Hand a record over; wait where `queue.buffering.max.messages` is reached.

        Args:
            topic: Topic name.
            value: Text (as UTF-8) or bytes; None is a tombstone.
            key: Text or bytes.
            partition: A partition id; -1 or None leaves it to the partitioner.
            timestamp: Milliseconds since the epoch; 0 or None is now.
            headers: A mapping or pairs; values are text, bytes or None.
            on_delivery: `on_delivery(error, message)`, called before the future is done.
            callback: Another name of `on_delivery`.

        Returns:
            A future: the `Message`, or a `KafkaException`.

        Raises:
            KafkaException: The record is too large, or no transaction is open.
            TypeError: A part has a type that cannot be sent.
            RuntimeError: The producer is closed.
        """
        self._own_check_open()
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        callbacks = self._own_callbacks
        handler = first_given(callback, on_delivery, self._own_settings.on_delivery)
        only_errors = self._own_settings.only_errors

        def on_outcome(error: Any, message: Any) -> None:
            try:
                if handler is not None and not (only_errors and error is None):
                    callbacks.finish(for_future(handler)(error, message), "on_delivery")
            except Exception as raised:
                if not future.done():
                    future.set_exception(raised)
            if future.done():
                return
            if error is None:
                future.set_result(message)
            else:
                future.set_exception(errors.shared_class(errors.KafkaException)(error))

        place = -1 if partition is None else partition
        record = record_of(
            topic, value, key, place, timestamp or 0, headers, on_outcome, self._own_limit
        )
        while not self._own_reports.has_room(record.size):
            await self._own_reports.next()
            self._own_check_open()
        if self._own_transactional:
            check_produce(self._own_loop_side.check_send)
        self._own_loop_side.put(record)
        return future

    async def poll(self, timeout: float = 0) -> int:
        """Wait for an outcome; nothing depends on this call.

        Args:
            timeout: Seconds; 0 does not wait, a negative one waits without a limit.

        Returns:
            How many outcomes there were since the last call.
        """
        self._own_check_open()
        if not self._own_reports.unseen and timeout:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_of(timeout)):
                    await self._own_reports.next()
        seen, self._own_reports.unseen = self._own_reports.unseen, 0
        return seen

    async def flush(self, timeout: float = -1) -> int:
        """Send without lingering and wait for the outcomes.

        Args:
            timeout: Seconds; negative waits as long as the records' own time limits allow.

        Returns:
            How many records have no outcome yet.
        """
        self._own_check_open()
        return await self._own_flush(timeout)

    async def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Give records up; their futures fail with `_PURGE_QUEUE` or `_PURGE_INFLIGHT`."""
        self._own_check_open()
        with translating():
            await self._own_loop_side.purge(in_queue, in_flight)

    async def init_transactions(self, timeout: float = -1) -> None:
        """See `Producer.init_transactions`, as for all calls here."""
        await self._own_call(
            "init_transactions",
            lambda loop_side: loop_side.run(lambda producer: producer.init_transactions()),
            timeout,
        )

    async def begin_transaction(self, timeout: float = -1) -> None:
        """Begin a transaction."""
        await self._own_call("begin_transaction", LoopSide.begin_transaction, timeout)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, and commit."""

        async def commit(loop_side: LoopSide) -> None:
            await self._own_flush(-1)
            if loop_side.lost is not None:
                lost = translated(loop_side.lost)
                raise errors.exception(lost.code(), lost.str(), txn_requires_abort=True)
            await loop_side.run(lambda producer: producer.commit_transaction())

        await self._own_call("commit_transaction", commit, timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Abort; records that were not sent yet fail with `_PURGE_QUEUE`."""
        await self._own_call("abort_transaction", LoopSide.abort, timeout)

    async def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Make a consumer group's positions part of the transaction."""
        offsets = [position for position in positions if position.offset >= 0]
        await self._own_call(
            "send_offsets_to_transaction",
            lambda loop_side: loop_side.send_offsets(offsets, group_metadata),
            timeout,
        )

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """See `Producer.list_topics`."""
        self._own_check_open("Handle")
        check_topic_asked_for(topic)
        with asking("Failed to get metadata", KafkaError._TRANSPORT) as asked, translating():
            work = partial(self._own_loop_side.list_topics, topic, asked)
            return await in_time(work, limit_of(timeout))

    async def cluster_id(self, timeout: float = -1) -> str:
        """See `Producer.cluster_id`."""
        self._own_check_open("Handle")
        with asking("Failed to retrieve cluster id", KafkaError._TIMED_OUT), translating():
            found = await in_time(self._own_loop_side.cluster_id, limit_of(timeout))
        return known_cluster_id(found)

    @hides_arguments
    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """See `Producer.set_sasl_credentials`."""
        self._own_check_open("Handle")
        self._own_settings.credentials.change(username, password)

    async def close(self) -> None:
        """Deliver what was handed over, and release everything; safe to call again.

        Cancelling it does not end that: a further call waits for it.
        """
        if self._own_closed and self._own_end is None:
            return
        self._own_closed = True
        if self._own_timer is not None:
            self._own_timer.cancel()
        if self._own_end is None:
            self._own_end = _begin_close(self._own_loop_side)
            reports = self._own_reports
            self._own_end.add_done_callback(lambda _: reports.end_waits())
        with translating():
            await asyncio.shield(self._own_end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not self._own_closed:
            with suppress(RuntimeError):  # the loop is closed
                self._own_loop.call_soon_threadsafe(_begin_close, self._own_loop_side)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AIOProducer has connections and cannot be copied or pickled")

    def __len__(self) -> int:
        return 0 if self._own_closed else self._own_reports.count

    def __bool__(self) -> bool:
        return True

    # -- private ---------------------------------------------------------------------------------

    def _own_check_open(self, what: str = "Producer") -> None:
        if self._own_closed:
            raise RuntimeError(f"{what} has been closed")

    async def _own_flush(self, timeout: float) -> int:
        with translating(), suppress(TimeoutError):
            async with asyncio.timeout(limit_of(timeout)):
                while self._own_reports.count:
                    await self._own_flush_once()
        return self._own_reports.count

    async def _own_flush_once(self) -> None:
        """Flush; end early when every record has its outcome, also without a connection."""
        flushed = asyncio.ensure_future(self._own_loop_side.flush())
        emptied = self._own_reports.emptied()
        try:
            await asyncio.wait({flushed, emptied}, return_when=asyncio.FIRST_COMPLETED)
            if flushed.done():
                flushed.result()
        finally:
            flushed.cancel()

    async def _own_call(
        self, name: str, work: Callable[[LoopSide], Coroutine[Any, Any, None]], timeout: float
    ) -> None:
        """Make a transactional call."""
        self._own_check_open()
        limit = limit_of(timeout)
        with self._own_calls.making(name), translating():
            await in_time(partial(work, self._own_loop_side), limit)


def _begin_close(loop_side: LoopSide) -> asyncio.Future[None]:
    end = asyncio.ensure_future(loop_side.close(None))
    _closing.add(end)
    end.add_done_callback(_closing.discard)
    return end


def _report_statistics(reference: weakref.ref[AIOProducer]) -> None:
    """Report statistics each time they are due, until the producer is closed or dropped."""
    producer = reference()
    if producer is None or producer._own_closed:
        return
    producer._own_clock.report_if_due(producer._own_loop_side)
    left = producer._own_clock.left()
    producer._own_timer = producer._own_loop.call_later(left, _report_statistics, reference)


class _Callbacks:
    """Calls of the application's callbacks, which may be coroutine functions.

    confluent-kafka's `AIOProducer` takes only these; here other functions work as well.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def logged(self, callback: Any, name: str) -> Callable[[Any], None] | None:
        """Return how to call a callback so that what it raises is logged; None without one."""
        if callback is None:
            return None

        def call(argument: Any) -> None:
            try:
                self.finish(callback(argument), name)
            except HOOK_ERRORS:
                _log.exception("%s raised", name)

        return call

    def finish(self, result: Any, name: str) -> None:
        """Await in the background what a callback has returned, if it can be awaited."""
        if inspect.isawaitable(result):
            task = asyncio.get_running_loop().create_task(self._awaited(result, name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _awaited(self, result: Awaitable[Any], name: str) -> None:
        try:
            await result
        except Exception:
            _log.exception("%s raised", name)


class _Loop:
    """The substitute for the thread of the blocking producer: the loop is the caller's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def post(self, callback: Callable[[], object]) -> bool:
        """Run a callback in the loop, soon."""
        self._loop.call_soon(callback)
        return True

    def check_alive(self) -> None:
        """Do nothing: the caller runs in the loop."""


class _Outcomes(Reports):
    """Reports outcomes at once."""

    def __init__(self, error_cb: Any, max_records: int, max_bytes: int) -> None:
        super().__init__(error_cb, max_records, max_bytes)
        self.unseen: int = 0
        self._next: asyncio.Future[None] | None = None
        self._emptied: asyncio.Future[None] | None = None

    def _on_failure(self, error: OwnError) -> None:
        """Do nothing: each record's future has its error."""

    def add(self, report: Report) -> None:
        """Call the report at once."""
        try:
            if isinstance(report, Group):
                self.unseen += len(report.pairs)
                self._serve_group(report)
            else:
                self.unseen += 1
                if isinstance(report, Failure):
                    self.release(report.record)
                call(report)
        finally:
            self.end_waits()
            if self._emptied is not None and not self.count:
                self._emptied.set_result(None)
                self._emptied = None

    def end_waits(self) -> None:
        """Let every `next()` return."""
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def next(self) -> None:
        """Return after the next outcome, or when there will be none."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    def emptied(self) -> asyncio.Future[None]:
        """Return a future, not to be cancelled, that is done when no outcome is missing."""
        if self._emptied is None:
            self._emptied = asyncio.get_running_loop().create_future()
        return self._emptied


def __getattr__(name: str) -> Any:
    return forwarded(name, __name__, "confluent_kafka.aio", "confluent-kafka")
