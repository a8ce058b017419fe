"""A collector for `prometheus_client`: every metric of one or several producers.

Needs the extra `aioproducer[metrics]`; nothing else imports this module, so it costs nothing when
it is not used.

    REGISTRY.register(ProducerCollector(producer))

`record-send-total` of `producer-metrics` becomes `kafka_producer_record_send_total`; the labels are
`client_id` and the metric's tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from weakref import WeakValueDictionary

from aioproducer._checks.extras import required
from aioproducer.metrics import Metric, MetricKind
from aioproducer.metrics.reading import Measured, read

with required(__name__, "metrics"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

__all__ = ["ProducerCollector"]

_Family = CounterMetricFamily | GaugeMetricFamily
_UNNAMEABLE: Final = re.compile(r"[^a-zA-Z0-9_]|^(?=[0-9])")
"""What older versions refuse in names of metrics and labels: the whole scrape fails."""


class ProducerCollector(Collector):
    """Reads its producers' metrics at each scrape, in any thread.

    Args:
        *producers: the first producers. These and those of `add` are held weakly.
    """

    def __init__(self, *producers: Measured) -> None:
        self._producers: WeakValueDictionary[int, Measured] = WeakValueDictionary()
        for producer in producers:
            self.add(producer)

    def add(self, producer: Measured) -> None:
        """Collect the metrics of another producer as well."""
        self._producers[id(producer)] = producer

    def collect(self) -> Iterator[_Family]:
        """Yield the metrics of all producers, a family per name.

        A value may appear only once: of producers with the same `client_id`, the last added counts,
        and of metrics whose names become equal here, such as `a-b` and `a.b`, the last registered.
        """
        families: dict[str, _Family] = {}
        values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for producer in {each.client_id: each for each in list(self._producers.values())}.values():
            for metric in read(producer):
                labels = {"client_id": producer.client_id}
                labels |= {_named(name): value for name, value in metric.tags}
                name = _name(metric)
                if name not in families:
                    families[name] = _family(name, metric)
                values[name, tuple(labels.items())] = metric.value
        for (name, pairs), value in values.items():
            family = families[name]
            suffix = "_total" if family.type == "counter" else ""
            family.add_sample(family.name + suffix, dict(pairs), value)
        yield from families.values()

    def describe(self) -> list[_Family]:
        """Return no metric, so that registering reads no producer."""
        return []


def _name(metric: Metric) -> str:
    group = metric.group.removesuffix("-metrics")
    name = _named(f"kafka_{group}_{metric.name}")
    return name if metric.kind is MetricKind.GAUGE else name.removesuffix("_total") + "_total"


def _named(text: str) -> str:
    return _UNNAMEABLE.sub("_", text)


def _family(name: str, metric: Metric) -> _Family:
    text = metric.description or metric.name
    if metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(name.removesuffix("_total"), text)
    return GaugeMetricFamily(name, text)
