"""`python -m bench [import] [send] [reliability] [memory] [soak]`: runs the named measurements.

Without names it runs all but the long ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import import_time, memory, reliability, send, soak

MEASUREMENTS: dict[str, Callable[[], None]] = {
    "import": import_time.main,
    "send": send.main,
    "reliability": reliability.main,
    "memory": memory.main,
    "soak": soak.main,
}
LONG = frozenset(["reliability", "memory", "soak"])
"""Take many minutes: run only where they are named."""


def main() -> int:
    names = sys.argv[1:] or [name for name in MEASUREMENTS if name not in LONG]
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are: {', '.join(MEASUREMENTS)}")
        return 2
    for name in names:
        MEASUREMENTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
