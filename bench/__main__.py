"""`python -m bench [words]`: what the words name; without words, the clients and the import time.

Words and variables:

    import instructions reliability memory soak    separate measurements
    transactions transaction-faults spark gateway topics pythons   more of these
    faststream confluent-drop-in scale             more of these
    spark-faults                                   the table of what `make cluster-spark` has found
    full                                           the whole matrix of clients
    names of sections, clients, modes              a part of it: see `bench.cells.select`

    AIOPRODUCER_BENCH_ROUNDS    rounds, instead of 5
    AIOPRODUCER_BENCH_SHARE     share of the records to send, instead of 1, to try something out
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from importlib import import_module

from bench import cells, compare, report

MEASUREMENTS = {
    "import": "import_time",
    "instructions": "instructions",
    "reliability": "reliability",
    "memory": "memory",
    "soak": "soak",
    "transactions": "transactions",
    "transaction-faults": "transaction_faults",
    "spark-faults": "spark_faults",
    "topics": "topics",
    "pythons": "pythons",
    "faststream": "faststream",
    "confluent-drop-in": "confluent_drop_in",
    "scale": "scale",
    "spark": "spark",
    "gateway": "gateway",
}
"""The modules of the measurements; each is imported when asked for, as some need other packages."""
ROUNDS = 5
_FULL = "full"


def compare_clients(words: Iterable[str]) -> None:
    """Run the cells that the words name; raise ValueError for an unknown word."""
    asked = set(words)
    sections = cells.FULL if _FULL in asked else cells.ESSENTIAL
    chosen = cells.select(sections, asked - {_FULL})
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    print(f"{len(chosen)} cells, {rounds} rounds", flush=True)
    results = asyncio.run(compare.compare(chosen, rounds, share))
    whole = asked <= {_FULL} and rounds >= ROUNDS and share == 1
    report.write(results, report.RECORDED if whole else report.ELSEWHERE)


def main() -> int:
    # The end of this process ends the brokers and clients as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = sys.argv[1:]
    for name in words or ["import"]:
        if name in MEASUREMENTS:
            import_module(f"bench.{MEASUREMENTS[name]}").main()
    of_clients = [word for word in words if word not in MEASUREMENTS]
    if of_clients or not words:
        try:
            compare_clients(of_clients)
        except ValueError as error:
            print(error)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
