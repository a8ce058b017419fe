"""Transactions under real faults, by both transaction versions, into bench/RELIABILITY.md.

Method: see the text below; the scenarios are those of `tests/support/transactions`.

    AIOPRODUCER_BENCH_TRANSACTIONS  committed transactions per scenario at least, instead of 500
    AIOPRODUCER_BENCH_SCENARIOS     names of scenarios, separated by commas, instead of all;
                                    the table is then printed only
    AIOPRODUCER_BENCH_VERSIONS      transaction versions, instead of 2,1; printed only as well
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from bench import document, machine
from bench.tables import table

if TYPE_CHECKING:
    from support.transactions.pipeline import PipelineResult
    from support.transactions.runner import Load, Result

TRANSACTIONS = 500
VERSIONS = (2, 1)

_COLUMNS = (
    "committed",
    "aborted",
    "never_committed",
    "unknown_whole",
    "unknown_absent",
    "records",
    "missing",
    "torn",
    "leaked",
    "duplicated",
    "reordered",
    "strange",
    "committed_losses",
    "position_wrong",
    "stuck",
)
_HEAD = ("scenario", *(name.replace("_", " ") for name in _COLUMNS), "control", "producers")
_TEXT = """\
# Transactions under real faults

- {machine}
- CPython {python}, aioproducer {ours}, confluent-kafka {confluent}
- {cluster}

**Method.** One client commits at least {transactions} transactions per scenario to a topic of
{partitions} partitions with replication 3 and `min.insync.replicas` 2. Each transaction has 1 to
40 numbered records over all partitions; half of them move a consumer group's position by
`send_offsets` too, and every tenth is aborted on purpose. What fails is aborted, a call that ran
out of time is repeated, after a fatal error (or a kill) a new producer with the same transactional
id goes on. A broker is hit while the client is held exactly before the phase that the scenario
names: killed there, or frozen there and killed 0.5 s after the client's request went out. Request
timeout {request_s:g} s, `max_block_ms` {block_s:g} s. Afterwards confluent-kafka's read_committed
consumer reads the topic to its end, and a consumer of the Java client has to see the same bytes.

- *aborted*: on purpose or after a failure. *never committed*: the client died, or was fenced,
  before it called commit.
- *unknown*: the client died, or was fenced, while its commit had no answer. Such a transaction may
  be visible *whole* or be *absent*.
- *missing*: records of committed transactions that are not visible. *torn*: transactions of
  unknown outcome that are visible in part. *leaked*: visible records of transactions that were
  aborted or never committed. *duplicated*, *reordered*: among the visible records. *strange*:
  visible and never sent. *committed losses*: records that failed in a transaction whose commit
  succeeded. *position wrong*: the group's position is not where the last visible transaction put
  it. *stuck*: partitions held up by a transaction that is never ended.
- *control*: what the same judge finds *leaked* for a read_uncommitted consumer; were it 0, the
  judge would be blind.
- *producers*: how many, one after the other, it took.

{tables}"""


def _pipeline(result: PipelineResult) -> str:
    return (
        f"**Consume, transform, produce.** A program copies {result.inputs:,} records from one "
        "topic to another with confluent-kafka's consumer, a static member of a group whose "
        "positions are part of the same transactions. It was ended by `kill -9` "
        f"{result.kills} times (by its own error {result.other_ends} times), and "
        f"{result.transactions:,} commits were reported to it. Inputs without output: "
        f"{result.missing}; outputs beyond the first of an input: {result.duplicated}; "
        f"partitions in another order: {result.reordered}.\n"
    )


def _table(level: int, results: dict[str, Result]) -> str:
    rows = []
    for name, result in results.items():
        counts = [f"{getattr(result.verdict, column):,}" for column in _COLUMNS]
        rows.append([name, *counts, f"{result.uncommitted.leaked:,}", str(result.producers)])
    notes = [_note(name, result) for name, result in results.items()]
    found = table(_HEAD, rows)
    return f"## transaction.version {level}\n\n{found}\n\n" + "\n".join(notes) + "\n"


def _note(name: str, result: Result) -> str:
    done = "; ".join(result.events)
    met = ", ".join(f"{count} x {reason}" for reason, count in result.reasons) or "none"
    slowest = f" Longest transaction: {result.slowest_s:.1f} s." if result.slowest_s else ""
    reader = {None: " No Java reader.", True: "", False: " **The Java reader disagrees.**"}
    return (
        f"- {name}, {result.seconds:.0f} s. Done: {done}. Errors that the application saw: "
        f"{met}.{slowest}{reader[result.java_agrees]}"
    )


async def _measure(levels: list[int], names: list[str], load: Load) -> str:
    from support.faults.ground import PARTITIONS, fault_ground
    from support.transactions.client import Work
    from support.transactions.pipeline import run_pipeline
    from support.transactions.runner import BROKER_CONFIG, run
    from support.transactions.scenarios import SCENARIOS

    tables = []
    for level in levels:
        features = {"transaction.version": level}
        async with fault_ground(config=BROKER_CONFIG, features=features) as ground:
            cluster = ground.cluster.description
            results: dict[str, Result] = {}
            for name in names:
                results[name] = await run(SCENARIOS[name], ground, load)
                print(_table(level, {name: results[name]}), flush=True)
            pipeline = _pipeline(await run_pipeline(ground, load.transactions))
            print(pipeline, flush=True)
        tables += [_table(level, results), pipeline]
    return _TEXT.format(
        machine=machine.describe(),
        python=platform.python_version(),
        ours=version("aioproducer"),
        confluent=version("confluent-kafka"),
        cluster=cluster,
        transactions=load.transactions,
        partitions=PARTITIONS,
        request_s=Work.request_timeout_ms / 1000,
        block_s=Work.max_block_ms / 1000,
        tables="\n".join(tables),
    )


def main() -> None:
    machine.find_tests()
    from support.transactions.runner import Load
    from support.transactions.scenarios import SCENARIOS

    logging.getLogger("aioproducer").setLevel(logging.CRITICAL)  # the verdicts show what went wrong
    chosen = os.environ.get("AIOPRODUCER_BENCH_SCENARIOS")
    levels = os.environ.get("AIOPRODUCER_BENCH_VERSIONS")
    transactions = int(os.environ.get("AIOPRODUCER_BENCH_TRANSACTIONS") or TRANSACTIONS)
    text = asyncio.run(
        _measure(
            [int(level) for level in levels.split(",")] if levels else list(VERSIONS),
            chosen.split(",") if chosen else list(SCENARIOS),
            Load(transactions),
        )
    )
    if chosen or levels:
        return
    document.write_transactions(text)
    print(f"written: {document.RELIABILITY}")


if __name__ == "__main__":
    main()
