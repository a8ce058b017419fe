"""The dashboard for Grafana asks for metrics that exist, by labels that they have."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.children import ROOT

from aioproducer.spark.foreach import BatchReport
from aioproducer.spark.reports.epochs import TransactionCounts, counts_of

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")
prometheus: Any = pytest.importorskip("prometheus_client", reason="needs the extra `metrics`")

DASHBOARD: Any = json.loads((ROOT / "examples/spark_grafana.json").read_text(encoding="utf-8"))
OF_GRAFANA = {"$query", "$__rate_interval"}


def labels_by_metric() -> dict[str, set[str]]:
    """The metrics that the feed exports after one micro-batch."""
    from aioproducer.spark.metrics import prometheus_feed

    registry = prometheus.CollectorRegistry()
    times, counts = counts_of({20: 10}), TransactionCounts(1, 1, 1)
    reasons = {"RecordTooLargeError": 2}
    report = BatchReport(1, False, 10, 200, 1, 2, 0.5, reasons, times, counts)
    prometheus_feed(registry)("orders", report)
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def expressions() -> list[str]:
    queries = [target["expr"] for each in DASHBOARD["panels"] for target in each["targets"]]
    variables = DASHBOARD["templating"]["list"]
    return [*queries, *(each["query"]["query"] for each in variables if each["type"] == "query")]


def test_every_metric_and_label_of_the_dashboard_is_exported() -> None:
    exported = labels_by_metric()
    asked = set()
    for text in expressions():
        names = re.findall(r"aioproducer_\w+", text)
        assert len(names) == 1, text
        asked.add(names[0])
        groups = re.findall(r"by \(([^)]*)\)", text) + re.findall(
            r"label_values\(\w+, (\w+)\)", text
        )
        labels = {label.strip() for group in groups for label in group.split(",")}
        labels |= set(re.findall(r"(\w+)=~", text))
        assert labels and labels <= exported[names[0]], text
        assert set(re.findall(r"\$\w+", text)) <= OF_GRAFANA
    shown = {name.removesuffix("_created") for name in exported if name.endswith("_total")}
    assert shown - asked == {"aioproducer_spark_dead_letters_total"}  # shown by reason


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")
def test_the_dashboard_is_made_from_its_table() -> None:
    from tools.dashboard_spark import TARGET, text

    assert TARGET.read_text(encoding="utf-8") == text(), "run `python -m tools.dashboard`"


def test_every_panel_says_what_it_shows_and_has_its_place() -> None:
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in DASHBOARD["panels"]]
    assert len(set(places)) == len(places) == len({each["id"] for each in DASHBOARD["panels"]})
    for each in DASHBOARD["panels"]:
        assert each["title"] and each["description"]
        assert all(target["legendFormat"] for target in each["targets"])
        assert each["datasource"]["uid"] == "${datasource}"
