"""Errors of Spark's jobs, reported in the form of the loader's own."""

from __future__ import annotations

import re

from aioproducer import errors
from aioproducer.errors import KafkaError
from aioproducer.loader import errors as loader_errors
from aioproducer.loader.errors import LoaderError
from aioproducer.spark import errors as spark_errors
from aioproducer.spark import rows

_PYTHONS = re.compile(r"^(?:[\w.]*: )*([A-Za-z_][\w.]*(?:Error|Exception): .+)$", re.MULTILINE)
_OURS = re.compile(r"^(?:[\w.]*: )*aioproducer\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+(?:\n(?!\t|Caused by: ).*)*)", re.MULTILINE)
"""The cause in a stack trace of Java, up to the first line of its stack."""
_WAIT = re.compile(r"^.*: Exception thrown in awaitResult: *\n(?:\t.*\n)*", re.MULTILINE)
"""An exception of Java that only wraps a cause, with its stack."""
_LONGEST_CAUSE = 300
_NANOSECONDS = (
    "Spark reads no nanoseconds: name the files themselves and load them with `--engine local`, or "
    "write them with microseconds"
)
_TRACEBACK = "Traceback (most recent call last)"
_NOTHING = "An error occurred while calling"
_HOMES = (loader_errors, spark_errors, rows, errors)


class SparkLoadError(LoaderError):
    """Spark could not do it; the text is its own, shortened."""


def error_of(error: Exception) -> KafkaError:
    """Return the error of ours that Spark's exception carries, or its own text."""
    text = str(error)
    found = _OURS.findall(text)
    if not found:
        advice = _NANOSECONDS if "TIMESTAMP(NANOS" in text else None
        return SparkLoadError(_message_in(text) or type(error).__name__, advice=advice)
    name, words = found[-1]
    kind = next((each for home in _HOMES if (each := getattr(home, name, None))), SparkLoadError)
    message, _, advice = words.partition(" -> ")
    if not (isinstance(kind, type) and issubclass(kind, KafkaError)):
        kind = SparkLoadError
    return kind(message, advice=advice or None)


def _message_in(text: str) -> str | None:
    """Return the first line with a message, and a cause or the exception of a traceback in it."""
    text = _WAIT.sub("", text)
    lines = (line.removeprefix("Caused by").strip(" :") for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(_NOTHING)), None)
    _, is_traceback, frames = text.partition(_TRACEBACK)
    raised = _PYTHONS.search(frames)
    if first is not None and not is_traceback:
        causes = (" ".join(cause.split()) for cause in _CAUSE.findall(text))
        known = " ".join(first.split())
        new = next((words for words in causes if words not in known), None)
        return first if new is None else f"{first}: {new[:_LONGEST_CAUSE]}"
    if first is None or not is_traceback or raised is None:
        return first
    return f"{first.removesuffix(_TRACEBACK).rstrip(': ')}: {raised[1]}"
