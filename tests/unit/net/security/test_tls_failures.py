"""Failed TLS handshakes: refusals or not, and their advice."""

from __future__ import annotations

import ssl

import pytest

from aioproducer.errors import TlsError
from aioproducer.net.security.tls_failures import check_not_tls, tls_error_of


def failure(
    reason: str | None = None, *, kind: type[ssl.SSLError] = ssl.SSLError, number: int = 1
) -> ssl.SSLError:
    """An error as `ssl` raises it."""
    error = kind(number, f"[SSL: {reason}] it failed")
    error.reason = reason
    return error


def untrusted(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "that is why."
    return error


def refusal(error: BaseException) -> str:
    refused = tls_error_of(error, "kafka.example")
    assert isinstance(refused, TlsError)
    assert not refused.retriable
    return str(refused)


@pytest.mark.parametrize(
    "error",
    [
        failure("UNEXPECTED_EOF_WHILE_READING"),
        failure(kind=ssl.SSLEOFError, number=8),
        failure("UNEXPECTED_EOF_WHILE_READING", kind=ssl.SSLEOFError, number=8),
        failure(kind=ssl.SSLZeroReturnError, number=6),
        failure("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
        failure("SSLV3_ALERT_BAD_RECORD_MAC"),
        ConnectionResetError(),
        None,
    ],
)
def test_a_connection_that_ends_or_is_damaged_in_the_handshake_is_no_refusal(
    error: BaseException | None,
) -> None:
    assert tls_error_of(error, "kafka.example") is None


@pytest.mark.parametrize(
    "reason",
    [
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "HTTP_REQUEST",
        "UNKNOWN_PROTOCOL",
    ],
)
def test_an_answer_that_is_not_tls_is_called_so(reason: str) -> None:
    assert "kafka.example does not use TLS on this port" in refusal(failure(reason))


def test_an_alert_of_the_broker_is_quoted() -> None:
    text = refusal(failure("TLSV13_ALERT_CERTIFICATE_REQUIRED"))
    assert "refused the TLS handshake (tlsv13 alert certificate required)" in text
    assert "give a certificate the broker trusts" in text


def test_a_name_that_the_peer_does_not_serve_is_advised_about() -> None:
    text = refusal(failure("TLSV1_UNRECOGNIZED_NAME"))
    assert "kafka.example refused the TLS handshake (tlsv1 unrecognized name)" in text
    assert "connect by a name the certificate has" in text


def test_any_other_failure_is_quoted() -> None:
    text = refusal(failure("NO_PROTOCOLS_AVAILABLE"))
    assert "TLS with kafka.example failed: no protocols available" in text
    assert "it failed" in refusal(failure())


@pytest.mark.parametrize(
    ("code", "words", "advice"),
    [
        (9, "is not trusted: that is why ->", "clock"),
        (10, "is not trusted: that is why ->", "renew"),
        (18, "is not trusted: that is why ->", "ssl_truststore"),
        (20, "is not trusted: that is why ->", "ssl_truststore"),
        (62, "is for another host than kafka.example: that is why ->", "gives up the check"),
        (64, "is for another host than kafka.example: that is why ->", "gives up the check"),
        (66, "is not trusted: that is why ->", "2048 bits"),
        (67, "is not trusted: that is why ->", "2048 bits"),
        (68, "is not trusted: that is why ->", "2048 bits"),
        (26, "is not trusted: that is why ->", "check the broker's certificates"),
    ],
)
def test_a_certificate_that_is_refused_has_advice_for_its_fault(
    code: int, words: str, advice: str
) -> None:
    text = refusal(untrusted(code))
    assert words in text
    assert advice in text


def test_an_error_that_python_code_has_made_is_quoted() -> None:
    assert "TLS with kafka.example failed: pinned ->" in refusal(ssl.SSLError("pinned"))
    assert "TLS with kafka.example failed: SSLError ->" in refusal(ssl.SSLError())
    text = refusal(ssl.SSLCertVerificationError(1, "the pin differs."))
    assert "the broker's certificate is not trusted: the pin differs ->" in text


def test_a_tls_alert_in_place_of_an_answer_is_recognized() -> None:
    check_not_tls(b"\x15\x02\x03\x00")
    with pytest.raises(TlsError, match="the broker answers in TLS on this port"):
        check_not_tls(b"\x15\x03\x03\x00")
