"""The output of a soak: a table, figures as JSON, a plot, a part of bench/RELIABILITY.md.

Owns: words and pictures. Not here: how it was run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import document
from bench.soak import FAULT_EVERY_S, GROWTH_ALLOWED, OPTIONS, VALUE_BYTES, Soak
from bench.tables import table

_MIB = 1 << 20
_COLOURS = {"kill": "C3", "SIGSTOP": "C4", "rolling": "C5", "network": "C2", "two": "C1"}
_TEXT = """\
# Soak: {minutes:g} minutes of faults

- {machine}
- {cluster}

**Method.** One producer sends {value_bytes}-byte numbered records at {rate:,} a second to a topic
of 6 partitions with replication 3, `min.insync.replicas` 2 and bounded retention, through a proxy
before each broker. Every {every:g} s something breaks, drawn from a seed ({seed}); the next fault
waits until all replicas are in sync again. Idempotence and `acks=all` as by default, linger
{linger_ms} ms, request timeout {request_s:g} s, delivery timeout {delivery_s:g} s.
confluent-kafka's consumer follows in a separate process and checks the numbers; the outcome of
every record is checked, and its offset has to be its number. The other words mean what they mean
above.

- *growth*: the slope of process memory over the second half, times its length; less than
  {allowed:g} MiB is allowed. The first fault fills `buffer_memory`, which stays with the process.
- *left*: in the end, when every record had its outcome.

{figures}

{faults}

![Rate and memory over time](soak.png)
"""


def write(soak: Soak, directory: Path) -> None:
    """Print the outcome, and keep it in this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    results, plot = directory / "soak.json", directory / "soak.png"
    summary = soak.summary()
    timeline = [
        {"at_s": round(begin - soak.began), "until_s": round(end - soak.began), "fault": name}
        for begin, end, name in soak.faults
    ]
    results.write_text(
        json.dumps(summary | {"timeline": timeline}, indent=2) + "\n", encoding="utf-8"
    )
    _draw(soak, plot)
    figures = _figures(soak)
    print(f"\n{figures}\n\n{_faults(soak)}\n")
    if directory == document.RELIABILITY.parent:
        document.write_soak(_text(soak, summary, figures))
    wrong = soak.violations()
    print("VIOLATIONS: " + "; ".join(wrong) if wrong else "zero violations, memory flat")
    print(f"written: {results}, {plot}")


def _text(soak: Soak, summary: dict[str, Any], figures: str) -> str:
    return _TEXT.format(
        minutes=soak.plan.minutes,
        machine=summary["machine"],
        cluster=summary["cluster"],
        value_bytes=VALUE_BYTES,
        rate=soak.plan.rate,
        every=FAULT_EVERY_S,
        seed=soak.plan.seed,
        linger_ms=OPTIONS["linger_ms"],
        request_s=OPTIONS["request_timeout_ms"] / 1000,
        delivery_s=OPTIONS["delivery_timeout_ms"] / 1000,
        allowed=GROWTH_ALLOWED / _MIB,
        figures=figures,
        faults=_faults(soak),
    )


def _figures(soak: Soak) -> str:
    settled = soak.settled
    rows = {
        "records sent": f"{settled['sent']:,}",
        "acknowledged": f"{settled['acknowledged']:,}",
        "read back": f"{soak.findings['read']:,}",
        **{name: f"{count:,}" for name, count in soak.verdict().items()},
        "records sent again": f"{settled['retried']:,.0f}",
        "records per second": f"{soak.pace:,.0f}",
        "faults": f"{len(soak.faults)}",
        "memory at most": f"{soak.peak / _MIB:.1f} MiB",
        "growth": f"{soak.growth / _MIB:.1f} MiB",
    }
    return table(("", ""), rows.items())


def _faults(soak: Soak) -> str:
    counts = ", ".join(f"{count} x {name}" for name, count in soak.fault_counts().items())
    return f"Faults: {counts}."


def _draw(soak: Soak, path: Path) -> None:
    from bench.plots import figure

    with figure(path, rows=2, height=3.2, width=12) as (rate, memory):
        _draw_rates(soak, rate)
        _draw_memory(soak, memory)
        for axis in (rate, memory):
            _mark_faults(soak, axis)
            axis.set_xlim(0, None)
            axis.set_ylim(0, None)
        rate.legend(loc="upper right", fontsize="x-small", ncols=4)
        memory.legend(loc="upper right", fontsize="x-small", ncols=2)
        memory.set_xlabel("minutes")


def _draw_rates(soak: Soak, axis: Any) -> None:
    pairs = list(zip(soak.counters, soak.counters[1:], strict=False))
    minutes = [(after["at"] - soak.began) / 60 for _, after in pairs]
    for name in ("sent", "acknowledged"):
        rates = [(b[name] - a[name]) / (b["at"] - a["at"]) for a, b in pairs]
        axis.plot(minutes, rates, label=name, linewidth=0.8)
    axis.set_ylabel("records/s")
    axis.set_title(
        f"{soak.settled['sent']:,} records of {VALUE_BYTES} bytes, {len(soak.faults)} faults, "
        f"seed {soak.plan.seed}"
    )


def _draw_memory(soak: Soak, axis: Any) -> None:
    axis.plot(
        [(at - soak.began) / 60 for at, _ in soak.rss],
        [size / _MIB for _, size in soak.rss],
        label="process memory",
        color="C0",
    )
    axis.plot(
        [(c["at"] - soak.began) / 60 for c in soak.counters],
        [c["buffer_used"] / _MIB for c in soak.counters],
        label="buffer_memory in use",
        color="C8",
        linewidth=0.8,
    )
    axis.set_ylabel("MiB")


def _mark_faults(soak: Soak, axis: Any) -> None:
    reported = set()
    for begin, end, name in soak.faults:
        kind = name.split()[0]
        axis.axvspan(
            (begin - soak.began) / 60,
            (end - soak.began) / 60,
            color=_COLOURS[kind],
            alpha=0.25,
            linewidth=0,
            label=None if kind in reported else {"two": "two brokers frozen"}.get(kind, kind),
        )
        reported.add(kind)
