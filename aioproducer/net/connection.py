"""Connection: one socket to one broker; responses are matched by correlation id.

A complete valid response is handled when it is received (`response_protocol`); the reader task
handles partial and invalid data. A connection fails once, and `error` has the cause.

Invariants
- Brokers answer one connection's requests in order; anything else is a protocol error.
- The socket is aborted *before* any future fails, so that no buffer is reused that could still be
  written (KAFKA-19012).
- A request is registered before its first byte is handed to the transport: after any exception it
  ends with its response or its connection.
- One reader task, one timer (the earliest deadline) and at most one flush task per connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Protocol

from aioproducer._util import log
from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import start_later
from aioproducer.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeDisconnectedError,
    ProducerFailedError,
    ProtocolError,
    RequestTimeoutError,
)
from aioproducer.errors.base import name_of_node
from aioproducer.metrics.totals import NodeIOStats
from aioproducer.net.foreign_services import check_kafka, may_be_http2
from aioproducer.net.response_protocol import ResponseProtocol
from aioproducer.net.responses import BareFrame, answers, decode_answer, describe_end
from aioproducer.net.security.tls_failures import check_not_tls
from aioproducer.wire.framing import SIZE_BYTES, frame_size
from aioproducer.wire.schema import Message

WRITE_HIGH_WATER = 512 * 1024
"""Bytes in the transport's write buffer above which no further request is accepted."""

_FLUSH_RETRY_S = 0.001
_RECHECK_S = 1.0
_FIRST_CORRELATION_ID = 1
_MAX_CORRELATION_ID = 2**31 - 1
_logger = log.get("net")


class IdleConnectionError(KafkaConnectionError):
    """The client closed the connection because it was idle (connections.max.idle.ms)."""


OnEnd = Callable[[Message | None, KafkaError | None], None]
"""Called with the response or the error; with None twice if no response was expected. It must not
raise: otherwise it is called again with an error."""


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request that is being written, or has no response yet; it keeps `buffers` alive.

    Either `on_end` or `future` is set: `on_end` is called with the outcome of a response at once, a
    future's callback one loop iteration later. `end` is the position of its last byte in the byte
    stream of the connection. `recognise` decodes the received bytes if they are exactly a plain
    response; it returns None for any other, which is decoded fully. This is faster than decoding.
    """

    kind: type[Message]
    version: int
    correlation_id: int
    buffers: Sequence[bytes | memoryview]
    deadline: float
    on_end: OnEnd | None = None
    future: asyncio.Future[Message | None] | None = None
    end: int = 0
    sent_at: float = 0.0
    is_ended: bool = False
    recognise: Callable[[bytes], Any] | None = None

    def finish(self, answer: Message) -> None:
        """Complete the request with its response; after an exception, its connection ends it."""
        try:
            self.is_ended = True
            if self.on_end is not None:
                self.on_end(answer, None)
            elif self.future is not None and not self.future.done():
                self.future.set_result(answer)
        except BaseException:
            self.is_ended = False
            raise

    def finish_soon(self, loop: asyncio.AbstractEventLoop, error: KafkaError | None) -> None:
        """Complete the request once, without calling `on_end` inside the caller's state change."""
        if self.is_ended:
            return
        if self.on_end is not None:
            # In one line: an exception in between would complete it twice.
            self.is_ended = bool(loop.call_soon(self.on_end, None, error))
        elif self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


def outcome_of(future: asyncio.Future[Message | None]) -> tuple[KafkaError | None, Message | None]:
    """Return the error or the response of a completed request."""
    if future.cancelled():
        return NodeDisconnectedError("the request was cancelled"), None
    error = future.exception()
    if error is not None:
        return error if isinstance(error, KafkaError) else ProducerFailedError(repr_of(error)), None
    return None, future.result()


async def _of_transport(work: Awaitable[None]) -> None:
    """Wait for the transport; raise an OSError for any exception: event loops may have others."""
    try:
        await work
    except OSError:
        raise
    except Exception as error:
        raise OSError(repr_of(error)) from error


class ConnectionObserver(Protocol):
    """Listener of connection events; the methods must not raise."""

    def response_received(
        self, request_type: type[Message], version: int, response: Message
    ) -> None:
        """Handle a response that was decoded; its future is about to be done.

        Of those that `InFlightRequest.recognise` takes, which ask for nothing, only the first.
        """

    def capacity_freed(self) -> None:
        """Handle free capacity: fewer requests in flight, or an empty write buffer.

        Also called after `response_received`, once all responses received with it were handled.
        """

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        """Handle the end of a connection with the number of failed requests."""


class Connection:
    """A pipelined request/response channel on an open stream."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        node_id: int,
        observer: ConnectionObserver,
        loop_time: Callable[[], float],
        max_idle_s: float | None = None,
        io_stats: NodeIOStats | None = None,
    ) -> None:
        self.node_id = node_id
        self._io_stats = io_stats or NodeIOStats()
        self.error: KafkaError | None = None
        self.is_foreign: bool = False
        """True if bytes were received that are not a Kafka response."""
        self.in_handshake: bool = False
        """True while it is not closed for being idle: credentials may take long to get."""
        self._reader = reader
        self._writer = writer
        self._transport = writer.transport
        with suppress(AttributeError, NotImplementedError):  # a transport may not support it
            # uvloop writes at once above its limit, otherwise at the end of the loop iteration.
            self._transport.set_write_buffer_limits(0)
        self._observer = observer
        self._loop_time = loop_time
        self._max_idle_s = max_idle_s
        self._awaiting: deque[InFlightRequest] = deque()
        """The requests without a response, oldest first."""
        self._answering: InFlightRequest | None = None
        self._unflushed: deque[InFlightRequest] = deque()
        self._bytes_written = 0
        self._correlation_id = 0
        self._last_used = loop_time()
        self._has_recognised = False
        self._loop = asyncio.get_running_loop()
        self._response_protocol = ResponseProtocol.on(self._transport, self._on_data, self._loop)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._context = copy_context()
        self._is_failed = False
        self._flush_task: asyncio.Task[None] | None = None
        self._reader_task = start_later(
            self._loop, self._read(), name=f"aioproducer-read-{node_id}"
        )
        if max_idle_s is not None:
            self._wake_at(self._last_used + max_idle_s, self._last_used)

    @property
    def in_flight(self) -> int:
        """Number of requests without a response; those with acks=0 count until written."""
        return len(self._awaiting) + len(self._unflushed)

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self.error is None

    @property
    def uses_tls(self) -> bool:
        """Whether the stream is encrypted."""
        return self._transport.get_extra_info("ssl_object") is not None

    @property
    def is_over(self) -> bool:
        """Whether the connection has failed and its tasks have ended."""
        return (
            not self.is_open
            and self._reader_task.done()
            and (self._flush_task is None or self._flush_task.done())
        )

    def accepts_request(self) -> bool:
        """Return whether the transport accepts a request; else `capacity_freed` is called later."""
        if self._transport.get_write_buffer_size() <= WRITE_HIGH_WATER:
            return True
        self._watch_flush()
        return False

    def takes_more(self, max_in_flight: int) -> bool:
        """Return whether fewer requests than that are in flight, and `accepts_request()`."""
        if len(self._awaiting) + len(self._unflushed) >= max_in_flight:
            return False
        return not self._transport.get_write_buffer_size() or self.accepts_request()

    def next_correlation_id(self) -> int:
        """Return the correlation id for the next `send`; int32, never negative, wraps around."""
        self._correlation_id = (
            0 if self._correlation_id == _MAX_CORRELATION_ID else self._correlation_id + 1
        )
        return self._correlation_id

    def send(
        self,
        buffers: Sequence[bytes | memoryview],
        *,
        correlation_id: int,
        request_type: type[Message],
        version: int,
        deadline: float,
        expect_response: bool = True,
    ) -> asyncio.Future[Message | None]:
        """Hand a framed request to the transport; return a future of the response.

        Without an expected response (acks=0) the future gets None as soon as the bytes have left
        the process. The buffers must not change until the future is done. If it raises, nothing was
        written.
        """
        future: asyncio.Future[Message | None] = self._loop.create_future()
        request = InFlightRequest(
            request_type, version, correlation_id, buffers, deadline, future=future
        )
        self.begin(request, expect_response=expect_response)
        return future

    def begin(self, request: InFlightRequest, *, expect_response: bool = True) -> None:
        """Send a request with its own completion (`InFlightRequest.on_end` or `future`).

        An exception of the transport fails the connection: some bytes may have been sent.
        """
        if self.error is not None:
            raise self.error.with_context()
        now = self._loop_time()
        (self._awaiting if expect_response else self._unflushed).append(request)
        try:
            request.sent_at = self._last_used = now
            size = sum(map(len, request.buffers))
            request.end = self._bytes_written = self._bytes_written + size
            if len(request.buffers) > 1 or not expect_response:
                self._check_transport()
            self._io_stats.on_request(size, now)
            if len(request.buffers) == 1:
                self._transport.write(request.buffers[0])
            else:
                self._transport.writelines(request.buffers)
            if self.error is not None:
                return
            if not expect_response:
                if self._is_flushed(request):
                    request.finish_soon(self._loop, None)
                    self._unflushed.pop()  # only now: after an exception its connection ends it
                    return
                self._watch_flush()
            self._wake_at(request.deadline, now)
        except Exception as error:
            failure = self._disconnected(f"writing failed: {error}")
            failure.__cause__ = error.with_traceback(None)  # its frames keep the buffers alive
            self.abort(failure)

    def _check_transport(self) -> None:
        """Raise if the transport is lost and the reader task has not reported that yet.

        Bytes without a response would count as written then. `writelines` of Python 3.12.0 to
        3.13.5 would register the number of the closed socket with the loop (gh-136234): the next
        socket that gets it, of any code in the process, would never connect.
        """
        if self._transport.is_closing():
            raise BrokenPipeError("the connection is lost")

    def extend_deadlines(self, seconds: float) -> None:
        """Extend the deadlines of the requests in flight by the broker's throttle time."""
        for request in (*self._awaiting, *self._unflushed):
            request.deadline += seconds

    def abort(self, error: KafkaError) -> None:
        """Fail the connection at once; requests in flight fail with copies of the error.

        After an exception such as KeyboardInterrupt, another call finishes the rest.
        """
        if self._is_failed:
            return
        if self.error is None:
            self.error = error
        try:
            self._end_input_and_output()
        except BaseException:
            self._end_input_and_output()
            raise
        finally:
            self._fail_requests(self.error)

    def _end_input_and_output(self) -> None:
        """End transport, timer and tasks; may be called again."""
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        current = asyncio.current_task()
        for task in (self._reader_task, self._flush_task):
            if task is not None and task is not current:
                task.cancel()

    def _fail_requests(self, error: KafkaError) -> None:
        requests: list[InFlightRequest] = []
        try:
            requests = self._unanswered()
            self._finish_soon(requests, error)
        except BaseException:  # such as KeyboardInterrupt
            self._finish_soon(self._unanswered(), error)
            raise
        finally:
            self._awaiting.clear()
            self._unflushed.clear()
            self._is_failed = True
            self._observer.connection_failed(self, error, len(requests))

    def _finish_soon(self, requests: Iterable[InFlightRequest], error: KafkaError) -> None:
        for request in requests:
            request.finish_soon(self._loop, error.with_context())

    def _unanswered(self) -> list[InFlightRequest]:
        """Return the requests in flight, including one whose response was being handled."""
        requests = [*self._awaiting, *self._unflushed]
        lost = self._answering
        if lost is not None and not lost.is_ended and lost not in requests:
            requests.insert(0, lost)
        return requests

    def drop(self) -> None:
        """Close the socket after the loop was closed, which cannot end the transport any more."""
        if self.error is None:
            self.error = self._disconnected("the event loop was closed")
        with suppress(RuntimeError):  # raised by the closed loop
            self._transport.abort()
        # asyncio's `TransportSocket` cannot close the socket.
        shown = self._transport.get_extra_info("socket")
        with suppress(AttributeError, OSError):
            getattr(shown, "_sock", shown).close()

    async def flush(self) -> None:
        """Wait until the transport has handed all bytes to the operating system."""
        await self._flush_all_but(lambda: 0)

    async def _flush_all_but(self, rest: Callable[[], int]) -> None:
        transport = self._transport
        while self.error is None and transport.get_write_buffer_size() > rest():
            # Setting the limits makes the transport check its buffer again: `writelines` of Python
            # 3.12.0 to 3.12.7 and 3.13.0 did not pause writing (CVE-2024-12254). With these limits
            # `drain` waits until at most `rest()` bytes are in the buffer.
            self._set_marks(rest())
            await _of_transport(self._writer.drain())
            if transport.get_write_buffer_size() > rest():
                await asyncio.sleep(_FLUSH_RETRY_S)

    def _set_marks(self, rest: int) -> None:
        with suppress(AttributeError, NotImplementedError):  # a transport may not support it
            self._transport.set_write_buffer_limits(high=max(rest, 1), low=rest)

    async def finish(self) -> None:
        """Wait until all written bytes have left the process; write nothing afterwards."""
        await self.flush()
        self._finish_flushed()
        if self.error is None and self.uses_tls:
            # TLS has another buffer, which is not counted: only an orderly close flushes it.
            self._writer.close()
            await _of_transport(self._writer.wait_closed())

    async def wait_closed(self) -> None:
        """Wait until tasks and socket of an aborted connection are closed."""
        tasks = {task for task in (self._reader_task, self._flush_task) if task is not None}
        await asyncio.wait(tasks)
        try:
            await _of_transport(self._writer.wait_closed())
        except OSError:
            pass
        except asyncio.CancelledError:
            # The awaited future stays cancelled if an earlier call was cancelled.
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise

    # -- reading ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Run the reader task until the connection ends; raise nothing but CancelledError."""
        try:
            await self._read_responses()
        except BaseException as interrupt:
            if not isinstance(interrupt, GeneratorExit):  # the task is dropped with its loop
                self._on_interrupt(interrupt)
            raise

    async def _read_responses(self) -> None:
        try:
            while True:
                await self._read_response()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Fail the connection after an error while reading."""
        failure: KafkaError
        if isinstance(error, asyncio.IncompleteReadError):
            failure = self._disconnected(describe_end(error, len(self._awaiting)))
        elif isinstance(error, KafkaError):
            failure = error.with_context(node_id=self.node_id)
        elif isinstance(error, OSError) or error is self._reader.exception():
            failure = self._disconnected(f"the connection broke: {error}")
            failure.__cause__ = error
        else:  # a bug must not leave a connection without a reader
            _logger.error(
                "%s: reading a response failed unexpectedly",
                name_of_node(self.node_id),
                exc_info=error,
            )
            failure = KafkaConnectionError(
                f"reading failed: {repr_of(error)}", node_id=self.node_id
            )
            failure.__cause__ = error
        self.abort(failure)
        self._observer.capacity_freed()  # for responses before the error

    async def _read_response(self) -> None:
        read = self._reader.readexactly
        prefix = await read(SIZE_BYTES)
        start = b""
        if self.in_handshake:
            check_not_tls(prefix)  # later it proves nothing about the port
            if may_be_http2(prefix):
                start = await read(SIZE_BYTES)
        check_kafka(prefix + start)
        try:
            size = frame_size(prefix)
        except ProtocolError:
            self.is_foreign = True
            raise
        if not self._awaiting:
            raise ProtocolError(f"the broker sent an unrequested frame of {size} bytes")
        frame = start + await read(size - len(start))
        if self._response_protocol is not None:
            self._response_protocol.unread -= len(prefix) + size
        request = self._awaiting[0]
        try:
            response = decode_answer(request.kind, request.version, request.correlation_id, frame)
        except ProtocolError:
            self.is_foreign = request.kind is not BareFrame and not answers(
                frame, request.correlation_id
            )
            raise
        if not self._is_flushed(request):
            # The response came before the request was fully written: keep its buffers.
            await self.flush()
        self._observer.response_received(request.kind, request.version, response)
        self._answered(request, response, len(prefix) + size)
        self._observer.capacity_freed()

    def _on_data(self, data: bytes) -> int:
        """Handle complete valid responses at the start of `data`; return their size."""
        try:
            return self._handle_responses(data)
        except BaseException as interrupt:
            self._on_interrupt(interrupt)
            raise

    def _handle_responses(self, data: bytes) -> int:
        done = 0
        try:
            awaiting = self._awaiting
            if awaiting and awaiting[0].recognise is not None and self._on_expected_response(data):
                self._observer.capacity_freed()
                return len(data)
            while awaiting and self.error is None and (size := self._on_response(data, done)):
                done += size
            if done:
                self._observer.capacity_freed()
        except Exception as error:
            self._give_up(error)
        return done

    # `_handle_responses` has no request left when it calls `capacity_freed`: a task that is resumed
    # by that may raise, and its traceback keeps the callers' frames and all that they refer to.

    def _on_response(self, data: bytes, start: int) -> int:
        """Handle the response that begins at `start`; return its size, or 0 if it is left."""
        request, body = self._awaiting[0], start + SIZE_BYTES
        stop = body + int.from_bytes(data[start:body], "big")
        if body >= stop or stop > len(data) or not self._is_flushed(request):
            return 0
        try:
            response = decode_answer(
                request.kind, request.version, request.correlation_id, data[body:stop]
            )
        except KafkaError:
            return 0  # the reader task reports it
        self._observer.response_received(request.kind, request.version, response)
        self._answered(request, response, stop - start)
        return stop - start

    def _on_expected_response(self, data: bytes) -> bool:
        """Handle the plain response of the oldest request, if `data` is exactly that."""
        request = self._awaiting[0]
        answer = None if request.recognise is None else request.recognise(data)
        if answer is None or not self._is_flushed(request):
            return False
        if not self._has_recognised:
            self._has_recognised = True
            self._observer.response_received(request.kind, request.version, answer)
        self._answered(request, answer, len(data))
        return True

    def _on_interrupt(self, interrupt: BaseException) -> None:
        """Fail the connection after its reader is cancelled, or a KeyboardInterrupt or the like."""
        error = NodeDisconnectedError(
            f"interrupted by {repr_of(interrupt)}",
            node_id=self.node_id,
            advice="close the producer before its tasks are cancelled",  # not the broker's fault
        )
        self.abort(error)

    def _answered(self, request: InFlightRequest, response: Message, size: int) -> None:
        now = self._last_used = self._loop_time()
        self._answering = request  # `abort` fails it after an exception before `finish`
        self._awaiting.popleft()
        request.finish(response)
        self._answering = None
        self._io_stats.on_response(size, now - request.sent_at, now)

    # -- writing ----------------------------------------------------------------------------------

    def _is_flushed(self, request: InFlightRequest) -> bool:
        return request.end <= self._bytes_written - self._transport.get_write_buffer_size()

    def _watch_flush(self) -> None:
        if self.error is not None:
            return
        if self._flush_task is None:
            self._flush_task = start_later(
                self._loop, self._report_flush(), name=f"aioproducer-flush-{self.node_id}"
            )
        elif not self._transport.is_closing():
            self._set_marks(self._bytes_after_first())

    def _bytes_after_first(self) -> int:
        """Return the number of bytes that were written after the oldest unflushed request."""
        return self._bytes_written - self._unflushed[0].end if self._unflushed else 0

    async def _report_flush(self) -> None:
        """Finish each acks=0 request as soon as it is flushed, then report free capacity.

        Each one at its time: a broker that refuses an acks=0 request closes the connection, and the
        requests that were flushed by then are not sent again.
        """
        try:
            with suppress(OSError):  # the reader finds the same error and ends the connection
                await self._flush_all_but(self._bytes_after_first)
        finally:
            self._flush_task = None
        self._finish_flushed()
        if self._unflushed:
            self._watch_flush()
        if self.error is None:
            self._observer.capacity_freed()

    def _finish_flushed(self) -> None:
        """Finish the acks=0 requests whose bytes have left the process."""
        while self._unflushed and self._is_flushed(self._unflushed[0]):
            self._unflushed.popleft().finish_soon(self._loop, None)

    # -- time -------------------------------------------------------------------------------------

    def _wake_at(self, when: float, now: float) -> None:
        """Make sure that the timer fires at `when` or before."""
        if self._timer is not None:
            if now < self._timer_at <= when:
                return
            self._timer.cancel()
            when = min(when, self._timer_at)  # it is due, or its callback was interrupted
        # Not in the context of a call that sends: the timer would keep it.
        timer = self._loop.call_at(when, self._on_timer, context=self._context)
        self._timer, self._timer_at = timer, when

    def _on_timer(self) -> None:
        try:
            self._timer = None
            self._end_what_is_due(self._loop_time())
        except BaseException:  # such as KeyboardInterrupt
            if not self._is_failed:
                now = self._loop_time()
                self._wake_at(now + _RECHECK_S, now)
            raise

    def _end_what_is_due(self, now: float) -> None:
        """Fail the connection if a deadline or the idle time is over, else set the timer."""
        requests = [*self._awaiting, *self._unflushed]
        if requests:
            oldest = min(requests, key=lambda request: request.deadline)
            if oldest.deadline <= now:
                self.abort(self._timed_out(oldest, now))
            else:
                # At most the idle time: all responses may arrive long before the deadline.
                idle = oldest.deadline if self._max_idle_s is None else now + self._max_idle_s
                self._wake_at(min(oldest.deadline, idle), now)
        elif self._max_idle_s is not None:
            idle_until = (now if self.in_handshake else self._last_used) + self._max_idle_s
            if idle_until <= now:
                self.abort(IdleConnectionError("closed after being idle", node_id=self.node_id))
            else:
                self._wake_at(idle_until, now)

    # -- errors -----------------------------------------------------------------------------------

    def _disconnected(self, reason: str) -> NodeDisconnectedError:
        return NodeDisconnectedError(reason, node_id=self.node_id)

    def _timed_out(self, request: InFlightRequest, now: float) -> NodeDisconnectedError:
        elapsed_ms = round((now - request.sent_at) * 1000)
        what = f"{request.kind.__name__} v{request.version} was not answered in time"
        if request.correlation_id == _FIRST_CORRELATION_ID:
            what += "; the port takes connections, but nothing has answered on this one"
        # As Java (NetworkClient.handleTimedOutRequests): the connection is closed, and every
        # request of it fails as after any other disconnect.
        error = NodeDisconnectedError(
            f"disconnected because {what}", node_id=self.node_id, elapsed_ms=elapsed_ms
        )
        error.__cause__ = RequestTimeoutError(what, node_id=self.node_id, elapsed_ms=elapsed_ms)
        return error
