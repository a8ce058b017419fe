"""The time of `import aioproducer` over a bare interpreter, and a check that it stays light.

Method: fresh interpreters in turn (bare, asyncio, aioproducer), wall clock of each; medians of the
differences. The budget is 80 ms over bare Python, asyncio included.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
BUDGET_MS = 80
OPTIONAL = frozenset(
    [
        "crc32c",
        "lz4",
        "zstandard",
        "cramjam",
        "uvloop",
        "typer",
        "rich",
        "pyarrow",
        "fastapi",
        "httpx",
        "pyspark",
        "prometheus_client",
        "opentelemetry",
    ]
)


def _run_ms(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - started) * 1000


def measure() -> dict[str, float]:
    """Median milliseconds over a bare interpreter, per import."""
    bare, over = [], {"import asyncio": [], "import aioproducer": []}
    for _ in range(ROUNDS):
        bare.append(_run_ms("pass"))
        for code, times in over.items():
            times.append(_run_ms(code))
    base = statistics.median(bare)
    return {code: statistics.median(times) - base for code, times in over.items()}


def optional_packages_imported() -> list[str]:
    """Optional packages that `import aioproducer` loads; empty when all is well."""
    code = "import sys, aioproducer; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    return sorted(OPTIONAL.intersection(loaded))


def main() -> None:
    print(f"import time over bare Python (median of {ROUNDS}, ms):")
    for code, cost in measure().items():
        print(f"  {code:20} {cost:6.1f}")
    print(f"  budget               {BUDGET_MS:6.1f}")
    print(f"  optional packages imported: {optional_packages_imported() or 'none'}")
