"""Hints for connections that the broker closed without a response.

They are for addresses where no broker has answered before. Brokers that shut down and load
balancers without a broker close connections as well, so these errors stay retriable, as in Java
(NetworkClient.processDisconnection).
"""

from __future__ import annotations

from aioproducer.errors import KafkaError, NodeDisconnectedError, RequestTimeoutError
from aioproducer.errors.advice import ADVICE


def in_negotiation(error: KafkaError, *, uses_tls: bool) -> KafkaError:
    """Add a hint to a disconnect during ApiVersions."""
    if uses_tls:
        return _hinted(
            error, "the broker may not accept our certificate", ADVICE["client-certificate-refused"]
        )
    return _hinted(error, "the port may be one for TLS", ADVICE["tls-expected"])


def in_authentication(error: KafkaError, mechanism: str) -> KafkaError:
    """Add a hint to a disconnect during authentication."""
    return _hinted(
        error,
        f"this was during authentication by {mechanism}: brokers before 1.0 do that to wrong "
        "credentials, and firewalls to what they dislike",
        ADVICE["hung-up"],
    )


def on_first_request(error: KafkaError) -> KafkaError:
    """Add a hint to a disconnect at the first request without authentication."""
    return _hinted(error, "the port may be one for SASL", ADVICE["sasl-expected"])


def _hinted(error: KafkaError, hint: str, advice: str) -> KafkaError:
    timed_out = isinstance(error.__cause__, RequestTimeoutError)
    if not isinstance(error, NodeDisconnectedError) or timed_out or error.advice:
        return error
    hinted = NodeDisconnectedError(
        f"{error.message}; if that always happens, {hint}", node_id=error.node_id, advice=advice
    )
    hinted.__cause__ = error.__cause__
    return hinted
