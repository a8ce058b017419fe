"""Real faults on real Kafka: ours, aiokafka and confluent-kafka live through them side by side.

Method: three Kafka brokers in JVMs on this machine. In each scenario every client sends its own
numbered 100-byte records, at the same pace, to a separate topic, while the brokers or the network
break under all of them at once. Then confluent-kafka's consumer reads the topics.
The scenarios are those of `tests/support/faults`. The table goes to bench/RELIABILITY.md.

    AIOPRODUCER_BENCH_RECORDS    records per scenario and client at least, instead of 50,000
    AIOPRODUCER_BENCH_SCENARIOS  names of scenarios, separated by commas, instead of all;
                                 the table is then printed only
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from typing import TYPE_CHECKING

from bench import document, machine
from bench.tables import table

if TYPE_CHECKING:
    from support.faults import LoadClient, Scenario, Verdict

RECORDS = 50_000

_COLUMNS = (
    "accepted",
    "acknowledged",
    "failed",
    "lost",
    "duplicated",
    "reordered",
    "misplaced",
    "unresolved",
    "wrongly_not_persisted",
    "refused",
    "retries",
    "seconds",
)

_METHOD = """\
# Reliability under real faults

Written by `python -m bench reliability`; do not edit.

{facts}

**Method.** Three Apache Kafka brokers (JVMs on one machine, each a controller as well), topics of
{partitions} partitions with replication 3 and `min.insync.replicas` 2. All clients run at the same
time in one process, each with a separate topic, and send numbered 100-byte records at
{rate:,} records/s each until at least {records:,} are sent and the fault is over. All are
idempotent, `acks=all`, linger 5 ms, request timeout {request_s:g} s, delivery timeout
{delivery_s:g} s (aiokafka has none: it retries idempotent batches for ever), everything else at its
defaults. Partitions are given, so that the order within each is known. Afterwards confluent-kafka's
consumer reads the topics to their ends.

- *accepted*: the client took the record; *refused*: it raised instead, which is no promise, and
  the next record is tried. (aiokafka's `send` waits for room no longer than its request timeout.)
- *failed*: given up, with an error. *unresolved*: no outcome {grace_s:g} s after everything was
  sent and the fault was over.
- *lost*: acknowledged and not in the log. *duplicated*: copies beyond the first. *reordered*:
  after a record that was sent later to the same partition. *misplaced*: acknowledged at an offset
  where another record is stored.
- *wrongly not persisted*: called "not persisted", or refused, and in the log all the same. Only
  aioproducer says of a failure whether the record may have been written.
- *retries*: records that were sent again, where the client counts them.
- Only the record counts of one run are shown. A 0 says that this run found nothing, not that
  nothing can happen.
"""


def _facts(versions: dict[str, str], kafka: str) -> str:
    clients = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"- {machine.describe()}\n- CPython {platform.python_version()}, {clients}\n- {kafka}"


def _section(scenario: Scenario, verdicts: dict[str, Verdict], events: list[str]) -> str:
    found = table(
        ("client", *(name.replace("_", " ") for name in _COLUMNS)),
        (
            (client, *(_cell(verdict, name) for name in _COLUMNS))
            for client, verdict in verdicts.items()
        ),
    )
    notes = [
        f"- {client}: " + ", ".join(f"{count:,} x {reason}" for reason, count in verdict.reasons)
        for client, verdict in verdicts.items()
        if verdict.reasons
    ]
    notes += [
        f"- {client}: {verdict.deleted:,} acknowledged records were deleted with the topic and are "
        "not counted as lost"
        for client, verdict in verdicts.items()
        if verdict.deleted
    ]
    reported = "What was done, in seconds: " + "; ".join(events) + "."
    if scenario.remark:
        reported += f"\n\n{scenario.remark}"
    parts = [found, *(["\n".join(notes)] if notes else []), reported]
    return (
        f"## {scenario.name}\n\n{_sentence(scenario.description)}\n\n" + "\n\n".join(parts) + "\n"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _cell(verdict: Verdict, name: str) -> str:
    value = getattr(verdict, name)
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "seconds" else f"{value:,}"


async def _measure(names: list[str], clients: tuple[type[LoadClient], ...], records: int) -> str:
    from support.faults import SCENARIOS, Load, fault_ground, run
    from support.faults.clients import client_version
    from support.faults.ground import PARTITIONS
    from support.faults.runner import GRACE_S

    load = Load(records)
    delivery_s = load.delivery_timeout_ms / 1000
    sections = []
    async with fault_ground() as ground:
        for name in names:
            known, began = len(ground.events), time.monotonic()
            verdicts = await run(SCENARIOS[name], ground, clients, load)
            events = [f"{at - began:.0f} {event}" for at, event in ground.events[known:]]
            sections.append(_section(SCENARIOS[name], verdicts, events))
            print(sections[-1], flush=True)
        method = _METHOD.format(
            facts=_facts({c.name: client_version(c) for c in clients}, ground.cluster.description),
            partitions=PARTITIONS,
            rate=load.per_second,
            records=load.records,
            request_s=load.request_timeout_ms / 1000,
            delivery_s=delivery_s,
            grace_s=delivery_s + GRACE_S,
        )
    return "\n".join([method, *sections])


def main() -> None:
    machine.find_tests()
    from support.faults import CLIENTS, SCENARIOS

    for name in ("aioproducer", "aiokafka"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the verdicts show what went wrong
    chosen = os.environ.get("AIOPRODUCER_BENCH_SCENARIOS")
    names = chosen.split(",") if chosen else list(SCENARIOS)
    records = int(os.environ.get("AIOPRODUCER_BENCH_RECORDS") or RECORDS)
    report = asyncio.run(_measure(names, CLIENTS, records))
    if chosen:
        return
    document.write_faults(report)
    print(f"written: {document.RELIABILITY}")
