"""Exactly once for synchronous callers: what writers on the driver and in tasks call.

Invariants
- No call of the driver needs the results of another one: Spark makes the calls of one epoch in
  different processes. Only connections are kept from one to the next.
- A task's producer goes on to the next attempt only with its transaction prepared; any other end
  closes it.
- An attempt writes only if its driver had neither decided nor given up when it had its identity.
- Every wait is bounded by `max_block_ms` per step.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

from aioproducer.blocking import Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.errors import EpochOverError
from aioproducer.spark.exactly_once.attempts import Plan, Settled, TaskResult
from aioproducer.spark.exactly_once.calls import CALLERS
from aioproducer.spark.exactly_once.decision import Decision, Part
from aioproducer.spark.exactly_once.ledger import Ledger, is_over
from aioproducer.spark.exactly_once.two_phase import CommitReport, TwoPhaseCommit
from aioproducer.spark.pool import POOL, Kind

_T = TypeVar("_T")

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' default limit (`transaction.max.timeout.ms`).

It is how long a recovery may take; what is left open otherwise is aborted by the next plan.
"""
JOB_EPOCH = 0
"""The one epoch of a batch job."""


def prefix_for_checkpoint(location: str) -> str:
    """Return a `transactional.id.prefix` for the query with this checkpoint.

    `file:/c` is `/c`, and `/c//d` is `/c/d`, as for Spark.
    """
    local = re.sub(r"^file:/+|^/+", "/", location)
    local = re.sub(r"(?<![:/])/{2,}", "/", local)
    return f"aioproducer-{_digest(local.rstrip('/'))}"


def prefix_for_job(job_id: str, topic: str | None, base: str | None = None) -> str:
    """Return a `transactional.id.prefix` for one job: each remembers whether it was decided.

    A program may write several topics in a job: each is one by itself.
    """
    name = f"{topic or ''}/{job_id}"
    return f"{base or 'aioproducer-job'}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The driver's side of one query or job; all instances with these arguments are equivalent.

    Attributes:
        config: no `transactional_id`; its connection, time limits and `transaction_timeout_ms`.
        prefix: names the query or job; no other may have it, or one that begins with it.
        marker_topic: an existing topic, whose partitions decisions are kept for.
        accept_lost: an epoch whose loss has been accepted.
        kind: what connections are kept by between calls; None to close them.
        used_once: this is the only plan with `prefix`, ever.
        topic_timeout_s: how long a missing marker topic is waited for; None for `max_block_ms`.
    """

    config: ProducerConfig
    prefix: str
    marker_topic: str
    accept_lost: int | None = None
    kind: Kind | None = None
    used_once: bool = False
    topic_timeout_s: float | None = None

    def plan(self) -> Plan:
        """See `TwoPhaseCommit.plan`; once per epoch, before any of its tasks."""
        return self._run(lambda two_phase: two_phase.plan())

    def commit(self, epoch: int, results: Iterable[TaskResult | None]) -> CommitReport:
        """See `TwoPhaseCommit.commit`."""
        return self._run(lambda two_phase: two_phase.commit(epoch, results))

    def abort(
        self, epoch: int, results: Iterable[TaskResult | None], plan: Plan | None = None
    ) -> tuple[bool, Settled]:
        """See `TwoPhaseCommit.abort`; return what it returns, and the transactions it has ended."""

        async def aborting(two_phase: TwoPhaseCommit) -> tuple[bool, Settled]:
            return await two_phase.abort(epoch, results, plan), two_phase.settled

        return self._run(aborting)

    def last_decision(self) -> Decision | None:
        """See `Ledger.last_decision`."""
        return self._run(lambda two_phase: two_phase.last_decision())

    def _run(self, work: Callable[[TwoPhaseCommit], Awaitable[_T]]) -> _T:
        async def working(client: CoordinatorClient) -> _T:
            async with Ledger(
                self.config,
                self.prefix,
                self.marker_topic,
                client,
                used_once=self.used_once,
                topic_timeout_s=self.topic_timeout_s,
            ) as ledger:
                return await work(TwoPhaseCommit(ledger, accept_lost=self.accept_lost))

        return CALLERS.call(self.kind, self.config, working)


class TaskAttempt:
    """One task's attempt at an epoch, in a `with` block.

    Entering it raises `EpochOverError` if its driver does not wait for it any more. Leaving it
    without `prepare()` aborts it, or leaves that to the next plan. `config` returns the options of
    a new producer; `kind` is the key under which `POOL` keeps it, None to close it at the end.
    """

    def __init__(
        self,
        plan: Plan,
        epoch: int,
        config: Callable[[], ProducerConfig],
        *,
        partition: int,
        owner: str,
        kind: Kind | None = None,
    ) -> None:
        self.is_decided: bool = plan.is_decided(epoch, owner)
        self._config = config
        self._kind = kind
        self._is_prepared = False
        self._plan = plan
        self._epoch = epoch
        self._partition = partition
        self._owner = owner
        self._name = "" if self.is_decided else plan.attempt_id(epoch, owner)
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The producer to write with; its transaction is open."""
        if self._producer is None:
            raise IllegalStateError("this epoch is in Kafka already: there is nothing to write")
        return self._producer

    def skip(self) -> TaskResult:
        """Return the result of an attempt that `is_decided`."""
        return TaskResult(self._plan.driver, self._epoch, self._owner, skipped=True)

    def prepare(self, *, rows: int) -> TaskResult:
        """Prepare the transaction; return the result for the driver's `commit`."""
        transaction = self.producer.prepare_transaction()
        self._is_prepared = True
        part = None if transaction.empty else Part(self._partition, rows, transaction)
        replaces = self._plan.replaces_another(self._owner)
        return TaskResult(
            self._plan.driver, self._epoch, self._owner, part, replaces_another=replaces
        )

    def __enter__(self) -> Self:
        if not self.is_decided:
            producer = self._begun()
            try:
                self._refuse_if_over(producer)
            except BaseException as error:
                _give_back(producer, error)
                raise
            self._producer = producer
        return self

    def _refuse_if_over(self, producer: Producer) -> None:
        """Raise unless a driver will still end what this attempt writes.

        A cancelled task may run on for a while, or begin only then. A driver that gives up records
        so first and fences all attempts it can see then; an attempt becomes visible first, and then
        checks: one of the two always notices the other.
        """

        async def looking(client: CoordinatorClient) -> bool:
            # A broker that was cut off would answer with an old state.
            client.drop_coordinators()
            return await is_over(client, self._plan.driver)

        if CALLERS.call(self._kind, producer.config, looking):
            raise EpochOverError(
                f"epoch {self._epoch} was given up, decided without this attempt of Spark "
                f"partition {self._partition}, or taken over by another query or job with "
                f"transactional.id.prefix {self._plan.prefix!r}; the attempt has written nothing",
                epoch=self._epoch,
            )

    def _begun(self) -> Producer:
        """Return a producer in an open transaction of this attempt, from the pool if possible."""
        kept = None if self._kind is None else POOL.take(self._kind)
        if kept is not None:

            async def begin() -> None:
                transactions = kept._producer._transactions()
                await transactions.assume(self._name)
                await transactions.begin()

            try:
                kept.run(begin)
                return kept
            except BaseException as error:
                _give_back(kept, error)
                if not isinstance(error, KafkaError):
                    raise
        made = Producer(self._config(), transactional_id=self._name)
        made.start()
        try:
            made.begin_transaction()
        except BaseException:
            made.close(0)
            raise
        return made

    def __exit__(self, _: object, exc: BaseException | None, __: object) -> None:
        if self._producer is None:
            return
        if self._is_prepared and exc is None and self._kind is not None:
            POOL.put(self._kind, self._producer)
            return
        if exc is None:
            self._producer.close()
        else:
            _give_back(self._producer, exc)


def _give_back(producer: Producer, error: BaseException) -> None:
    """Close the producer of an attempt that has failed with this error."""
    try:
        producer.close(0)
    except KafkaError as problem:
        error.add_note(f"the producer could not be closed: {problem}")
