"""Hints for connections that the broker closed without a response."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeDisconnectedError,
    RequestTimeoutError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.security.disconnect_hints import (
    in_authentication,
    in_negotiation,
    on_first_request,
)

HINTS: list[tuple[Callable[[KafkaError], KafkaError], str, str]] = [
    (
        lambda error: in_negotiation(error, uses_tls=True),
        "may not accept our certificate",
        "client-certificate-refused",
    ),
    (lambda error: in_negotiation(error, uses_tls=False), "may be one for TLS", "tls-expected"),
    (lambda error: in_authentication(error, "PLAIN"), "authentication by PLAIN", "hung-up"),
    (on_first_request, "the port may be one for SASL", "sasl-expected"),
]


@pytest.mark.parametrize(("add_hint", "words", "advice"), HINTS)
def test_a_closed_connection_gets_a_hint(
    add_hint: Callable[[KafkaError], KafkaError], words: str, advice: str
) -> None:
    error = NodeDisconnectedError("the broker closed the connection", node_id=3)
    error.__cause__ = ConnectionResetError()
    hinted = add_hint(error)
    assert type(hinted) is NodeDisconnectedError
    assert hinted.message.startswith("the broker closed the connection; if that always happens, ")
    assert words in hinted.message
    assert (hinted.node_id, hinted.advice) == (3, ADVICE[advice])
    assert hinted.__cause__ is error.__cause__


@pytest.mark.parametrize(("add_hint", "words", "advice"), HINTS)
def test_a_timeout_and_any_other_error_get_no_hint(
    add_hint: Callable[[KafkaError], KafkaError], words: str, advice: str
) -> None:
    timeout = NodeDisconnectedError("no answer")
    timeout.__cause__ = RequestTimeoutError()
    advised = NodeDisconnectedError("interrupted", advice="close the producer")
    for error in (timeout, advised, KafkaConnectionError("reading failed")):
        assert add_hint(error) is error
