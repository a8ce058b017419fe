"""Wire format: Kafka's request and response messages as bytes.

Owns: the declarations of the messages (`messages/`), the compiler that turns a declaration into an
encoder and a decoder per version (`schema`, `compiler`), framing and headers (`framing`), and the
hand-written Produce encoder (`produce`). Not here: asyncio, sockets, clocks, policy.

Invariants: bytes from a peer only ever raise `ProtocolError`; no length is believed before it has
been compared with the bytes that are left; importing this package loads no message.
"""
