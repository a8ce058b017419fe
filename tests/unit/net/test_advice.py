"""Advice for brokers that cannot be reached."""

from __future__ import annotations

import errno

import pytest

from aioproducer.errors import (
    ConnectionSetupTimeoutError,
    KafkaConnectionError,
    KafkaError,
    NameResolutionError,
    NodeDisconnectedError,
    ProxyError,
    RequestTimeoutError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.advice import advised
from aioproducer.types import Node

BROKER = Node(1, "broker.example", 9092)
SERVER = Node(-1, "server.example", 9092)


def failure(kind: type[KafkaConnectionError], cause: BaseException | None = None) -> KafkaError:
    error = kind("failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "node", "code"),
    [
        (failure(KafkaConnectionError, ConnectionRefusedError()), SERVER, "port-refused"),
        (failure(KafkaConnectionError, OSError(113, "no route")), SERVER, "port-unreachable"),
        (failure(KafkaConnectionError, ConnectionResetError()), SERVER, "hung-up"),
        (failure(ConnectionSetupTimeoutError, TimeoutError()), SERVER, "port-silent"),
        (failure(NameResolutionError, OSError()), SERVER, "name-unresolved"),
        (failure(KafkaConnectionError, ConnectionRefusedError()), BROKER, "advertised-unreachable"),
        (failure(ConnectionSetupTimeoutError, TimeoutError()), BROKER, "advertised-unreachable"),
        (failure(NameResolutionError, OSError()), BROKER, "advertised-unreachable"),
        (failure(NameResolutionError, OSError()), Node(0, "a.b", 9092), "advertised-unreachable"),
        (failure(NodeDisconnectedError), BROKER, "hung-up"),
        (failure(NodeDisconnectedError, RequestTimeoutError()), BROKER, "no-answer"),
        (failure(ProxyError, OSError()), SERVER, "proxy-failed"),
    ],
)
def test_the_source_of_the_address_decides_the_advice(
    error: KafkaError, node: Node, code: str
) -> None:
    assert advised(error, node, {SERVER[1:3]}, answered=False).advice == ADVICE[code]


def test_a_broker_that_answered_before_is_no_matter_of_the_options() -> None:
    for error in (failure(KafkaConnectionError), failure(NodeDisconnectedError)):
        advice = advised(error, BROKER, {SERVER[1:3]}, answered=True).advice
        assert advice == ADVICE["broker-away"]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("answered", [True, False])
def test_a_lack_of_open_files_is_no_matter_of_the_broker(code: int, answered: bool) -> None:
    error = failure(KafkaConnectionError, OSError(code, "too many"))
    advice = advised(error, BROKER, {SERVER[1:3]}, answered=answered).advice or ""
    assert "raise the limit of open files" in advice


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (failure(KafkaConnectionError, ConnectionRefusedError()), "port-refused"),
        (failure(ConnectionSetupTimeoutError, TimeoutError()), "port-silent"),
        (failure(NameResolutionError, OSError()), "name-unresolved"),
    ],
)
def test_an_advertised_address_that_the_user_gave_too_is_no_mistake_of_the_broker(
    error: KafkaError, code: str
) -> None:
    found = advised(error, BROKER, {BROKER[1:3]}, answered=False)
    assert found.advice == ADVICE[code]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_broker_that_advertises_this_machine_is_distinguished_from_others(host: str) -> None:
    error = failure(KafkaConnectionError, ConnectionRefusedError())
    advice = advised(error, Node(1, host, 9092), {SERVER[1:3]}, answered=False).advice or ""
    assert "this machine, not the broker's" in advice
    assert "advertised.listeners" in advice
    here = advised(error, Node(1, host, 9092), {("localhost", 9093)}, answered=False).advice
    assert here == ADVICE["advertised-unreachable"]


def test_a_name_of_a_container_is_called_so() -> None:
    error = failure(NameResolutionError, OSError())
    advice = (
        advised(error, Node(2, "kafka-2", 9092), {("localhost", 9093)}, answered=False).advice or ""
    )
    assert "container" in advice
    assert "INTERNAL://kafka-2:9092,EXTERNAL://" in advice


def test_errors_with_an_advice_and_errors_of_another_kind_stay_as_they_are() -> None:
    advice = KafkaConnectionError("failed", advice="do it")
    for error in (advice, KafkaError("failed")):
        assert advised(error, SERVER, {SERVER[1:3]}, answered=False) is error
