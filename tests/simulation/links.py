"""Rules for links: which broker is dialed, when again, for how long; versions of requests.

Owns: what must be true of the links to brokers at an idle moment. Not here: what is sent on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.net.context import NodeState
from aioproducer.net.link import DIAL_TIMEOUT_S
from aioproducer.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from aioproducer.net.link import BrokerLink
    from aioproducer.runtime.engine import ProducerEngine

_LATE_S = 0.1
"""How late a step may be."""
_TURNS_S = 0.03
"""What turns of a slow loop take between a failure and the next idle moment."""
_JITTER = 1.2
"""Of a backoff."""
_SMALLEST_SHARE = 0.25
"""Of the setup timeout, for one of several addresses."""


class _Seen(NamedTuple):
    """A link at the last idle moment, with its failures since a useful connection."""

    retry_at: float = -inf
    lost_at: float = -inf
    is_open: bool = False
    throttled_until: float = -inf
    failures: int = 0


_NEW = _Seen()


class Dials:
    """The dials to each broker; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._links: dict[BrokerLink, _Seen] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield dials that begin again too soon, or end before their time."""
        config, before, self._links = engine.config, self._links, {}
        longest_s = config.reconnect_backoff_max_ms / 1000
        for link in engine.client._links():
            seen = before.get(link, _NEW)
            now_seen = self._links[link] = _as_seen(link, seen, longest_s)
            if link.throttled_until < seen.throttled_until:
                yield (
                    f"node {link.node.id} is throttled until {link.throttled_until:.3f}, and was "
                    f"until {seen.throttled_until:.3f}"
                )
            if now_seen.retry_at == seen.retry_at:
                continue
            first_s = config.reconnect_backoff_ms / 1000
            request_s = config.request_timeout_ms / 1000
            setup_s = config.socket_connection_setup_timeout_ms / 1000
            least_s = min(first_s * 2.0 ** (now_seen.failures - 1), longest_s) * (2 - _JITTER)
            pause_s, took_s = link._retry_at - now, now - link.last_attempt_at
            if pause_s < least_s - _TURNS_S:
                yield (
                    f"node {link.node.id} may be dialed in {pause_s:.3f} s, after "
                    f"{now_seen.failures} failures"
                )
            least_s = min(request_s, setup_s * (2 - _JITTER) * _SMALLEST_SHARE) - _TURNS_S
            if _has_timed_out(link.last_error) and took_s < least_s:
                yield f"node {link.node.id} was dialed for {took_s:.3f} s: {link.last_error}"


def _as_seen(link: BrokerLink, before: _Seen, longest_s: float) -> _Seen:
    """Return the link as it is now; a useful connection or an idle one ends a row of failures."""
    connection, failures = link._connection, before.failures
    is_open = connection is not None and connection.is_open
    state = link._retry_at, link.lost_at, is_open, link.throttled_until
    if state == before[:-1]:
        return before
    if link._retry_at != before.retry_at:
        is_lost = link.lost_at != before.lost_at
        if is_lost and (link._proved_useful or link.lost_at - link.ready_since >= longest_s):
            failures = 0
        failures += 1
    elif before.is_open and not is_open:
        failures = 0
    return _Seen(*state, failures)


def _has_timed_out(error: BaseException | None) -> bool:
    """Return whether a dial has; a request that was sent before may also end a renewal."""
    sent_before = re.search(r" (\w+)Request v\d+ was not answered", str(error))
    if sent_before is not None and not sent_before[1].startswith(("Sasl", "ApiVersions")):
        return False
    while error is not None and not isinstance(error, TimeoutError):
        error = error.__cause__
    return error is not None


def dialed_too_long(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield dials that take too long."""
    for link in engine.client._links():
        if not link.is_dialing:
            continue
        config, took_s = engine.config, now - link.last_attempt_at
        most_s = config.socket_connection_setup_timeout_max_ms / 1000
        if link._state is NodeState.CONNECTING:
            setup_s = config.socket_connection_setup_timeout_ms / 1000
            most_s = min(setup_s * 2.0**link._setup_failures * _JITTER, most_s)
        else:
            most_s += config.request_timeout_ms / 1000
        if took_s > most_s + _LATE_S:
            yield f"node {link.node.id} is dialed for {took_s:.3f} s"


def not_dialed(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Brokers that could be dialed while metadata are due and no broker can be asked.

    While brokers are known, bootstrap servers are dialed only by producers that rebootstrap. A dial
    that takes long is no reason to wait.
    """
    client = engine.client
    is_connected = any(link.versions is not None for link in client._links())
    if engine.metadata.next_update_at(now) > now or is_connected:
        return
    rebootstraps = engine.config.metadata_recovery_strategy == "rebootstrap"
    links = list(client._bootstrap.values()) if rebootstraps or not client._brokers else []
    links += client._brokers.values()
    slow_at = [each.last_attempt_at + DIAL_TIMEOUT_S for each in client._links() if each.is_dialing]
    since = max(slow_at, default=-inf)
    idle = [link for link in links if link._state is NodeState.DISCONNECTED]
    waiting = [now - max(link._retry_at, since) for link in idle]
    if waiting and max(waiting) > _LATE_S:
        yield f"metadata are due, and a broker could be dialed for {max(waiting):.3f} s"


def not_asked(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Brokers that could be asked while metadata are due, and no broker is asked or dialed.

    Bootstrap servers count while no broker is known.
    """
    client = engine.client
    if engine.metadata.next_update_at(now) > now or any(x.is_dialing for x in client._links()):
        return
    for link in (client._brokers or client._bootstrap).values():
        is_ready = link.state(now) is NodeState.READY and _has_reserve(engine, link)
        if is_ready and link.ready_since + _LATE_S < now < link._renew_at:
            yield f"metadata are due, and node {link.node.id} could be asked"


def _has_reserve(engine: ProducerEngine, link: BrokerLink) -> bool:
    """Return whether a request beyond the limit, for all but Produce requests, is left."""
    connection, most = link._connection, engine.config.max_in_flight_requests_per_connection
    if connection is None or link.in_flight > most:
        return False
    requests = (*connection._awaiting, *connection._unflushed)
    return all(request.kind is ProduceRequest for request in requests)


def earlier_dials_count(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Failed dials before a connection that has answered, which count for the next backoff."""
    for link in engine.client._links():
        is_first = link._proved_useful and link.last_attempt_at < link.lost_at
        if is_first and link.versions is None and link._failures > 1:
            yield f"node {link.node.id} has answered, and {link._failures} failures count"


def unsupported_versions(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Requests in versions that the broker does not support."""
    for link in engine.client._links():
        connection, versions = link._connection, link.versions
        if connection is None or versions is None:
            continue
        for request in (*connection._awaiting, *connection._unflushed):
            key = request.kind.API_KEY
            lowest, highest = versions.ranges.get(key or 0, (0, -1))
            if key is not None and not lowest <= request.version <= highest:
                yield f"{key.name} v{request.version} is sent to node {link.node.id}"


def older_features_count(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The level of transaction.version, if it is not that of the newest features received."""
    client = engine.client
    known = [each.versions for each in client._links() if each.versions is not None]
    if engine.transactions is None or not known:
        return
    newest = max(known, key=lambda versions: versions.features_epoch)
    level = newest.features.get("transaction.version", 0)
    if not all(each.has_transactions_v2 for each in known):
        level = min(level, 1)
    if client.transaction_version() != level:
        yield f"transaction.version is {level}, {client.transaction_version()} counts"
