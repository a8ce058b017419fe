"""The results of a scenario, as JSON: many runs together make a table.

AIOPRODUCER_TEST_SPARK_RECORD   the folder it is written to; without it nothing is
"""

from __future__ import annotations

import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from support.spark_faults.session import FaultySession

_FOLDER = "AIOPRODUCER_TEST_SPARK_RECORD"


def judge(scenario: str, session: FaultySession, cluster: str, **more: Any) -> tuple[int, int]:
    """Return how many rows are there twice, and how many are missing; write the scenario's record.

    Args:
        scenario: its name.
        session: which has come to its end.
        cluster: what it wrote to.
        more: what else is to be said of it.
    """
    seconds = time.monotonic() - session.started
    duplicates, losses = session.wrong()
    for life in session.lives:
        life.process.wait(30)
    queries, lives = session.queries, session.lives
    record = {
        "scenario": scenario,
        "guarantee": queries[0].guarantee,
        "happened": dict(sorted(session.notes.items())) | more,
        "queries": {
            "sessions": len(lives),
            "started": len(lives) * len(queries),
            "killed": sum(len(life.running()) for life in lives),
            "failed": sum(len(life.failures()) for life in lives),
        },
        "batches": sum(each.batches() for each in queries),
        "rows": sum(each.files * each.lines for each in queries),
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
