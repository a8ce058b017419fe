"""Metrics reporters: objects with callbacks for metrics, as they come and go (`MetricsReporter`).

Every method is optional and a plain function, called in the event loop: it must be quick and must
not wait. What one raises is logged and harms nothing. A reporter reads values when it wants to, in
the loop, by `LiveMetric.measured()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.interceptors import ClusterInfo
    from aioproducer.metrics import LiveMetric

__all__ = ["MetricsReporter"]


class MetricsReporter(Protocol):
    """The methods a reporter may have; one of `init` and `metric_change` it must."""

    def configure(self, config: ProducerConfig) -> None:
        """Receive the options of the producer that is about to start."""

    def init(self, metrics: Sequence[LiveMetric]) -> None:
        """Receive the metrics that exist at the start."""

    def metric_change(self, metric: LiveMetric) -> None:
        """Handle a new or replaced metric: of a topic's first record, a broker's first request."""

    def metric_removal(self, metric: LiveMetric) -> None:
        """Handle a removed metric: a topic was not sent to for `metadata_max_idle_ms`."""

    def on_cluster(self, cluster: ClusterInfo) -> None:
        """Receive the cluster, when it becomes known and when another one answers."""

    def close(self) -> None:
        """Handle the end of the producer: nothing is called any more, values stay as they are."""
