"""Metrics of the application."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.metrics import ApplicationMetric


@pytest.mark.parametrize(
    "wrong",
    [{"name": 1}, {"group": None}, {"description": b"text"}, {"tags": {"shard": 3}}],
    ids=str,
)
def test_metric_of_the_application_has_names_and_tags_of_text(wrong: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"name": "orders", "group": "shop-metrics", "read": float}
    assert ApplicationMetric(**parts, tags={"shard": "3"}).measured().tags == (("shard", "3"),)
    with pytest.raises(TypeError, match="are text, not"):
        ApplicationMetric(**(parts | wrong))


@pytest.mark.parametrize(
    "wrong",
    [{"name": "\ud800"}, {"group": "\ud800"}, {"tags": {"file": "\udcff"}}, {"tags": {"": "3"}}],
    ids=ascii,
)
def test_metric_of_the_application_has_names_and_tags_that_exporters_take(
    wrong: dict[str, Any],
) -> None:
    parts: dict[str, Any] = {"name": "orders", "group": "shop-metrics", "read": float}
    with pytest.raises(ValueError, match=r"valid Unicode|has no name"):
        ApplicationMetric(**(parts | wrong))
