"""The dashboard for Grafana of Spark queries, `examples/spark_grafana.json`.

`python -m tools.dashboard` writes it. Tests compare the file with `PANELS`, and the queries with
the metrics that `aioproducer.spark.metrics` exports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tools.dashboard import SOURCE, time_series

TARGET = Path(__file__).parents[2] / "examples/spark_grafana.json"
_WIDTH, _HEIGHT = 12, 8
_NEEDS = "Reported by batch_writer, and by streams with register(spark, metrics=...)."
_CHOSEN = '{query=~"$query"}[$__rate_interval]'


class Panel(NamedTuple):
    """A panel with its queries, each with its text in the legend."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stacking: str = "none"


def _rate(name: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by (query) (rate(aioproducer_spark_{name}{_CHOSEN}))", "{{query}}"),)


def _quantile(name: str, share: float) -> tuple[str, str]:
    buckets = f"sum by (le, query) (rate(aioproducer_spark_{name}_bucket{_CHOSEN}))"
    return f"histogram_quantile({share}, {buckets})", f"{{{{query}}}} p{round(share * 100)}"


PANELS = (
    Panel(
        "Rows written",
        "Rows per second that Kafka has acknowledged.",
        "short",
        _rate("rows_total"),
    ),
    Panel(
        "Bytes written",
        "Bytes per second: of keys and values with observed(frame), else of the Arrow columns. "
        f"{_NEEDS}",
        "Bps",
        _rate("bytes_total"),
    ),
    Panel(
        "Time of a micro-batch",
        "Time in which a micro-batch is written, exactly-once commit included. "
        "The buckets end at 10 s.",
        "s",
        (_quantile("batch_seconds", 0.5), _quantile("batch_seconds", 0.99)),
    ),
    Panel(
        "Micro-batches",
        "Micro-batches per second; 0 while a query has no input or has ended.",
        "short",
        _rate("batch_seconds_count"),
    ),
    Panel(
        "Dead letters",
        "Rows that went to dead.letter.topic or dead.letter.path, by the name of the error. "
        f"{_NEEDS}",
        "short",
        (
            (
                "sum by (query, reason) (increase("
                f"aioproducer_spark_dead_letters_by_reason_total{_CHOSEN}))",
                "{{query}} {{reason}}",
            ),
        ),
        "normal",
    ),
    Panel(
        "Retries",
        f"Records per second that were sent again. {_NEEDS}",
        "short",
        _rate("retries_total"),
    ),
    Panel(
        "Time to acknowledgement",
        "Time within which 99% of the records of a micro-batch were acknowledged: of the median "
        f"micro-batch, and of the slowest. {_NEEDS}",
        "s",
        (_quantile("delivery_p99_seconds", 0.5), _quantile("delivery_p99_seconds", 0.99)),
    ),
    Panel(
        "Transactions",
        "Transactions per second by state; those in doubt or aborted follow from failures. "
        f"{_NEEDS}",
        "short",
        (
            (
                f"sum by (query, state) (rate(aioproducer_spark_transactions_total{_CHOSEN}))",
                "{{query}} {{state}}",
            ),
        ),
    ),
    Panel(
        "Micro-batches given up",
        "Micro-batches that failed, each of which ended its query. Reported by QueryMetrics.",
        "short",
        (
            (
                f"sum by (query) (increase(aioproducer_spark_batches_aborted_total{_CHOSEN}))",
                "{{query}}",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    return {
        "title": "aioproducer: Spark",
        "uid": "aioproducer-spark",
        "description": "Made by `python -m tools.dashboard`.",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "tags": ["kafka", "spark"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": [_placed(number, panel) for number, panel in enumerate(PANELS)],
    }


def _placed(number: int, panel: Panel) -> dict[str, Any]:
    left, top = number % 2 * _WIDTH, number // 2 * _HEIGHT
    place = {"h": _HEIGHT, "w": _WIDTH, "x": left, "y": top}
    text = (panel.title, panel.description, panel.unit)
    return {"id": number + 1} | time_series(*text, place, panel.queries, panel.stacking)


def _variables() -> list[dict[str, Any]]:
    query = {
        "name": "query",
        "type": "query",
        "label": "Query",
        "datasource": SOURCE,
        "query": {"query": "label_values(aioproducer_spark_rows_total, query)", "refId": "query"},
        "multi": True,
        "includeAll": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return [source | {"label": "Prometheus"}, query]


def text() -> str:
    """Return the file."""
    return json.dumps(dashboard(), indent=2) + "\n"
