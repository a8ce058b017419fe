"""Metrics reporters: objects with callbacks for metrics, as they come and go.

Owns: the protocol for users (Java: `MetricsReporter`), and making reporters of their names. Not
here: when they are called; `runtime.reporting` does.

Every method is optional and a plain function, called in the event loop: it must be quick and must
not wait. What one raises is logged and harms nothing. A reporter reads values when it wants to, in
the loop, by `LiveMetric.measured()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioproducer._checks.callables import refuse_coroutines
from aioproducer._util import log
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.interceptors import ClusterInfo
    from aioproducer.metrics import LiveMetric

__all__ = ["MetricsReporter", "reporters_of"]

METHODS: Final = ("configure", "init", "metric_change", "metric_removal", "on_cluster", "close")

OF_JAVA: Final = ("org.apache.kafka.common.metrics.JmxReporter", "JmxReporter")
"""Names that are left out."""

_log = log.get("producer")


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


def reporters_of(given: Iterable[object]) -> tuple[object, ...]:
    """Return the reporters that were asked for: objects, or names such as `package.module.Class`.

    Java's JMX reporter is left out with a line in the log: there is no JMX here.

    Raises:
        ConfigError: a name leads nowhere, or what it names, or an object, is no reporter.
    """
    reporters = []
    for each in given:
        if each in OF_JAVA:
            _log.info("metric_reporters: %s is left out, as there is no JMX outside Java", each)
        else:
            reporters.append(_checked(_made(each) if isinstance(each, str) else each))
    return tuple(reporters)


def _made(name: str) -> object:
    """Return what a dotted name means: an object, or a class to be called without arguments."""
    module, _, attribute = name.rpartition(".")
    try:
        found: Any = getattr(import_module(module), attribute)
        return found() if isinstance(found, type) else found
    except Exception as error:
        raise ConfigError(
            f"metric_reporters: {name!r} cannot be made ({type(error).__name__}: {error})",
            advice="Name a class of an importable module, which needs no arguments.",
        ) from error


def _checked(reporter: object) -> object:
    if isinstance(reporter, type):
        raise ConfigError(f"metric_reporters takes objects or names, not the class {reporter!r}")
    if not any(callable(getattr(reporter, name, None)) for name in ("init", "metric_change")):
        raise ConfigError(f"metric_reporters: {reporter!r} has neither init nor metric_change")
    refuse_coroutines(reporter, METHODS)
    return reporter
