"""The addresses brokers advertise, seen from here.

Owns: what it means that one cannot be used, the hint that fits. Must not know: connections.

A bootstrap server is only asked for the brokers' addresses; records go to those. Where brokers
advertise a name of their own network (a container's), everything begins well and then nothing
works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from aioproducer.cli.checkup.findings import Finding, Status, TroubleError
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.types import Node

_OUT_OF_REACH = frozenset({"name", "port"})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def out_of_reach(node: Node, failed: Finding, bootstrap_hosts: Iterable[str]) -> Finding:
    """A broker that cannot be used at its advertised address, for the reason that was found."""
    reachable = failed.check not in _OUT_OF_REACH
    trouble = TroubleError(
        "advertised-refused" if reachable else "advertised-unreachable",
        f"broker {node.id} advertises {failed.about}: {failed.found}",
        failed.advice if reachable else _advice(node, failed, set(bootstrap_hosts)),
        *failed.details,
        exit_code=failed.exit_code if reachable else ExitCode.UNREACHABLE,
    )
    return trouble.finding("advertised", failed.about)


def shared(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Addresses that several brokers advertise."""
    for (host, port), count in Counter((node.host, node.port) for node in nodes).items():
        if count > 1:
            trouble = TroubleError(
                "address-shared", f"{count} brokers advertise {host}:{port}", status=Status.WARN
            )
            yield trouble.finding("advertised", f"{host}:{port}")


def _advice(node: Node, failed: Finding, bootstrap_hosts: set[str]) -> str | None:
    if node.host in _HERE and not bootstrap_hosts & _HERE:
        return (
            f"{node.host} means this machine, not the broker's: set advertised.listeners there to "
            "the name this machine knows it by"
        )
    if failed.check == "name" and "." not in node.host:
        return (
            f"{node.host} looks like a container's name, which only its own network knows. Give "
            "the broker a second listener for clients outside, as in advertised.listeners="
            f"INTERNAL://{node.host}:{node.port},EXTERNAL://HOST:PORT, the latter as seen from here"
        )
    return None
