"""The pages of the programming interface, made from docstrings.

`MODULES` lists the modules that have a page; each shows the names in its `__all__`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import aioproducer
from aioproducer import ProducerConfig

CONFIG_CALLS = ["from_properties", "from_env", "from_file", "replace"]

# Classes of native code are shown by their pure-Python implementations.
_TWINS = {
    "aioproducer.runtime.delivery._delivery.Delivery": "aioproducer.runtime.delivery._delivery_py.Delivery"
}


class Module(NamedTuple):
    """A module with a page: `first` and `more` besides the names it lists, or `only` those.

    `more` are what its calls give back, with the modules they come from.
    """

    title: str
    file: str
    name: str
    first: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    whole: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The file with the module's docstring."""
        file = Path(importlib.import_module(self.name).__file__ or "")
        return (file.relative_to(Path(aioproducer.__file__).parents[1]).as_posix(),)

    def page(self) -> str:
        """The page in Markdown, for mkdocstrings to fill in."""
        module = importlib.import_module(self.name)
        about = inspect.getdoc(module) or ""
        parts = [f"# `{self.name}`\n\n", _as_text(about, whole=self.whole)]
        names = self.only or (*self.first, *_names(module))
        parts += [_entry(getattr(module, name)) for name in dict.fromkeys(names)]
        parts += [_entry(_found(path)) for path in self.more]
        return "".join(parts)


def _names(module: ModuleType) -> list[str]:
    """A module's public names: those it lists, or those it defines."""
    defined = (
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )
    return sorted(getattr(module, "__all__", defined), key=str.lower)


def _as_text(doc: str, *, whole: bool) -> str:
    """Return a module's docstring in Markdown: its first line, or all of it."""
    if not whole:
        return doc.split("\n\n", 1)[0].replace("\n", " ") + "\n\n"
    compared = re.search(r" \((\S+) -> here\)", doc)
    there = compared[1] if compared else "there"
    doc = doc.replace(compared[0], "") if compared else doc
    paragraphs = re.split(r"\n\n+(?=\S|    \S)", doc)
    return "\n\n".join(_paragraph(each, there) for each in paragraphs) + "\n\n"


def _paragraph(text: str, there: str) -> str:
    """Return a paragraph in Markdown: four spaces begin a program, `- this -> that` a table.

    `there` is the heading of the table's first column.
    """
    if text.startswith("    "):
        return f"```python\n{textwrap.dedent(text)}\n```"
    if text.startswith("- "):
        items = [" ".join(item.split()) for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]
        if all(" -> " in item for item in items):
            rows = (f"| {item.replace(' -> ', ' | ', 1)} |" for item in items)
            return "\n".join((f"| {there} | here |", "|---|---|", *rows))
    return text


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _entry(value: Any) -> str:
    """A class or a function of ours, for mkdocstrings to fill in; nothing else has a docstring."""
    is_documented = inspect.isclass(value) or inspect.isroutine(value)
    if not is_documented or not value.__module__.startswith("aioproducer"):
        return ""
    path = f"{value.__module__}.{value.__qualname__}"
    text = f"## {value.__name__}\n\n::: {_TWINS.get(path, path)}\n"
    if value is ProducerConfig:  # its fields have a separate page
        text += f"    options:\n      members: {CONFIG_CALLS}\n"
    return f"{text}\n"


MODULES = (
    Module(
        "producer",
        "producer",
        "aioproducer",
        first=("Producer", "ProducerConfig"),
        more=(
            "aioproducer.runtime.bulk.send_many.SendManyResult",
            "aioproducer.runtime.observability.health.Health",
            "aioproducer.runtime.observability.statistics.Statistics",
        ),
    ),
    Module("blocking producer", "blocking", "aioproducer.blocking", first=("Producer",)),
    Module(
        "transactions from outside",
        "transaction_admin",
        "aioproducer.transaction_admin",
        first=("TransactionAdmin",),
    ),
    Module(
        "serializers",
        "serializers",
        "aioproducer.serializers",
        first=(
            "JsonSerializer",
            "StringSerializer",
            "SchemaRegistry",
            "AvroSerializer",
            "JsonSchemaSerializer",
            "ProtobufSerializer",
        ),
    ),
    Module("partitioners", "partitioners", "aioproducer.partitioners"),
    Module(
        "interceptors",
        "interceptors",
        "aioproducer.interceptors",
        only=("Interceptor", "ClusterListener", "ClusterInfo"),
    ),
    Module(
        "loading",
        "loader",
        "aioproducer.loader",
        first=("Loader", "LoadOptions", "FileSource", "LoadResult"),
    ),
    Module(
        "testing",
        "testing",
        "aioproducer.testing",
        first=(
            "MockProducer",
            "EmbeddedCluster",
            "ThreadedCluster",
            "FaultScript",
            "run_virtual",
            "VirtualKafka",
            "read_topic",
            "create_topic",
        ),
    ),
    Module("Prometheus", "prometheus", "aioproducer.metrics.prometheus"),
    Module("OpenTelemetry", "opentelemetry", "aioproducer.metrics.opentelemetry"),
    Module("OpenTelemetry's instrumentor", "otel", "aioproducer.contrib.otel"),
    Module("FastStream", "faststream", "aioproducer.contrib.faststream"),
    Module(
        "FastAPI",
        "fastapi",
        "aioproducer.fastapi",
        first=("ProducerLifespan", "producer_of", "answer_kafka_errors", "LivePage"),
    ),
    Module(
        "Starlette",
        "starlette",
        "aioproducer.starlette",
        first=("ProducerLifespan", "producer_of", "answer_kafka_errors", "LivePage"),
    ),
    Module("Spark", "spark", "aioproducer.spark", first=("register", "batch_writer")),
    Module(
        "aiokafka's interface",
        "compat",
        "aioproducer.compat.aiokafka",
        only=("AIOKafkaProducer",),
        whole=True,
    ),
    Module(
        "kafka-python's interface",
        "compat-kafka",
        "aioproducer.compat.kafka",
        only=("KafkaProducer",),
        whole=True,
    ),
    Module(
        "confluent-kafka's interface",
        "compat-confluent",
        "aioproducer.compat.confluent",
        only=(
            "AIOProducer",
            "KafkaError",
            "KafkaException",
            "Message",
            "Producer",
            "SerializingProducer",
        ),
        whole=True,
    ),
)
