"""The worker whose instructions are counted: `bench.client` with callgrind's marks as well.

Arguments: those of `bench.client`, and the library with the marks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bench.client import Meter, measure
from bench.workers import arguments, new_runner


class _Counter(Meter):
    """Callgrind counts while the block runs."""

    def __init__(self, library: str) -> None:
        super().__init__()
        self._marks = ctypes.CDLL(library)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._marks.begin_counting()
        with super().running():
            yield
        self._marks.end_counting()


def main() -> None:
    given = dict(arguments())
    os.environ["AIOPRODUCER_IMPL"] = given.pop("core")
    meter = _Counter(given.pop("library"))
    with new_runner(given.pop("loop")) as runner:
        runner.run(measure(meter=meter, **given))


if __name__ == "__main__":
    main()
