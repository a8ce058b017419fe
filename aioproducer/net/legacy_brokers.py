"""Brokers before 0.10: instead of answering ApiVersions (KIP-35), 0.8 hangs up and 0.9 is silent.

Owns: what such brokers speak, by release, and the proof that a broker is one. Must not know:
sockets, dialing.

That alone proves nothing: brokers that shut down, balancers without a broker and ports for TLS
hang up too, and a recent broker taken for an old one would quietly lose idempotence. So a broker
counts as old only when it answered what every old one knows and then, on the same connection, hung
up on ApiVersions or left it out and answered what came behind it:

    UNKNOWN    --hangs up on ApiVersions, or no answer in time-----> SUSPECTED
    SUSPECTED  --answers ListOffsets v0, not ApiVersions-----------> OLD
    SUSPECTED  --answers both--------------------------------------> UNKNOWN, and ready
    SUSPECTED  --anything else-------------------------------------> UNKNOWN
    OLD        --its connection is lost----------------------------> SUSPECTED (may be upgraded)

Invariant: each step takes a connection of its own and the usual backoff, so that nobody is stormed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from aioproducer.wire.api_keys import ApiKey

Ranges = Mapping[int, tuple[int, int]]

PATIENCE_S = 10.0
"""How long a broker of unknown age may take for ApiVersions (librdkafka's default)."""

_FIRST_WITH_API_VERSIONS = (0, 10)
_FIRST_WITH_THROTTLE_TIMES = (0, 9)


class Age(Enum):
    """What is known of a broker's age."""

    UNKNOWN = "unknown"
    SUSPECTED = "suspected"
    OLD = "old"


def ranges_of_old_broker(release: str) -> Ranges | None:
    """The versions a release before 0.10 speaks; None for later ones, which say so themselves.

    Raises:
        ValueError: not a release such as `0.9.0`.
    """
    number = tuple(map(int, release.split(".")))
    if number >= _FIRST_WITH_API_VERSIONS:
        return None
    # A 0.8 broker takes Produce v1 and answers it in the format of v0.
    produce = 1 if number >= _FIRST_WITH_THROTTLE_TIMES else 0
    return {
        ApiKey.PRODUCE: (0, produce),
        ApiKey.LIST_OFFSETS: (0, 0),
        ApiKey.METADATA: (0, 0),
    }
