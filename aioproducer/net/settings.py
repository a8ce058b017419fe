"""NetSettings: options of the network layer, with times in float seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aioproducer.errors.authorization import this_principal
from aioproducer.metrics.totals import Sampling
from aioproducer.net.security.sasl import Mechanism

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9\-.]+")


def software_label(text: str) -> str:
    """Return the text as a version that brokers accept (KIP-511).

    Brokers refuse ApiVersions with INVALID_REQUEST unless name and version match
    `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`; a local version like `1.0+git` would not.
    """
    return _NOT_ALLOWED.sub("-", text).strip("-.") or "unknown"


@dataclass(frozen=True, slots=True)
class NetSettings:
    """Options of the network layer; times in seconds."""

    client_id: str | None = None
    request_timeout_s: float = 30.0
    connection_setup_timeout_s: float = 10.0
    connection_setup_timeout_max_s: float = 30.0
    reconnect_backoff_s: float = 0.05
    reconnect_backoff_max_s: float = 1.0
    max_in_flight: int = 5
    connections_max_idle_s: float | None = 540.0
    """None: idle connections stay open."""
    dns_canonical: bool = False
    """Ask for the canonical names of the bootstrap servers' addresses (client.dns.lookup)."""
    rebootstrap: bool = True
    """Fall back to the bootstrap servers when no broker of the metadata can be used (KIP-899)."""
    check_cluster: bool = True
    """Send the intended cluster and node id to brokers (KIP-1242); only with `rebootstrap`."""
    old_broker_versions: Mapping[int, tuple[int, int]] | None = None
    """Assumed versions of brokers without ApiVersions; None if such brokers are not supported."""
    expects_old_brokers: bool = False
    """True if brokers are probed for their age before anything else."""
    sasl: Mechanism | None = None
    """The SASL mechanism; None for no SASL."""
    principal: Callable[[], str] = this_principal
    """Returns the principal that brokers see, for error messages."""
    sampling: Sampling = field(default_factory=Sampling)
    """Sampling of rates and peaks."""
    software_version: str = "unknown"
    """The client's version, as a `software_label`."""
