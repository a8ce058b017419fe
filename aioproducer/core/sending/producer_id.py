"""Requests of an idempotent producer for its producer id (InitProducerId).

    not wanted --the sequencer has no identity--> due --sent--> in flight --identity--> not wanted
    in flight --retriable error or no response--> backing off --> due
    in flight --not authorized--> refused: waiting records fail; due again with the next record
    in flight --any other error--> the producer fails (Java: TransactionManager.fatalError)

Liveness: while the id is wanted there is a request in flight, or `due_at` is finite.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.sending.actions import Action, Connect, NodeView, RequestIdentity, recheck_at
from aioproducer.core.sending.failures import as_lost_connection
from aioproducer.errors import AuthorizationError, KafkaError, UnsupportedVersionError

if TYPE_CHECKING:
    import random

    from aioproducer._util.backoff import ExponentialBackoff
    from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer


class IdentityFailure(Enum):
    """Consequence of a failed request for a producer id."""

    RETRY = "asked again after a backoff"
    NOT_NEEDED = "the brokers give no producer ids and batches are sent without"
    REFUSED = "records that wait fail; asked again with the next record"
    FATAL = "asking again would get the same answer"


class ProducerIdRequests:
    """The requests for a producer id; at most one is in flight."""

    def __init__(
        self, sequencer: Sequencer, backoff: ExponentialBackoff, rng: random.Random
    ) -> None:
        self.in_flight: bool = False
        self.last_error: KafkaError | None = None
        """Why the last request failed; None after a success."""
        self.failures: int = 0
        """Number of failed requests since the last success."""
        self.refused: bool = False
        """True if the last request was not authorized: the next record triggers another one."""
        self._sequencer = sequencer
        self._backoff = backoff
        self._rng = rng
        self._retry_at = -inf
        self._outdated = False

    @property
    def is_wanted(self) -> bool:
        """Whether a request is to be sent, now or after the backoff."""
        return self._sequencer.wants_identity and not self.in_flight

    def action(self, now: float, nodes: NodeView) -> Action | None:
        """Return the next step towards a wanted id: the request, or a connection for it."""
        if now < self._retry_at:
            return None
        node_id = nodes.least_loaded_node(now)
        if node_id is None:
            return None
        if nodes.can_ask(node_id, now):
            return RequestIdentity(node_id)
        return Connect(node_id)

    def due_at(self, now: float, nodes: NodeView) -> float:
        """Return the loop time at which to call `action` for a wanted id; always finite."""
        return self._retry_at if self._retry_at > now else recheck_at(nodes, now)

    def on_sent(self) -> None:
        """Mark the request as in flight."""
        self.in_flight = True

    def on_identity(self, identity: ProducerIdentity) -> bool:
        """Store a new producer id; return False if it belongs to a previous cluster."""
        outdated, self._outdated = self._outdated, False
        self.in_flight = False
        if outdated:
            return False
        self.failures, self.last_error, self.refused = 0, None, False
        self._sequencer.on_identity(identity)
        return True

    def on_failure(self, error: KafkaError, now: float) -> IdentityFailure:
        """Handle a failed request, which may not have been sent."""
        self.in_flight = self._outdated = False
        error = as_lost_connection(error)
        if isinstance(error, UnsupportedVersionError) and self._sequencer.disable_idempotence():
            self.failures, self.last_error = 0, None
            return IdentityFailure.NOT_NEEDED
        self.last_error = error
        self._retry_at = now + self._backoff.delay(self.failures, self._rng)
        self.failures += 1
        self.refused = isinstance(error, AuthorizationError)
        if self.refused:
            return IdentityFailure.REFUSED
        return IdentityFailure.RETRY if error.retriable else IdentityFailure.FATAL

    def on_other_cluster(self) -> None:
        """Ignore the response to the request in flight: its id belongs to the old cluster."""
        self._outdated = self.in_flight
