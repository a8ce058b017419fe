"""Interceptors: objects that see every record before it is sent, and its outcome (KIP-42).

Every method is optional and a plain function, called in the event loop: it must be quick and must
not wait. What one raises is logged and harms no record. Interceptors are called in the order of the
`interceptor_classes` option.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from aioproducer._checks.callables import refuse_coroutines
from aioproducer.errors import ConfigError
from aioproducer.types import HeaderPairs, Node, Record, RecordMetadata

__all__ = ["ClusterInfo", "ClusterListener", "Interceptor", "check_interceptors"]

METHODS = ("on_send", "on_acknowledgement", "on_cluster", "close")


class ClusterInfo(NamedTuple):
    """The producer's cluster, and its brokers by id."""

    cluster_id: str | None
    nodes: Mapping[int, Node]


class ClusterListener(Protocol):
    """A listener for the cluster (Java: `ClusterResourceListener`).

    Interceptors and serializers that have this method are notified.
    """

    def on_cluster(self, cluster: ClusterInfo) -> None:
        """Receive the cluster, when it becomes known and when another one answers."""


class Interceptor(Protocol):
    """The methods an interceptor may have; any one will do, with or without this base class."""

    def on_send(self, record: Record) -> Record | None:
        """Return a record as it was given to `send`, before serialization; `topic` is always set.

        Returns the record to be sent instead, or None to leave it as it is. With several
        interceptors each sees what the one before it returned.
        """
        return None

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
    ) -> None:
        """Handle the outcome of a record, also of one that was never accepted.

        Of one that failed, `metadata.offset` is None, and `metadata.partition` -1 if none was
        chosen (KIP-512 for the headers).
        """
        return

    def on_cluster(self, cluster: ClusterInfo) -> None:
        """Receive the cluster, when it becomes known and when another one answers."""
        return

    def close(self) -> None:
        """Handle the end of the producer; nothing is called any more."""
        return


def check_interceptors(interceptors: Iterable[object]) -> None:
    """Check them before anything is sent.

    Raises:
        ConfigError: one is a class instead of an object, has no method of an interceptor, or one
            that is a coroutine function.
    """
    for interceptor in interceptors:
        if isinstance(interceptor, type):
            raise ConfigError(f"interceptor_classes takes objects, not the class {interceptor!r}")
        if not any(callable(getattr(interceptor, name, None)) for name in METHODS[:3]):
            raise ConfigError(f"{interceptor!r} has no method of an interceptor")
        refuse_coroutines(interceptor, METHODS)
