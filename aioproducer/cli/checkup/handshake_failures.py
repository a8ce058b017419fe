"""Explanations of failures before a connection is usable."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from aioproducer import errors
from aioproducer.cli.checkup.findings import CheckFailedError
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.errors.advice import ADVICE
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.net.security.certificates import Certificate
from aioproducer.net.security.tls_failures import refusal_of


def of_tls(error: OSError, chain: Sequence[Certificate]) -> CheckFailedError:
    """Explain a connection that ended during the TLS handshake."""
    if not isinstance(error, RefusedDialError):
        found = str(error) or type(error).__name__
        return CheckFailedError("hung-up", found, exit_code=ExitCode.UNREACHABLE)
    cause = error.__cause__
    lines = tuple(map(str, chain))
    if isinstance(cause, ssl.SSLCertVerificationError):
        return CheckFailedError(refusal_of(cause), error.error.message, None, *lines)
    return of_tls_error(error.error, lines)


def of_tls_error(error: errors.AuthenticationError, lines: tuple[str, ...]) -> CheckFailedError:
    """Explain a rejected TLS handshake that no broker certificate accounts for."""
    for code in ("tls-not-spoken", "tls-expected", "host-name-mismatch"):
        if error.advice == ADVICE[code]:
            return CheckFailedError(code, error.message)
    code = "client-certificate-refused" if "refused" in error.message else "tls-failed"
    return CheckFailedError(code, error.message, None, *lines)


def of_first_exchange(error: errors.KafkaError, *, uses_tls: bool) -> CheckFailedError:
    """Explain a broker that does not answer ApiVersions."""
    failure = of_exchange(error)
    if uses_tls and failure.code == "hung-up":
        # In TLS 1.3 our certificate may be refused after the handshake, with or without a word.
        failure.advice = (
            "the broker may want a certificate of ours, or another one (ssl.keystore.*); its log "
            "says so"
        )
    return failure


def of_exchange(error: errors.KafkaError) -> CheckFailedError:
    """Explain a request that was not answered."""
    if isinstance(error, errors.TlsError):
        return of_tls_error(error, ())
    if isinstance(error.__cause__, errors.RequestTimeoutError):
        code = "no-answer"
    elif isinstance(error, errors.ProtocolError | errors.NotKafkaError):
        advice = error.advice if isinstance(error, errors.NotKafkaError) else None
        return CheckFailedError("not-kafka", error.message, advice, exit_code=ExitCode.UNREACHABLE)
    elif isinstance(error, errors.UnsupportedVersionError):
        return CheckFailedError("versions-unsupported", error.message)
    elif isinstance(error, errors.AuthenticationError):
        return CheckFailedError("authentication-failed", error.message, error.advice)
    else:
        code = "hung-up"
    return CheckFailedError(code, error.message, exit_code=ExitCode.UNREACHABLE)


def of_sasl(error: errors.KafkaError, mechanism: str) -> CheckFailedError:
    """Explain a failed authentication, of the client or of the broker."""
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return CheckFailedError("mechanism-not-offered", error.message, error.advice)
    if isinstance(error, errors.IllegalSaslStateError):
        return CheckFailedError("sasl-not-expected", error.message, error.advice)
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return CheckFailedError("credentials-refused", f"{mechanism}: {error.message}")
    if isinstance(error, errors.AuthenticationError):
        return CheckFailedError(
            "authentication-failed", f"{mechanism}: {error.message}", error.advice
        )
    if isinstance(
        error, errors.NodeDisconnectedError | errors.ProtocolError | errors.NotKafkaError
    ):
        return of_exchange(error)
    return CheckFailedError("credentials-unavailable", error.message, error.advice)
