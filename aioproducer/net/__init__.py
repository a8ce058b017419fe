"""The network room: one connection per broker on asyncio streams.

Owns: dialing, the handshake, correlation, request deadlines, idle close, throttle mute, reconnect
backoff, choice of the least loaded node. Must not know: batches, partitions, retries of requests,
what a response means to the producer; it imports `wire`, never `core`.

Layers, from the socket up: `dialer` (the only I/O seam), `connection` (one socket), `handshake`
(what happens between an open socket and a usable connection), `link` (one broker through all its
connections), `client` (all brokers).

Invariants: every wait has a bound; everything read from a peer is bounded and checked; the clock
and the random source are passed in; whatever was opened is closed by `NetworkClient.close`.
"""

from aioproducer.net.client import NetworkClient, NodeNotReady, PreparedRequest
from aioproducer.net.context import NodeState
from aioproducer.net.dial.dialer import Address, Dialer, TcpDialer
from aioproducer.net.settings import NetSettings

__all__ = [
    "Address",
    "Dialer",
    "NetSettings",
    "NetworkClient",
    "NodeNotReady",
    "NodeState",
    "PreparedRequest",
    "TcpDialer",
]
