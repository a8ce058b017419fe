"""Recorded runs of the first seeds, and their comparison with those of today.

A run is a function of its seed and of the code. So a change that is to change nothing, such as a
move or an optimisation, changes no run; and one that is to change something shows here what else it
changes: requests that are no longer made, or made twice, records that take longer or fail.

Owns: the file of the recorded runs, and the comparison. A difference is no violation.
"""

from __future__ import annotations

import platform
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, Self

from aioproducer.runtime.send.fast_path import FAST_PATH_IMPLEMENTATION
from simulation.simulation import Result

RECORDED: Final = Path(__file__).with_name("recorded_runs.txt")
SEEDS: Final = range(1, 301)

_REQUEST = re.compile(r" *[\d.]+ c\d+\(b-?\d+\) (\w+) #\d+")
_COMPRESSING = "lz4", "zstandard"
_SHOWN = 20


class Course(NamedTuple):
    """One run: the digest of its trace, and counts of its records and requests."""

    seed: int
    digest: str
    counts: Mapping[str, int]

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return what a run did."""
        requests = Counter(
            found[1] for line in result.trace.lines if (found := _REQUEST.match(line))
        )
        counts = {
            "virtual_ms": round(1000 * result.virtual_s),
            "records": result.records,
            "delivered": result.delivered,
            "transactions": result.transactions,
            **dict(sorted(requests.items())),
        }
        return cls(result.seed, result.trace.digest()[:12], counts)

    @classmethod
    def read(cls, line: str) -> Self:
        """Return what a line of the file says."""
        seed, digest, *counts = line.split()
        pairs = (each.split("=") for each in counts)
        return cls(int(seed), digest, {name: int(count) for name, count in pairs})

    def __str__(self) -> str:
        counts = (f"{name}={count}" for name, count in self.counts.items())
        return " ".join([str(self.seed), self.digest, *counts])


def environment() -> str:
    """Return what a trace depends on besides seed and code; sizes of compressed data, say."""
    parts = [
        f"{FAST_PATH_IMPLEMENTATION} core",
        f"{platform.python_implementation()} {platform.python_version()}",
        platform.machine(),
        " ".join(platform.libc_ver()),
        f"zlib {zlib.ZLIB_RUNTIME_VERSION}",
        *(f"{name} {version(name)}" for name in _COMPRESSING),
    ]
    return ", ".join(parts)


def record(courses: Iterable[Course], file: Path = RECORDED) -> None:
    """Write the file anew."""
    lines = [f"# {environment()}", *map(str, sorted(courses, key=lambda course: course.seed))]
    file.write_text("\n".join(lines) + "\n")


class Comparison:
    """The runs of a campaign beside the recorded ones."""

    def __init__(self, courses: Iterable[Course], file: Path = RECORDED) -> None:
        head, *lines = file.read_text().splitlines()
        self._recorded_in = head.removeprefix("# ")
        recorded = {course.seed: course for course in map(Course.read, lines)}
        self._pairs = [(recorded[now.seed], now) for now in courses if now.seed in recorded]
        self.is_possible: bool = self._recorded_in == environment()

    @property
    def differing(self) -> list[int]:
        """The seeds whose runs are not as recorded."""
        if not self.is_possible:
            return []
        return sorted(now.seed for then, now in self._pairs if then != now)

    def lines(self) -> Iterator[str]:
        """The comparison for a terminal."""
        if not self.is_possible:
            yield f"not compared with the recorded runs: those are of {self._recorded_in}"
            return
        seeds = self.differing
        yield f"{len(seeds)} of {len(self._pairs)} runs differ from the recorded ones"
        if not seeds:
            return
        yield f"seeds {' '.join(map(str, seeds[:_SHOWN]))}{' ...' * (len(seeds) > _SHOWN)}"
        then: Counter[str] = Counter()
        now: Counter[str] = Counter()
        for one, other in self._pairs:
            then.update(one.counts)
            now.update(other.counts)
        for name in sorted(then | now):
            if then[name] != now[name]:
                yield f"  {name:<30}{then[name]:>12} recorded {now[name]:>12} now"
        yield "no violation by itself; if this is what the change is for: make sim-record"
