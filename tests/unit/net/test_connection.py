"""One connection: order, deadlines, idle clock, write buffer, buffers kept alive."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import sys
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.eager import start_tasks_eagerly
from support.hostile import Peer

from aioproducer.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeDisconnectedError,
    ProtocolError,
)
from aioproducer.metrics.totals import NodeIOStats
from aioproducer.net.connection import (
    WRITE_HIGH_WATER,
    Connection,
    IdleConnectionError,
    InFlightRequest,
)
from aioproducer.testing.framing import encode_response
from aioproducer.wire.framing import encode_request
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.schema import Message
from net.virtual import MemoryTransport, VirtualLoop, memory_pair, virtual_time


class Observer:
    def __init__(self) -> None:
        self.responses: list[Message] = []
        self.freed = 0
        self.ended: list[tuple[KafkaError, int]] = []

    def response_received(self, kind: type[Message], version: int, response: Message) -> None:
        self.responses.append(response)

    def capacity_freed(self) -> None:
        self.freed += 1

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        self.ended.append((error, lost))


class Fixture:
    """A connection, the broker's end of it, and the client's transport."""

    def __init__(self, max_idle_s: float | None) -> None:
        near, far = memory_pair()
        assert isinstance(near[1].transport, MemoryTransport)
        self.transport = near[1].transport
        self.peer = Peer(*far)
        self.observer = Observer()
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self.io_stats = NodeIOStats()
        self.connection = Connection(
            *near,
            node_id=1,
            observer=self.observer,
            loop_time=self.time,
            max_idle_s=max_idle_s,
            io_stats=self.io_stats,
        )

    def time(self) -> float:
        return self.clock()

    def ask(self, timeout_s: float = 30.0) -> asyncio.Future[Message | None]:
        correlation_id = self.connection.next_correlation_id()
        frame = encode_request(MetadataRequest(), 9, correlation_id, "tests")
        return self._send(frame, correlation_id, timeout_s)

    def ask_from_buffer(
        self,
    ) -> tuple[asyncio.Future[Message | None], weakref.ref[memoryview]]:
        """Do `ask`; also return a reference that does not keep the buffer alive."""
        correlation_id = self.connection.next_correlation_id()
        view = memoryview(bytearray(encode_request(MetadataRequest(), 9, correlation_id, None)))
        return self._send(view, correlation_id, 30.0), weakref.ref(view)

    def _send(
        self, frame: bytes | memoryview, correlation_id: int, timeout_s: float
    ) -> asyncio.Future[Message | None]:
        return self.connection.send(
            [frame],
            correlation_id=correlation_id,
            request_type=MetadataRequest,
            version=9,
            deadline=self.loop.time() + timeout_s,
        )

    def tell(
        self, buffers: Sequence[bytes | memoryview], timeout_s: float = 30.0
    ) -> asyncio.Future[Message | None]:
        """A request without answer."""
        return self.connection.send(
            buffers,
            correlation_id=self.connection.next_correlation_id(),
            request_type=ProduceRequest,
            version=9,
            deadline=self.loop.time() + timeout_s,
            expect_response=False,
        )

    async def answer(self, cluster_id: str = "c") -> None:
        header = await self.peer.request()
        self.peer.respond(header, MetadataResponse(cluster_id=cluster_id))


@asynccontextmanager
async def connected(max_idle_s: float | None = None) -> AsyncIterator[Fixture]:
    it = Fixture(max_idle_s)
    try:
        yield it
    finally:
        it.connection.abort(NodeDisconnectedError("the test is over"))
        await it.connection.wait_closed()
        assert it.connection.is_over
        assert it.transport.is_lost
        it.peer.writer.transport.abort()


@virtual_time
async def test_pipelined_requests_get_their_answers_in_order() -> None:
    async with connected() as it:
        requests = [it.ask() for _ in range(5)]
        assert it.connection.in_flight == 5
        for i in range(5):
            await it.answer(f"c{i}")
        answers = [await request for request in requests]
        assert [answer.cluster_id for answer in answers] == ["c0", "c1", "c2", "c3", "c4"]
        assert it.connection.in_flight == 0
        assert 1 <= it.observer.freed <= 5
        assert it.observer.responses == answers


@virtual_time
async def test_a_stream_that_has_ended_already_fails_its_connection_also_with_eager_tasks() -> None:
    start_tasks_eagerly()
    loop = asyncio.get_running_loop()
    near, far = memory_pair()
    near[0].feed_eof()
    observer = Observer()
    connection = Connection(
        *near, node_id=1, observer=observer, loop_time=loop.time, max_idle_s=540.0
    )
    await connection.wait_closed()
    assert [type(error) for error, _ in observer.ended] == [NodeDisconnectedError]
    assert connection.is_over
    assert connection._reader_task.exception() is None
    far[1].transport.abort()


@pytest.mark.parametrize("buffers", [[b"one"], [b"one", b"two"]])
@virtual_time
async def test_what_is_written_to_a_lost_transport_fails_with_its_connection(
    buffers: list[bytes],
) -> None:
    """The reader task reports the loss one turn of the loop later."""
    async with connected() as it:
        it.transport.break_off(ConnectionResetError("reset"))
        written = it.tell(buffers)
        with pytest.raises(NodeDisconnectedError):
            await written
        assert len(it.observer.ended) == 1


class OtherLoopError(Exception):
    """An exception that a transport of another event loop, or of a library, may report."""


@virtual_time
async def test_a_connection_may_be_lost_by_any_exception(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as it:
        asked = it.ask()
        it.transport.break_off(OtherLoopError("broken pipe"))
        with pytest.raises(NodeDisconnectedError, match="the connection broke: broken pipe"):
            await asked
    assert not caplog.records


@virtual_time
async def test_a_flush_of_a_connection_that_is_lost_by_any_exception_is_an_os_error() -> None:
    async with connected() as it:
        it.transport.stall()
        written = it.tell([b"x" * 200_000])
        flushed = asyncio.ensure_future(it.connection.finish())
        await asyncio.sleep(0)
        it.transport.break_off(OtherLoopError("broken pipe"))
        with pytest.raises(OSError, match="broken pipe"):
            await flushed
        with pytest.raises(NodeDisconnectedError):
            await written


@pytest.mark.parametrize("buffers", [[b"x" * 1000], [b"x" * 1000, b"y" * 1000]], ids=len)
async def test_a_lost_socket_stays_unknown_to_the_loop_whatever_is_written_to_it(
    buffers: list[bytes],
) -> None:
    """`writelines` of Python 3.12.0 to 3.13.5 would register its number (gh-136234)."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader, writer = await asyncio.open_connection(*server.getsockname())
        far, _ = server.accept()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        observer = Observer()
        connection = Connection(reader, writer, node_id=1, observer=observer, loop_time=loop.time)
        number = writer.get_extra_info("socket").fileno()
        for correlation_id in range(3):
            deadline = loop.time() + 30
            if connection.is_open:
                connection.begin(
                    InFlightRequest(MetadataRequest, 9, correlation_id, buffers, deadline)
                )
        await connection.wait_closed()
        assert [type(error) for error, _ in observer.ended] == [NodeDisconnectedError]
        others = [socket.socket() for _ in range(20)]
        another = next(each for each in others if each.fileno() == number)
        another.setblocking(False)
        async with asyncio.timeout(5):
            await loop.sock_connect(another, server.getsockname())
        for each in others:
            each.close()


@virtual_time
async def test_request_whose_answer_is_cut_off_by_an_exception_fails_with_its_connection() -> None:
    async with connected() as it:
        it.ask()
        seen = []

        def tell(answer: object, failure: object) -> None:
            seen.append((answer, failure))
            if failure is None:
                raise ZeroDivisionError

        it.connection._awaiting[0].on_end = tell
        await it.answer()
        await asyncio.sleep(0.1)
        assert seen[0] == (it.observer.responses[0], None)
        assert [type(failure) for _, failure in seen[1:]] == [KafkaConnectionError]
        assert len(it.observer.ended) == 1
        assert it.observer.freed == 1


@virtual_time
async def test_whole_answers_are_handled_where_they_are_received() -> None:
    async with connected() as it:
        requests = [it.ask() for _ in range(3)]
        headers = [await it.peer.request() for _ in requests]
        frames = [
            encode_response(MetadataResponse(), 9, header.correlation_id) for header in headers
        ]
        received = it.transport.get_protocol()
        assert isinstance(received, asyncio.Protocol)
        received.data_received(frames[0] + frames[1] + frames[2][:7])
        assert [request.done() for request in requests] == [True, True, False]
        assert it.observer.freed == 1
        received.data_received(frames[2][7:])
        await requests[2]
        last = it.ask()
        received.data_received(
            encode_response(MetadataResponse(), 9, (await it.peer.request()).correlation_id)
        )
        assert last.done()


@virtual_time
async def test_requests_and_answers_are_counted_with_every_byte_and_the_time_between() -> None:
    async with connected() as it:
        for _ in range(3):
            it.ask()
        headers = [await it.peer.request() for _ in range(3)]
        size = len(encode_request(MetadataRequest(), 9, 1, "tests"))
        frames = [
            encode_response(MetadataResponse(cluster_id="c" * number), 9, header.correlation_id)
            for number, header in enumerate(headers)
        ]
        await asyncio.sleep(2)
        it.peer.raw(b"".join(frames))
        await asyncio.sleep(0.1)
        stats = it.io_stats
        assert (stats.requests, stats.bytes_out) == (3, 3 * size)
        assert (stats.responses, stats.bytes_in) == (3, sum(map(len, frames)))
        assert (stats.latency, stats.latency_max) == (6, 2)


@virtual_time
async def test_an_answer_in_two_parts_is_counted_with_every_byte() -> None:
    async with connected() as it:
        it.ask()
        frame = encode_response(MetadataResponse(), 9, (await it.peer.request()).correlation_id)
        for part in (frame[:9], frame[9:]):
            it.peer.raw(part)
            await asyncio.sleep(1)
        assert (it.io_stats.responses, it.io_stats.bytes_in) == (1, len(frame))


@virtual_time
async def test_answers_come_through_a_transport_that_keeps_its_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryTransport, "set_protocol", asyncio.Transport.set_protocol)
    async with connected() as it:
        request = it.ask()
        await it.answer("by the streams")
        answer = await request
        assert isinstance(answer, MetadataResponse)
        assert answer.cluster_id == "by the streams"


@virtual_time
async def test_an_answer_out_of_order_is_a_protocol_error_for_all_in_flight() -> None:
    async with connected() as it:
        first, second = it.ask(), it.ask()
        await it.peer.request()
        it.peer.respond(await it.peer.request(), MetadataResponse())
        with pytest.raises(ProtocolError, match="correlation id 2 came where 1 was due"):
            await first
        with pytest.raises(ProtocolError):
            await second
        assert [lost for _, lost in it.observer.ended] == [2]


@virtual_time
async def test_the_second_answer_to_one_request_ends_the_connection() -> None:
    async with connected() as it:
        request = it.ask()
        header = await it.peer.request()
        it.peer.respond(header, MetadataResponse())
        it.peer.respond(header, MetadataResponse())
        await request
        await it.connection.wait_closed()
        assert isinstance(it.connection.error, ProtocolError)


@virtual_time
async def test_the_earliest_deadline_counts_even_if_it_was_set_last() -> None:
    async with connected() as it:
        started = it.loop.time()
        long, short = it.ask(timeout_s=30), it.ask(timeout_s=2)
        errors = await asyncio.gather(long, short, return_exceptions=True)
        assert [type(error) for error in errors] == [NodeDisconnectedError] * 2
        assert it.loop.time() - started == pytest.approx(2)


@virtual_time
async def test_a_deadline_holds_although_a_request_is_sent_when_it_is_due() -> None:
    async with connected() as it:
        due = it.loop.time() + 5
        requests = [it.ask(timeout_s=5)]

        def ask_late() -> None:
            it.clock = lambda: max(due + 1e-9, it.loop.time())
            requests.append(it.ask(timeout_s=5))

        it.loop.call_at(due - 1e-9, ask_late)
        await asyncio.wait(requests)
        assert it.loop.time() == pytest.approx(due)
        errors = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(error) for error in errors] == [NodeDisconnectedError] * 2


@virtual_time
async def test_a_deadline_holds_even_if_its_timer_fires_a_moment_early() -> None:
    async with connected() as it:
        began = it.loop.time()
        request = it.ask(timeout_s=5)
        lags = [1e-6]

        def lagging() -> float:
            now = it.loop.time()
            return now - lags.pop() if lags and now >= began + 5 else now

        it.clock = lagging
        with pytest.raises(NodeDisconnectedError):
            await request
        assert lags == []


@virtual_time
async def test_an_answered_request_no_longer_times_out() -> None:
    async with connected() as it:
        first = it.ask(timeout_s=2)
        await it.answer()
        await first
        await asyncio.sleep(5)
        assert it.connection.is_open
        second = it.ask(timeout_s=3)
        started = it.loop.time()
        with pytest.raises(NodeDisconnectedError):
            await second
        assert it.loop.time() - started == pytest.approx(3)


@virtual_time
async def test_only_a_timeout_of_the_first_request_suggests_that_the_port_is_a_silent_one() -> None:
    hint = "nothing has answered on this one"
    async with connected() as it:
        with pytest.raises(NodeDisconnectedError, match=hint):
            await it.ask(timeout_s=2)
    async with connected() as it:
        first, second = it.ask(), it.ask(timeout_s=2)
        await it.answer()
        await first
        with pytest.raises(NodeDisconnectedError, match="MetadataRequest v9 was not") as caught:
            await second
        assert hint not in str(caught.value)


@virtual_time
async def test_extended_deadlines_hold_for_what_is_in_flight() -> None:
    async with connected() as it:
        started = it.loop.time()
        request = it.ask(timeout_s=2)
        it.connection.extend_deadlines(5)
        with pytest.raises(NodeDisconnectedError) as caught:
            await request
        assert it.loop.time() - started == pytest.approx(7)
        assert caught.value.elapsed_ms == 7000


@virtual_time
async def test_an_idle_connection_closes_itself_and_use_puts_that_off() -> None:
    async with connected(max_idle_s=10) as it:
        started = it.loop.time()
        await asyncio.sleep(6)
        request = it.ask()
        await it.answer()
        await request
        assert await it.peer.reader.read() == b""
        assert it.loop.time() - started == pytest.approx(16)
        assert isinstance(it.connection.error, IdleConnectionError)


@virtual_time
async def test_a_connection_that_waits_for_an_answer_is_not_idle() -> None:
    async with connected(max_idle_s=10) as it:
        request = it.ask(timeout_s=60)
        await asyncio.sleep(55)
        await it.answer()
        assert await request is not None
        answered = it.loop.time()
        await it.peer.reader.read()
        assert it.loop.time() - answered == pytest.approx(10)


@virtual_time
async def test_writing_without_an_answer_to_expect_is_use_too() -> None:
    async with connected(max_idle_s=10) as it:
        started = it.loop.time()
        await asyncio.sleep(6)
        it.transport.stall()
        written = it.tell([b"\0\0\0\x02", b"hi"])
        it.transport.resume()
        await written
        await it.peer.reader.read()
        assert it.loop.time() - started == pytest.approx(16)


@virtual_time
async def test_without_an_idle_limit_a_connection_stays_open() -> None:
    async with connected(max_idle_s=None) as it:
        await asyncio.sleep(1_000_000)
        assert it.connection.is_open


@virtual_time
async def test_sending_on_an_ended_connection_fails_at_once_with_the_reason() -> None:
    async with connected() as it:
        it.connection.abort(KafkaConnectionError("enough", node_id=1))
        with pytest.raises(KafkaConnectionError, match="enough"):
            it.ask()


@virtual_time
async def test_a_request_without_answer_is_done_when_its_bytes_are_out() -> None:
    async with connected() as it:
        it.transport.stall()
        request = it.tell([b"\0\0\0\x02", b"hi"])
        await asyncio.sleep(1)
        assert not request.done()
        assert it.connection.in_flight == 1
        it.transport.resume()
        assert await request is None
        assert it.connection.in_flight == 0
        assert it.observer.freed >= 1


@virtual_time
async def test_each_request_without_answer_is_done_when_its_own_bytes_are_out() -> None:
    async with connected() as it:
        it.transport.stall()
        first = it.tell([b"\0\0\0\x02", b"hi"])
        await asyncio.sleep(0)  # the task that watches the buffer waits by now
        second = it.tell([b"\0\0\0\x02", b"ho"])
        it.transport.let_out(7)
        await asyncio.sleep(0.1)
        assert first.done()
        assert not second.done()
        it.transport.break_off(ConnectionResetError("refused"))
        with pytest.raises(NodeDisconnectedError):
            await second
        assert first.result() is None


@virtual_time
async def test_what_is_left_after_a_part_of_the_requests_without_answer_is_watched_further() -> (
    None
):
    async with connected() as it:
        it.transport.stall()
        first = it.tell([b"\0\0\0\x02", b"hi"])
        second = it.tell([b"\0\0\0\x02", b"ho"])
        it.transport.let_out(7)
        await first
        it.transport.resume()
        assert await second is None


@virtual_time
async def test_a_request_without_answer_times_out_while_its_bytes_are_stuck() -> None:
    async with connected() as it:
        it.transport.stall()
        started = it.loop.time()
        with pytest.raises(NodeDisconnectedError):
            await it.tell([b"\0\0\0\x02", b"hi"], timeout_s=4)
        assert it.loop.time() - started == pytest.approx(4)


@virtual_time
async def test_a_full_write_buffer_refuses_and_reports_when_it_is_empty() -> None:
    async with connected() as it:
        it.transport.stall()
        assert it.connection.accepts_request()
        request = it.tell([bytes(WRITE_HIGH_WATER + 1)])
        assert not it.connection.accepts_request()
        await asyncio.sleep(1)
        assert it.observer.freed == 0
        it.transport.resume()
        await request
        assert it.connection.accepts_request()
        assert it.observer.freed == 1


@virtual_time
async def test_a_full_write_buffer_of_a_transport_without_limits_reports_when_it_is_empty() -> None:
    async with connected() as it:
        it.transport.has_limits = False
        it.transport.stall()
        request = it.tell([bytes(WRITE_HIGH_WATER + 1)])
        assert not it.connection.accepts_request()
        await asyncio.sleep(1)
        it.transport.resume()
        await request
        await asyncio.sleep(1)
        assert it.observer.freed == 1


@virtual_time
async def test_a_full_write_buffer_of_requests_with_answers_reports_when_it_is_empty_too() -> None:
    async with connected() as it:
        it.transport.stall()
        request = it.connection.send(
            [bytes(WRITE_HIGH_WATER + 1)],
            correlation_id=it.connection.next_correlation_id(),
            request_type=MetadataRequest,
            version=9,
            deadline=it.loop.time() + 30,
        )
        assert not it.connection.accepts_request()
        await asyncio.sleep(1)
        assert it.observer.freed == 0
        it.transport.resume()
        await asyncio.sleep(1)
        assert it.observer.freed == 1
        assert it.connection.accepts_request()
        request.cancel()


@virtual_time
async def test_requests_without_answer_are_done_one_after_the_other() -> None:
    async with connected() as it:
        for count in (1, 2, 3):
            it.transport.stall()
            request = it.tell([b"\0\0\0\x02", b"hi"])
            await asyncio.sleep(1)
            assert not request.done()
            it.transport.resume()
            assert await request is None
            await asyncio.sleep(0)
            assert (it.connection.in_flight, it.observer.freed) == (0, count)


@virtual_time
async def test_an_answer_before_the_request_is_written_waits_for_the_writing() -> None:
    # KAFKA-19012: the caller may reuse the request's memory once it has the answer.
    async with connected() as it:
        it.transport.stall()
        request = it.ask()
        it.peer.raw(encode_response(MetadataResponse(cluster_id="early"), 9, 1))
        await asyncio.sleep(1)
        assert not request.done()
        it.transport.resume()
        answer = await request
        assert answer.cluster_id == "early"


@virtual_time
async def test_the_reader_ends_at_once_even_if_the_transport_is_slow_to_end() -> None:
    async with connected() as it:
        abort, it.transport.abort = it.transport.abort, lambda: None  # type: ignore[method-assign]
        it.connection.abort(NodeDisconnectedError("test"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert it.connection.is_over
        abort()


@virtual_time
async def test_a_wait_for_the_end_can_be_cancelled_and_repeated() -> None:
    async with connected() as it:
        abort, it.transport.abort = it.transport.abort, lambda: None  # type: ignore[method-assign]
        it.connection.abort(NodeDisconnectedError("test"))
        waiting = asyncio.create_task(it.connection.wait_closed())
        await asyncio.sleep(1)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        await it.connection.wait_closed()
        abort()


@virtual_time
async def test_a_transport_that_does_not_pause_its_writer_is_watched_every_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`writelines` of Python 3.12.0 to 3.12.7 and 3.13.0 does not (CVE-2024-12254)."""
    monkeypatch.setattr(MemoryTransport, "_update_flow", lambda transport: None)
    async with connected() as it:
        it.transport.stall()
        started = it.loop.time()
        request = it.tell([b"\0\0\0\x02", b"hi"])
        it.loop.call_later(0.5, it.transport.resume)
        assert await request is None
        assert 0.5 <= it.loop.time() - started <= 0.502


@virtual_time
async def test_the_transport_is_given_up_before_any_future_fails() -> None:
    async with connected() as it:
        it.transport.stall()
        request = it.ask()
        seen: list[int] = []
        request.add_done_callback(lambda _: seen.append(it.transport.get_write_buffer_size()))
        it.connection.abort(NodeDisconnectedError("test"))
        assert it.transport.get_write_buffer_size() == 0
        await asyncio.sleep(0)
        assert isinstance(request.exception(), NodeDisconnectedError)
        assert seen == [0]


@virtual_time
async def test_buffers_are_referenced_until_the_answer_and_no_longer() -> None:
    async with connected() as it:
        request, alive = it.ask_from_buffer()
        await asyncio.sleep(1)
        gc.collect()
        assert alive() is not None
        await it.answer()
        await request
        gc.collect()
        assert alive() is None


@virtual_time
async def test_a_traceback_made_after_the_answer_keeps_no_buffers() -> None:
    frames = []
    async with connected() as it:
        it.observer.capacity_freed = lambda: frames.append(sys._getframe())  # type: ignore[method-assign]
        _, alive = it.ask_from_buffer()
        await it.answer()
        await asyncio.sleep(1)
        gc.collect()
        assert len(frames) == 1
        assert alive() is None


@virtual_time
async def test_a_connection_is_over_when_it_has_failed_and_its_tasks_have_ended() -> None:
    async with connected() as it:
        assert not it.connection.is_over
        it.transport.stall()
        request = it.tell([b"\0\0\0\x02", b"hi"])
        await asyncio.sleep(1)
        assert not it.connection.is_over
        it.connection.abort(NodeDisconnectedError("test"))
        assert not it.connection.is_over
        await it.connection.wait_closed()
        assert it.connection.is_over
        assert isinstance(request.exception(), NodeDisconnectedError)


@virtual_time
async def test_a_connection_that_its_reader_has_ended_is_over() -> None:
    async with connected() as it:
        it.peer.raw(b"\0\0\0\x08" + bytes(8))
        await asyncio.sleep(1)
        assert isinstance(it.connection.error, ProtocolError)
        assert it.connection.is_over


def test_a_connection_that_is_dropped_with_its_loop_takes_no_more_requests() -> None:
    for earlier in (None, KafkaConnectionError("enough")):
        loop = VirtualLoop()

        async def open_one(earlier: KafkaError | None = earlier) -> Fixture:
            it = Fixture(None)
            if earlier is not None:
                it.connection.abort(earlier)
                await it.connection.wait_closed()
            return it

        it = loop.run_until_complete(open_one())
        tasks = asyncio.all_tasks(loop)
        it.peer.writer.transport.abort()
        loop.close()
        it.connection.drop()
        assert not it.connection.is_open
        reason = "the event loop was closed" if earlier is None else "enough"
        with pytest.raises(KafkaConnectionError, match=reason):
            it.ask()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]


@virtual_time
async def test_an_abort_that_is_interrupted_ends_everything_and_lets_the_interrupt_pass() -> None:
    async with connected() as it:
        request = it.ask()
        abort = it.transport.abort
        interrupts = [KeyboardInterrupt()]

        def interrupted() -> None:
            if interrupts:
                raise interrupts.pop()
            abort()

        it.transport.abort = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            it.connection.abort(NodeDisconnectedError("enough"))
        with pytest.raises(NodeDisconnectedError, match="enough"):
            await request
        assert [lost for _, lost in it.observer.ended] == [1]


class InterruptedFuture(asyncio.Future[Message | None]):
    """Its first completion is interrupted."""

    is_interrupted = False

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        if not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        super().set_exception(exception)


@virtual_time
async def test_an_interrupt_while_requests_fail_passes_and_all_of_them_fail() -> None:
    async with connected() as it:
        earlier, interrupted = it.ask(), InterruptedFuture()
        frame = encode_request(MetadataRequest(), 9, it.connection.next_correlation_id(), "tests")
        deadline = it.loop.time() + 30
        it.connection.begin(
            InFlightRequest(MetadataRequest, 9, 2, [frame], deadline, future=interrupted)
        )
        later = it.ask()
        with pytest.raises(KeyboardInterrupt):
            it.connection.abort(NodeDisconnectedError("enough"))
        for request in (earlier, interrupted, later):
            with pytest.raises(NodeDisconnectedError, match="enough"):
                await request
        assert [lost for _, lost in it.observer.ended] == [3]
        assert it.connection.in_flight == 0


def test_a_deadline_whose_check_is_interrupted_is_checked_again_within_a_second() -> None:
    async def begin() -> tuple[Fixture, asyncio.Future[Message | None]]:
        it = Fixture(None)
        clock, began = it.loop.time, it.loop.time()
        interrupts = [KeyboardInterrupt()]

        def interrupted() -> float:
            if clock() >= began + 5 and interrupts:
                raise interrupts.pop()
            return clock()

        it.clock = interrupted
        return it, it.ask(timeout_s=5)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        it, request = runner.run(begin())
        began = it.loop.time()
        loop = runner.get_loop()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait({request}))
        loop.run_until_complete(asyncio.wait({request}))
        assert isinstance(request.exception(), NodeDisconnectedError)
        assert it.loop.time() - began <= 6
        loop.run_until_complete(it.connection.wait_closed())
        it.peer.writer.transport.abort()


@virtual_time
async def test_an_interrupt_while_an_answer_is_handled_ends_the_connection_and_passes() -> None:
    async with connected() as it:

        def interrupt(kind: type[Message], version: int, response: Message) -> None:
            raise KeyboardInterrupt

        it.observer.response_received = interrupt  # type: ignore[method-assign]
        requests = [it.ask(), it.ask()]
        frame = encode_response(MetadataResponse(), 9, (await it.peer.request()).correlation_id)
        received = it.transport.get_protocol()
        assert isinstance(received, asyncio.Protocol)
        with pytest.raises(KeyboardInterrupt):
            received.data_received(frame)
        for request in requests:
            with pytest.raises(NodeDisconnectedError, match="interrupted by KeyboardInterrupt"):
                await request


@virtual_time
async def test_an_interrupt_after_an_answer_was_taken_still_ends_its_request() -> None:
    async with connected() as it:
        ends: list[tuple[Message | None, KafkaError | None]] = []

        def on_end(answer: Message | None, error: KafkaError | None) -> None:
            ends.append((answer, error))
            if error is None:
                raise KeyboardInterrupt

        frame = encode_request(MetadataRequest(), 9, it.connection.next_correlation_id(), "tests")
        deadline = it.loop.time() + 30
        it.connection.begin(InFlightRequest(MetadataRequest, 9, 1, [frame], deadline, on_end))
        await it.peer.request()
        received = it.transport.get_protocol()
        assert isinstance(received, asyncio.Protocol)
        with pytest.raises(KeyboardInterrupt):
            received.data_received(encode_response(MetadataResponse(), 9, 1))
        await asyncio.sleep(0)
        assert [type(error) for _, error in ends] == [type(None), NodeDisconnectedError]
        assert [lost for _, lost in it.observer.ended] == [1]


def test_an_interrupt_while_the_reader_handles_an_answer_ends_the_connection_and_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryTransport, "set_protocol", asyncio.Transport.set_protocol)

    async def begin() -> tuple[Fixture, asyncio.Future[Message | None]]:
        it = Fixture(None)

        def interrupt(kind: type[Message], version: int, response: Message) -> None:
            raise KeyboardInterrupt

        it.observer.response_received = interrupt  # type: ignore[method-assign]
        return it, it.ask()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        it, request = runner.run(begin())
        loop = runner.get_loop()
        loop.run_until_complete(it.answer())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait({request}))
        loop.run_until_complete(asyncio.wait({request}))
        assert "interrupted by KeyboardInterrupt" in str(request.exception())
        assert it.transport.is_lost
        it.peer.writer.transport.abort()


@virtual_time
async def test_what_tls_still_holds_leaves_before_a_connection_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def info(transport: MemoryTransport, name: str, default: object = None) -> object:
        return object() if name == "ssl_object" else default

    monkeypatch.setattr(MemoryTransport, "get_extra_info", info)
    monkeypatch.setattr(MemoryTransport, "get_write_buffer_size", lambda transport: 0)
    async with connected() as it:
        it.transport.stall()
        assert await it.tell([b"\0\0\0\x02", b"hi"]) is None
        finished = asyncio.create_task(it.connection.finish())
        await asyncio.sleep(1)
        assert not finished.done()
        it.transport.resume()
        await finished
        assert await it.peer.reader.read() == b"\0\0\0\x02hi"


@virtual_time
async def test_cancelling_a_waiter_does_not_disturb_the_others() -> None:
    async with connected() as it:
        first, second = it.ask(), it.ask()
        first.cancel()
        await it.answer("one")
        await it.answer("two")
        answer = await second
        assert answer.cluster_id == "two"
        assert first.cancelled()


@virtual_time
async def test_cancelling_the_reader_from_outside_ends_the_connection() -> None:
    async with connected() as it:
        request = it.ask()
        (reader,) = [t for t in asyncio.all_tasks() if t.get_name() == "aioproducer-read-1"]
        reader.cancel()
        with pytest.raises(NodeDisconnectedError):
            await request


@virtual_time
async def test_a_defect_while_reading_ends_the_connection_visibly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected() as it:

        def stumble(kind: type[Message], version: int, response: Message) -> None:
            raise ZeroDivisionError

        it.observer.response_received = stumble  # type: ignore[method-assign]
        requests = [it.ask(), it.ask()]
        await it.answer()
        errors = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(error) for error in errors] == [KafkaConnectionError] * 2
        assert "failed unexpectedly" in caplog.text


@virtual_time
async def test_correlation_ids_wrap_around_without_becoming_negative() -> None:
    async with connected() as it:
        it.connection._correlation_id = 2**31 - 2
        ids = [it.connection.next_correlation_id() for _ in range(3)]
        assert ids == [2**31 - 1, 0, 1]


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=10),
)
def test_answers_survive_any_fragmentation(sizes: list[int], cuts: list[int]) -> None:
    @virtual_time
    async def run() -> None:
        async with connected() as it:
            requests = [it.ask() for _ in sizes]
            stream = b"".join(
                encode_response(MetadataResponse(cluster_id="x" * size), 9, number)
                for number, size in enumerate(sizes, start=1)
            )
            position = turn = 0
            while position < len(stream):
                step = cuts[turn % len(cuts)]
                it.peer.raw(stream[position : position + step])
                position += step
                turn += 1
                await asyncio.sleep(0.001)
            answers = [await request for request in requests]
            assert [len(answer.cluster_id) for answer in answers] == sizes

    run()


@given(noise=st.binary(min_size=1, max_size=200))
def test_noise_never_hangs_a_request(noise: bytes) -> None:
    @virtual_time
    async def run() -> None:
        async with connected() as it:
            request = it.ask(timeout_s=3)
            it.peer.raw(struct.pack(">ii", len(noise) + 4, 1) + noise)
            outcome = (await asyncio.gather(request, return_exceptions=True))[0]
            assert isinstance(outcome, MetadataResponse | ProtocolError)

    run()


def begin_recognised(it: Fixture, answer: object) -> list[object]:
    """Send a request, as whose answer any frame is recognised; the list gets what it ends with."""
    ends: list[object] = []
    correlation_id = it.connection.next_correlation_id()
    frame = encode_request(MetadataRequest(), 9, correlation_id, "tests")
    it.connection.begin(
        InFlightRequest(
            MetadataRequest,
            9,
            correlation_id,
            [frame],
            it.loop.time() + 30,
            on_end=lambda response, error: ends.append(error or response),
            recognise=lambda data: answer,
        )
    )
    return ends


@virtual_time
async def test_a_recognised_answer_ends_its_request_undecoded_as_any_other_does() -> None:
    async with connected() as it:
        recognised = object()
        ends = begin_recognised(it, recognised)
        await it.answer()
        await asyncio.sleep(0)
        assert ends == [recognised]
        assert (it.connection.in_flight, it.observer.freed) == (0, 1)


@virtual_time
async def test_the_first_recognised_answer_shows_that_the_broker_answers() -> None:
    async with connected() as it:
        for number in range(3):
            begin_recognised(it, number)
            await it.answer()
            await asyncio.sleep(0)
        assert it.observer.responses == [0]


@virtual_time
async def test_only_the_oldest_request_recognises_its_answer() -> None:
    async with connected() as it:
        first = it.ask()
        ends = begin_recognised(it, "recognised")
        await it.answer("first")
        response = await first
        assert isinstance(response, MetadataResponse)
        assert (response.cluster_id, ends) == ("first", [])
        await it.answer("second")
        await asyncio.sleep(0)
        assert ends == ["recognised"]


@virtual_time
async def test_an_answer_is_recognised_while_another_request_waits() -> None:
    async with connected() as it:
        recognised = object()
        ends = begin_recognised(it, recognised)
        second = it.ask()
        await it.answer("first")
        await asyncio.sleep(0)
        assert ends == [recognised]
        await it.answer("second")
        response = await second
        assert isinstance(response, MetadataResponse)
        assert response.cluster_id == "second"


@virtual_time
async def test_an_answer_that_is_not_recognised_is_decoded() -> None:
    async with connected() as it:
        ends = begin_recognised(it, None)
        await it.answer("c")
        await asyncio.sleep(0)
        assert [end.cluster_id for end in ends if isinstance(end, MetadataResponse)] == ["c"]


@virtual_time
async def test_no_answer_is_recognised_before_its_request_is_written_to_the_end() -> None:
    async with connected() as it:
        it.transport.stall()
        ends = begin_recognised(it, "recognised")
        it.peer.writer.write(encode_response(MetadataResponse(cluster_id="c"), 9, 1))
        await asyncio.sleep(0.1)
        assert ends == []
        it.transport.resume()
        await asyncio.sleep(0.1)
        assert len(ends) == 1


@pytest.mark.parametrize("is_answered", [True, False])
@virtual_time
async def test_a_request_that_the_transport_refuses_ends_with_the_connection(
    monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    async with connected() as it:

        def fail(data: bytes) -> None:
            raise ZeroDivisionError("of the transport")

        earlier = it.ask()
        monkeypatch.setattr(it.transport, "write", fail)
        refused = it.ask() if is_answered else it.tell([b"record"])
        for request in (earlier, refused):
            with pytest.raises(
                NodeDisconnectedError, match="writing failed: of the transport"
            ) as info:
                await request
            assert isinstance(info.value.__cause__, ZeroDivisionError)
        assert [lost for _, lost in it.observer.ended] == [2]
        with pytest.raises(NodeDisconnectedError):
            it.ask()


@virtual_time
async def test_a_request_without_answer_whose_completion_fails_ends_with_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing(asyncio.Future[Message | None]):
        def set_result(self, result: Message | None, /) -> None:
            raise ZeroDivisionError

    monkeypatch.setattr(MemoryTransport, "get_write_buffer_size", lambda transport: 0)
    async with connected() as it:
        request = Failing()
        deadline = it.loop.time() + 30
        it.connection.begin(
            InFlightRequest(ProduceRequest, 9, 1, [b"record"], deadline, future=request),
            expect_response=False,
        )
        with pytest.raises(NodeDisconnectedError):
            await request
