"""What it may mean that a broker hangs up without a word, depending on when it does.

Owns: the hints, which are for connections to where no broker has answered before. Must not know:
who tries again. A hint is no verdict: brokers that shut down and
balancers without a broker hang up as well, so these errors stay retriable, as in Java
(NetworkClient.processDisconnection).
"""

from __future__ import annotations

from aioproducer.errors import KafkaError, NodeDisconnectedError, RequestTimeoutError
from aioproducer.errors.advice import ADVICE


def in_negotiation(error: KafkaError, *, uses_tls: bool) -> KafkaError:
    """The broker would not even tell its versions."""
    if uses_tls:
        return _hinted(
            error,
            "the broker may not accept our certificate",
            ADVICE["client-certificate-refused"],
        )
    return _hinted(error, "the port may be one for TLS", ADVICE["tls-expected"])


def in_authentication(error: KafkaError, mechanism: str) -> KafkaError:
    """The broker closed the connection where it could have said what is wrong."""
    return _hinted(
        error,
        f"this was during authentication by {mechanism}: brokers before 1.0 do that to wrong "
        "credentials, and firewalls to what they dislike",
        ADVICE["hung-up"],
    )


def on_first_request(error: KafkaError) -> KafkaError:
    """Nothing was answered on a connection without authentication."""
    return _hinted(error, "the port may be one for SASL", ADVICE["sasl-expected"])


def _hinted(error: KafkaError, hint: str, advice: str) -> KafkaError:
    if not isinstance(error, NodeDisconnectedError) or _is_timeout(error):
        return error
    told = NodeDisconnectedError(
        f"{error.message}; if that always happens, {hint}", node_id=error.node_id, advice=advice
    )
    told.__cause__ = error.__cause__
    return told


def _is_timeout(error: KafkaError) -> bool:
    return isinstance(error.__cause__, RequestTimeoutError)
