"""Schedule of metadata requests and rebootstrapping (KIP-899, KIP-1102).

asleep --due--> a broker is ready? --yes--> request in flight --response--> asleep
                    | no
                    +--> `NoBrokerReady`; checked again after an event and at `recheck_at`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.core.sending.actions import (
    Action,
    NoBrokerReady,
    NodeView,
    Rebootstrap,
    RequestMetadata,
    recheck_at,
)

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.errors import KafkaError


class MetadataNodes(NodeView, Protocol):
    """State of the connections that metadata requests need."""

    @property
    def rebootstrap_required(self) -> KafkaError | None:
        """The error of a broker that requires a rebootstrap, if any."""

    def any_connected(self) -> bool:
        """Return whether some broker or bootstrap server has an open connection."""


class MetadataRequests:
    """Chooses the broker for each metadata request; at most one is in flight.

    Without metadata from known brokers for `rebootstrap_after` seconds, it rebootstraps; None for
    never.
    """

    def __init__(self, metadata: Metadata, rebootstrap_after: float | None) -> None:
        self._metadata = metadata
        self._rebootstrap_after = rebootstrap_after
        self._brokers_known = False
        self._trying_since: float | None = None

    def poll(self, now: float, nodes: MetadataNodes) -> list[Action]:
        """Return the action that is due now, if any."""
        refusal = nodes.rebootstrap_required
        if refusal is not None:
            return [Rebootstrap(str(refusal))]
        if self._metadata.next_update_at(now) > now:
            return []
        node_id = nodes.least_loaded_node(now)
        can_ask = node_id is not None and nodes.can_ask(node_id, now)
        if can_ask or not nodes.any_connected():
            # Busy or throttled brokers do not cause a rebootstrap.
            if self._trying_since is None:
                self._trying_since = now
            elif self._had_their_time(now, self._trying_since):
                why = "no metadata for metadata_recovery_rebootstrap_trigger_ms"
                return [Rebootstrap(why)]
        if can_ask and node_id is not None:
            return [RequestMetadata(node_id)]
        return [NoBrokerReady(node_id)]

    def due_at(self, now: float, nodes: MetadataNodes) -> float:
        """Return the loop time of the next turn after an event; `now` means at once."""
        if nodes.rebootstrap_required is not None:
            return now
        return self._metadata.next_update_at(now)

    def next_deadline(self, now: float, nodes: MetadataNodes) -> float:
        """Return the loop time of the next turn if no event comes before."""
        due_at = self._metadata.next_update_at(now)
        return due_at if due_at > now else recheck_at(nodes, now)

    def on_answer(self) -> None:
        """Handle a valid metadata response."""
        self._trying_since, self._brokers_known = None, True

    def on_rebootstrap(self, now: float) -> None:
        """Restart from the bootstrap servers."""
        self._trying_since, self._brokers_known = now, False
        self._metadata.rebootstrap()

    def _had_their_time(self, now: float, since: float) -> bool:
        """Return whether the known brokers have sent no metadata for too long (KIP-1102)."""
        limit_s = self._rebootstrap_after
        return self._brokers_known and limit_s is not None and now - since >= limit_s
