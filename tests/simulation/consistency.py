"""Rules for state that follows from other state: links, connections, counts, the send path.

Owns: what an attribute that is kept must be equal to at an idle moment. Not here: how long a
producer waits, see `simulation.waiting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.errors import AuthenticationError
from aioproducer.net.context import NodeState
from aioproducer.runtime.bulk.run import _Tracked

if TYPE_CHECKING:
    from aioproducer.core.batching.buffer_pool import MemoryRequest
    from aioproducer.net.connection import Connection
    from aioproducer.net.link import BrokerLink
    from aioproducer.runtime.engine import ProducerEngine

_ROUNDING_S = 1e-6
_DIALING = frozenset({NodeState.CONNECTING, NodeState.HANDSHAKING})


def inconsistent(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield attributes that differ from what they follow from."""
    client, io_stats = engine.client, engine.client.io_stats
    links = [*client._links(), *client._retired]
    for link in links:
        for text in (*_of_link(link), *_of_connection(link, now)):
            yield f"the link to node {link.node.id} {text}"
    opened = sum(each._connection is not None and each._connection.is_open for each in links)
    if io_stats.open_connections != opened:
        yield f"{opened} connections are open, {io_stats.open_connections} count"
    yield from _of_tasks(engine)
    yield from _of_send(engine)
    loop: Any = engine.loop
    for timer in loop.pending_timers():
        if timer._args and any(map(_has_ended, timer._args)):
            yield f"a timer for {timer.when():.3f} is that of a wait that has ended: {timer}"


def _has_ended(waiter: object) -> bool:
    """Return whether this is the argument of a timer that nothing waits for any more."""
    future = getattr(waiter, "future", waiter)
    return isinstance(future, asyncio.Future) and future.done()


def _of_link(link: BrokerLink) -> Iterator[str]:
    """Yield what does not fit the state of a link."""
    connection, session = link._connection, link._session
    is_open = connection is not None and connection.is_open
    in_flight = connection.in_flight if connection is not None else 0
    if link.is_dialing != (link._state in _DIALING) or link.is_dialing != bool(link._tasks):
        yield f"is {link._state.value}, with {len(link._tasks)} dials"
    if link.is_dialing != (link._dial_timer is not None):
        yield f"is {link._state.value}, with the timer {link._dial_timer}"
    # One that has left may still renew its session, for requests whose responses are to come.
    if link._retiring and link._state is not NodeState.CLOSED and not (link.versions and in_flight):
        yield f"has left, and is {link._state.value}, with {in_flight} requests in flight"
    if link._state is NodeState.READY:
        agreed = None if session is None else session.versions
        if not is_open or link.versions is None or link.versions is not agreed:
            yield f"is ready, with {link.versions} of a connection with {agreed}"
        if link.last_error is not None:
            yield f"is ready, with {link.last_error}"
    elif link._state not in _DIALING:
        writers = [writer for _, writer in link._opened]
        is_described = link._state is NodeState.DISCONNECTED and link.versions is not None
        if is_open or is_described:
            yield f"is {link._state.value}, with an open connection"
        if not all(each.transport.is_closing() for each in writers):
            yield f"is {link._state.value}, with an open transport"


def _of_connection(link: BrokerLink, now: float) -> Iterator[str]:
    """Yield what does not fit the requests of the open connection of a link."""
    connection = link._connection
    if connection is None or not connection.is_open:
        return
    if connection.in_handshake != (link._state is NodeState.HANDSHAKING):
        yield f"is {link._state.value}, its connection differs"
    if connection._answering is not None:
        yield "has a response that is being handled"
    if connection._unflushed and connection._flush_task is None:
        yield "has unwritten requests, and no task that waits for them"
    requests = [*connection._awaiting, *connection._unflushed]
    due = min((each.deadline for each in requests), default=None)
    if due is None and connection._max_idle_s is not None:
        due = max(connection._last_used, now) + connection._max_idle_s
    timer = connection._timer
    if due is not None and (timer is None or timer.cancelled() or timer.when() > due):
        yield f"has no timer for {due:.3f}"


def _of_tasks(engine: ProducerEngine) -> Iterator[str]:
    """Yield what does not fit the requests of the tasks."""
    task, sender, metadata = engine.metadata_task, engine.sender_task, engine.metadata
    if (task._answer is None) != (metadata._fetch is None):
        yield f"the request {metadata._fetch} for metadata has the response {task._answer}"
    if task._answer is not None and task._answer.done():
        yield "a metadata response is not handled"
    if any(each.done() for each in sender._preparing):
        yield "a prepared request is not sent"
    if sender._interrupted:
        yield "batches of an interrupted call are kept"
    if sender._sender.fatal_error is not None:
        yield f"the sender goes on after {sender._sender.fatal_error!r}"
    for place, route in sender._routes.items():
        if sender._routes_version != metadata.version:
            break
        known = metadata.leader_of(place), metadata.leader_epoch(*place)
        if known != (route.node_id, route.leader_epoch):
            yield f"{place} is sent to {route.node_id} directly, its leader is {known}"


def _of_send(engine: ProducerEngine) -> Iterator[str]:
    """Yield counts and buffers of the send path that differ from what they count."""
    appender, stats, lock = engine.appender.batch_appender, engine.stats, engine.memory.lock
    fast_path = appender.fast_path
    waiting = len(lock._waiters or ()) + lock.locked()
    if fast_path.waiting != waiting:
        yield f"{waiting} calls wait for memory, {fast_path.waiting} count"
    if appender._turn_is_counted or appender._opened_this_turn or appender._on_record_opens:
        yield "the counts of a turn are kept after it"
    pending = sum(batch.count for batch in engine.accumulator.incomplete())
    known = stats.records_acknowledged + stats.records_failed + pending
    # What was handed over and then refused has failed, and was not appended.
    may_be_refused = bool(stats.records_failed)
    if fast_path.appended > known or (fast_path.appended < known and not may_be_refused):
        yield f"{fast_path.appended} records were appended, {known} count"
    if appender._check.choice._kept is not None:
        yield "a partitioner's choice is kept for the next record"
    for batch in engine.accumulator.incomplete():
        if any(asyncio.isfuture(each) and each.done() for each in batch.listeners):
            yield f"a batch of {batch.topic_partition} has the listener of an await that has ended"
    for batch in engine.accumulator.incomplete() if not engine.accumulator._flushes else ():
        names = [getattr(each, "__qualname__", "") for each in batch.listeners.values()]
        if any(name.startswith("Flushing.") for name in names):
            yield f"a batch of {batch.topic_partition} has the listener of a flush that has ended"
    if engine._failures_raised > stats.records_failed:
        yield f"{engine._failures_raised} failures are raised of {stats.records_failed}"
    unread = engine.unretrieved
    if unread._unwritten and (unread._timer is None or unread._timer.when() > unread._next_line_at):
        yield f"{unread._unwritten} failures are to be logged, and no timer is set"


def bulk_calls_are_paced(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield bulk calls that wait although few of their batches are pending."""
    keys = (key for batch in engine.accumulator.incomplete() for key in batch.listeners or ())
    for run in {each.run: None for each in keys if isinstance(each, _Tracked)}:
        most = len(engine.metadata.cluster.nodes) * run._batches_per_node
        ahead = len(run._outstanding) - len(run._partitions)
        is_paused = run._caught_up is not None and not run._caught_up.done()
        if is_paused and not run._stalls and ahead <= most:
            yield f"a bulk call waits, {ahead} batches are pending of {most:.1f}"


def early_although_decided(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield topics whose early records wait for metadata although a longer wait changes nothing."""
    early, metadata = engine.appender.early, engine.metadata
    for topic in () if early is None else early.topics:
        failure = metadata.topic_failure(topic) or metadata.fatal_error
        if failure is not None or metadata.topic(topic) is not None:
            yield f"records wait for metadata of {topic}, and {failure or 'have them'}"
    placed = [] if early is None else [each.batch for q in early._topics.values() for each in q]
    for batch in engine.accumulator.incomplete():
        if batch.topic_partition.partition == NO_PARTITION and batch not in placed:
            yield f"nothing queues the early records of {batch.topic_partition.topic}"


class _Sent(NamedTuple):
    """Requests of a connection up to an idle moment, and the counts of its node."""

    connection: Connection
    correlation_id: int
    in_flight: int
    requests: int
    responses: int
    size: int
    bytes_out: int


class LoginCounts:
    """The logins that brokers accept or refuse; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[BrokerLink, float]] = {"accepted": {}, "refused": {}}
        self._counted = {"accepted": 0, "refused": 0}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield how many logins ended since the last idle moment, if fewer count."""
        links, totals = engine.client._links(), engine.client.io_stats
        if not engine.config.security_protocol.startswith("SASL"):
            return
        seen = {
            "accepted": {
                each: each.ready_since for each in links if each._state is NodeState.READY
            },
            "refused": {
                each: each._retry_at
                for each in links
                if isinstance(each.last_error, AuthenticationError)
            },
        }
        counted = {
            "accepted": totals.authentications + totals.renewals,
            "refused": totals.failed_authentications + totals.failed_renewals,
        }
        for what, before in self._seen.items():
            grown = counted[what] - self._counted[what]
            new = len(seen[what].items() - before.items())
            if new > grown:
                yield f"{new} logins are {what}, {grown} count"
        self._seen, self._counted = seen, counted


class WaitCounts:
    """The waits for memory; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._since: dict[MemoryRequest, float] = {}
        self._counted = 0
        self._checked_at = self._waited = 0.0

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield calls that wait since the last idle moment, or have waited, if fewer count."""
        before, counted, stats = self._since, self._counted, engine.stats
        self._since = {each: before.get(each, now) for each in engine.pool._queue}
        self._counted = stats.buffer_waits
        new = len(self._since.keys() - before.keys())
        if new > self._counted - counted:
            yield f"{new} calls wait for memory since, and do not count"
        ended = before.keys() - self._since.keys()
        least = sum(self._checked_at - before[each] for each in ended)
        if stats.buffer_wait_time - self._waited < least - _ROUNDING_S:
            waited = stats.buffer_wait_time - self._waited
            yield f"calls have waited {least:.3f} s for memory, {waited:.3f} s count"
        self._checked_at, self._waited = now, stats.buffer_wait_time


class RequestCounts:
    """The requests and responses of each broker; `check` it at idle moments."""

    def __init__(self) -> None:
        self._before: dict[BrokerLink, _Sent] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield requests, responses or bytes that are not counted, or more than once."""
        before, self._before = self._before, {}
        is_answered = engine.config.acks_value != 0
        for link in engine.client._links():
            connection, counted = link._connection, engine.client.io_stats.of(link.node.id)
            if connection is None or not connection.is_open:
                continue
            seen = self._before[link] = _Sent(
                connection,
                connection._correlation_id,
                connection.in_flight,
                counted.requests,
                counted.responses,
                connection._bytes_written,
                counted.bytes_out,
            )
            last = before.get(link, seen)
            if last.connection is not connection or engine.client._retired:
                continue
            numbers, in_flight, requests, responses, size, counted_size = (
                now_ - then for now_, then in zip(seen[1:], last[1:], strict=True)
            )
            if requests != numbers or (is_answered and requests - responses != in_flight):
                yield (
                    f"node {link.node.id} has {in_flight} more requests in flight and {numbers} "
                    f"numbers, {requests} requests and {responses} responses count"
                )
            if size != counted_size:
                yield f"node {link.node.id} has got {size} bytes, {counted_size} count"
