"""The broker's side of TLS and SASL for the embedded cluster."""

from aioproducer.testing.security.gate import ListenerSecurity, SaslGate

__all__ = ["ListenerSecurity", "SaslGate"]
