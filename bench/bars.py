"""The bars: what the figures have to be beside each other, and whether they are.

Owns: which cells a bar compares and its limit. Not here: how figures came about.

A bar compares medians of one run. One whose cells were not measured is open: neither held nor
missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.cells import ESSENTIAL, EXTRAS, KNOWN_FEW, KNOWN_MANY, Cell

Cells = Mapping[str, Any]

ENCODE, COPY = "encode/arrow", "encode/copy and CRC"
"""Keys of what is measured within one process."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`ours` against `theirs`: the quotient of their medians of one measure has a limit.

    Attributes:
        text: What is compared.
        ours: The key of our cell.
        theirs: That of the other.
        measure: By its name in results.
        limit: What the quotient may reach.
        at_least: The quotient has to reach the limit, instead of staying below.
    """

    text: str
    ours: str
    theirs: str
    measure: str
    limit: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and what was found; `value` is None where something was not measured."""

    bar: Bar
    ours: float | None
    theirs: float | None

    @property
    def value(self) -> float | None:
        if self.ours is None or self.theirs is None:
            return None
        return self.ours / self.theirs

    @property
    def held(self) -> bool | None:
        if self.value is None:
            return None
        at_least = self.bar.at_least
        return self.value >= self.bar.limit if at_least else self.value <= self.bar.limit


def _cell(client: str, mode: str = "each", **facts: Any) -> str:
    return Cell(client, mode, **facts).key


def _cpu(text: str, ours: str, theirs: str, limit: float) -> Bar:
    return Bar(text, ours, theirs, "cpu_us", limit)


def _rate(text: str, ours: str, theirs: str, limit: float) -> Bar:
    return Bar(text, ours, theirs, "rate", limit, at_least=True)


def _latency_bars(client: str) -> list[Bar]:
    ours = _cell(client, "latency", partitions=1)
    label = f"{client}: latency at 1,000/s"
    bars = []
    for measure, limit in (("p50_ms", 1.15), ("p99_ms", 1.3)):
        streams = _cell("streams", "latency", partitions=1)
        name = measure.removesuffix("_ms")
        bars.append(Bar(f"{label}, {name} beside bare streams", ours, streams, measure, limit))
        for peer in ("aiokafka", "confluent", "confluent-aio"):
            theirs = _cell(peer, "latency", partitions=1)
            most = 1.1 if (peer, name) == ("confluent", "p50") else 1.0
            bars.append(Bar(f"{label}, {name} beside {peer}", ours, theirs, measure, most))
    return bars


def _client_bars(client: str) -> list[Bar]:
    each, dropped = _cell(client), _cell(client, "dropped")
    bare = _cell("confluent", "dropped")
    awaited = f"{client}: send(), every delivery awaited"
    return [
        _cpu(f"{awaited}: CPU beside aiokafka", each, _cell("aiokafka"), 0.1),
        _cpu(f"{awaited}: CPU beside confluent with callbacks", each, _cell("confluent"), 0.6),
        _cpu(f"{awaited}: CPU beside Java when both are warm", each, _cell("java"), 0.5),
        Bar(
            f"{awaited}: CPU beside Java, start and warm-up of both included",
            each,
            _cell("java"),
            "life_cpu_us",
            0.5,
        ),
        _rate(f"{awaited}: records/s beside confluent", each, _cell("confluent"), 1.0),
        _rate(f"{awaited}: records/s beside Java", each, _cell("java"), 1.0),
        _rate(f"{awaited}: records/s beside aiokafka", each, _cell("aiokafka"), 8.0),
        _cpu(
            f"{client}: deliveries dropped: CPU beside confluent, no callbacks",
            dropped,
            bare,
            0.55,
        ),
        _cpu(f"{client}: send_many: CPU beside confluent", _cell(client, "many"), bare, 0.35),
        _cpu(f"{client}: send_arrow: CPU beside confluent", _cell(client, "arrow"), bare, 0.15),
        _rate(
            f"{client}: 1,000 tasks of send_and_wait beside aiokafka",
            _cell(client, "tasks"),
            _cell("aiokafka", "tasks"),
            5.0,
        ),
        *_latency_bars(client),
    ]


def _extra_bars() -> list[Bar]:
    ours = [cell for cell in ESSENTIAL["extras"] if cell.client == "aioproducer"]
    return [
        _cpu(
            f"{EXTRAS[cell.extra]}: CPU beside aiokafka",
            cell.key,
            replace(cell, client="aiokafka").key,
            0.5,
        )
        for cell in ours
    ]


BARS: list[Bar] = [
    *_client_bars("aioproducer"),
    *_client_bars("aioproducer-uvloop"),
    Bar(
        "send_arrow, encode and partition only: ns beside copy and CRC-32C of the same bytes",
        ENCODE,
        COPY,
        "ns",
        3.0,
    ),
    _cpu(
        "10,000 partitions known, 10 active, beside 10 known: CPU",
        _cell("aioproducer", "active", server="embedded", partitions=KNOWN_MANY),
        _cell("aioproducer", "active", server="embedded", partitions=KNOWN_FEW),
        1.2,
    ),
    _cpu(
        "pure Python: CPU beside aiokafka's Cython",
        _cell("aioproducer-pure"),
        _cell("aiokafka"),
        1.0,
    ),
    _rate(
        "pure Python: records/s beside aiokafka's Cython",
        _cell("aioproducer-pure"),
        _cell("aiokafka"),
        1.0,
    ),
    Bar(
        "batch fill, 100 topics x 12 partitions, 50,000/s: records per request beside Java",
        _cell("aioproducer", "fill", server="sink", partitions=12),
        _cell("java", "fill", server="sink", partitions=12),
        "records_per_request",
        1.0,
        at_least=True,
    ),
    *_extra_bars(),
]


def verdicts(cells: Cells, bars: list[Bar] | None = None) -> list[Verdict]:
    """Every bar beside what was measured."""
    return [
        Verdict(bar, _median(cells, bar.ours, bar.measure), _median(cells, bar.theirs, bar.measure))
        for bar in (BARS if bars is None else bars)
    ]


def _median(cells: Cells, key: str, measure: str) -> float | None:
    found: float | None = cells.get(key, {}).get(measure, {}).get("median")
    return found
