"""What the network room has to be told: option values in float seconds, nothing else.

Owns: `NetSettings`. Must not know: option names, defaults of Kafka's configuration, where values
come from. Invariant: the values are usable as they are; the software's name and version satisfy the
pattern brokers check (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aioproducer.errors.authorization import this_principal
from aioproducer.metrics.sampling import Sampling
from aioproducer.net.security.sasl import Mechanism

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9\-.]+")


def software_label(text: str) -> str:
    """The text as a name or version brokers accept (KIP-511).

    Brokers refuse ApiVersions with INVALID_REQUEST unless name and version match
    `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`; a local version like `1.0+git` would not.
    """
    return _NOT_ALLOWED.sub("-", text).strip("-.") or "unknown"


@dataclass(frozen=True, slots=True)
class NetSettings:
    """Options of the network room; times in seconds."""

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
    """Tell brokers which cluster and node is meant (KIP-1242); only with `rebootstrap`."""
    old_broker_versions: Mapping[int, tuple[int, int]] | None = None
    """What a broker that does not know ApiVersions is taken to speak; None: there is no such."""
    expects_old_brokers: bool = False
    """Whether brokers are probed for their age before anything else."""
    sasl: Mechanism | None = None
    """How to authenticate; None: not at all."""
    principal: Callable[[], str] = this_principal
    """Says whom brokers take this client for."""
    sampling: Sampling = field(default_factory=Sampling)
    """How rates and peaks are sampled."""
    software_name: str = "aioproducer"
    software_version: str = "unknown"

    def __post_init__(self) -> None:
        object.__setattr__(self, "software_name", software_label(self.software_name))
        object.__setattr__(self, "software_version", software_label(self.software_version))
