"""One life of streaming queries: files of lines into topics, as its settings (JSON) say."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aioproducer.spark.session import local_session
from support.spark_faults.batches import FaultyBatches
from support.spark_faults.source import FaultySource


def main(settings: dict[str, Any]) -> bool:
    """Runs until every file of each query is written, or dies; whether none has failed."""
    name = "queries that are killed"
    spark = local_session(name, settings["spark"], master=settings["master"])
    spark.dataSource.register(FaultySource)
    # Spark finds a source of Python's in the thread alone that has made the session.
    running = [_start(spark, query) for query in settings["queries"]]
    ends = [Path(query["ended"]) for query in settings["queries"]]
    with ThreadPoolExecutor(len(running)) as threads:
        ended = list(threads.map(_wait, running, ends))
    spark.stop()
    return all(ended)


def _start(spark: Any, settings: dict[str, Any]) -> Any:
    options, faults, query = settings["options"], settings["faults"], settings["query"]
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    writer = lines.load(settings["input"]).repartition(settings["partitions"]).writeStream
    if query is None:
        writer = writer.format("faulty").options(**options).option("faults", json.dumps(faults))
    else:
        writer = writer.foreachBatch(FaultyBatches(options, query, faults))
    checkpointed = writer.option("checkpointLocation", settings["checkpoint"])
    return checkpointed.trigger(availableNow=True).start()


def _wait(query: Any, ended: Path) -> bool:
    """Wait until it ends, and write a file then: an empty one, or its error."""
    error = ""
    try:
        query.awaitTermination()
    except Exception as failure:
        error = str(failure)
    written = ended.with_name(f"{ended.name} soon")
    written.write_text(error, encoding="utf-8")
    written.rename(ended)
    return not error


if __name__ == "__main__":
    sys.exit(0 if main(json.loads(sys.argv[1])) else 1)
