"""Which broker is asked for metadata and when, and when to start over (KIP-899, KIP-1102).

asleep --due--> a broker can be asked? --yes--> request in flight --answer--> asleep
                    | no
                    +--> `NoBrokerReady`; looked at again after an event and at `look_again_at`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.core.sending.actions import (
    Action,
    NoBrokerReady,
    NodeView,
    Rebootstrap,
    RequestMetadata,
    look_again_at,
)

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.errors import KafkaError


class MetadataNodes(NodeView, Protocol):
    """What else there is to know of the connections."""

    @property
    def rebootstrap_required(self) -> KafkaError | None:
        """Why a broker wants a new start, if one does."""

    def any_connected(self) -> bool:
        """Return whether some broker or bootstrap server has an open connection."""


class MetadataRequests:
    """Decides who is asked for metadata; at most one request is in flight.

    Args:
        metadata: says when something is to be asked.
        rebootstrap_after: for how many seconds known brokers may give no metadata before the
            bootstrap servers are asked; None for ever.
    """

    def __init__(self, metadata: Metadata, rebootstrap_after: float | None) -> None:
        self._metadata = metadata
        self._rebootstrap_after = rebootstrap_after
        self._brokers_known = False
        self._trying_since: float | None = None

    def poll(self, now: float, nodes: MetadataNodes) -> list[Action]:
        """What to do now."""
        refusal = nodes.rebootstrap_required
        if refusal is not None:
            return [Rebootstrap(str(refusal))]
        if self._metadata.next_update_at(now) > now:
            return []
        node_id = nodes.least_loaded_node(now)
        can_ask = node_id is not None and nodes.can_ask(node_id, now)
        if can_ask or not nodes.any_connected():
            # Brokers that are only busy or throttled are no reason to start over.
            if self._trying_since is None:
                self._trying_since = now
            elif self._had_their_time(now, self._trying_since):
                why = "no metadata for metadata_recovery_rebootstrap_trigger_ms"
                return [Rebootstrap(why)]
        if can_ask and node_id is not None:
            return [RequestMetadata(node_id)]
        return [NoBrokerReady(node_id)]

    def due_at(self, now: float, nodes: MetadataNodes) -> float:
        """Loop time of the next turn now that something has happened; `now` for one at once."""
        if nodes.rebootstrap_required is not None:
            return now
        return self._metadata.next_update_at(now)

    def next_deadline(self, now: float, nodes: MetadataNodes) -> float:
        """Loop time of the turn after this one, unless something happens before."""
        due_at = self._metadata.next_update_at(now)
        return due_at if due_at > now else look_again_at(nodes, now)

    def on_answer(self) -> None:
        """A broker has described the cluster."""
        self._trying_since, self._brokers_known = None, True

    def on_rebootstrap(self, now: float) -> None:
        """The bootstrap servers are all there is."""
        self._trying_since, self._brokers_known = now, False
        self._metadata.rebootstrap()

    def _had_their_time(self, now: float, since: float) -> bool:
        """Whether the known brokers have given no metadata for too long (KIP-1102)."""
        patience = self._rebootstrap_after
        return self._brokers_known and patience is not None and now - since >= patience
