"""Check of the cluster and broker that a connection reaches (KIP-1242).

A name or a load balancer may lead to another broker than intended, even to another cluster. The
handshake sends the intended cluster and node id. From Kafka 4.4 on a broker that has other ids
answers REBOOTSTRAP_REQUIRED; older ones do not support the check.

Invariants: no ids are sent to a bootstrap server; the version is one that the last broker
supported, so that older clusters need no second request.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioproducer.errors import KafkaError

PLAIN_VERSION = 3
"""The ApiVersions version of a connection without the check.

Azure Event Hubs and some proxies close connections at version 4 instead of answering
UNSUPPORTED_VERSION. It would only add features with level 0, which are not used here.
"""
CHECKING_VERSION = 5
"""The first ApiVersions version with cluster and node id."""


@dataclass(slots=True)
class ClusterCheck:
    """Cluster id and check results, shared by all links of a client.

    `metadata.cluster.check.enable` without rebootstrapping is not `enabled`. `latest_version` is
    the highest ApiVersions version of the last broker that reported versions. `rebootstrap_error`
    is of a broker that requires a rebootstrap, until it is done.
    """

    enabled: bool
    cluster_id: str | None = None
    latest_version: int = PLAIN_VERSION
    rebootstrap_error: KafkaError | None = None

    def version_for(self, node_id: int) -> int:
        """Return the ApiVersions version of the first request of a handshake."""
        asserts = self.enabled and self.cluster_id is not None and node_id >= 0
        can_check = self.latest_version >= CHECKING_VERSION
        return CHECKING_VERSION if asserts and can_check else PLAIN_VERSION
