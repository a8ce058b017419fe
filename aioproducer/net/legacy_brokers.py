"""Detection of brokers before 0.10, which do not support ApiVersions (KIP-35).

On ApiVersions 0.8 closes the connection and 0.9 does not answer. Brokers that shut down, load
balancers and TLS ports do so too. So a broker counts as old only if it answers a request that every
old broker supports and then, on the same connection, does not answer ApiVersions:

    UNKNOWN    --closes on ApiVersions, or no response in time-----> SUSPECTED (see `BrokerAge`)
    SUSPECTED  --answers ListOffsets v0, not ApiVersions-----------> OLD
    SUSPECTED  --answers both--------------------------------------> UNKNOWN, and ready
    SUSPECTED  --anything else-------------------------------------> UNKNOWN
    OLD        --its connection is lost----------------------------> SUSPECTED (may be upgraded)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from aioproducer.wire.api_keys import ApiKey

Ranges = Mapping[int, tuple[int, int]]

API_VERSIONS_TIMEOUT_S = 10.0
"""Timeout in seconds of ApiVersions for a broker of unknown age (librdkafka's default)."""

_FIRST_WITH_API_VERSIONS = (0, 10)
_FIRST_WITH_THROTTLE_TIMES = (0, 9)


class BrokerGeneration(Enum):
    """Knowledge of a broker's age."""

    UNKNOWN = "unknown"
    SUSPECTED = "suspected"
    OLD = "old"


@dataclass(slots=True)
class BrokerAge:
    """Knowledge of a broker's age from its connections.

    Recent brokers close the connection on the request that every old one supports. After n such
    failures it takes n + 1 connections in a row without an answer to ApiVersions until the next: a
    name may have several addresses, and so may a load balancer. If one of them closes every
    connection, and the broker at another one got each of those requests, it would never be asked
    for its versions.
    """

    generation: BrokerGeneration = BrokerGeneration.UNKNOWN
    _failures: int = 0
    _unanswered: int = 0

    def update(self, found: BrokerGeneration) -> None:
        """Take what a connection has shown that began with `generation`."""
        if found is BrokerGeneration.SUSPECTED:
            self._unanswered += 1
            if self._unanswered <= self._failures:
                found = BrokerGeneration.UNKNOWN
        else:
            self._unanswered = 0
            if self.generation is BrokerGeneration.SUSPECTED and found is BrokerGeneration.UNKNOWN:
                self._failures += 1
        self.generation = found


def ranges_of_old_broker(release: str) -> Ranges | None:
    """Return the versions of a release before 0.10; None for later ones, which report them."""
    number = tuple(map(int, release.split(".")))
    if number >= _FIRST_WITH_API_VERSIONS:
        return None
    # A 0.8 broker accepts Produce v1 and answers it in the format of v0.
    produce = 1 if number >= _FIRST_WITH_THROTTLE_TIMES else 0
    return {ApiKey.PRODUCE: (0, produce), ApiKey.LIST_OFFSETS: (0, 0), ApiKey.METADATA: (0, 0)}
