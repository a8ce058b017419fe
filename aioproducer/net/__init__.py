"""The network layer: one connection per broker on asyncio streams.

It dials, shakes hands, matches responses, keeps deadlines, closes idle connections, obeys throttle
times, backs off and chooses the least loaded node.

From the socket up: `dial` (the only I/O seam), `connection` (one socket), `handshake` (from an open
socket to a usable connection), `link` (one broker), `client` (all brokers). Start with
`NetworkClient`.

Invariants: every wait is bounded; all data from a peer is bounded and checked; the clock and the
random source are passed in; `NetworkClient.close` closes everything that was opened.
"""
