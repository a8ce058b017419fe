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
from collections.abc import Callable, Iterable

from bench import (
    cells,
    compare,
    import_time,
    instructions,
    memory,
    pythons,
    reliability,
    report,
    soak,
    spark_faults,
    topics,
    transaction_faults,
    transactions,
)

MEASUREMENTS: dict[str, Callable[[], None]] = {
    "import": import_time.main,
    "instructions": instructions.main,
    "reliability": reliability.main,
    "memory": memory.main,
    "soak": soak.main,
    "transactions": transactions.main,
    "transaction-faults": transaction_faults.main,
    "spark-faults": spark_faults.main,
    "topics": topics.main,
    "pythons": pythons.main,
}
ROUNDS = 5
_FULL = "full"


def spark() -> None:
    """Imported when asked for: it needs PySpark."""
    from bench import spark as measurement

    measurement.main()


def gateway() -> None:
    """Imported when asked for: it needs Starlette and uvicorn."""
    from bench import gateway as measurement

    measurement.main()


def faststream() -> None:
    """Imported when asked for: it needs FastStream."""
    from bench import faststream as measurement

    measurement.main()


def confluent_drop_in() -> None:
    """Imported when asked for: it needs confluent-kafka."""
    from bench import confluent_drop_in as measurement

    measurement.main()


def scale() -> None:
    """Imported when asked for: it needs the tools of the tests."""
    from bench import scale as measurement

    measurement.main()


MEASUREMENTS["faststream"] = faststream
MEASUREMENTS["confluent-drop-in"] = confluent_drop_in
MEASUREMENTS["scale"] = scale
MEASUREMENTS["spark"] = spark
MEASUREMENTS["gateway"] = gateway


def compare_clients(words: Iterable[str]) -> None:
    """Run the cells that the words name.

    Raises:
        ValueError: A word names nothing.
    """
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
            MEASUREMENTS[name]()
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
