"""Metrics reporters by the option `metric_reporters`: objects, or names of classes."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from aioproducer._checks.callables import refuse_coroutines
from aioproducer._util import log
from aioproducer.errors import ConfigError

METHODS: Final = ("configure", "init", "metric_change", "metric_removal", "on_cluster", "close")

OF_JAVA: Final = ("org.apache.kafka.common.metrics.JmxReporter", "JmxReporter")
"""Names that are left out."""

_log = log.get("producer")


def reporters_of(given: Iterable[object]) -> tuple[object, ...]:
    """Return the reporters that were asked for: objects, or names such as `package.module.Class`.

    Java's JMX reporter is left out with a line in the log: there is no JMX here.
    """
    reporters = []
    for each in given:
        if each in OF_JAVA:
            _log.info("metric_reporters: %s is left out, as there is no JMX outside Java", each)
            continue
        made = _made(each) if isinstance(each, str) else each
        if isinstance(made, type):
            raise ConfigError(f"metric_reporters takes objects or names, not the class {made!r}")
        if not any(callable(getattr(made, name, None)) for name in ("init", "metric_change")):
            raise ConfigError(f"metric_reporters: {made!r} has neither init nor metric_change")
        refuse_coroutines(made, METHODS)
        reporters.append(made)
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
