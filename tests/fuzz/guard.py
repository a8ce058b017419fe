"""Fuzz targets, and the bounds of every run of one.

Owns: `Target`, `Finding`, the limits on time and memory. Not here: single targets, atheris.

Invariant: whether an input's memory is measured depends on the input alone, so that a finding
repeats; `always` measures it whatever the input.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from zlib import crc32

MOST_SECONDS = 2.0
"""CPU time of one input, and with it of a hang; inputs are a few KiB."""
MEASURED_ONE_IN = 32
"""Tracing allocations costs several times the run itself."""
FIXED_BYTES = 256 * 1024
"""What a run may allocate whatever its input: error messages, an event loop."""


class Finding(Exception):  # noqa: N818 - it reports an error of the code under test
    """An input broke a promise."""


@dataclass(frozen=True)
class Target:
    """One way in for foreign bytes.

    Attributes:
        name: How it is called on the command line, and its files in the corpus.
        run: Takes any bytes; raises `Finding`, or whatever the code under test should not raise.
        seeds: Well-formed inputs to begin with, the same at every call.
        bytes_per_byte: How much may be allocated for each byte of input.
        extra_bytes: How much may be allocated besides.
        longest: The longest input worth trying.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    bytes_per_byte: int
    extra_bytes: int = 0
    longest: int = 4096


def require(condition: object, complaint: str, *facts: object) -> None:
    """Raise a `Finding` unless the condition holds; `facts` fill the complaint's braces.

    They are put into words only then: most of the time of a run would go into that.
    """
    if not condition:
        raise Finding(complaint.format(*facts))


def check(target: Target, data: bytes, *, always: bool = False) -> None:
    """Run one input within its bounds."""
    started = time.thread_time()
    if always or crc32(data) % MEASURED_ONE_IN == 0:
        _check_memory(target, data)
    else:
        target.run(data)
    seconds = time.thread_time() - started
    require(seconds <= MOST_SECONDS, "{} bytes took {:.1f} s of CPU time", len(data), seconds)


def _check_memory(target: Target, data: bytes) -> None:
    target.run(data)  # fills caches, which are not the input's doing
    tracemalloc.start()
    try:
        target.run(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    allowed = FIXED_BYTES + target.extra_bytes + target.bytes_per_byte * len(data)
    require(peak <= allowed, "{} bytes cost {} of memory, {} are allowed", len(data), peak, allowed)
