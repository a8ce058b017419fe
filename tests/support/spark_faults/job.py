"""One life of a streaming query: files of lines into a topic, as its settings (JSON) say."""

from __future__ import annotations

import json
import sys
from typing import Any

from aioproducer.spark.session import local_session
from support.spark_faults.source import FaultySource


def main(settings: dict[str, Any]) -> None:
    """Runs until every file is written, or dies."""
    spark = local_session("a query that is killed", settings["spark"], master=settings["master"])
    spark.dataSource.register(FaultySource)
    lines = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", settings["files per batch"])
        .load(settings["input"])
        .repartition(settings["partitions"])
    )
    query = (
        lines.writeStream.format("faulty")
        .options(**settings["options"])
        .option("faults", json.dumps(settings["faults"]))
        .option("checkpointLocation", settings["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
