"""Errors of failed TLS handshakes, with advice.

A refusal (certificate, host name, protocol) is final: a retry would be refused again. A closed
connection is retriable, and so are bytes that were damaged on the way.
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
    18: "authority-unknown",
    19: "authority-unknown",
    20: "authority-unknown",
    21: "authority-unknown",
    62: "host-name-mismatch",
    64: "host-name-mismatch",
    66: "certificate-weak",
    67: "certificate-weak",
    68: "certificate-weak",
}
"""Advice for OpenSSL's X509_V_ERR_* codes."""

_UNRECOGNIZED = "TLSV1_UNRECOGNIZED_NAME"
"""OpenSSL's name of the alert against a name (SNI) that the peer does not serve."""

_ALERT = b"\x15\x03"
_ALERT_REASONS = ("SSLV3_ALERT_", "TLSV1_", "TLSV13_ALERT_")
"""Beginnings of OpenSSL's names of alerts; that of an unrecognized name has no word for it."""


def tls_error_of(error: BaseException | None, host: str) -> TlsError | None:
    """Return the refusal that caused an error of `ssl`; None for other errors."""
    if not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, host)
    reason = reason_of(error)
    if is_damage(error):
        return None
    if any(known in reason for known in _NOT_TLS):
        return not_tls(host)
    if "ALERT" in reason or reason == _UNRECOGNIZED:
        kind = "host-name-mismatch" if reason == _UNRECOGNIZED else "client-certificate-refused"
        return TlsError(
            f"{host} refused the TLS handshake ({reason.lower().replace('_', ' ')})",
            advice=ADVICE[kind],
        )
    if "UNEXPECTED_EOF" in reason or isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return None
    return TlsError(
        f"TLS with {host} failed: {reason.lower().replace('_', ' ') or _text_of(error)}",
        advice=ADVICE["tls-failed"],
    )


def late_refusal_of(error: BaseException | None, host: str) -> TlsError | None:
    """Return the refusal that ended a connection after its TLS handshake; None for other errors.

    In TLS 1.3 the broker refuses the client's certificate by an alert after the handshake. Any
    other error of `ssl` is then one of the network.
    """
    if isinstance(error, ssl.SSLError) and is_alert(error):
        return tls_error_of(error, host)
    return None


def refusal_of(error: ssl.SSLCertVerificationError) -> str:
    """Return why a certificate was refused, as a key of `ADVICE`."""
    return _BY_VERIFICATION.get(getattr(error, "verify_code", 0), "certificate-refused")


def reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's name of a failure; an error that Python code has made has none."""
    return getattr(error, "reason", None) or ""


def is_damage(error: BaseException) -> bool:
    """Return whether one side has found that a TLS record was changed on the way.

    Within the handshake OpenSSL 3.2 and later says RECORD_LAYER_FAILURE, as for a peer without TLS.
    """
    return isinstance(error, ssl.SSLError) and "BAD_RECORD_MAC" in reason_of(error)


def is_alert(error: ssl.SSLError) -> bool:
    """Return whether the peer has ended the handshake with an alert, hence uses TLS."""
    return reason_of(error).startswith(_ALERT_REASONS)


def _text_of(error: ssl.SSLError) -> str:
    """Return the message; `str` shows the tuple of an error that has a message alone."""
    return str(error.args[-1]) if error.args else type(error).__name__


def not_tls(host: str) -> TlsError:
    """Return the error for a port without TLS."""
    return TlsError(f"{host} does not use TLS on this port", advice=ADVICE["tls-not-spoken"])


def tls_required_error(host: str) -> TlsError:
    """Return the error for a port that requires TLS."""
    return TlsError(f"{host} uses TLS on this port", advice=ADVICE["tls-expected"])


def check_not_tls(prefix: bytes) -> None:
    """Refuse the first bytes of a frame that are a TLS alert, on a connection without TLS."""
    if prefix.startswith(_ALERT):
        raise TlsError("the broker answers in TLS on this port", advice=ADVICE["tls-expected"])


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> TlsError:
    why = getattr(error, "verify_message", _text_of(error)).rstrip(".")
    kind = refusal_of(error)
    if kind == "host-name-mismatch":
        return TlsError(
            f"the broker's certificate is for another host than {host}: {why}",
            advice=f'{ADVICE[kind]}; ssl_endpoint_identification_algorithm="" gives up the check',
        )
    return TlsError(f"the broker's certificate is not trusted: {why}", advice=ADVICE[kind])
