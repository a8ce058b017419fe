"""Shared context of the links of one client, and the states of links."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from aioproducer._util import log
from aioproducer.metrics.totals import IOStats
from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.dial.dialer import Dialer
from aioproducer.net.settings import NetSettings


class NodeState(Enum):
    """Connection state of a broker, for `health()`."""

    DISCONNECTED = "disconnected"
    BACKING_OFF = "backing off"
    CONNECTING = "connecting"
    HANDSHAKING = "handshaking"
    READY = "ready"
    THROTTLED = "throttled"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LinkContext:
    """Context that all links of one client share."""

    settings: NetSettings
    check: ClusterCheck
    dialer: Dialer
    loop_time: Callable[[], float]
    rng: Random
    on_event: Callable[[], None]
    warnings: log.RateLimitedLog
    io_stats: IOStats
    context: Context = field(default_factory=copy_context)
    """The context of connections: not that of a `send()` that happens to need one."""
    bootstrap_places: set[tuple[str, int]] = field(default_factory=set)
    """The hosts and ports of the bootstrap servers."""
    answered: set[tuple[str, int]] = field(default_factory=set)
    """Addresses at which a request after a handshake was answered: the options are right there."""
