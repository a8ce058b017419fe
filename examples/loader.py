"""A batch load with the public API: what `aioproducer load` does, in a program.

    python -m aioproducer cluster --topic flights:6     # in another terminal
    python examples/loader.py flights.csv.zip

Bad rows and their reasons are written to `rejected.ndjson`. After an interruption, run the program
again: it continues after the last row that has an outcome.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from aioproducer import Producer
from aioproducer.loader import (
    FileSource,
    Loader,
    LoadOptions,
    LoadResult,
    Progress,
    RecordMapping,
)


def show(progress: Progress) -> None:
    part = "" if progress.fraction is None else f" ({progress.fraction:.0%} of the input)"
    print(f"{progress.acknowledged:,} acknowledged{part}, {progress.rows_per_second:,.0f} rows/s")


async def load(
    files: list[str], topic: str, bootstrap_servers: str, directory: Path = Path()
) -> LoadResult:
    options = LoadOptions(
        mapping=RecordMapping(
            key=("carrier", "flight"),
            header_columns=(("origin", "origin"),),
            timestamp="time_hour",
        ),
        dead_letter=directory / "rejected.ndjson",
        state=directory / "load-state.json",
        resume=True,
        on_progress=show,
        progress_interval_s=1.0,
    )
    # A load always has more records, so larger batches add no latency.
    async with Producer(
        bootstrap_servers=bootstrap_servers,
        compression_type="zstd",
        linger_ms=20,
        batch_size=256 * 1024,
    ) as producer:
        return await Loader(producer, FileSource(files), topic, options).run()


if __name__ == "__main__":
    servers = os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")
    result = asyncio.run(load(sys.argv[1:], "flights", servers))
    print(f"{result.progress.acknowledged:,} loaded, {result.progress.rejected:,} rejected")
