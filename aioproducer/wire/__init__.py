"""Wire format: Kafka's request and response messages as bytes.

Invariants: bytes from a peer only ever raise `ProtocolError`; no length is believed before it has
been compared with the bytes that are left; importing this package loads no message.
"""
