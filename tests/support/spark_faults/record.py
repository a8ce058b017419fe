"""What a scenario came to, as JSON: many runs together make a table.

AIOPRODUCER_TEST_SPARK_RECORD   the folder it is written to; without it nothing is
"""

from __future__ import annotations

import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from support.spark_faults.query import FaultyQuery

_FOLDER = "AIOPRODUCER_TEST_SPARK_RECORD"


def judge(scenario: str, query: FaultyQuery, cluster: str, **more: Any) -> tuple[int, int]:
    """How many rows are there twice, and how many are not; writes the scenario's record.

    Args:
        scenario: its name.
        query: which has come to its end.
        cluster: what it wrote to.
        more: what else is to be said of it.
    """
    seconds = time.monotonic() - query.started
    duplicates, losses = query.wrong()
    ends = [life.process.wait(30) for life in query.lives]
    record = {
        "scenario": scenario,
        "guarantee": query.options.get("delivery.guarantee", "exactly-once"),
        "happened": dict(sorted(query.notes.items())) | more,
        "queries": {
            "started": len(ends),
            "killed": sum(end < 0 for end in ends),
            "failed": sum(end > 0 for end in ends),
        },
        "batches": query.batches(),
        "rows": query.files * query.lines,
        "duplicates": duplicates,
        "losses": losses,
        "seconds": round(seconds),
        "cluster": cluster,
        "pyspark": version("pyspark"),
        "date": time.strftime("%Y-%m-%d"),
    }
    if folder := os.environ.get(_FOLDER):
        path = Path(folder) / f"{scenario}, {record['guarantee']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return duplicates, losses
