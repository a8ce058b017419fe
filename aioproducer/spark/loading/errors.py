"""Errors of Spark's jobs, told as the loader tells its own.

Owns: the way from a Python traceback in a Java exception back to the error that a task raised. Must
not know: what the job was.
"""

from __future__ import annotations

import re

from aioproducer import errors
from aioproducer.errors import KafkaError
from aioproducer.loader import errors as loader_errors
from aioproducer.loader.errors import LoaderError
from aioproducer.spark import errors as spark_errors
from aioproducer.spark import rows

_OURS = re.compile(r"^(?:[\w.]*: )*aioproducer\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_NOTHING = "An error occurred while calling"
_HOMES = (loader_errors, spark_errors, rows, errors)


class SparkLoadError(LoaderError):
    """Spark could not do it; the text is its own, shortened."""


def error_of(error: Exception) -> KafkaError:
    """What Spark's exception is about: the error of ours that it carries, or its first line."""
    text = str(error)
    found = _OURS.findall(text)
    if not found:
        lines = (line.strip(" :") for line in text.splitlines())
        telling = (line for line in lines if line and not line.startswith(_NOTHING))
        return SparkLoadError(next(telling, type(error).__name__))
    name, words = found[-1]
    kind = next((each for home in _HOMES if (each := getattr(home, name, None))), SparkLoadError)
    message, _, advice = words.partition(" -> ")
    if not (isinstance(kind, type) and issubclass(kind, KafkaError)):
        kind = SparkLoadError
    return kind(message, advice=advice or None)
