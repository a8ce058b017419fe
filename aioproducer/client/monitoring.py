"""The producer's own state: health, metrics, statistics, its id as a source of telemetry.

Everything but `client_instance_id` may be called in any state, needs no loop and never waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioproducer._util.arguments import seconds_of
from aioproducer.client.lifecycle import ProducerLifecycle
from aioproducer.errors import IllegalStateError
from aioproducer.metrics import ApplicationMetric, Metric
from aioproducer.runtime.observability.health import Health, health

if TYPE_CHECKING:
    from aioproducer.runtime.observability.registry import MetricsRegistry
    from aioproducer.runtime.observability.statistics import Statistics
else:  # annotations can be evaluated, although the class is imported when it is used
    Statistics = Any


class MetricsMixin(ProducerLifecycle):
    """The part of `Producer` with its health and metrics."""

    def health(self) -> Health:
        """Return what works right now; see `Health`. Needs no loop and never waits."""
        return health(self._engine, self._state_name)

    def metrics(self) -> Mapping[str, float]:
        """Return totals and gauges of the producer by Java's metric names (with underscores).

        Rates, means and peaks are those of the last `metrics_num_samples` samples.
        """
        from aioproducer.runtime.observability.rows import producer_values

        return producer_values(self._engine)

    def all_metrics(self) -> Sequence[Metric]:
        """Return every metric: of the producer, its topics and brokers, and the application."""
        return self._registry().collect(self._engine)

    def register_metric(self, metric: ApplicationMetric) -> None:
        """Add a metric of the application to `all_metrics` and to telemetry (KIP-1076).

        One with the same group, name and tags is replaced.

        Raises:
            IllegalStateError: its group is one of the producer's own.
        """
        self._registry().register(metric)

    def unregister_metric(self, metric: ApplicationMetric) -> None:
        """Take a metric of the application away."""
        self._registry().unregister(metric)

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id under which this producer's telemetry reaches the brokers (KIP-714).

        Args:
            timeout: seconds to wait for the broker that gives it; `max_block_ms` when left out
                (`request_timeout_ms` if that is 0).

        Raises:
            ValueError: the timeout is negative, NaN or infinite.
            IllegalStateError: `enable_metrics_push` is off, or the producer is not running.
            UnsupportedVersionError: the brokers take no telemetry.
            KafkaTimeoutError: no broker gave one in time.
        """
        bound = self.config.call_timeout_ms / 1000 if timeout is None else timeout
        seconds_of(bound, "timeout")
        engine = self._usable()
        if engine.telemetry is None:
            raise IllegalStateError("there is no client instance id with enable_metrics_push=False")
        return await engine.telemetry.client_instance_id(bound)

    def statistics(self) -> Statistics:
        """Return queues, requests in flight and memory now, per broker and partition."""
        from aioproducer.runtime.observability.statistics import statistics

        return statistics(self._engine, self.config.client_id, self._state_name)

    def _registry(self) -> MetricsRegistry:
        # Made when first used: a producer without a metrics reader does not import the registry.
        if self._own_metrics is None:
            from aioproducer.runtime.observability.registry import MetricsRegistry

            self._own_metrics = MetricsRegistry()
        return self._own_metrics
