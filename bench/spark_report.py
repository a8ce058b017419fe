"""The output of `make bench-spark`: figures as JSON, and a page of tables.

Owns: words. Not here: Spark, how it was run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Spread, spread
from bench.spark_cases import MICRO_BARS, MICRO_SINKS, Bar, Case, bars
from bench.tables import FAIL, PASS, table

RECORDED = Path(__file__).parent
ELSEWHERE = RECORDED.parent / "build" / "bench"
_SINKS = {
    "ours": "aioproducer",
    "default": "Spark's own sink",
    "tuned": "Spark's own sink, tuned",
    "large": "Spark's own sink, tuned, batches as ours",
    "noop": "none (Spark's `noop`)",
    "discard": "none (Python, rows dropped)",
}
_FIGURES = (
    "sink",
    "codec",
    "keys",
    "Spark partitions",
    "rows",
    "rows/s",
    "CPU µs/row",
    "JVM",
    "Python",
    "broker",
)
_TEXT = """\
# Spark into Kafka

Written by `make bench-spark`; do not edit.

- {machine}; {when} UTC, {minutes:g} minutes, {rounds} interleaved rounds
- {versions}
- {server}
- Spark's own Kafka sink: {connector}; *tuned*: {tuned}
- aioproducer, by itself: {ours}

One `local[2]` session writes DataFrames of numbered rows with values of 100 bytes, by both sinks in
turns, to a topic of 4 partitions; the broker runs on the same machine. CPU is that of the JVM and
its Python workers, the making of the rows included: the rows of Spark's `noop` say what that takes,
those of a sink in Python that drops everything what it takes together with the way into a worker.
JVM and Python are its parts; that of the broker comes on top, and takes the same cores.
All are idempotent with acks=all. Medians; in brackets the lowest and the highest of the rounds.
200,000 rows are written ten times in each round, with either guarantee in turns, also in the two
before the first: a broker that has seen few transactions runs uncompiled code.
{held} of {all} bars hold.

## Bars

{bars}

## Figures

{figures}

## What a micro-batch takes

200 rows a batch, as fast as it goes: the median of Spark's `addBatch`, in which it is planned,
written and committed; then the median of the rounds, in which the sinks take turns. No sink in
Python takes less than one that drops its rows, unless the driver writes.

{latencies}
"""


def write(found: Mapping[str, Any], directory: Path) -> None:
    """Print the page; keep it and the figures in this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "spark.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    text = page(found)
    (directory / "SPARK.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nwritten: {directory}/spark.json, SPARK.md")


def page(found: Mapping[str, Any]) -> str:
    """SPARK.md."""
    medians = {
        key: {name: spread(run[name] for run in runs) for name in runs[0]}
        for key, runs in found["cases"].items()
    }
    measured = [
        (bar, ours[bar.measure].median, theirs[bar.measure].median)
        for bar in bars()
        if (ours := medians.get(bar.ours.scaled(found["share"]).key))
        and (theirs := medians.get(bar.theirs.scaled(found["share"]).key))
    ]
    micro = micro_bars(found["micro_batch_ms"])
    given = {name: found[name] for name in ("machine", "when", "minutes", "rounds", "server")}
    return _TEXT.format(
        **given,
        versions=", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        connector=", ".join(f"`{each}`" for each in found["connector"]),
        tuned=", ".join(f"`{name}={value}`" for name, value in found["tuned"].items()),
        ours=", ".join(f"`kafka.{name}={value}`" for name, value in found["ours"].items()),
        held=sum(bar.is_held(ours / theirs) for bar, ours, theirs in measured)
        + sum(row[-1] == PASS for row in micro),
        all=len(bars()) + len(MICRO_BARS),
        bars=table(
            ("measure", "ours", "theirs", "ratio", "bar", ""), [*map(_bar_row, measured), *micro]
        ),
        figures=table(
            _FIGURES,
            (_case_row(Case.named(key), each) for key, each in medians.items()),
            left=3,
        ),
        latencies=_latencies(found["micro_batch_ms"]),
    )


def _bar_row(measured: tuple[Bar, float, float]) -> tuple[str, ...]:
    bar, ours, theirs = measured
    digits = 0 if bar.at_least else 2
    return (
        bar.text,
        f"{ours:,.{digits}f}",
        f"{theirs:,.{digits}f}",
        f"{ours / theirs:.2f}",
        f"{'≥' if bar.at_least else '≤'} {bar.limit:g}",
        PASS if bar.is_held(ours / theirs) else FAIL,
    )


def _case_row(case: Case, figures: Mapping[str, Spread]) -> tuple[str, ...]:
    guarantee = "" if case.guarantee == "at-least-once" else f", {case.guarantee}"
    return (
        _SINKS[case.sink] + guarantee,
        case.codec,
        "yes" if case.keyed else "no",
        f"{case.tasks:,}",
        f"{case.rows:,}",
        _shown(figures["rate"], 0),
        _shown(figures["cpu_us"], 2),
        *(f"{figures[f'{who}_us'].median:.2f}" for who in ("jvm", "python", "broker")),
    )


def _shown(each: Spread, digits: int) -> str:
    median, *bounds = (f"{x:,.{digits}f}" for x in (each.median, each.lowest, each.highest))
    return f"{median} ({'..'.join(bounds)})"


def micro_bars(found: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """The rows of the bars of micro-batches that were measured."""
    rows = []
    for sink, limit in MICRO_BARS.items():
        if sink in found and "discard" in found:
            ours, theirs = median(found[sink]), median(found["discard"])
            kept = PASS if ours / theirs <= limit else FAIL
            text = f"micro-batch, {sink}: ms beside a Python sink that drops its rows"
            ratio = f"{ours / theirs:.2f}"
            rows.append((text, f"{ours:.0f}", f"{theirs:.0f}", ratio, f"≤ {limit:g}", kept))
    return rows


def _latencies(found: Mapping[str, Sequence[float]]) -> str:
    if "discard" not in found:
        return "Not measured."
    empty = median(found["discard"])
    rows = (
        (name, _shown(spread(found[sink]), 0), f"{median(found[sink]) / empty:.2f}")
        for sink, name in MICRO_SINKS.items()
        if sink in found
    )
    return table(("", "ms", "beside an empty Python sink"), rows)
