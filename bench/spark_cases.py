"""The measurements of Spark's sinks, and the bars.

Owns: names and limits. Not here: Spark, how anything is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

ROWS = 2_000_000
BATCH_ROWS = 200_000
PARTITIONS = 4
SMALL_TASKS = 128


FLOORS = ("noop", "discard")
"""They write nothing: no sink costs less than the first, none in Python less than the second."""


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement.

    Attributes:
        writes: how many in a round; the figure of the round is that of the one in the middle.
    """

    sink: str
    codec: str = "none"
    keyed: bool = True
    tasks: int = PARTITIONS
    rows: int = ROWS
    guarantee: str = "at-least-once"
    writes: int = 1

    @property
    def key(self) -> str:
        keyed = "keyed" if self.keyed else "unkeyed"
        return f"{self.sink}/{self.codec}/{keyed}/{self.tasks}/{self.rows}/{self.guarantee}"

    @classmethod
    def named(cls, key: str) -> Case:
        """The case with this key."""
        sink, codec, keyed, tasks, rows, guarantee = key.split("/")
        return cls(sink, codec, keyed == "keyed", int(tasks), int(rows), guarantee)

    def scaled(self, share: float) -> Case:
        """The same with fewer rows."""
        return replace(self, rows=max(1000, int(self.rows * share)))


def cases() -> list[Case]:
    """Everything that is measured."""
    every = [
        Case(sink, codec, keyed)
        for codec in ("none", "lz4")
        for keyed in (True, False)
        for sink in ("ours", "default", "tuned")
    ]
    every += [Case(sink, keyed=keyed) for keyed in (True, False) for sink in ("large", *FLOORS)]
    every += [Case(sink, tasks=SMALL_TASKS) for sink in ("ours", "tuned", "discard")]
    every += [
        # As many rows as of the others, so that compilers on both sides have seen as much.
        Case("ours", rows=BATCH_ROWS, guarantee=guarantee, writes=ROWS // BATCH_ROWS)
        for guarantee in ("at-least-once", "exactly-once")
    ]
    return every


def in_turns(chosen: Iterable[Case]) -> Iterator[Case]:
    """The writes of a round; those of cases that take several alternate.

    A slow second of the machine is a slow second of both, then.
    """
    for writes, group in itertools.groupby(chosen, key=lambda case: case.writes):
        some = list(group)
        for turn in range(writes):
            yield from some[:: -1 if turn % 2 else 1]


@dataclass(frozen=True, slots=True)
class Bar:
    """A quotient of medians that has to reach a limit, or stay below it."""

    text: str
    ours: Case
    theirs: Case
    measure: str
    limit: float

    @property
    def at_least(self) -> bool:
        """Whether more is better."""
        return self.measure == "rate"

    def is_held(self, ratio: float) -> bool:
        """Return whether this ratio is good enough."""
        return ratio >= self.limit if self.at_least else ratio <= self.limit


def bars() -> list[Bar]:
    """The bars of the data source."""
    found = []
    for codec, rate in (("none", 1.2), ("lz4", 1.05)):
        for keyed in (True, False):
            name = f"{codec}, {'keyed' if keyed else 'unkeyed'}"
            ours, default, tuned = (
                Case(sink, codec, keyed) for sink in ("ours", "default", "tuned")
            )
            found += [
                Bar(f"{name}: rows/s beside tuned", ours, tuned, "rate", rate),
                Bar(f"{name}: rows/s beside default", ours, default, "rate", 1.45),
                Bar(f"{name}: CPU per row beside tuned", ours, tuned, "cpu_us", 0.88),
            ]
    small = (Case(sink, tasks=SMALL_TASKS) for sink in ("ours", "tuned"))
    found.append(Bar(f"{SMALL_TASKS} partitions: rows/s beside tuned", *small, "rate", 0.9))
    least, once = (
        Case("ours", rows=BATCH_ROWS, guarantee=name) for name in ("at-least-once", "exactly-once")
    )
    text = f"exactly-once, {BATCH_ROWS:,} rows: rows/s beside at-least-once"
    found.append(Bar(text, once, least, "rate", 0.8))
    return found


MICRO_SINKS: Final = {
    "default": "Spark's own sink",
    "discard": "none (Python, rows dropped)",
    "at-least-once": "aioproducer, at-least-once",
    "task-transactions": "aioproducer, task-transactions",
    "exactly-once": "aioproducer, exactly-once",
    "driver, at-least-once": "aioproducer, `batch_writer`, at-least-once",
    "driver, exactly-once": "aioproducer, `batch_writer`, exactly-once",
}
"""The sinks that small micro-batches are measured with."""

MICRO_BARS: Final = {
    "at-least-once": 1.05,
    "exactly-once": 1.15,
    "driver, at-least-once": 0.6,
    "driver, exactly-once": 0.6,
}
"""How long a micro-batch may take, beside a Python sink that drops its rows (`discard`)."""


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: each name is first in one of as many rounds as there are names."""
    start = number % len(names)
    return [*names[start:], *names[:start]]
