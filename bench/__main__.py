"""`python -m bench [import] [send]`: runs the named measurements, all of them without names."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import import_time, send

MEASUREMENTS: dict[str, Callable[[], None]] = {"import": import_time.main, "send": send.main}


def main() -> int:
    names = sys.argv[1:] or list(MEASUREMENTS)
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are: {', '.join(MEASUREMENTS)}")
        return 2
    for name in names:
        MEASUREMENTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
