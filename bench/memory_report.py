"""The output of the memory benchmark: lines of text, figures as JSON, a plot.

Owns: words and pictures. Not here: how it was run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import machine
from bench.memory import ALLOWANCE, OVERLOAD, TASKS, VALUE_BYTES, Run, mib

_MIB = 1 << 20


def show(run: Run) -> None:
    """Print the outcome of one scenario."""
    figures = run.summary()
    wrong = figures["violations"]
    print(
        f"  offered {figures['offered_per_second']:,} records/s for {figures['frozen_s']:g} s\n"
        f"  idle {mib(run.idle)} + buffer {mib(run.buffer_memory)} + {mib(ALLOWANCE)} = "
        f"{mib(run.bound)}; peak {mib(run.peak)}, "
        f"{mib(figures['above_idle_and_buffer_bytes'])} above idle and buffer\n"
        f"  {figures['waited_in_line']:,} sends waited in line, {figures['longest_wait_s']:g} s at "
        f"most, {figures['overtaken']:,} overtaken\n"
        f"  {figures['accepted']:,} accepted, {figures['read_back']:,} read back; lost "
        f"{figures['lost']}, duplicated {figures['duplicated']}, reordered {figures['reordered']}\n"
        f"  {'; '.join(wrong) if wrong else 'all promises kept'}",
        flush=True,
    )


def _draw(runs: list[Run], path: Path) -> None:
    from bench.plots import figure

    with figure(path, rows=len(runs), height=3.2) as axes:
        for run, axis in zip(runs, axes, strict=True):
            _draw_run(run, axis)
        axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), fontsize="small", ncols=3)
        axes[-1].set_xlabel("seconds")


def _draw_run(run: Run, axis: Any) -> None:
    began = run.events["frozen"]
    axis.plot(
        [at - began for at, _ in run.samples],
        [rss / _MIB for _, rss in run.samples],
        label="process memory",
        color="C0",
    )
    axis.plot(
        [c["at"] - began for c in run.counters],
        [c["buffer_used"] / _MIB for c in run.counters],
        label="buffer_memory in use",
        color="C1",
    )
    axis.axhline(run.bound / _MIB, color="C3", label="allowed: idle + buffer_memory + 48 MiB")
    axis.axhline(run.idle / _MIB, color="C7", linestyle=":", label="idle process")
    axis.axvspan(0, run.events["thawed"] - began, color="C0", alpha=0.08, label="cluster frozen")
    for name in ("stopped", "drained"):
        axis.axvline(run.events[name] - began, color="C2", linestyle="--", label=name)
    axis.set_title(
        f"{run.name}: {OVERLOAD} x {run.capacity:,.0f} records/s of 1 KiB from {TASKS:,} tasks"
    )
    axis.set_ylabel("MiB")
    axis.set_ylim(bottom=0)


def write(runs: list[Run], directory: Path) -> None:
    """Keep the outcome in this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    results, plot = directory / "memory.json", directory / "memory.png"
    figures = {
        "machine": machine.describe(),
        "tasks": TASKS,
        "value_bytes": VALUE_BYTES,
        "allowance_bytes": ALLOWANCE,
        "scenarios": {run.name: run.summary() for run in runs},
    }
    results.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    _draw(runs, plot)
    print(f"written: {results}, {plot}")
