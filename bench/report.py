"""The output of `make bench`: figures as JSON, tables, plots.

Owns: words and pictures. Not here: how it was run. A whole run with all its rounds goes to
`bench/`, any other to `build/bench/`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.bars import Verdict, verdicts
from bench.cells import CLIENTS, EXTRAS, MODES
from bench.tables import FAIL, PASS, table

RECORDED = Path(__file__).parent
ELSEWHERE = RECORDED.parent / "build" / "bench"
_COLOURS = {name: f"C{index}" for index, name in enumerate(CLIENTS)}
_DIGITS = {"cpu_us": 2, "life_cpu_us": 2, "p50_ms": 2, "p99_ms": 2, "p999_ms": 2, "ns": 1}
_HEADS = {
    "rate": "records/s",
    "cpu_us": "CPU µs/record",
    "life_cpu_us": "with start and warm-up",
    "peak_mib": "peak MiB",
    "records_per_request": "records/request",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
}
_SIGNS = {True: PASS, False: FAIL, None: "not measured"}
_TEXT = """\
# What a record costs

Written by `make bench`; do not edit. How it was measured, and what is unfair to which client, is in
[README.md](README.md).

- {machine}; {when} UTC, {minutes:g} minutes, {rounds} interleaved rounds
- {versions}
- {servers}

Medians; in brackets the lowest and the highest of the rounds. {held} of {all} bars hold, {open} are
not measured.

## Bars

{bars}

{tables}
"""


def write(results: dict[str, Any], directory: Path) -> None:
    """Print the bars, keep everything in this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = document(results)
    (directory / "RESULTS.md").write_text(text, encoding="utf-8")
    _draw(results["cells"], directory)
    print(f"\n{text}\nwritten: {directory}/results.json, RESULTS.md, *.png")


def document(results: Mapping[str, Any]) -> str:
    """RESULTS.md."""
    found = verdicts(results["cells"] | results["encoding"])
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    servers = "; ".join(f"{name}: {text}" for name, text in results["servers"].items())
    return _TEXT.format(
        machine=results["machine"],
        when=results["when"],
        minutes=results["minutes"],
        rounds=results["method"]["rounds"],
        versions=versions,
        servers=servers,
        held=sum(verdict.held is True for verdict in found),
        open=sum(verdict.held is None for verdict in found),
        all=len(found),
        bars=table(("measure", "ours", "theirs", "ratio", "bar", ""), map(_bar_row, found)),
        tables="\n\n".join(_sections(results["cells"])),
    )


def _bar_row(verdict: Verdict) -> tuple[str, ...]:
    bar = verdict.bar
    limit = f"{'≥' if bar.at_least else '≤'} {bar.limit:g}"
    ratio = "" if verdict.value is None else f"{verdict.value:.2f}"
    return (
        bar.text,
        _number(bar.measure, verdict.ours),
        _number(bar.measure, verdict.theirs),
        ratio,
        limit,
        _SIGNS[verdict.held],
    )


def _sections(cells: Mapping[str, Any]) -> Iterable[str]:
    """One table for each way of sending, server and shape of load."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for entry in cells.values():
        groups[_title(entry["cell"])].append(entry)
    for title, entries in groups.items():
        paced = entries[0]["cell"]["mode"] == "latency"  # its rate is given
        measures = [
            name
            for name in _HEADS
            if any(name in entry for entry in entries) and not (paced and name == "rate")
        ]
        heads = ("client", "records", *(_HEADS[name] for name in measures))
        rows = (_entry_row(entry, measures) for entry in entries)
        yield f"## {title}\n\n{table(heads, rows)}"


def _title(cell: Mapping[str, Any]) -> str:
    keyed = "keyed" if cell["keyed"] else "no keys"
    shape = f"{cell['size']} B, {cell['codec']}, {cell['partitions']} partition(s), {keyed}"
    extra = cell.get("extra", "")
    besides = f", {EXTRAS[extra]}" if extra else ""
    return f"{MODES[cell['mode']]}: {cell['server']}, {shape}, {cell['tuning']} tuning{besides}"


def _entry_row(entry: Mapping[str, Any], measures: Iterable[str]) -> tuple[str, ...]:
    client = entry["cell"]["client"]
    if not entry["runs"]:
        return (client, "", entry.get("problem", "not run"))
    spreads = (entry.get(measure) for measure in measures)
    texts = (
        f"{_number(name, each['median'])} "
        f"({_number(name, each['lowest'])}..{_number(name, each['highest'])})"
        if each
        else ""
        for name, each in zip(measures, spreads, strict=True)
    )
    return (client, f"{entry['runs'][0]['records']:,}", *texts)


def _number(measure: str, value: float | None) -> str:
    return "" if value is None else f"{value:,.{_DIGITS.get(measure, 0)}f}"


def _draw(cells: Mapping[str, Any], directory: Path) -> None:
    common = [
        entry
        for entry in cells.values()
        if entry["runs"]
        and entry["cell"]["server"] == "kafka"
        and entry["cell"]["size"] == 100
        and entry["cell"]["codec"] == "none"
        and entry["cell"]["tuning"] == "common"
        and entry["cell"]["partitions"] <= 6
        and not entry["cell"]["keyed"]
        and not entry["cell"].get("extra")
    ]
    latency = [entry for entry in common if entry["cell"]["mode"] == "latency"]
    sending = [entry for entry in common if entry["cell"]["mode"] != "latency"]
    if sending:
        _draw_bars(sending, "cpu_us", "client CPU per record, µs (less is better)", directory)
        _draw_bars(sending, "rate", "records per second (more is better)", directory)
    if latency:
        _draw_latency(latency, directory / "latency.png")


def _draw_bars(entries: list[Any], measure: str, title: str, directory: Path) -> None:
    from bench.plots import figure

    entries = sorted(entries, key=lambda entry: entry[measure]["median"])
    if measure == "rate":
        entries.reverse()
    with figure(directory / f"{measure}.png", rows=1, height=0.6 + 0.28 * len(entries)) as (axis,):
        for row, entry in enumerate(entries):
            client, found = entry["cell"]["client"], entry[measure]
            below, above = (abs(found["median"] - found[name]) for name in ("lowest", "highest"))
            axis.barh(
                row, found["median"], xerr=[[below], [above]], color=_COLOURS[client], capsize=2
            )
            axis.annotate(
                f" {_number(measure, found['median'])}",
                (found["highest"], row),
                va="center",
                fontsize="small",
            )
        labels = [f"{each['cell']['client']}: {each['cell']['mode']}" for each in entries]
        axis.set_yticks(range(len(entries)), labels, fontsize="small")
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.set_title(f"{title}; 100 B, acks=all, idempotent, one Kafka broker", fontsize="medium")


def _draw_latency(entries: list[Any], path: Path) -> None:
    from bench.plots import figure

    with figure(path, rows=1, height=0.8 + 0.45 * len(entries)) as (axis,):
        for row, entry in enumerate(entries):
            for measure, marker in (("p50_ms", "o"), ("p99_ms", "s"), ("p999_ms", "^")):
                found = entry[measure]
                axis.plot(
                    found["median"],
                    row,
                    marker,
                    color=_COLOURS[entry["cell"]["client"]],
                )
        axis.set_xscale("log")
        axis.set_yticks(range(len(entries)), [entry["cell"]["client"] for entry in entries])
        axis.set_title("send_and_wait at 1,000/s, milliseconds: p50 (o), p99 (□), p99.9 (△)")
        axis.grid(axis="x", which="both", alpha=0.3)
        axis.invert_yaxis()
