"""What a failed TLS handshake means, in words that say what to do.

Owns: the reading of `ssl`'s errors. Must not know: contexts, sockets, who tries again.

A refusal (certificate, host name, protocol) is final: the same two sides would refuse each other
again. An end of the connection is not, and says what it may mean besides a network's failure.
"""

from __future__ import annotations

import ssl

from aioproducer.errors import TlsError
from aioproducer.errors.advice import ADVICE

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
)

_BY_VERIFICATION = {
    9: "certificate-not-yet-valid",
    10: "certificate-expired",
    62: "host-name-mismatch",
    64: "host-name-mismatch",
}
"""What to do about OpenSSL's X509_V_ERR_* codes; otherwise the authority is not known."""

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
            advice=ADVICE["client-certificate-refused"],
        )
    if "UNEXPECTED_EOF" in reason or isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return None
    return TlsError(
        f"TLS with {host} failed: {reason.lower().replace('_', ' ') or error}",
        advice=ADVICE["tls-failed"],
    )


def not_tls(host: str) -> TlsError:
    """The port is one without TLS."""
    return TlsError(f"{host} does not speak TLS on this port", advice=ADVICE["tls-not-spoken"])


def speaks_tls_only(host: str) -> TlsError:
    """The port is one for TLS."""
    return TlsError(f"{host} speaks TLS on this port", advice=ADVICE["tls-expected"])


def check_not_tls(prefix: bytes) -> None:
    """Looks at the first bytes of a frame on a connection without TLS.

    Raises:
        TlsError: they are a TLS alert.
    """
    if prefix.startswith(_ALERT):
        raise TlsError("the broker answers in TLS on this port", advice=ADVICE["tls-expected"])


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> TlsError:
    why = error.verify_message.rstrip(".")
    kind = _BY_VERIFICATION.get(error.verify_code, "authority-unknown")
    if kind == "host-name-mismatch":
        return TlsError(
            f"the broker's certificate is for another host than {host}: {why}",
            advice=f'{ADVICE[kind]}; ssl_endpoint_identification_algorithm="" gives up the check',
        )
    return TlsError(f"the broker's certificate is not trusted: {why}", advice=ADVICE[kind])
