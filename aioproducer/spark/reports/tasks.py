"""The report of a task, which travels to the commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer.spark.exactly_once.attempts import NOTHING_SETTLED, Settled, TaskResult

if TYPE_CHECKING:
    from aioproducer.spark.plan import TaskPlace


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task.

    `bytes` are those of the Arrow columns, `retries` records sent again, `dead_letters` rows that
    went to the dead letter topic or path, by the error's name, `result` what the driver needs for
    exactly once, `missing_core` what its process lacks (`missing_core()`), `query` the id of the
    query, `deliveries` records by the bucket of their delivery time (`DurationCounts`),
    `transactions` how many were written to, `settled` what the plan had settled.
    """

    place: TaskPlace
    rows: int
    bytes: int
    retries: int
    dead_letters: Counter[str]
    seconds: float
    result: TaskResult | None = None
    missing_core: str | None = None
    query: str | None = None
    deliveries: Mapping[int, int] = field(default_factory=dict)
    transactions: int = 0
    settled: Settled = NOTHING_SETTLED
