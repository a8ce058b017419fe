"""A program that writes files of lines by a stream, through a Spark Connect server.

Arguments (JSON): `remote`, the server; `folder`, with the files; `checkpoint`; `servers` and
`topic`, of Kafka; `way`, `source` or `batch_writer`. It ends when each file is written.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from aioproducer.spark import batch_writer, register

_LIMIT_S = 120


def main(remote: str, folder: str, checkpoint: str, servers: str, topic: str, way: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    register(spark)
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
    }
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(folder)
    if way == "source":
        writer = lines.writeStream.format("aioproducer").options(**options)
    else:
        writer = lines.writeStream.foreachBatch(batch_writer(options, query=topic))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(_LIMIT_S):
        raise TimeoutError(f"the query did not end within {_LIMIT_S} s")
    error = query.exception()
    if error is not None:
        raise error
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
