"""Exactly once by two phases: tasks prepare transactions, one decision makes all of them visible.

    plan     fence other drivers; finish what was decided last; abort what no driver can decide
             (nothing to finish or abort where the prefix is used once)
    (tasks   each writes in its own transaction, and leaves it prepared)
    commit   check that all are still there; decide; commit each
    abort    decide nothing any more; finish a decided epoch, abort any other and fence its tasks

A transaction of a decided epoch is never aborted here, one of another epoch never committed. Every
call may be repeated, by another process too. After a crash, `EpochLostError` says what is not
visible of a decided epoch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from aioproducer._util import log
from aioproducer._util.tasks import together
from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
)
from aioproducer.spark.errors import EpochLostError, EpochNotPreparedError, SupersededError
from aioproducer.spark.exactly_once.attempts import NOTHING_SETTLED, Plan, Settled, TaskResult
from aioproducer.spark.exactly_once.decision import Decision, Part
from aioproducer.spark.exactly_once.ledger import Ledger, superseded
from aioproducer.types import PreparedTransaction, TransactionDescription

_S = TypeVar("_S")
_T = TypeVar("_T")

_log = log.get("spark")

_AT_A_TIME = 32


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a commit.

    Attributes:
        epoch: the epoch.
        transactions: how many it made visible.
        rows: how many rows these have.
        skipped: whether the epoch was in Kafka already.
        seconds: what the steps took: `check`, `decide`, `end`.
        settled: what was settled beside them, or once more.
    """

    epoch: int
    transactions: int = 0
    rows: int = 0
    skipped: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    settled: Settled = NOTHING_SETTLED


class TwoPhaseCommit:
    """The driver of one query or job; its state is kept by the brokers."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        accept_lost: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._ledger = ledger
        self._accept_lost = accept_lost
        self._clock = clock
        self._recommitted = 0
        self._aborted = 0

    @property
    def settled(self) -> Settled:
        """The open transactions that this object's calls found and ended."""
        return Settled(self._recommitted, self._aborted)

    async def last_decision(self) -> Decision | None:
        """See `Ledger.last_decision`."""
        return await self._ledger.last_decision()

    async def plan(self) -> Plan:
        """Prepare an epoch, before any of its tasks; tasks of earlier epochs are fenced.

        The last decision is finished first, as far as it can be if that raises `EpochLostError`.
        """
        ledger = self._ledger
        if ledger.used_once:
            # Nothing is open and nothing decided: the prefix is new.
            driver, _ = await together(ledger.take_over(), ledger.partition_count())
            return Plan(ledger.names.prefix, driver)
        # What was open before the others were fenced can no longer be decided afterwards. What is
        # opened later may be another driver's that has fenced this one.
        found, *_ = await together(
            ledger.open_attempts(),
            ledger.partition_count(),  # to say so early if there is no such topic
            ledger.find_driver(),
            ledger.find_groups(),
        )
        driver = await ledger.take_over()
        last = await self._last()
        await self._abort_orphans(found, last)
        if last is None:
            return Plan(ledger.names.prefix, driver, settled=self.settled)
        return Plan(ledger.names.prefix, driver, last.epoch, last.owner, self.settled)

    async def commit(self, epoch: int, results: Iterable[TaskResult | None]) -> CommitReport:
        """Make all of an epoch visible; a repeated call finishes an earlier one."""
        known = [each for each in results if each is not None]
        if not known:
            return CommitReport(epoch)
        first = _common(epoch, known)
        if first.skipped:
            return CommitReport(epoch, skipped=True)
        given = (each.part for each in known if each.part is not None)
        parts = tuple(sorted(given, key=lambda part: part.partition))
        decision = Decision(epoch, first.owner, parts)
        times = [self._clock()]
        gone, found, *_ = await together(
            self._ledger.not_prepared(parts),
            self._ledger.open_attempts(beside=parts),
            self._ledger.find_groups(),
        )
        if gone:
            await self._check_decided(first.driver, decision, gone)
        times.append(self._clock())
        is_first = not gone and await self._decide(first, decision)
        times.append(self._clock())
        await self._finish(decision)
        if not is_first:
            self._recommitted += len(parts)
        else:
            # No driver had taken over before the decision, so what was open then has no driver now.
            await self._abort_orphans(found, decision)
        times.append(self._clock())
        steps = zip(("check", "decide", "end"), times, times[1:], strict=False)
        seconds = {step: after - before for step, before, after in steps}
        rows = sum(part.rows for part in parts)
        return CommitReport(epoch, len(parts), rows, seconds=seconds, settled=self.settled)

    async def abort(
        self, epoch: int, results: Iterable[TaskResult | None], plan: Plan | None = None
    ) -> bool:
        """Give up an epoch; if it is decided, finish it instead and return True.

        A result is None for a task that may still run, or begin later. `plan` is that of the epoch,
        if it is known; it is needed where no task has a result.
        """
        given = [each for each in results if each is not None]
        known = [each for each in given if not each.skipped]
        drivers = dict.fromkeys(each.driver for each in known)
        if plan is not None:
            drivers[plan.driver] = None
        if not drivers:
            return bool(given)
        renewed = [await self._ledger.give_up(driver) for driver in drivers]
        last = await self._last()
        decided = last.parts if last is not None else ()
        owned = None if last is None else (last.epoch, last.owner)
        unwanted = [p for each in known if (p := each.part) is not None and p not in decided]
        await _each(self._give_up, unwanted)
        self._aborted += len(unwanted)
        ours = [each for each in renewed if each is not None]
        if len(ours) == len(renewed):
            # An attempt that has its identity by now is found here, and fenced before it can
            # write. One that gets it later sees that its driver has given up (`ledger.is_over`).
            found = await self._ledger.open_attempts(idle=True)
            # No driver has taken over until here, so what was found is this driver's.
            if await self._ledger.give_up(ours[-1]) is not None:
                await self._abort_orphans(found, last)
        return any((each.epoch, each.owner) == owned for each in known)

    # -- steps -----------------------------------------------------------------------------------

    async def _decide(self, result: TaskResult, decision: Decision) -> bool:
        """Write the decision; return False if an earlier call has, which may fence the driver."""
        if result.replaces_another:
            _log.warning(
                "epoch %d follows one of another query or job with transactional.id.prefix=%r; "
                "if that one runs still, stop it or give each its own: otherwise an epoch that "
                "is written again after a failure is in Kafka twice",
                decision.epoch,
                self._ledger.names.prefix,
            )
        try:
            await self._ledger.decide(
                result.driver, decision, replaces_another=result.replaces_another
            )
        except SupersededError:
            if await self._ledger.last_decision() != decision:
                raise
            return False
        return True

    async def _check_decided(
        self, driver: PreparedTransaction, decision: Decision, gone: Iterable[Part]
    ) -> None:
        """Raise unless these transactions ended because an earlier call committed them."""
        # If it is not decided, it cannot be any more; a decision that is under way ends here.
        renewed = await self._ledger.give_up(driver)
        last = await self._ledger.last_decision()
        if last == decision:
            return
        if renewed is None or (
            last is not None and last.owner == decision.owner and last.epoch >= decision.epoch
        ):
            raise superseded(decision.epoch)
        names = ", ".join(str(part.partition) for part in gone)
        raise EpochNotPreparedError(
            f"epoch {decision.epoch} was not decided, nothing of it is visible: the "
            f"transactions of Spark partitions {names} were ended meanwhile",
            epoch=decision.epoch,
        )

    async def _abort_orphans(
        self, found: Iterable[TransactionDescription], decision: Decision | None
    ) -> None:
        """Abort transactions that were open before others could take over, unless decided."""
        parts = decision.parts if decision is not None else ()
        decided = {part.transaction.transactional_id for part in parts}
        orphans = [each for each in found if each.transactional_id not in decided]
        await _each(self._ledger.abort_orphan, orphans)
        # Others have their identity and no transaction yet: `abort` fences these too.
        self._aborted += sum(each.state == "Ongoing" for each in orphans)

    async def _last(self) -> Decision | None:
        """Return the last decision, once all of it is visible."""
        last, is_completed = await self._ledger.last_decision_and_end()
        if last is not None and not is_completed:
            await self._finish(last)
            self._recommitted += len(last.parts)
        return last

    async def _finish(self, decision: Decision) -> None:
        """Commit all parts of a decided epoch, even if some are lost."""
        found = await _each(self._is_committed, decision.parts)
        if lost := [p for p, is_there in zip(decision.parts, found, strict=True) if not is_there]:
            if await self._ledger.last_decision() != decision:
                raise superseded(decision.epoch)  # which used the ids of this one again
            error = EpochLostError.of(
                decision.epoch,
                [part.partition for part in lost],
                sum(part.rows for part in lost),
                len(decision.parts),
            )
            if self._accept_lost != decision.epoch:
                raise error
            _log.error("accepted by accept.lost.epoch: %s", error.message)
        await self._ledger.record_completion(decision)

    async def _is_committed(self, part: Part) -> bool:
        try:
            await self._ledger.finish(part.transaction, commit=True)
        except (PreparedTransactionEndedError, PreparedTransactionUnknownError) as error:
            _log.error("Spark partition %d: %s", part.partition, error)
            return False
        return True

    async def _give_up(self, part: Part) -> None:
        try:
            await self._ledger.finish(part.transaction, commit=False)
        except KafkaError as error:
            # The next plan, or the broker's timeout, aborts what is open still.
            _log.info("Spark partition %d was not aborted: %s", part.partition, error)


def _common(epoch: int, results: Sequence[TaskResult]) -> TaskResult:
    """Return the first result; raise unless all are of one attempt at the epoch."""
    first = results[0]
    kinds = {(each.driver, each.epoch, each.owner, each.skipped) for each in results}
    if len(kinds) > 1 or first.epoch != epoch:
        raise IllegalStateError(f"these are not results of one attempt at epoch {epoch}")
    return first


async def _each(act: Callable[[_S], Awaitable[_T]], items: Sequence[_S]) -> list[_T]:
    """Return what `act` returns for each item, some at a time; wait for all before raising."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(item: _S) -> _T:
        async with turns:
            return await act(item)

    return await together(*map(one, items))
