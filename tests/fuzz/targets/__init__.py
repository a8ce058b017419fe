"""The fuzz targets, each a way in for bytes of a peer, in a module with the same name."""

from __future__ import annotations

from importlib import import_module

from fuzz.guard import Target

NAMES = (
    "responses",
    "requests",
    "connection",
    "handshake",
    "cluster",
    "batches",
    "codecs",
    "builders",
    "broker",
    "properties",
    "proxy",
    "avro",
    "patterns",
    "answers",
    "credentials",
)


def load(name: str) -> Target:
    """The target of that name; the others are not imported, which would cost a worker its time."""
    target: Target = import_module(f"{__name__}.{name}").TARGET
    return target
