"""Raise an exception at lines of the producer's code, one per run, and check what is left.

    python tests/simulation/interrupts.py [--sample N] [--seed S] [--scenario NAME]
        [--point FILE:LINE:HIT]

A signal handler may raise at any line: KeyboardInterrupt, SystemExit, or any other exception;
so may a lack of memory. Each scenario runs once, with all lines of `core`, `runtime` and `net`
counted, and then again and again, each time with an exception raised at one of these lines. After
run every delivery and every call has to be over, memory has to be back, and the results that the
application received have to agree with the log.

Needs the pure-Python implementation, which has lines: AIOPRODUCER_IMPL=pure (set if it is not).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

os.environ["AIOPRODUCER_IMPL"] = "pure"
sys.path.insert(0, str(Path(__file__).parents[1]))

from support.stage import Stage
from support.transactional_acts import is_commit

import aioproducer
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    KafkaError,
    NotEnoughReplicasError,
    RecordTooLargeError,
)
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.world.loop import StuckError, VirtualLoop
from aioproducer.types import Persistence, TopicPartition
from aioproducer.wire.api_keys import ApiKey

PACKAGE = Path(aioproducer.__file__).parent
WATCHED = tuple(str(PACKAGE / name) + os.sep for name in ("core", "runtime", "net"))

LONGEST_S = 200.0
"""Virtual seconds after which a call counts as hanging: more than any timeout of the scenarios."""


class Signal(Exception):  # noqa: N818 - what an application's signal handler raises
    """An exception of an application's signal handler."""


KINDS: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit, MemoryError, Signal)
LEAVES_THE_LOOP = (KeyboardInterrupt, SystemExit)


class Point(NamedTuple):
    """The place at which an exception is raised: before a line is run for the `hit`th time."""

    file: str
    line: int
    hit: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.hit}"


class Lines:
    """Counts the lines that run in the watched packages, and raises at one of them.

    Attributes:
        hits: how often each line was run.
        raised: the exception, once it is raised.
    """

    def __init__(self, point: Point | None = None, kind: type[BaseException] = Signal) -> None:
        self.hits: Counter[tuple[str, int]] = Counter()
        self.raised: BaseException | None = None
        self._point = point
        self._kind = kind
        self._where = None if point is None else (point.file, point.line)
        self._names: dict[str, str | None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watches while the block runs."""
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._names:
            short = name.removeprefix(str(PACKAGE.parent) + os.sep)
            self._names[name] = short if name.startswith(WATCHED) else None
        # Not in what is run when something is collected: Python itself drops what is raised there.
        if self._names[name] is None or frame.f_code.co_name == "__del__" or self.raised:
            return None
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event != "line":
            return self._on_line
        where = (self._names[frame.f_code.co_filename] or "", frame.f_lineno)
        self.hits[where] += 1
        point = self._point
        if point is not None and where == self._where and self.hits[where] == point.hit:
            self.raised = self._kind("raised by the harness")
            raise self.raised
        return self._on_line


# -- what is played ------------------------------------------------------------------------------


@dataclass
class Play:
    """One run of a scenario, and the results that the application received."""

    stage: Stage
    deliveries: list[tuple[bytes, Delivery]] = field(default_factory=list)
    refused: list[tuple[bytes, KafkaError]] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    reported: dict[str, str] = field(default_factory=dict)
    """Transaction -> "committed", "not committed", "aborted" or "unknown"."""
    false_results: list[str] = field(default_factory=list)
    waiting_for: str = "start"

    async def send(self, value: bytes, topic: str = "t", partition: int | None = None) -> None:
        """Sends a record, and remembers its delivery, or that it was refused."""
        self.waiting_for = f"send({value!r})"
        try:
            delivery = await self.stage.producer.send(topic, value, partition=partition)
        except KafkaError as error:
            self.refused.append((value, error))
            raise
        self.deliveries.append((value, delivery))

    async def together(self, *works: Coroutine[Any, Any, object]) -> None:
        """Runs tasks, all to their end; raises the first error."""
        tasks = [asyncio.ensure_future(work) for work in works]
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.raised.append(error)

    async def all_ended(self) -> None:
        """Waits for the outcomes of all deliveries."""
        for value, delivery in self.deliveries:
            self.waiting_for = f"the delivery of {value!r}"
            with suppress(KafkaError):
                await delivery


Scenario = Callable[[Play], Awaitable[None]]


async def batches(play: Play) -> None:
    """Records in two partitions, that linger; a flush; errors that are retried; a split."""
    for number in range(6):
        await play.send(b"a%d" % number, "p", number % 2)
    play.waiting_for = "flush()"
    await play.stage.producer.flush()
    play.stage.faults.error(ApiKey.PRODUCE, NotEnoughReplicasError, topic="p", partition=0)
    play.stage.faults.error(ApiKey.PRODUCE, RecordTooLargeError, topic="p", partition=1)
    for number in range(6):
        await play.send(b"b%d" % number, "p", number % 2)
    await play.all_ended()


async def broker_fails(play: Play) -> None:
    """Answers are lost with their connections; the broker is away for a while."""
    await play.send(b"a0", "p", 0)
    await play.all_ended()
    play.stage.faults.drop(ApiKey.PRODUCE, apply=True)
    await play.together(play.send(b"b0", "p", 0), play.send(b"b1", "p", 1))
    await play.all_ended()
    play.stage.crash()
    await play.together(play.send(b"c0", "p", 0), play.send(b"c1", "p", 1))
    await asyncio.sleep(0.3)
    play.stage.revive()
    await play.all_ended()


async def one_by_one(play: Play) -> None:
    """Each record is alone: it is written in the turn of its `send()`."""
    for number in range(4):
        await play.send(b"a%d" % number)
        await play.all_ended()
    await play.together(play.send(b"b0"), play.send(b"b1"))
    await asyncio.sleep(0.01)
    for number in range(2):
        await play.send(b"c%d" % number)
    play.stage.crash()
    play.stage.revive()
    await play.send(b"d0")
    await play.all_ended()


async def memory_is_full(play: Play) -> None:
    """More records than memory: calls wait for it, one of them is cancelled."""
    works = [play.send(b"%d" % n + bytes(90), "p", n % 2) for n in range(9)]
    await play.together(*works)
    victim = asyncio.ensure_future(play.send(b"x" + bytes(90), "p", 0))
    await asyncio.sleep(0)
    victim.cancel()
    await asyncio.wait([victim])
    result = await play.stage.producer.send_many("p", [bytes([n]) * 50 for n in range(65, 75)])
    if result.delivered + len(result.failed) != 10:
        play.false_results.append(f"send_many() of 10 rows returned {result!r}")
    await play.all_ended()


async def closes_at_once(play: Play) -> None:
    """`close(0)` while records are queued and in flight, and calls wait for memory."""
    works = [play.send(b"%d" % n + bytes(90), "p", n % 2) for n in range(6)]
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.sleep(0.006)
    play.waiting_for = "close(0)"
    await play.stage.producer.close(0)
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            play.raised.append(error)


async def transactions(play: Play) -> None:
    """A transaction that is committed, with offsets; one that is aborted; one that is prepared."""
    producer = play.stage.producer
    for name in ("1", "2", "3"):
        play.waiting_for = f"begin_transaction(), number {name}"
        await producer.begin_transaction()
        play.reported[name] = "not committed"
        await play.send(b"a" + name.encode(), "p", 0)
        await play.send(b"b" + name.encode(), "p", 1)
        if name == "1":
            play.waiting_for = "send_offsets_to_transaction()"
            await producer.send_offsets_to_transaction({TopicPartition("u", 0): 1}, "group")
        if name == "2":
            await producer.flush()
            await play.send(b"c" + name.encode(), "p", 1)
            play.waiting_for = "abort_transaction()"
            await producer.abort_transaction()
            continue
        if name == "3":
            play.waiting_for = "prepare_transaction()"
            await producer.prepare_transaction()
        await commit(play, name)


async def commit(play: Play, name: str) -> None:
    """Commit, and record the result; commit again where the call was cut off."""
    play.waiting_for = f"commit_transaction(), number {name}"
    for _ in range(2):
        try:
            await play.stage.producer.commit_transaction()
        except CommitOutcomeUnknownError:
            play.reported[name] = "unknown"
            raise
        except KafkaError as error:
            if error.persistence is Persistence.POSSIBLY_PERSISTED:
                play.reported[name] = "unknown"
            raise
        except BaseException:
            # Only a repeated call shows the outcome.
            play.reported[name] = "unknown"
            raise
        play.reported[name] = "committed"
        return


async def serializers_wait(play: Play) -> None:
    """Records whose serializers wait, and later records of their topic."""
    await play.together(*(play.send(b"%d" % n, "p", n % 2) for n in range(4)))
    await play.all_ended()


async def compressed(play: Play) -> None:
    """Batches that are compressed in threads."""
    works = [play.send(b"%d" % n + bytes(60), "p", n % 2) for n in range(4)]
    await play.together(*works)
    await play.all_ended()


async def slowly(topic: str, value: bytes) -> bytes:
    """A serializer that waits for a response."""
    await asyncio.sleep(0.01 if value == b"0" else 0.001)
    return value


SCENARIOS: dict[str, tuple[Scenario, dict[str, Any]]] = {
    "batches": (batches, {}),
    "broker fails": (broker_fails, {}),
    "one by one": (one_by_one, {"linger_ms": 0}),
    "memory is full": (memory_is_full, {"buffer_memory": 400}),
    "closes at once": (closes_at_once, {"buffer_memory": 400}),
    "transactions": (transactions, {"transactional_id": "tx"}),
    "old transactions": (transactions, {"transactional_id": "tx"}),
    "serializers wait": (serializers_wait, {"value_serializer": slowly}),
    "compressed": (
        compressed,
        {"compression_type": "gzip", "compression_threads_threshold_bytes": 1},
    ),
}

# -- one run -------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The findings of one run."""

    lines: Lines
    faults: list[str] = field(default_factory=list)


def run(
    name: str,
    point: Point | None = None,
    kind: type[BaseException] = Signal,
    *,
    as_asyncio_run: bool = False,
) -> Outcome:
    """Plays a scenario, with an exception at a point, and checks what is left.

    Args:
        name: of the scenario.
        point: where to raise; nowhere if left out.
        kind: what to raise.
        as_asyncio_run: what leaves the loop ends as with `asyncio.run()`, which cancels all tasks;
            otherwise the loop is run again, and the scenario goes on.
    """
    scenario, options = SCENARIOS[name]
    random.seed(1)
    loop = VirtualLoop(random.Random(1))
    asyncio.set_event_loop(loop)
    outcome = Outcome(Lines(point, kind))
    try:
        stage = Stage(
            loop, delivery_timeout_ms=20_000, request_timeout_ms=5_000, max_block_ms=10_000,
            **options,
        )  # fmt: skip
        stage.create_topic("p", (1, 1))
        if stage.producer.config.transactional_id:
            stage.world.cluster.set_transaction_version(1 if name.startswith("old") else 2)
        _Run(Play(stage), loop, outcome).run(scenario, as_asyncio_run)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return outcome


class _Run:
    def __init__(self, play: Play, loop: VirtualLoop, outcome: Outcome) -> None:
        self.play = play
        self.stage = play.stage
        self.loop = loop
        self.lines = outcome.lines
        self.faults = outcome.faults
        self.escaped: BaseException | None = None

    def run(self, scenario: Scenario, as_asyncio_run: bool) -> None:
        main = self.loop.create_task(self._main(scenario), name="application")
        try:
            with self.lines.watched():
                self._drive(main, as_asyncio_run)
            self._drive(self.loop.create_task(self._close(), name="application"))
            self._drive(self.loop.create_task(self._look(), name="application"))
        except StuckError as error:
            self.faults.append(f"{error}, waiting for {self.play.waiting_for}")
        self._check()
        self._end()

    def _drive(self, task: asyncio.Task[Any], as_asyncio_run: bool = False) -> None:
        """Runs the loop until a task is done, again if an exception leaves it."""
        task.add_done_callback(lambda _: self.loop.stop())
        for _ in range(4):
            bound = self.loop.call_later(LONGEST_S, self.loop.stop)
            try:
                self.loop.run_forever()
            except LEAVES_THE_LOOP as error:
                self.escaped = error
                if as_asyncio_run:
                    for other in asyncio.all_tasks(self.loop):
                        other.cancel()
                continue
            finally:
                bound.cancel()
            if not task.done():
                self.faults.append(f"hangs, waiting for {self.play.waiting_for}")
                task.cancel()
                continue
            if not task.cancelled() and (error := task.exception()) is not None:
                self.play.raised.append(error)
            return

    async def _main(self, scenario: Scenario) -> None:
        play, producer = self.play, self.stage.producer
        try:
            await producer.start()
            await scenario(play)
        except BaseException as error:
            play.raised.append(error)
        await play.all_ended()
        await self._is_usable_or_failed()
        play.waiting_for = "close()"
        await producer.close()

    async def _is_usable_or_failed(self) -> None:
        """A producer that has survived works."""
        play, producer = self.play, self.stage.producer
        try:
            if producer.config.transactional_id:
                play.waiting_for = "abort_transaction()"
                with suppress(KafkaError):
                    await producer.abort_transaction()
                play.waiting_for = "begin_transaction(), afterwards"
                await producer.begin_transaction()
            await play.send(b"afterwards", "p", 0)
        except KafkaError as error:
            play.raised.append(error)
        await play.all_ended()

    async def _close(self) -> None:
        """Close as an application does that gets an exception from `close()`."""
        self.play.waiting_for = "close() in a new run of the loop"
        for _ in range(3):
            try:
                await self.stage.producer.close()
            except BaseException as error:
                if error is not self.lines.raised:
                    raise
                continue
            return

    async def _look(self) -> None:
        """Find what is left when all that was under way has arrived."""
        await asyncio.sleep(10)
        self.faults += (f"left on the loop: {what}" for what in self.stage.left())

    # -- what has to hold ------------------------------------------------------------------------

    def _check(self) -> None:
        play, faults = self.play, self.faults
        written = Counter(
            self.stage.values("t") + self.stage.values("p") + self.stage.values("p", 1)
        )
        for value, delivery in play.deliveries:
            if not delivery.done():
                faults.append(f"stranded: the delivery of {value[:10]!r}")
                continue
            error = delivery.exception()
            if error is None and not written[value]:
                faults.append(f"reported too much: {value[:10]!r} is acknowledged, not written")
            elif error is not None:
                self._check_claim(value, error, written)
        for value, error in play.refused:
            self._check_claim(value, error, written)
        for value, count in written.items():
            if count > 1:
                faults.append(f"written {count} times: {value[:10]!r}")
        for error in play.raised:
            if not isinstance(error, KafkaError | asyncio.CancelledError) and (
                error is not self.lines.raised
            ):
                faults.append(f"another exception came of it: {error!r}")
        faults += play.false_results
        self._check_transactions()
        self._check_escape()
        self._check_memory()

    def _check_claim(self, value: bytes, error: KafkaError, written: Counter[bytes]) -> None:
        if error.persistence is not Persistence.POSSIBLY_PERSISTED and written[value]:
            self.faults.append(f"reported too much: {value[:10]!r} is written: {error!r}")

    def _check_transactions(self) -> None:
        visible: set[bytes] = set()
        for partition in (0, 1):
            pending: list[bytes] = []
            for batch in self.stage.batches("p", partition):
                if batch.is_control:
                    if is_commit(batch):
                        visible.update(pending)
                    pending = []
                else:
                    pending += [bytes(record.value or b"") for record in batch.records()]
        for name, reported in self.play.reported.items():
            shown = {value for value in visible if value[1:] == name.encode()}
            if (reported == "committed" and len(shown) < 2) or (
                reported == "not committed" and shown
            ):
                self.faults.append(f"reported {reported}: {name}, visible: {sorted(shown)}")

    def _check_escape(self) -> None:
        raised = self.lines.raised
        if (
            isinstance(raised, LEAVES_THE_LOOP)
            and self.escaped is None
            and raised not in self.play.raised
        ):
            self.faults.append(f"swallowed: {raised!r}")

    def _check_memory(self) -> None:
        producer = self.stage.producer
        if not producer.was_started:
            return
        pool = producer.engine.pool
        if pool.available != pool.total:
            self.faults.append(f"memory: {pool.total - pool.available} bytes are missing")
        kept = {
            id(batch): batch for batch in (d.batch_and_index()[0] for _, d in self.play.deliveries)
        }
        held = sum(batch.buffer is not None for batch in kept.values())
        if held:
            self.faults.append(f"memory: {held} batch(es) keep their buffers")

    def _end(self) -> None:
        """Ends what is left, so that the next run does not hear of it."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]


def points_of(name: str, rng: random.Random) -> list[Point]:
    """Every line that the scenario runs: at its first hit and at another one."""
    hits = run(name).lines.hits
    points = []
    for (file, line), count in sorted(hits.items()):
        points.append(Point(file, line, 1))
        if count > 1:
            points.append(Point(file, line, rng.randint(2, count)))
    return points


class Trial(NamedTuple):
    """One run to be made."""

    name: str
    point: Point
    kind: type[BaseException]
    as_asyncio_run: bool

    def __str__(self) -> str:
        ending = ", asyncio.run" if self.as_asyncio_run else ""
        return f"{self.kind.__name__} at {self.point} ({self.name}{ending})"


def trials(names: list[str], seed: int) -> list[Trial]:
    """All runs there are to be made, each with a kind of exception chosen by chance."""
    rng = random.Random(seed)
    return [
        Trial(name, point, rng.choice(KINDS), rng.random() < 0.5)
        for name in names
        for point in points_of(name, rng)
    ]


def attempt(trial: Trial) -> Outcome:
    """Makes one run; what the harness itself stumbles over counts as a fault."""
    try:
        return run(trial.name, trial.point, trial.kind, as_asyncio_run=trial.as_asyncio_run)
    except BaseException as error:
        lines = Lines(trial.point, trial.kind)
        lines.raised = error
        return Outcome(lines, [f"crashed: {error!r}"])


def main() -> int:
    """Make runs, and print for each fault where it comes from."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, help="how many points, chosen by chance; else all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--point", help="FILE:LINE:HIT, with one --scenario and --kind")
    parser.add_argument("--kind", choices=[kind.__name__ for kind in KINDS], default="Signal")
    parser.add_argument("--asyncio-run", action="store_true")
    arguments = parser.parse_args()
    sys.unraisablehook = lambda unraisable: None
    names = arguments.scenario or list(SCENARIOS)
    for name in names:
        faults = [run(name).faults, run(name).faults][1]  # the first one imports modules
        if faults:
            print(f"{name}: faults without an exception: {faults}")
            return 2
    if arguments.point:
        file, line, hit = arguments.point.split(":")
        kind = next(kind for kind in KINDS if kind.__name__ == arguments.kind)
        chosen = [Trial(names[0], Point(file, int(line), int(hit)), kind, arguments.asyncio_run)]
    else:
        chosen = trials(names, arguments.seed)
        if arguments.sample is not None:
            chosen = random.Random(arguments.seed).sample(chosen, arguments.sample)
    struck = faulty = 0
    kinds: Counter[str] = Counter()
    began = time.monotonic()
    for trial in chosen:
        outcome = attempt(trial)
        struck += outcome.lines.raised is not None
        if outcome.faults:
            faulty += 1
            kinds.update({fault.partition(":")[0].partition(",")[0] for fault in outcome.faults})
            print(f"{trial}: " + "; ".join(outcome.faults), flush=True)
    print(
        f"{struck} exceptions raised in {len(chosen)} runs, {faulty} runs with faults "
        f"{dict(kinds)}, {time.monotonic() - began:.0f} s"
    )
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
