"""Writes the dashboards for Grafana: that of producers, from the table of metrics, and Spark's.

    PYTHONPATH=.ci python -m tools.dashboard

`SECTIONS` has the panels by topic. Metrics that no panel shows get a panel in the last section, so
a new metric is on the dashboard without a change here. A test compares the file with the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from aioproducer.metrics import Metric, MetricKind
from aioproducer.metrics.prometheus import _name
from aioproducer.runtime.observability.registry import NODE, PRODUCER, TOPIC
from aioproducer.runtime.observability.rows import PRODUCER_ROWS

TARGET = Path(__file__).parents[2] / "examples/observability/grafana/dashboards/producer.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_LABELS = {
    PRODUCER: ("client_id",),
    TOPIC: ("client_id", "topic"),
    NODE: ("client_id", "node_id"),
}
_DESCRIPTIONS = {row.name: row.description for row in PRODUCER_ROWS}
_COUNTERS = {row.name for row in PRODUCER_ROWS if row.kind is MetricKind.COUNTER}
_WIDTH, _HEIGHT = 24, 8


class Shown(NamedTuple):
    """A metric in a panel, with its text in the legend."""

    name: str
    legend: str = ""
    group: str = PRODUCER

    @property
    def is_counter(self) -> bool:
        """Whether the metric is a total, of which the rate is shown."""
        return self.name in _COUNTERS or self.name.endswith("-total")

    @property
    def query(self) -> str:
        """The query for the selected producers, per producer and topic or broker."""
        labels = _LABELS[self.group]
        chosen = ['job=~"$job"', 'client_id=~"$client"']
        chosen += ['topic=~"$topic"'] if self.group == TOPIC else []
        series = f"{sample(self.name, self.group)}{{{','.join(chosen)}}}"
        of_one = any(word in self.name for word in ("-avg", "-max", "ratio", "age", "version"))
        if self.is_counter:
            return f"sum by ({', '.join(labels)}) (rate({series}[$__rate_interval]))"
        return f"{'max' if of_one else 'sum'} by ({', '.join(labels)}) ({series})"

    @property
    def label(self) -> str:
        """The legend: what is shown, and of which producer, topic or broker."""
        of = " ".join(f"{{{{{label}}}}}" for label in _LABELS[self.group])
        return f"{self.legend} {of}".strip()


class Panel(NamedTuple):
    """A panel; without a `text` it says what the table says of its metrics."""

    title: str
    unit: str
    metrics: tuple[Shown, ...]
    text: str = ""
    query: str = ""

    @property
    def description(self) -> str:
        """Content of the panel."""
        texts = (_DESCRIPTIONS[each.name] + "." for each in self.metrics)
        return self.text or " ".join(texts)


def sample(name: str, group: str = PRODUCER) -> str:
    """Return the name of a metric in Prometheus."""
    return _name(Metric(name, group, MetricKind.GAUGE, 0.0))


def _total(name: str) -> str:
    return f'sum by (client_id) ({sample(name)}{{job=~"$job",client_id=~"$client"}})'


_PENDING = f"{_total('record-send-total')} - {_total('record-acknowledged-total')} - " + _total(
    "record-error-total"
)
_USED = f"1 - {_total('buffer-available-bytes')} / {_total('buffer-total-bytes')}"

SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Records": (
        Panel(
            "Records",
            "short",
            (
                Shown("record-send-total", "accepted"),
                Shown("record-acknowledged-total", "acknowledged"),
            ),
            "Records per second that send() accepted and that brokers acknowledged.",
        ),
        Panel(
            "Failures and retries",
            "short",
            (
                Shown("record-error-total", "failed"),
                Shown("record-retry-total", "retried"),
                Shown("buffer-exhausted-total", "rejected, buffer full"),
                Shown("unretrieved-failure-total", "failed unnoticed"),
            ),
            "Per second: failed records, retried records, records rejected because the buffer was "
            "full, and failed records whose delivery no task awaited.",
        ),
        Panel(
            "Pending records",
            "short",
            (),
            "Accepted records without an outcome: queued or in flight.",
            _PENDING,
        ),
    ),
    "Latency": (
        Panel(
            "Request latency",
            "ms",
            (Shown("request-latency-avg", "average"), Shown("request-latency-max", "highest")),
        ),
        Panel(
            "Time in the queue",
            "ms",
            (Shown("record-queue-time-avg", "average"), Shown("record-queue-time-max", "highest")),
        ),
        Panel(
            "Throttling by quotas",
            "ms",
            (
                Shown("produce-throttle-time-avg", "average"),
                Shown("produce-throttle-time-max", "highest"),
            ),
        ),
    ),
    "Buffer": (
        Panel("Buffer in use", "percentunit", (), "Share of `buffer_memory` in use.", _USED),
        Panel("Calls that wait for the buffer", "short", (Shown("waiting-threads"),)),
        Panel(
            "Time with a wait for the buffer",
            "percentunit",
            (Shown("bufferpool-wait-time-seconds-total"),),
            "Share of the time in which at least one call waited for memory.",
        ),
    ),
    "Batches": (
        Panel("Bytes per batch", "bytes", (Shown("batch-size-avg"),)),
        Panel("Records per request", "short", (Shown("records-per-request-avg"),)),
        Panel("Compression", "percentunit", (Shown("compression-rate-avg"),)),
    ),
    "Topics": (
        Panel(
            "Records by topic",
            "short",
            (Shown("record-send-total", group=TOPIC),),
            "Records sent per second, retries included.",
        ),
        Panel(
            "Bytes by topic",
            "Bps",
            (Shown("byte-total", group=TOPIC),),
            "Bytes of batches sent per second, after compression.",
        ),
        Panel(
            "Failures and retries by topic",
            "short",
            (
                Shown("record-error-total", "failed", TOPIC),
                Shown("record-retry-total", "retried", TOPIC),
            ),
            "Failed and retried records per second.",
        ),
    ),
    "Brokers": (
        Panel(
            "Latency by broker",
            "ms",
            (Shown("request-latency-avg", group=NODE),),
            "Average time of requests to each broker. One slow broker delays its partitions.",
        ),
        Panel(
            "Bytes by broker",
            "Bps",
            (Shown("outgoing-byte-total", group=NODE),),
            "Bytes sent per second to each broker.",
        ),
        Panel("Requests in flight", "short", (Shown("requests-in-flight"),)),
        Panel("Open connections", "short", (Shown("connection-count"),)),
        Panel(
            "Connections opened and closed",
            "short",
            (
                Shown("connection-creation-total", "opened"),
                Shown("connection-close-total", "closed"),
            ),
            "Per second. Constant changes point to a network problem or an idle timeout.",
        ),
        Panel("Failed authentications", "short", (Shown("failed-authentication-total"),)),
    ),
}
REST = "Other metrics"


def remaining() -> Iterator[Panel]:
    """Yield a panel for each metric of the table that no other panel shows."""
    panels = [panel for section in SECTIONS.values() for panel in section]
    shown = {each.name for panel in panels for each in panel.metrics if each.group == PRODUCER}
    shown |= {"buffer-available-bytes", "buffer-total-bytes"}
    for row in PRODUCER_ROWS:
        base, _, kind = row.name.rpartition("-")
        is_rate = kind == "rate" and f"{base}-total" in _COUNTERS  # the total's rate is shown
        if row.name not in shown and not is_rate:
            per_second = " per second" if row.kind is MetricKind.COUNTER else ""
            text = f"{row.description}{per_second}."
            yield Panel(row.name, _unit(row.name), (Shown(row.name),), text)


def _unit(name: str) -> str:
    ends = {"-ns-total": "ns", "-bytes": "bytes", "-age": "s", "byte-total": "Bps"}
    return next((unit for end, unit in ends.items() if name.endswith(end)), "short")


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, section in SECTIONS.items():
        panels.append(_row(title, top))
        placed = _placed(section, top + 1)
        panels += placed
        top += 1 + _HEIGHT * (1 + (len(section) - 1) // 3)
    panels.append(_row(REST, top, _placed(tuple(remaining()), top + 1)))
    number = 0
    for panel in panels:
        for each in (panel, *panel.get("panels", ())):
            number += 1
            each["id"] = number
    return {
        "title": "aioproducer",
        "uid": "aioproducer",
        "description": "Made by `python -m tools.dashboard` from the table of metrics.",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "tags": ["kafka"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "panels": panels,
    }


def _row(title: str, top: int, hidden: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
    row = {"type": "row", "title": title, "gridPos": place, "collapsed": hidden is not None}
    return row | {"panels": hidden or []}


def _placed(panels: tuple[Panel, ...], top: int) -> list[dict[str, Any]]:
    third = _WIDTH // 3
    return [
        _panel(each, {"h": _HEIGHT, "w": third, "x": n % 3 * third, "y": top + n // 3 * _HEIGHT})
        for n, each in enumerate(panels)
    ]


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    queries = [(each.query, each.label) for each in panel.metrics]
    queries = queries or [(panel.query, "{{client_id}}")]
    return time_series(panel.title, panel.description, panel.unit, place, queries)


def time_series(
    title: str,
    description: str,
    unit: str,
    place: dict[str, int],
    queries: Iterable[tuple[str, str]],
    stacking: str = "none",
) -> dict[str, Any]:
    """Return a panel of queries, each with its legend."""
    custom = {"fillOpacity": 10, "stacking": {"mode": stacking}}
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for n, (expr, legend) in enumerate(queries)
        ],
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    accepted, of_topic = sample("record-send-total"), sample("record-send-total", TOPIC)
    for name, label, query in (
        ("job", "Job", f"label_values({accepted}, job)"),
        ("client", "Producer", f'label_values({accepted}{{job=~"$job"}}, client_id)'),
        ("topic", "Topic", f'label_values({of_topic}{{client_id=~"$client"}}, topic)'),
    ):
        yield {
            "name": name,
            "type": "query",
            "label": label,
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "multi": True,
            "includeAll": True,
            "refresh": 2,
            "current": {"text": "All", "value": "$__all"},
        }


def text() -> str:
    """Return the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    from tools import dashboard_spark

    TARGET.write_text(text(), encoding="utf-8")
    dashboard_spark.TARGET.write_text(dashboard_spark.text(), encoding="utf-8")
