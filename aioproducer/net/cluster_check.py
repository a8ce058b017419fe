"""Which cluster and broker a connection is meant to reach, and what brokers say to it (KIP-1242).

Owns: the identity a connection asserts in its handshake, and the refusal that tells that it went
astray. Must not know: sockets, what is done about a refusal.

A name or a load balancer may lead to a broker other than the one meant, of another cluster even.
From Kafka 4.4 on a broker that is told whom the client means answers REBOOTSTRAP_REQUIRED then;
older ones cannot be asked.

Invariants: nothing is asserted to a bootstrap server, which is met before anything is known; a
broker is asked in a version that the last one spoke, so that older clusters cost no second request.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioproducer.errors import KafkaError

PLAIN_VERSION = 4
"""The ApiVersions version of a connection that asserts nothing."""
CHECKING_VERSION = 5
"""The first ApiVersions version that carries an identity."""


@dataclass(slots=True)
class ClusterCheck:
    """What all links of a client share about the cluster's identity.

    Attributes:
        enabled: `metadata.cluster.check.enable`; off as well when nobody would start over.
        cluster_id: the cluster the metadata came from, None while it is unknown.
        spoken: the highest ApiVersions version of the broker that last named its versions.
        refusal: why a broker wants the client to start over, until it has.
    """

    enabled: bool
    cluster_id: str | None = None
    spoken: int = PLAIN_VERSION
    refusal: KafkaError | None = None

    def version_for(self, node_id: int) -> int:
        """The ApiVersions version to begin a handshake with."""
        asserts = self.enabled and self.cluster_id is not None and node_id >= 0
        return CHECKING_VERSION if asserts and self.spoken >= CHECKING_VERSION else PLAIN_VERSION
