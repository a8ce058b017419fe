"""The broker's side of TLS and SASL for the embedded cluster.

Owns: the requirements of a listener (`ListenerSecurity`), the gate a connection has to pass
(`gate`), the server's half of the mechanisms (`mechanisms`). Not here: sockets, requests.
"""

from aioproducer.testing.security.gate import ListenerSecurity, SaslGate

__all__ = ["ListenerSecurity", "SaslGate"]
