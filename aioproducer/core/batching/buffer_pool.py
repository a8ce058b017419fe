"""Memory of buffered records: accounting, a free list and a FIFO queue.

`BufferPool` accounts for `buffer_memory` and `buffer_max_records`, and keeps buffers of exactly
`batch_size` for reuse. Requests that have to wait for either are served in FIFO order.

Invariants
- available + pooled + granted to waiters + allocated == total, at every step.
- While a request is queued, `try_allocate` returns None: no caller overtakes a waiter.
- A buffer returns here only when no transport can still read it (KAFKA-19012).
- Memory is accounted after its buffer is allocated: a `MemoryError` takes nothing from the pool and
  fails only the request it was for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aioproducer.errors import KafkaError, RecordTooLargeError

NO_CEILING = 2**63 - 1


@dataclass(slots=True, eq=False, repr=False)
class MemoryRequest:
    """A queued request for memory.

    `on_done(request)` is called once, when `buffer` or `error` has been set. `error` is the
    error of `BufferPool.close` or a `MemoryError`.
    """

    size: int
    on_done: Callable[[MemoryRequest], None]
    ceiling: int
    granted: int = 0
    buffer: bytearray | None = None
    error: KafkaError | MemoryError | None = None


class BufferPool:
    """Bounded memory for batches (Java: `BufferPool`).

    Buffers of `poolable` bytes (`batch_size`) are kept for reuse. Every allocation takes `overhead`
    bytes without a buffer: the batch header is built apart. `ceiling` is the total number of
    records that may have been buffered until now; `on_ceiling` is called when it has changed.
    """

    def __init__(
        self, total: int, poolable: int, overhead: int = 0, most_records: int | None = None
    ) -> None:
        self.total = total
        self.ceiling: int = NO_CEILING if most_records is None else most_records
        self.on_ceiling: Callable[[int], None] | None = None
        self.poolable = poolable
        self._overhead = overhead
        self._free: deque[bytearray] = deque()
        self._reclaim_exposed: Callable[[], None] | None = None
        self._available = total
        self._queue: deque[MemoryRequest] = deque()
        self._closed: KafkaError | None = None
        self._is_written_off = False
        self.out_of_memory: MemoryError | None = None
        """Last error of a buffer allocation."""

    @property
    def available(self) -> int:
        """Free bytes, including pooled buffers."""
        if self._is_written_off:
            return self.total
        return self._available + len(self._free) * self.poolable

    @property
    def queued(self) -> int:
        """Number of queued requests."""
        return len(self._queue)

    def try_allocate(self, size: int) -> bytearray | None:
        """Allocate `size` bytes, or return None if the caller has to queue."""
        if size == self.poolable and self._free and not self._queue and self._closed is None:
            return self._pop_free()  # the common case
        self._check(size)
        if self._queue:
            return None
        if self.available < size:
            return None
        self._reclaim(size)
        buffer = self._new_buffer(size)
        self._available -= size
        return buffer

    def expose(self, reclaim: Callable[[], None]) -> bytearray | None:
        """Hand over a buffer of `poolable` bytes that still counts as free; None if there is none.

        Only one buffer is handed over at a time, until it is kept or taken back: the pool calls
        `reclaim` when it needs the buffer, which must not be used afterwards.
        """
        if not self._free or self._reclaim_exposed is not None or self._closed is not None:
            return None
        self._reclaim_exposed = reclaim
        return self._free[0]

    def keep_exposed(self) -> None:
        """Keep the buffer of `expose`, as if `try_allocate` had returned it."""
        if self._reclaim_exposed is not None and self._free:
            self._free.popleft()
        self._reclaim_exposed = None

    def return_exposed(self) -> None:
        """Return the buffer of `expose` unused."""
        self._reclaim_exposed = None

    def enqueue(
        self, size: int, on_done: Callable[[MemoryRequest], None], ceiling: int = 0
    ) -> MemoryRequest:
        """Queue a request for bytes, and for a ceiling on the number of records."""
        self._check(size)
        request = MemoryRequest(size, on_done, ceiling)
        try:
            self._queue.append(request)
            self._serve()
            return request
        except BaseException:
            self.cancel(request)
            raise

    def cancel(self, request: MemoryRequest) -> None:
        """Cancel a request; memory granted to it goes to the following requests."""
        is_queued = request in self._queue  # also with a buffer, if its callback has raised
        if is_queued:
            self._queue.remove(request)
        if request.buffer is not None:
            buffer, request.buffer = request.buffer, None
            self.deallocate(buffer, request.size)
        elif is_queued:
            self._give_back(request)
            self._serve()

    def deallocate(self, buffer: bytearray, size: int) -> None:
        """Return a buffer of `size` bytes from `try_allocate` or a settled request."""
        if size != self.poolable:
            self._available += size
        elif self._queue:
            head = self._queue[0]
            if head.size == size and head.granted == 0:
                # The common case under load: the buffer is reused at once.
                self._complete(head, buffer)
                return
            self._available += size
        else:
            self._free.append(buffer)
            return
        self._serve()

    def return_records(self, count: int) -> None:
        """Raise the ceiling by a number of records that are not buffered any more."""
        if self.ceiling != NO_CEILING:
            self.ceiling += count
            if self.on_ceiling is not None:
                self.on_ceiling(self.ceiling)
            self._serve()

    def close(self, error: KafkaError) -> None:
        """Fail every queued request, and every later one, with `error`."""
        self._closed = error
        while self._queue:
            self._refuse(self._queue[0], error)

    def write_off(self) -> None:
        """Count all memory of a closed pool as free, after an exception broke the accounting."""
        self._is_written_off = True
        self._free.clear()

    def check_open(self) -> None:
        """Raise the error of `close()`, if there was one."""
        if self._closed is not None:
            raise self._closed.with_context()

    def _check(self, size: int) -> None:
        self.check_open()
        self.check_size(size)

    def check_size(self, size: int, topic: str | None = None) -> None:
        """Raise RecordTooLargeError if `size` exceeds the whole pool."""
        if size > self.total:
            other = "lower batch_size" if size == self.poolable else "send a smaller record"
            raise RecordTooLargeError(
                f"a batch for this record takes {size} bytes, more than the whole "
                f"buffer_memory of {self.total} bytes",
                topic=topic,
                advice=f"raise buffer_memory or {other}",
            )

    def _serve(self) -> None:
        while self._queue:
            head = self._queue[0]
            if head.ceiling > self.ceiling:
                return
            missing = head.size - head.granted
            self._reclaim(missing)
            piece = min(missing, self._available)
            self._available -= piece
            head.granted += piece
            if head.granted < head.size:
                return
            try:
                buffer = self._new_buffer(head.size)
            except MemoryError as error:
                self._refuse(head, error)
            else:
                head.granted = 0
                self._complete(head, buffer)

    def _complete(self, head: MemoryRequest, buffer: bytearray) -> None:
        head.buffer = buffer
        head.on_done(head)
        self._queue.popleft()

    def _refuse(self, head: MemoryRequest, error: KafkaError | MemoryError) -> None:
        self._give_back(head)
        head.error = error
        head.on_done(head)
        self._queue.popleft()

    def _give_back(self, request: MemoryRequest) -> None:
        self._available += request.granted
        request.granted = 0

    def _reclaim(self, size: int) -> None:
        while self._free and self._available < size:
            self._pop_free()
            self._available += self.poolable

    def _pop_free(self) -> bytearray:
        if self._reclaim_exposed is not None and len(self._free) == 1:
            self._reclaim_exposed()
            self._reclaim_exposed = None
        return self._free.pop()

    def _new_buffer(self, size: int) -> bytearray:
        try:
            return bytearray(max(size - self._overhead, 0))
        except MemoryError as error:
            self.out_of_memory = error
            raise
