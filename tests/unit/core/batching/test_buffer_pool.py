"""BufferPool: the budget is exact, the queue is strict."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioproducer.core.batching.buffer_pool import BufferPool, MemoryRequest
from aioproducer.errors import ProducerClosedError, RecordTooLargeError


class Settled:
    """Remembers the order in which requests were settled."""

    def __init__(self) -> None:
        self.order: list[MemoryRequest] = []

    def __call__(self, request: MemoryRequest) -> None:
        self.order.append(request)


def test_a_returned_buffer_of_batch_size_is_used_again() -> None:
    pool = BufferPool(total=64, poolable=16)
    buffer = pool.try_allocate(16)
    assert buffer is not None
    pool.deallocate(buffer, 16)
    assert pool.try_allocate(16) is buffer


def test_overhead_is_accounted_but_not_part_of_the_buffer() -> None:
    pool = BufferPool(total=64, poolable=16, overhead=6)
    buffer = pool.try_allocate(16)
    assert buffer is not None
    assert len(buffer) == 10
    assert pool.available == 48


def test_pooled_buffers_are_pieced_together_for_an_oversize_one() -> None:
    pool = BufferPool(total=64, poolable=16)
    for buffer in [pool.try_allocate(16) for _ in range(4)]:
        assert buffer is not None
        pool.deallocate(buffer, 16)
    oversize = pool.try_allocate(64)
    assert oversize is not None
    assert len(oversize) == 64
    assert pool.available == 0


def test_more_than_the_whole_pool_is_refused_at_once() -> None:
    pool = BufferPool(total=64, poolable=16)
    with pytest.raises(RecordTooLargeError, match="65 bytes"):
        pool.try_allocate(65)
    with pytest.raises(RecordTooLargeError):
        pool.enqueue(65, Settled())


@pytest.mark.parametrize(
    ("size", "advice"), [(80, "lower batch_size"), (81, "send a smaller record")]
)
def test_a_refusal_says_whether_the_record_or_the_batch_is_too_large(
    size: int, advice: str
) -> None:
    with pytest.raises(RecordTooLargeError, match=f"raise buffer_memory or {advice}"):
        BufferPool(total=64, poolable=80).try_allocate(size)


def test_no_request_overtakes_a_waiter_even_when_memory_is_free() -> None:
    pool = BufferPool(total=64, poolable=16)
    held = pool.try_allocate(48)
    assert held is not None
    settled = Settled()
    waiter = pool.enqueue(32, settled)
    assert waiter.granted == 16
    assert pool.try_allocate(1) is None
    pool.deallocate(held, 48)
    assert settled.order == [waiter]
    assert waiter.buffer is not None
    assert pool.try_allocate(16) is not None


def test_waiters_are_served_in_the_order_they_came() -> None:
    pool = BufferPool(total=48, poolable=16)
    held = [pool.try_allocate(16) for _ in range(3)]
    settled = Settled()
    waiters = [pool.enqueue(size, settled) for size in (32, 16, 16)]
    for buffer in held:
        assert buffer is not None
        pool.deallocate(buffer, 16)
    assert settled.order == waiters[:2]


def test_a_buffer_passes_directly_to_the_first_waiter() -> None:
    pool = BufferPool(total=16, poolable=16)
    buffer = pool.try_allocate(16)
    assert buffer is not None
    waiter = pool.enqueue(16, Settled())
    pool.deallocate(buffer, 16)
    assert waiter.buffer is buffer


def test_a_cancelled_waiter_passes_its_pieces_on() -> None:
    pool = BufferPool(total=64, poolable=16)
    held = pool.try_allocate(48)
    settled = Settled()
    greedy = pool.enqueue(64, settled)
    modest = pool.enqueue(16, settled)
    pool.cancel(greedy)
    assert settled.order == [modest]
    assert held is not None
    pool.deallocate(held, 48)
    assert pool.available == 48


def test_a_waiter_cancelled_after_it_was_served_gives_the_buffer_back() -> None:
    pool = BufferPool(total=16, poolable=16)
    held = pool.try_allocate(16)
    assert held is not None
    settled = Settled()
    served, following = pool.enqueue(16, settled), pool.enqueue(16, settled)
    pool.deallocate(held, 16)
    pool.cancel(served)
    assert settled.order == [served, following]
    assert following.buffer is held


def test_close_fails_waiters_and_everyone_after() -> None:
    pool = BufferPool(total=16, poolable=16)
    held = pool.try_allocate(16)
    assert held is not None
    settled = Settled()
    waiter = pool.enqueue(16, settled)
    pool.close(ProducerClosedError("closing"))
    assert isinstance(waiter.error, ProducerClosedError)
    with pytest.raises(ProducerClosedError):
        pool.try_allocate(1)
    pool.deallocate(held, 16)
    assert pool.available == 16


IMPOSSIBLE = 2**60
"""Bytes that no process has."""


def test_a_buffer_that_cannot_be_made_takes_nothing_from_the_pool() -> None:
    pool = BufferPool(total=2 * IMPOSSIBLE, poolable=16)
    assert pool.out_of_memory is None
    with pytest.raises(MemoryError) as caught:
        pool.try_allocate(IMPOSSIBLE)
    assert pool.out_of_memory is caught.value
    assert pool.available == pool.total


def test_a_request_whose_callback_raises_at_once_gives_its_buffer_back() -> None:
    pool = BufferPool(total=64, poolable=16)

    def interrupted(request: MemoryRequest) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.enqueue(32, interrupted)
    assert (pool.available, pool.queued) == (64, 0)


def test_a_waiter_whose_buffer_cannot_be_made_fails_and_passes_its_pieces_on() -> None:
    pool = BufferPool(total=IMPOSSIBLE, poolable=16)
    settled = Settled()
    held = pool.try_allocate(16)
    assert held is not None
    waiters = [pool.enqueue(IMPOSSIBLE, settled), pool.enqueue(32, settled)]
    pool.deallocate(held, 16)
    assert settled.order == waiters
    assert isinstance(waiters[0].error, MemoryError)
    assert waiters[0].granted == 0
    assert waiters[1].buffer is not None
    assert (pool.queued, pool.available) == (0, IMPOSSIBLE - 32)


class PoolMachine(RuleBasedStateMachine):
    """Any sequence of calls keeps the sum of all bytes and the order of the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(total=100, poolable=16)
        self.held: list[tuple[bytearray, int]] = []
        self.waiting: list[MemoryRequest] = []

    def _settled(self, request: MemoryRequest) -> None:
        # During `enqueue` the request is not in the list yet, and no other is before it.
        if self.waiting:
            assert self.waiting[0] is request
            self.waiting.pop(0)

    @rule(size=st.integers(1, 100))
    def allocate(self, size: int) -> None:
        free = self.pool.available
        buffer = self.pool.try_allocate(size)
        assert (buffer is not None) == (not self.waiting and free >= size)
        if buffer is not None:
            assert len(buffer) == size
            self.held.append((buffer, size))
            return
        request = self.pool.enqueue(size, self._take)
        if request.buffer is None:
            self.waiting.append(request)

    def _take(self, request: MemoryRequest) -> None:
        self._settled(request)
        assert request.buffer is not None
        self.held.append((request.buffer, request.size))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def deallocate(self, data: st.DataObject) -> None:
        buffer, size = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.deallocate(buffer, size)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.pool.cancel(request)

    @invariant()
    def every_byte_is_somewhere(self) -> None:
        held = sum(size for _, size in self.held)
        granted = sum(request.granted for request in self.waiting)
        assert self.pool.available + held + granted == 100
        assert self.pool.queued == len(self.waiting)

    @invariant()
    def only_the_first_in_line_has_pieces(self) -> None:
        assert all(request.granted == 0 for request in self.waiting[1:])


TestPoolMachine = PoolMachine.TestCase


def test_a_ceiling_is_waited_for_like_memory() -> None:
    pool, served = BufferPool(100, 10, most_records=5), []
    reported: list[int] = []
    pool.on_ceiling = reported.append
    for name, size, ceiling in (("place", 0, 8), ("bytes", 10, 0)):
        pool.enqueue(size, lambda _, name=name: served.append(name), ceiling)
    pool.return_records(2)
    assert (pool.ceiling, served) == (7, [])  # memory is free, but no request overtakes
    pool.return_records(1)
    assert served == ["place", "bytes"]
    assert reported == [7, 8]
    assert pool.available == 90


def test_a_waiter_for_a_ceiling_may_leave_or_get_the_end() -> None:
    pool, settled = BufferPool(100, 10, most_records=1), []
    gone = pool.enqueue(0, settled.append, 2)
    left = pool.enqueue(0, settled.append, 2)
    pool.cancel(gone)
    pool.close(ProducerClosedError("over"))
    assert settled == [left]
    assert isinstance(left.error, ProducerClosedError)
    assert pool.available == 100


def lending_pool(total: int) -> tuple[BufferPool, bytearray, list[str]]:
    pool = BufferPool(total=total, poolable=16)
    buffer = pool.try_allocate(16)
    assert buffer is not None
    pool.deallocate(buffer, 16)
    taken_back: list[str] = []
    exposed = pool.expose(lambda: taken_back.append("taken back"))
    assert exposed is buffer
    return pool, exposed, taken_back


def test_a_spare_buffer_counts_as_free_until_it_is_kept() -> None:
    pool, exposed, taken_back = lending_pool(64)
    assert pool.available == 64
    assert pool.expose(lambda: None) is None  # one at a time
    pool.keep_exposed()
    assert pool.available == 48
    assert pool.try_allocate(16) is not exposed
    pool.deallocate(exposed, 16)
    assert not taken_back


@pytest.mark.parametrize("size", [16, 64])
def test_a_spare_buffer_is_taken_back_when_nothing_else_is_free(size: int) -> None:
    pool, _, taken_back = lending_pool(64)
    other = pool.try_allocate(48)
    assert other is not None
    assert not taken_back
    pool.deallocate(other, 48)
    assert pool.try_allocate(size) is not None
    assert taken_back == ["taken back"]
    assert pool.available == 64 - size
    pool.keep_exposed()  # too late
    assert pool.available == 64 - size


def test_a_spare_buffer_is_the_last_free_one_to_be_used() -> None:
    pool = BufferPool(total=64, poolable=16)
    for buffer in [pool.try_allocate(16), pool.try_allocate(16)]:
        assert buffer is not None
        pool.deallocate(buffer, 16)
    exposed = pool.expose(lambda: pytest.fail("there is another one"))
    assert exposed is not None
    assert pool.try_allocate(16) is not exposed
    pool.return_exposed()
    assert pool.try_allocate(16) is exposed
