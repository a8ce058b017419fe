"""Advice for brokers that cannot be reached, depending on the source of their address."""

from __future__ import annotations

from collections.abc import Collection
from errno import EMFILE, ENFILE

from aioproducer.errors import (
    ConnectionSetupTimeoutError,
    KafkaConnectionError,
    KafkaError,
    NameResolutionError,
    NodeDisconnectedError,
    RequestTimeoutError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.types import Node

_NO_FILES = frozenset({EMFILE, ENFILE})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def advised(
    error: KafkaError, node: Node, bootstrap: Collection[tuple[str, int]], *, answered: bool
) -> KafkaError:
    """Return the failure of a dial or a connection, with advice if it has none."""
    if error.advice is not None or not isinstance(error, KafkaConnectionError):
        return error
    # If the user configured the address too, the advertised listener is not the cause.
    advertised = None if node.id < 0 or (node.host, node.port) in bootstrap else node
    hosts = {host for host, _ in bootstrap}
    return error.with_context(advice=_advice(error, advertised, hosts, answered=answered))


def _advice(
    error: KafkaConnectionError,
    advertised: Node | None,
    bootstrap_hosts: Collection[str],
    *,
    answered: bool,
) -> str:
    if getattr(error.__cause__, "errno", None) in _NO_FILES:
        return "close files, or raise the limit of open files: ulimit -n, fs.file-max"
    if answered:
        return ADVICE["broker-away"]
    if isinstance(error.__cause__, RequestTimeoutError):
        return ADVICE["no-answer"]
    if isinstance(error, NodeDisconnectedError):
        return ADVICE["hung-up"]
    cause, unresolved = error.__cause__, isinstance(error, NameResolutionError)
    if isinstance(cause, ConnectionError) and not isinstance(cause, ConnectionRefusedError):
        advice: str = getattr(cause, "advice", ADVICE["hung-up"])
        return advice
    if advertised is not None:
        return advertised_advice(advertised, bootstrap_hosts, unresolved=unresolved)
    if unresolved:
        return ADVICE["name-unresolved"]
    if isinstance(error, ConnectionSetupTimeoutError):
        return ADVICE["port-silent"]
    refused = isinstance(cause, ConnectionRefusedError)
    return ADVICE["port-refused" if refused else "port-unreachable"]


def advertised_advice(node: Node, bootstrap_hosts: Collection[str], *, unresolved: bool) -> str:
    """Return advice for an advertised address that cannot be used from here."""
    if node.host in _HERE and not _HERE.intersection(bootstrap_hosts):
        return (
            f"{node.host} means this machine, not the broker's: set advertised.listeners there to "
            "a name that this machine can resolve"
        )
    if unresolved and "." not in node.host:
        return (
            f"{node.host} looks like a container's name, which only its own network resolves; give "
            "the broker a second listener for clients outside, as in advertised.listeners="
            f"INTERNAL://{node.host}:{node.port},EXTERNAL://HOST:PORT, the latter as seen from here"
        )
    return ADVICE["advertised-unreachable"]
