"""The simulated cluster: its shared state, and one entrance for requests."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.testing.broker import dispatch
from aioproducer.testing.broker.dispatch import Reply, RequestWait
from aioproducer.testing.broker.shared_state import SharedState
from aioproducer.testing.framing import RequestHeader


class ClusterState(SharedState):
    """A whole cluster as one state machine.

    `SharedState` has its attributes.
    """

    def respond(
        self,
        node_id: int,
        header: RequestHeader,
        now_ms: int,
        *,
        wait: RequestWait | None = None,
        gate: Callable[[], Reply | None] | None = None,
    ) -> Reply:
        """Carry out one request as broker `node_id` would.

        Args:
            node_id: The broker that received it.
            header: The request, its body still encoded.
            now_ms: The brokers' clock, epoch milliseconds.
            wait: What an earlier call for the same request returned in `Reply.wait`.
            gate: Answers the request instead, or returns None to let it through.
        """
        self.advance(now_ms)
        reply = dispatch.respond(self, node_id, header, now_ms, wait, gate)
        self.advance(now_ms)
        return reply

    def handle(self, node_id: int, header: RequestHeader, now_ms: int) -> bytes | None:
        """Return the framed response alone, a long poll answered at once.

        None where nothing is to be sent; `respond` says why.
        """
        reply = self.respond(node_id, header, now_ms)
        if reply.wait is not None:
            reply = self.respond(node_id, header, reply.wait.deadline_ms, wait=reply.wait)
        return reply.frame
