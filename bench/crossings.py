"""The number of files that one awaited `send_and_wait()` crosses in the pure implementation.

    python -m bench.crossings

A measure of how far a reader has to jump to follow a record. The producer sends to the embedded
cluster, which runs in virtual time, so the count is the same on every machine. Counted are
the functions of the package that run from the call until its awaiter goes on: their files, and how
often the function called next is in another file than the one before.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

GOALS = {"alone": (20, 60), "with linger": (30, 130)}
"""The most files and changes of file of each case."""
_LINGER_MS = {"alone": 0, "with linger": 5}
_WARM_UP = 5
_IDLE_S = 0.05


class Crossings(NamedTuple):
    """The files and calls that one record crosses."""

    calls: int
    files: Sequence[str]
    changes: int


def count(linger_ms: int) -> Crossings:
    """Count for one record of a producer that is warm; `AIOPRODUCER_IMPL` must be `pure`."""
    import aioproducer
    from aioproducer.testing.virtual import VirtualKafka, run_virtual

    package = str(Path(aioproducer.__file__).parent) + os.sep
    # The embedded brokers decode with our modules; that is no part of a record's way.
    embedded = Path(package, "testing")
    brokers = (f"{embedded / 'broker'}{os.sep}", str(embedded / "world" / "server.py"))
    called: list[str] = []

    def on_call(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(package) or "testing" in Path(name).parts:
            return
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename.startswith(brokers):
                return
            caller = caller.f_back
        called.append(name.removeprefix(package))

    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=linger_ms) as producer:
            for _ in range(_WARM_UP):
                await producer.send_and_wait("t", b"v")
                await asyncio.sleep(_IDLE_S)
            sys.setprofile(on_call)
            await producer.send_and_wait("t", b"v")
            sys.setprofile(None)

    run_virtual(run, brokers=1, topics={"t": 1})
    changes = sum(a != b for a, b in itertools.pairwise(called))
    return Crossings(len(called), sorted(set(called)), changes)


def main() -> int:
    """Print the counts beside the goals; 1 if one is missed."""
    os.environ["AIOPRODUCER_IMPL"] = "pure"
    missed = False
    for name, (most_files, most_changes) in GOALS.items():
        found = count(_LINGER_MS[name])
        missed |= len(found.files) > most_files or found.changes > most_changes
        print(
            f"{name}: {found.calls} calls in {len(found.files)} files (goal {most_files}), "
            f"{found.changes} changes of file (goal {most_changes})"
        )
    return missed


if __name__ == "__main__":
    sys.exit(main())
