"""What a failed TLS handshake means, in words that say what to do.

Owns: the reading of `ssl`'s errors. Must not know: contexts, sockets, who tries again.

A refusal (certificate, host name, protocol) is final: the same two sides would refuse each other
again. An end of the connection is not, and says what it may mean besides a network's failure.
"""

from __future__ import annotations

import ssl

from aioproducer.errors import TlsError

_NAME_MISMATCHES = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

_NOT_IN_ITS_TIME = frozenset({9, 10})
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
)

USE_PLAINTEXT = (
    "security_protocol asks for TLS: use the port of the brokers' TLS listener, or PLAINTEXT or "
    "SASL_PLAINTEXT for this one"
)
USE_TLS = "use security_protocol=SSL or SASL_SSL for this port, or the port of another listener"

_ALERT = b"\x15\x03"


def refusal(error: BaseException | None, host: str) -> TlsError | None:
    """The refusal behind an error of `ssl`; None if the error is of another kind."""
    if not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, host)
    reason = error.reason or ""
    if any(known in reason for known in _NOT_TLS):
        return not_tls(host)
    if "ALERT" in reason:
        return TlsError(
            f"{host} refused the TLS handshake ({reason.lower().replace('_', ' ')})",
            advice="the broker wants another certificate of ours (ssl_keystore_*), or other TLS "
            "versions or cipher suites",
        )
    if "UNEXPECTED_EOF" in reason or isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return None
    return TlsError(f"TLS with {host} failed: {reason.lower().replace('_', ' ') or error}")


def not_tls(host: str) -> TlsError:
    """The port is one without TLS."""
    return TlsError(f"{host} does not speak TLS on this port", advice=USE_PLAINTEXT)


def check_not_tls(prefix: bytes) -> None:
    """Looks at the first bytes of a frame on a connection without TLS.

    Raises:
        TlsError: they are a TLS alert.
    """
    if prefix.startswith(_ALERT):
        raise TlsError("the broker answers in TLS on this port", advice=USE_TLS)


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> TlsError:
    why = error.verify_message.rstrip(".")
    if error.verify_code in _NAME_MISMATCHES:
        return TlsError(
            f"the broker's certificate is for another host than {host}: {why}",
            advice="connect by a name the certificate has (bootstrap_servers and the brokers' "
            'advertised.listeners); ssl_endpoint_identification_algorithm="" gives up the check',
        )
    if error.verify_code in _NOT_IN_ITS_TIME:
        return TlsError(
            f"the broker's certificate is not trusted: {why}",
            advice="renew the broker's certificate, or set this machine's clock",
        )
    return TlsError(
        f"the broker's certificate is not trusted: {why}",
        advice="name the authority that signed it in ssl_truststore_location or "
        "ssl_truststore_certificates",
    )
