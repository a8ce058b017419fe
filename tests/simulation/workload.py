"""The tasks of users in a run: they send, wait, cancel, drop deliveries and flush.

Owns: the tasks, and the books they keep. Not here: faults, the cluster, what is right.

    one by one      send, await the delivery, next
    together        send some, gather the deliveries, sometimes giving up waiting
    dropping        send some, every second one by `send_nowait`, throw the deliveries away
    called back     send some, use nothing but callbacks
    in bulk         send_many
    hesitating      cancel `send` itself, at any await
    regretting      send some, then purge everything

A burst goes anywhere, or all of it to one partition, where several requests are under way then.
With a parade of topics, "anywhere" is one of the few whose turn it is.

Invariant: what a task wants to send depends on its own source of chance alone, never on how the
cluster behaves.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from aioproducer import Producer
from aioproducer.errors import (
    BufferExhaustedError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordsFailedError,
)
from aioproducer.runtime.bulk.result import Item, SendManyResult
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.world.faults import Shape
from aioproducer.testing.world.trace import Trace
from aioproducer.types import Record
from simulation.ledger import CallState, Entry, Ledger

Style = Callable[[list[Entry], random.Random], Coroutine[Any, Any, None]]
"""Sends the drafted records."""

_KEYS = 12
_SIZES = (0, 10, 100, 100, 400, 1000, 2000)
_FOCUSED = 0.35
_GIVEN_UP_EACH = 7
_ABREAST = 12
"""How many topics of a parade are used at a time."""
_LARGE_EACH, _LARGE_BYTES = 5, 5000
"""So many records are followed by a large one, where some are."""
LARGEST_BURST = 30
"""Records that a task sends in one go, at most."""
_caller = ContextVar("_caller", default=b"")
"""The record to which a task has added a callback last."""


def as_tuples(items: list[Record]) -> list[Item]:
    """Return the items of a bulk call in the form that native code writes, where it can."""
    return [
        (each.key, each.value, each.headers, each.timestamp_ms, each.partition)
        if each.topic == items[0].topic
        else each
        for each in items
    ]


def _state_of(delivery: Delivery) -> type[BaseException] | None:
    """Return the kind of exception that a delivery raises in place of its outcome."""
    try:
        delivery.exception()
    except (asyncio.CancelledError, asyncio.InvalidStateError) as error:
        return type(error)
    return None


class Workload:
    """The tasks of one run.

    Attributes:
        transaction: The number of the transaction that is open, if any.
    """

    def __init__(
        self,
        producer: Producer,
        shape: Shape,
        ledger: Ledger,
        trace: Trace,
        wall_ms: Callable[[], int],
        *,
        purges: bool,
        parade: Sequence[str] = (),
        clock: Callable[[float], float] = lambda active_s: active_s,
        large_records: bool = False,
    ) -> None:
        self.transaction: int | None = None
        self._sent: list[Entry] = []
        self._failures_raised = 0
        self._calls: dict[Entry, bool] = {}
        """Those of `send`, the oldest first, and whether they need not wait for metadata."""
        self._producer = producer
        self._purges = purges
        self._parade = parade
        self._shape = shape
        self._ledger = ledger
        self._trace = trace
        self._wall_ms = wall_ms
        self._clock = clock
        self._large_records = large_records
        self._loop = asyncio.get_running_loop()

    async def run(self, task: int, rng: random.Random, records: int, until: float) -> None:
        """Sends about so many records in bursts spread over that time of activity."""
        try:
            await self._bursts(task, rng, records, until)
        except KafkaError as error:
            if ProducerClosedError in {type(error), type(error.__cause__)}:
                self._trace(f"task {task} finds the producer closed")
            else:
                self._ledger.surprises.append(f"task {task}: {error!r}")
        except Exception as error:
            self._ledger.undocumented.append(f"task {task}: a call raises {error!r}")

    async def _bursts(self, task: int, rng: random.Random, records: int, until: float) -> None:
        pace = until / records
        number = 0
        while number < records:
            size = min(rng.choice((1, 2, 5, 12, LARGEST_BURST)), records - number)
            await self.burst(task, rng, number, size, number / records)
            number += size
            # Waiting for the cluster may have taken longer: then without a pause.
            pause = self._clock(number * pace * rng.uniform(0.9, 1.1)) - self._loop.time()
            await asyncio.sleep(max(0.0, pause))

    async def burst(
        self, task: int, rng: random.Random, first: int, size: int, progress: float = 0.0
    ) -> None:
        """Sends so many records in one of the styles, and maybe flushes then.

        Args:
            task: The number of the sending task.
            rng: Its source of chance.
            first: The number of the first record.
            size: How many.
            progress: Which share of its records the task has sent.
        """
        focus = self._some_partition(rng, progress) if rng.random() < _FOCUSED else None
        draft = [self._draft(task, rng, first + i, focus, progress) for i in range(size)]
        style = rng.choice(self._styles())
        await style(draft, rng)
        if rng.random() < 0.15:
            await self._flush(rng.choice((None, 0.1, 2.0)))

    async def at_once(self, task: int, rng: random.Random, size: int) -> None:
        """Sends so many records without waiting for one before the other; each has its own task."""
        draft = [self._draft(task, rng, number, None) for number in range(size)]
        for entry in draft:
            entry.task = -1  # these have no order
        await asyncio.gather(*[self.send(entry) for entry in draft], return_exceptions=True)

    def _styles(self) -> list[Style]:
        return [
            self._one_by_one,
            self._together,
            self._dropping,
            self._called_back,
            self._in_bulk,
            self._hesitating,
            *((self._regretting,) if self._purges else ()),
        ]

    # -- styles -----------------------------------------------------------------------------------

    async def _one_by_one(self, draft: list[Entry], rng: random.Random) -> None:
        in_one_call = rng.random() < 0.5
        for entry in draft:
            if in_one_call:
                await self.send_and_wait(entry)
            elif await self.send(entry):
                await self.watch(entry)

    async def _together(self, draft: list[Entry], rng: random.Random) -> None:
        accepted = [entry for entry in draft if await self.send(entry)]
        waits = [asyncio.ensure_future(self.watch(entry)) for entry in accepted]
        if rng.random() < 0.4:
            # Giving up waits for some touches neither the records nor the other waits.
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.5)))
            for wait in waits[:: rng.randint(1, 3)]:
                wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _dropping(self, draft: list[Entry], rng: random.Random) -> None:
        for number, entry in enumerate(draft):
            accepted = number % 2 == 0 and self.send_nowait(entry)
            if accepted or await self.send(entry):
                entry.delivery = None
                self._ledger.dropped.append(entry)

    async def _called_back(self, draft: list[Entry], rng: random.Random) -> None:
        for number, entry in enumerate(draft):
            if await self.send(entry):
                if number % _GIVEN_UP_EACH == 0:
                    await self._give_up(entry)
                self._count_notices(entry)

    async def _give_up(self, entry: Entry) -> None:
        """Ends the waits for a record, as a timeout around `gather` does; others may follow."""
        delivery, calls = entry.delivery, list[object]()
        if delivery is None:
            return
        is_own = isinstance(delivery, Delivery)  # questions to a handle would wait

        def on_cancelled(_: object) -> None:
            calls.append(
                (_caller.get(), delivery.cancelled(), _state_of(delivery)) if is_own else 0
            )

        _caller.set(entry.name)
        delivery.add_done_callback(on_cancelled)
        _caller.set(b"")
        if (
            is_own
            and not delivery.done()
            and (delivery.cancelled() or _state_of(delivery) is not asyncio.InvalidStateError)
        ):
            self._ledger.false_reports.append(f"{entry.label}: is cancelled before cancel()")
        expected: list[object] = [(entry.name, False, None)]  # it has its outcome by then
        if delivery.cancel():
            expected.append((entry.name, True, asyncio.CancelledError))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if len(calls) != 1 or (is_own and calls[0] not in expected):
            self._ledger.false_reports.append(f"{entry.label}: cancel() made the calls {calls}")
        if delivery.done() and delivery.cancelled():
            self._ledger.false_reports.append(f"{entry.label}: no caller can wait for it any more")

    async def _in_bulk(self, draft: list[Entry], rng: random.Random) -> None:
        topic = draft[0].topic
        items = [
            Record(
                each.value, each.key, each.headers, each.timestamp_ms, each.partition, each.topic
            )
            for each in draft
        ]
        call = self._producer.send_many(topic, self._source_of(items))
        await self.call_in_bulk(draft, call, "send_many")

    def _source_of(self, items: list[Record]) -> Iterable[Item] | AsyncIterable[Item]:
        return items

    async def call_in_bulk(
        self, draft: list[Entry], call: Awaitable[SendManyResult], what: str
    ) -> None:
        """Awaits a call that sends these records, and compares its result with their number."""
        self._ledger.entries += draft
        now = self._loop.time()
        for entry in draft:
            entry.asked_at = now
            entry.call = draft
            entry.task = -1  # in bulk and alone are not ordered among each other
            entry.transaction = self.transaction
        try:
            result = await call
        except (KafkaError, asyncio.CancelledError):
            for entry in draft:
                entry.state, entry.settled_at = CallState.UNKNOWN, self._loop.time()
            raise
        failed = {failure.index: failure.error for failure in result.failed}
        if list(failed) != sorted(failed):
            self._ledger.false_reports.append(f"{what} has failed rows in the order {[*failed]}")
        for index, entry in enumerate(draft):
            error = failed.get(index)
            entry.settled_at = entry.done_at = self._loop.time()
            entry.error, entry.delivered_in_bulk = error, error is None
            refused = error is not None and error.persistence is None
            entry.state = CallState.REFUSED if refused else CallState.ACCEPTED
        self._ledger.offsets.append((draft, result.offsets))
        if result.count != len(draft) or result.delivered + len(failed) != len(draft):
            self._ledger.false_reports.append(f"{what} of {len(draft)} says {result!r}")
        waited = {
            number
            for number, error in failed.items()
            if isinstance(error, BufferExhaustedError | MetadataTimeoutError)
        }
        if waited & {number + 1 for number in waited}:
            self._ledger.late_ends.append(f"rows of {what} wait after each other: {waited}")

    async def _hesitating(self, draft: list[Entry], rng: random.Random) -> None:
        for entry in draft:
            entry.asked_at = self._loop.time()
            sending = asyncio.ensure_future(self.send(entry))
            # The outcome is read even if this process is killed before it can read it.
            sending.add_done_callback(lambda done: done.cancelled() or done.exception())
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice((0.001, 0.1, 1.0)))
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled() and sending.result():
                self._count_notices(entry)

    async def _regretting(self, draft: list[Entry], rng: random.Random) -> None:
        for entry in draft:
            if await self.send(entry):
                self._count_notices(entry)
        await asyncio.sleep(rng.choice((0.0, 0.001, 0.05, 0.3)))
        stats = self._producer._usable().stats
        before = stats.records_failed
        gone = self._producer.purge(queued=rng.random() < 0.5, in_flight=rng.random() < 0.7)
        self._trace(f"purge gives up {gone}")
        if stats.records_failed != before + gone:
            failed = stats.records_failed - before
            self._ledger.false_reports.append(f"purge() returned {gone}, {failed} failed")

    # -- steps ------------------------------------------------------------------------------------

    def _some_partition(self, rng: random.Random, progress: float) -> tuple[str, int | None]:
        if self._parade:
            first = round(progress * (len(self._parade) - _ABREAST))
            return rng.choice(self._parade[first : first + _ABREAST]), 0
        topic = rng.choice(sorted(self._shape.topics))
        return topic, rng.randrange(self._shape.topics[topic])

    def _draft(
        self,
        task: int,
        rng: random.Random,
        number: int,
        focus: tuple[str, int | None] | None,
        progress: float = 0.0,
    ) -> Entry:
        topic, partition = focus or self._some_partition(rng, progress)
        if focus is None and rng.random() < 0.7:
            partition = None
        name = b"<%d/%d>" % (task, number)
        key = b"k%d" % rng.randrange(_KEYS) if rng.random() < 0.6 else None
        content = name + rng.randbytes(rng.choice(_SIZES))
        if self._large_records and number % _LARGE_EACH == 0:
            content = content.ljust(_LARGE_BYTES, b".")
        value: bytes | None = content
        if rng.random() < 0.05:
            key, value = name, None
        headers = (("h", name), ("null", None)) if rng.random() < 0.2 else ()
        stamped = self._wall_ms() - rng.randrange(1000) if rng.random() < 0.3 else None
        return Entry(name, task, topic, partition, key, value, headers, stamped, self._loop.time())

    async def send(self, entry: Entry) -> bool:
        """Sends one record; whether it was accepted."""
        entry.transaction = self.transaction
        self._ledger.entries.append(entry)
        entry.asked_at = self._loop.time()
        self._calls[entry] = self._has_metadata(entry)
        partitions = self._partitions_of(entry)
        try:
            entry.delivery = await self._producer.send(**entry.arguments)
        except asyncio.CancelledError:
            entry.state = CallState.CANCELLED
            raise
        except KafkaError as error:
            entry.state, entry.error = CallState.REFUSED, error
            self._trace(f"send {entry.label} raises {type(error).__name__}")
            if isinstance(error, ProducerClosedError):
                raise
            return False
        except Exception as error:
            self._note_undocumented(entry, error)
            return False
        else:
            self._note_overtaken(entry)
        finally:
            del self._calls[entry]
            entry.settled_at = self._loop.time()
            if partitions:
                entry.partitions = range(partitions, self._partitions_of(entry) + 1)
        entry.state = CallState.ACCEPTED
        self._sent.append(entry)
        return True

    def _note_overtaken(self, entry: Entry) -> None:
        """Calls for one topic are served in their order, but for those that wait for metadata.

        While no call waits for memory, an earlier one only lets other tasks run.
        """
        engine = self._producer._engine
        if engine is None or not engine.appender.waiting:
            return
        for earlier, has_metadata in self._calls.items():
            if earlier is entry:
                break
            if has_metadata and earlier.topic == entry.topic:
                self._ledger.overtakings.append((entry, earlier))

    def _has_metadata(self, entry: Entry) -> bool:
        """Return whether the metadata have the topic and the partition of a record."""
        return (entry.partition or 0) < self._partitions_of(entry)

    def _partitions_of(self, entry: Entry) -> int:
        """Return how many partitions a record's topic has by the metadata; 0 without any."""
        engine = self._producer._engine
        topic = None if engine is None else engine.metadata.topic(entry.topic)
        return 0 if topic is None else len(topic.partitions)

    def send_nowait(self, entry: Entry) -> bool:
        """Sends one record unless `send` would have to wait; whether it was accepted."""
        try:
            entry.delivery = self._producer.send_nowait(**entry.arguments)
        except KafkaError as error:
            # The caller uses `send` instead, which waits, or refuses the record as well.
            self._trace(f"send_nowait {entry.label} raises {type(error).__name__}")
            return False
        self._note_overtaken(entry)
        entry.transaction, entry.state = self.transaction, CallState.ACCEPTED
        entry.asked_at = entry.settled_at = self._loop.time()
        self._ledger.entries.append(entry)
        self._sent.append(entry)
        return True

    async def send_and_wait(self, entry: Entry) -> None:
        """Sends one record and waits for its outcome in one call."""
        entry.transaction, entry.in_one_call = self.transaction, True
        self._ledger.entries.append(entry)
        entry.asked_at = self._loop.time()
        try:
            entry.metadata = await self._producer.send_and_wait(**entry.arguments)
        except asyncio.CancelledError:
            entry.state, entry.settled_at = CallState.UNKNOWN, entry.asked_at
            raise
        except KafkaError as error:
            entry.error = error.with_traceback(None)  # whose frames would keep the batch alive
            self._trace(f"send_and_wait {entry.label} raises {type(error).__name__}")
            if isinstance(error, ProducerClosedError):
                entry.state, entry.settled_at = CallState.UNKNOWN, entry.asked_at
                raise
        except Exception as error:
            entry.settled_at = self._loop.time()
            self._note_undocumented(entry, error)
            return
        if entry.error is not None and entry.error.persistence is None:
            entry.state, entry.settled_at = CallState.REFUSED, self._loop.time()
        else:
            entry.state = CallState.ACCEPTED
            entry.settled_at, entry.done_at = entry.asked_at, self._loop.time()

    def _note_undocumented(self, entry: Entry, error: Exception) -> None:
        entry.state = CallState.UNKNOWN
        self._ledger.undocumented.append(f"{entry.label}: send() raises {error!r}")

    async def watch(self, entry: Entry) -> None:
        """Awaits a delivery."""
        delivery = entry.delivery
        if delivery is None:
            return
        comes_late = delivery.done()
        try:
            where = await delivery
        except KafkaError as error:
            self._trace(f"{entry.label} fails: {type(error).__name__}")
        else:
            self._trace(f"{entry.label} is at {where.partition}@{where.offset}")
        if not comes_late:
            entry.done_at = self._loop.time()

    def _count_notices(self, entry: Entry) -> None:
        waited_for: Any = entry.delivery
        if waited_for is None:
            return
        comes_late = waited_for.done()
        entry.notices = 0
        _caller.set(entry.name)

        def notice(delivery: object) -> None:
            if isinstance(delivery, Delivery) and _caller.get() != entry.name:
                self._ledger.false_reports.append(f"{entry.label}: called back in another context")
            if not waited_for.done():
                self._ledger.false_reports.append(f"{entry.label}: called back before its outcome")
            entry.notices = (entry.notices or 0) + 1
            if not comes_late:
                entry.done_at = self._loop.time()

        def removed(delivery: Delivery) -> None:
            self._ledger.false_reports.append(f"{entry.label}: a removed callback is called")

        waited_for.add_done_callback(notice)
        if isinstance(waited_for, Delivery) and not comes_late:
            # As `asyncio.wait` with a timeout in another task.
            waited_for.add_done_callback(removed)
            waited_for.remove_done_callback(removed)

    async def _flush(self, timeout: float | None) -> None:
        before = [entry.delivery for entry in self._sent if entry.delivery is not None]
        if timeout is None:
            left = await self._flush_for_failures()
        else:
            left = await self._producer.flush(timeout)
        self._trace(f"flush({timeout}) leaves {left}")
        pending = [each for each in before if not each.done()]
        # Parts of a split batch end one by one, and the deliveries of all with the last of them.
        places = [each.batch_and_index() for each in pending]
        without_outcome = sum(batch.outcome_of(index) is None for batch, index in places)
        if without_outcome > left or (pending and not left):
            text = f"flush() returned {left}, {without_outcome} of {len(pending)} are open"
            self._ledger.false_reports.append(text)

    async def _flush_for_failures(self) -> int:
        """Flush without a bound, and compare the failures that it reports with those there were."""
        raised, reported = self._failures_raised, 0
        stats = self._producer._usable().stats
        try:
            left = await self._producer.flush(raise_failures=True)
        except RecordsFailedError as error:
            left, reported = 0, error.count
            self._failures_raised = stats.records_failed
        if reported != stats.records_failed - raised:
            failed = stats.records_failed - raised
            self._ledger.false_reports.append(f"flush() reports {reported} failures of {failed}")
        return left
