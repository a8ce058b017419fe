"""One task's attempt at an epoch: whether it has to write, under which id, what it reports.

Invariants
- An id is used again only after a decision of the other parity: until then the driver may have to
  repeat its end, and could no longer find out how it ended.
- Plans and results pickle, and hold nothing secret.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from aioproducer.errors import IllegalStateError
from aioproducer.spark.errors import CheckpointBehindError
from aioproducer.spark.exactly_once.decision import WORKER_BYTES, Part, TransactionNames
from aioproducer.types import PreparedTransaction


class Settled(NamedTuple):
    """The transactions that a call found open, left by tasks or by an earlier call.

    Attributes:
        recommitted: decided ones, whose commits were not known to be acknowledged.
        aborted: those that no driver decides any more.
    """

    recommitted: int = 0
    aborted: int = 0


NOTHING_SETTLED: Final = Settled()


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of an epoch, made by the driver before its tasks.

    Attributes:
        prefix: names the query or job.
        driver: the identity that will decide.
        decided: the last epoch that was decided, and all of it is visible; None for none.
        decided_by: the query or job that it belonged to.
        settled: what the driver has settled before.
    """

    prefix: str
    driver: PreparedTransaction
    decided: int | None = None
    decided_by: str | None = None
    settled: Settled = NOTHING_SETTLED

    def is_decided(self, epoch: int, owner: str) -> bool:
        """Return whether an epoch of this query or job is in Kafka already."""
        if self.decided is None or self.decided_by != owner or self.decided < epoch:
            return False
        if self.decided > epoch:
            raise CheckpointBehindError(
                f"epoch {epoch} is to be written, but epoch {self.decided} of the same query is in "
                f"Kafka already ({self.prefix!r})",
                epoch=epoch,
            )
        return True

    def replaces_another(self, owner: str) -> bool:
        """Return whether the last decision was that of another query or job."""
        return self.decided_by is not None and self.decided_by != owner

    def attempt_id(self, epoch: int, owner: str, numbers: AttemptNumbers | None = None) -> str:
        """Return the transactional id of a new attempt of this process."""
        decided = self.decided if self.decided_by == owner else None
        worker, number = (numbers or _numbers).next(self.prefix, owner, epoch, decided)
        return TransactionNames(self.prefix).attempt(worker, epoch, number)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The report of an attempt that succeeded, for the driver.

    Attributes:
        driver: the identity of the plan it worked for.
        epoch: its epoch.
        owner: its query or job.
        part: what it has prepared; None if there was nothing to write.
        skipped: whether the epoch was in Kafka already.
        replaces_another: whether the decision replaces that of another query or job.
    """

    driver: PreparedTransaction
    epoch: int
    owner: str
    part: Part | None = None
    skipped: bool = False
    replaces_another: bool = False


_MOST_KEPT: Final = 1024
"""Prefixes and parities whose numbers a process keeps: each batch job may have its own prefix."""


class _Latest(NamedTuple):
    """The last epoch of one parity that this process has worked for."""

    owner: str
    epoch: int
    used: int


class AttemptNumbers:
    """Numbers the attempts of this process, per prefix and parity; a fork begins anew.

    `make_name` makes the process's name of 16 hexadecimal digits, a random one by default.
    """

    def __init__(self, make_name: Callable[[], str] | None = None) -> None:
        self._make_name = make_name or partial(secrets.token_hex, WORKER_BYTES)
        self._lock = threading.Lock()
        self._process = -1
        self._worker = ""
        self._latest: dict[tuple[str, int], _Latest] = {}

    def next(self, prefix: str, owner: str, epoch: int, decided: int | None) -> tuple[str, int]:
        """Return the process's name and the number of a new attempt.

        No other attempt whose transaction may be open has that number. `decided` is the last epoch
        of this owner that was decided before.
        """
        with self._lock:
            if self._process != os.getpid() or len(self._latest) >= _MOST_KEPT:
                # With a new name no id is used again, whatever is dropped.
                self._process, self._worker = os.getpid(), self._make_name()
                self._latest.clear()
            key = (prefix, epoch % 2)
            latest = self._latest.get(key, _Latest(owner, epoch, 0))
            if latest.owner == owner and latest.epoch > epoch:
                raise IllegalStateError(
                    f"epoch {epoch} is over: this process has worked for epoch {latest.epoch} since"
                )
            # A retry of the last decision's ends finds its ids as they were left.
            is_lagging = latest.owner == owner and decided is not None and decided > latest.epoch
            number = 0 if is_lagging else latest.used
            self._latest[key] = _Latest(owner, epoch, number + 1)
            return self._worker, number


_numbers = AttemptNumbers()
