"""bench/SCALE.md and its plot, from what `bench.scale` has measured.

Owns: words, tables and pictures. Not here: how anything was measured.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import slope
from bench.scale import (
    BASE,
    IDLE,
    MOST_BYTES,
    MOST_GROWTH,
    Results,
    bytes_per_partition,
    growth,
)
from bench.scale_load import SHAPES
from bench.tables import FAIL, PASS, table

if TYPE_CHECKING:
    from bench.scale_day import DayResult

_PLOT = "scale.png"
_PER = {IDLE: 1_000, "partitions active": 1_000}
"""Of how many the slope is given; of one for the others."""

_TEXT = """\
# Scale

Written by `make scale` on {machine}, CPython {python}.

One dimension changes at a time; the other values are {known:,} partitions known, {active} of them
active, {brokers} brokers, {in_flight} requests in flight per broker. The embedded cluster runs in a
separate process; CPU time is that of the producer's process, per record of 100 bytes, the lowest
of several rounds. *One by one* awaits each record, with a linger of 1 ms: a turn of the sender for
each. *Spread* sends one record to each active partition and flushes, again and again, so that each
batch has one record. "CPU to learn" is the time that the producer needs for the metadata of all
topics, per partition. Memory is what Python objects hold of the metadata.

![CPU per record by partitions known, partitions active, brokers and requests in flight]({plot})

{tables}

## Slopes

Of the straight line nearest to the values above.

{slopes}

| bound | measured | |
| --- | ---: | --- |
| an idle partition keeps at most {most_bytes:,} bytes | {bytes:,.0f} | {bytes_verdict} |
| a record costs at most {growth:.0%} more with {times:,} times the idle partitions | {grown} | \
{growth_verdict} |

## A day of a large cluster

{day}
"""

_DAY = """\
In virtual time, with the network, clock and brokers of the simulation: {hours:g} hour(s) of
{brokers} brokers with {partitions:,} partitions, {active:,} of them active, and {producers}
producers. Each broker was killed once and was away for {down:g} s. Each hour a topic was created,
used, and deleted an hour later. Compared at the end: what each call returned, and all logs.

| | |
| --- | ---: |
| records | {records:,} |
| requests of the producers | {requests:,} |
| failed | {failed} |
| lost, duplicated, reordered or reported wrongly | {anomalies} |
| CPU time of brokers and producers | {cpu:,.0f} s |
"""


def write(results: Results, day: DayResult, where: str, directory: Path) -> None:
    """Write the page and its plot to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "SCALE.md"
    path.write_text(page(results, day, where), encoding="utf-8")
    _draw(results, directory / _PLOT)
    print(f"written: {path}")


def page(results: Results, day: DayResult, where: str) -> str:
    """Return the page."""
    kept = bytes_per_partition(results)
    factors = growth(results).values()
    (fewest, _), *_, (most, _) = results[IDLE]
    return _TEXT.format(
        machine=where,
        python=platform.python_version(),
        known=BASE.known,
        active=BASE.active,
        brokers=BASE.brokers,
        in_flight=BASE.in_flight,
        plot=_PLOT,
        tables="\n\n".join(_table(name, results) for name in results),
        slopes=_slopes(results),
        most_bytes=MOST_BYTES,
        bytes=kept,
        bytes_verdict=PASS if kept <= MOST_BYTES else FAIL,
        growth=MOST_GROWTH - 1,
        times=most // fewest,
        grown=", ".join(f"{factor - 1:+.0%}" for factor in factors),
        growth_verdict=PASS if max(factors) <= MOST_GROWTH else FAIL,
        day=_DAY.format(
            hours=day.day.hours,
            brokers=day.day.brokers,
            partitions=day.day.topics * day.day.partitions,
            active=day.day.active,
            producers=day.day.producers,
            down=day.day.down_s,
            records=day.records,
            requests=day.requests,
            failed=len(day.errors),
            anomalies=len(day.anomalies),
            cpu=day.cpu_s,
        ),
    )


def day_line(day: DayResult) -> str:
    """Return the outcome of the day in a line."""
    return (
        f"a day of {day.day.brokers} brokers: {day.records:,} records in {day.requests:,} "
        f"requests, {len(day.errors)} failed, {len(day.anomalies)} contradiction(s), "
        f"{day.cpu_s:.0f} s of CPU"
    )


def _table(name: str, results: Results) -> str:
    heads = (name, *(f"{shape}, us" for shape in SHAPES), "CPU to learn, us", "memory, KiB")
    rows = [
        (
            f"{value:,}",
            *(f"{each.us[shape]:.1f}" for shape in SHAPES),
            f"{each.learn_us:.1f}",
            f"{each.held_bytes / 1024:,.0f}",
        )
        for value, each in results[name]
    ]
    return table(heads, rows)


def _slopes(results: Results) -> str:
    rows = []
    for name, found in results.items():
        slopes = [slope([(value, each.us[shape]) for value, each in found]) for shape in SHAPES]
        per = _PER.get(name, 1)
        rows.append((name, f"{per:,}", *(f"{each * per:+,.2f} us" for each in slopes)))
    return table(("what grows", "by", *SHAPES), rows)


def _draw(results: Results, path: Path) -> None:
    from bench.plots import figure

    with figure(path, rows=len(results), height=2.4) as axes:
        for (name, found), axis in zip(results.items(), axes, strict=True):
            for shape in SHAPES:
                values = [value for value, _ in found]
                axis.plot(values, [each.us[shape] for _, each in found], "o-", label=shape)
            axis.set_xscale("log")
            axis.set_xlabel(name)
            axis.set_ylabel("us CPU per record")
            axis.set_ylim(bottom=0)
        axes[0].legend(loc="upper left", fontsize="small")
