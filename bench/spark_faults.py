"""The findings of `make cluster-spark`, into bench/RELIABILITY.md and bench/spark_faults.json.

It runs nothing by itself: the tests leave a record of each scenario in `build/spark-faults`.
Records of one scenario, in whatever folders there, are added up. A scenario that was not run again
keeps what was found last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench import document, machine
from bench.tables import table

RECORDS = Path(__file__).parents[1] / "build" / "spark-faults"
RESULTS = Path(__file__).with_name("spark_faults.json")
_QUERIES = ("sessions", "started", "killed", "failed")
_ADDED = ("batches", "rows", "duplicates", "losses", "seconds")
_HEAD = (
    "scenario",
    "happened",
    "sessions",
    "lives",
    "killed",
    "failed",
    "batches",
    "rows",
    "duplicates",
    "losses",
    "s",
)
_EXACTLY_ONCE = "exactly-once"
_TEXT = """\
# Exactly once from Spark under real faults

Written by `make cluster-spark`; do not edit.

- {machine}
- PySpark {pyspark}
- {cluster}

**Method.** A streaming query reads files of lines, one file a batch, and writes them by
`delivery.guarantee=exactly-once` to a topic of 4 partitions with replication 3. It is broken again
and again, at random moments, and started again with another number of cores and of Spark
partitions, until each fault has happened so often and every file is written. Then
confluent-kafka's read_committed consumer reads the topic to its end. The faults are those of
`tests/spark/test_exactly_once.py`; what is killed there is killed by SIGKILL. A session has up to
ten queries at once, each with its own topic and checkpoint; a death of the session or a broker
hits each of them in a different batch, and counts as often as it hits one: the deaths
themselves are the *sessions* that were killed, and *broker killed*. The runs of a scenario are
added up.

- *happened*: how often, by the notes written just before each death. *Another attempt* is one
  that Spark made by itself; *attempt with another number of partitions*: a batch that was begun
  with one and done again with another.
- *by the driver*: by `batch_writer` in `foreachBatch`: the driver writes each micro-batch itself.
  If it is killed at any moment, tasks write in three of ten lives.
- *sessions*: how often Spark was started. *lives*: how often a query was; of these *killed*, and
  *failed*: ended by their own error, as a driver that was shut out is, and Spark when a
  task has failed too often.
- *duplicates*: rows beyond the first of their kind. *losses*: rows that are not there.

{found}

**Without the mechanism**: the same deaths, other guarantees. Were there no duplicates here, a 0
above would prove nothing.

{without}
"""


def collected(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The records of each scenario and guarantee, added up."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        name = f"{record['scenario']}, {record['guarantee']}"
        if name not in found:
            found[name] = dict(record)
            continue
        known = found[name]
        for each in _ADDED:
            known[each] += record[each]
        for each in ("happened", "queries"):
            known[each] = dict(Counter(known[each]) + Counter(record[each]))
        known["date"] = max(known["date"], record["date"])
    return found


def text(found: Mapping[str, Mapping[str, Any]], where: str) -> str:
    """The part of RELIABILITY.md."""
    records = [found[name] for name in sorted(found)]
    return _TEXT.format(
        machine=where,
        pyspark=" and ".join(sorted({each["pyspark"] for each in records})),
        cluster="; ".join(sorted({each["cluster"] for each in records})),
        found=_table(each for each in records if each["guarantee"] == _EXACTLY_ONCE),
        without=_table(
            dict(each, scenario=f"{each['scenario']} ({each['guarantee']})")
            for each in records
            if each["guarantee"] != _EXACTLY_ONCE
        ),
    )


def _table(records: Iterable[Mapping[str, Any]]) -> str:
    return table(_HEAD, map(_row, records), left=2)


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    happened = ", ".join(f"{count} x {what}" for what, count in record["happened"].items())
    queries = (record["queries"].get(name, 0) for name in _QUERIES)
    figures = (*queries, *(record[name] for name in _ADDED))
    return (record["scenario"], happened, *(f"{figure:,}" for figure in figures))


def main() -> None:
    """Reads the records and writes the table."""
    records = [json.loads(each.read_text("utf-8")) for each in sorted(RECORDS.rglob("*.json"))]
    before = json.loads(RESULTS.read_text("utf-8"))["scenarios"] if RESULTS.exists() else {}
    found = before | collected(records)
    where = machine.describe()
    RESULTS.write_text(
        json.dumps({"machine": where, "scenarios": dict(sorted(found.items()))}, indent=1) + "\n",
        encoding="utf-8",
    )
    document.write_spark(text(found, where))
    print(f"written: {RESULTS}, {document.RELIABILITY}")


if __name__ == "__main__":
    main()
