"""The meaning of a failure before a connection is usable.

Owns: the interpretation of the errors of `net`. Not here: connections.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from aioproducer.cli.checkup.findings import TroubleError
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaError,
    NodeDisconnectedError,
    NotKafkaError,
    ProtocolError,
    RequestTimeoutError,
    SaslAuthenticationFailedError,
    TlsError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.refusals import RefusedDialError
from aioproducer.net.security.certificates import Certificate

_BY_VERIFICATION = {
    9: "certificate-not-yet-valid",
    10: "certificate-expired",
    18: "authority-unknown",
    19: "authority-unknown",
    20: "authority-unknown",
    21: "authority-unknown",
    62: "host-name-mismatch",
    64: "host-name-mismatch",
}
"""OpenSSL's X509_V_ERR_* codes."""


def of_tls(error: OSError, chain: Sequence[Certificate]) -> TroubleError:
    """TLS did not come about."""
    if not isinstance(error, RefusedDialError):
        found = str(error) or type(error).__name__
        return TroubleError("hung-up", found, exit_code=ExitCode.UNREACHABLE)
    cause = error.__cause__
    lines = tuple(map(str, chain))
    if isinstance(cause, ssl.SSLCertVerificationError):
        code = _BY_VERIFICATION.get(cause.verify_code, "certificate-refused")
        return TroubleError(code, error.error.message, None, *lines)
    return of_tls_refusal(error.error, lines)


def of_tls_refusal(error: AuthenticationError, lines: tuple[str, ...]) -> TroubleError:
    """Explain a rejected TLS handshake that no broker certificate accounts for."""
    for code in ("tls-not-spoken", "tls-expected"):
        if error.advice == ADVICE[code]:
            return TroubleError(code, error.message)
    code = "client-certificate-refused" if "refused" in error.message else "tls-failed"
    return TroubleError(code, error.message, None, *lines)


def of_first_exchange(error: KafkaError, *, uses_tls: bool) -> TroubleError:
    """Explain a broker that does not answer ApiVersions."""
    trouble = of_exchange(error)
    if uses_tls and trouble.code == "hung-up":
        # In TLS 1.3 our certificate may be refused after the handshake, with or without a word.
        trouble.advice = (
            "the broker may want a certificate of ours, or another one (ssl.keystore.*); its log "
            "says so"
        )
    return trouble


def of_exchange(error: KafkaError) -> TroubleError:
    """Explain a request that was not answered."""
    if isinstance(error, TlsError):
        return of_tls_refusal(error, ())
    if isinstance(error.__cause__, RequestTimeoutError):
        code = "no-answer"
    elif isinstance(error, ProtocolError | NotKafkaError):
        code = "not-kafka"
    elif isinstance(error, UnsupportedVersionError):
        return TroubleError("versions-unsupported", error.message)
    elif isinstance(error, AuthenticationError):
        return TroubleError("authentication-failed", error.message, error.advice)
    else:
        code = "hung-up"
    return TroubleError(code, error.message, exit_code=ExitCode.UNREACHABLE)


def of_sasl(error: KafkaError, mechanism: str) -> TroubleError:
    """Explain a failed authentication, of the client or of the broker."""
    if isinstance(error, UnsupportedSaslMechanismError):
        return TroubleError("mechanism-not-offered", error.message, error.advice)
    if isinstance(error, IllegalSaslStateError):
        return TroubleError("sasl-not-expected", error.message, error.advice)
    if isinstance(error, SaslAuthenticationFailedError):
        return TroubleError("credentials-refused", f"{mechanism}: {error.message}")
    if isinstance(error, AuthenticationError):
        return TroubleError("authentication-failed", f"{mechanism}: {error.message}", error.advice)
    if isinstance(error, NodeDisconnectedError | ProtocolError | NotKafkaError):
        return of_exchange(error)
    return TroubleError("credentials-unavailable", error.message)
