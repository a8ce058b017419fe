"""The addresses brokers advertise, as reached from here.

A bootstrap server only returns the brokers' addresses; records go to those. Where brokers advertise
a name of a private network (a container's), the first connection succeeds and then nothing works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from aioproducer._util.hosts import host_and_port
from aioproducer.cli.checkup.findings import CheckFailedError, Finding, Status
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.net.advice import advertised_advice
from aioproducer.types import Node

_OUT_OF_REACH = frozenset({"name", "port"})
_MOST_SHARED = 20
"""Addresses; a broker may name hundreds of thousands, and each finding takes time to print."""


def out_of_reach(node: Node, failed: Finding, bootstrap_hosts: Iterable[str]) -> Finding:
    """Return the finding of a broker that cannot be used at its advertised address."""
    reachable = failed.check not in _OUT_OF_REACH
    failure = CheckFailedError(
        "advertised-refused" if reachable else "advertised-unreachable",
        f"broker {node.id} advertises {failed.about}: {failed.found}",
        failed.advice
        if reachable
        else advertised_advice(node, set(bootstrap_hosts), unresolved=failed.check == "name"),
        *failed.details,
        exit_code=failed.exit_code if reachable else ExitCode.UNREACHABLE,
    )
    return failure.finding("advertised", failed.about)


def shared(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Yield a finding per address that several brokers advertise; the most shared ones of many."""
    counts = Counter((node.host, node.port) for node in nodes)
    for (host, port), count in counts.most_common(_MOST_SHARED):
        if count > 1:
            place = host_and_port(host, port)
            failure = CheckFailedError(
                "address-shared", f"{count} brokers advertise {place}", status=Status.WARN
            )
            yield failure.finding("advertised", place)
