"""Schedule and target node of transactional requests; `coordinators` has the requests."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.sending.actions import (
    Action,
    Connect,
    CoordinatorUnreachable,
    NodeView,
    RequestOfCoordinator,
    recheck_at,
)
from aioproducer.errors import NodeDisconnectedError

if TYPE_CHECKING:
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.core.transactions.coordinators import CoordinatorSession
    from aioproducer.core.transactions.manager import TransactionManager


class CoordinatorRequests:
    """Chooses the node of transactional requests; at most one is in flight."""

    def __init__(
        self,
        manager: TransactionManager,
        coordinator_session: CoordinatorSession,
        metadata: Metadata,
        accumulator: RecordAccumulator,
    ) -> None:
        self._manager = manager
        self._coordinator_session = coordinator_session
        self._metadata = metadata
        self._accumulator = accumulator
        coordinator_session.on_outdated = metadata.request_update

    def poll(self, now: float, nodes: NodeView) -> list[Action]:
        """Return the action that is due now, if any."""
        request = self._coordinator_session.next_request(now, is_idle=self._accumulator.is_idle)
        if request is None:
            return []
        node_id = request.node_id
        if node_id is None:
            node_id = nodes.least_loaded_node(now)
            if node_id is None:
                return []
            request = replace(request, node_id=node_id)
        elif node_id not in self._metadata.cluster.nodes:
            self._metadata.request_update(now)
            gone = NodeDisconnectedError("not among the brokers")
            return [CoordinatorUnreachable(request, gone)]
        if nodes.can_ask(node_id, now):
            return [RequestOfCoordinator(node_id, request)]
        failure = nodes.connection_failures(node_id)
        if failure is not None and now < nodes.ready_at(node_id, now) < inf:
            # It backs off. The coordinator may have moved.
            return [CoordinatorUnreachable(request, failure)]
        return [Connect(node_id)]

    def due_at(self, now: float, nodes: NodeView) -> float:
        """Return the loop time of the next turn after an event; `now` means at once."""
        return self._coordinator_session.due_at(now, is_idle=self._accumulator.is_idle)

    def next_deadline(self, now: float, nodes: NodeView) -> float:
        """Return the loop time of the next turn if no event comes before."""
        due_at = self.due_at(now, nodes)
        return due_at if due_at > now else recheck_at(nodes, now)
