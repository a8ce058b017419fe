"""Rules for what `health()`, `statistics()` and totals report: it is what the state says.

Owns: reports compared with the objects that they are about. Not here: totals that follow from the
calls of one test, see `simulation.results`; counts of connections and waits, see
`simulation.consistency`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.runtime.observability.health import health
from aioproducer.runtime.observability.statistics import _partitions

if TYPE_CHECKING:
    from aioproducer.metrics.totals import Sampled, TopicStats
    from aioproducer.runtime.engine import ProducerEngine

_ROUNDING = 1e-6
_OF_BATCHES = (
    ("batch_size_max", "bytes_sent", "batches_sent"),
    ("queue_time_max", "queue_time", "batches_sent"),
    ("latency_max", "latency", "responses"),
    ("throttle_time_max", "throttle_time", "responses"),
)
_OF_NODES = (
    ("request_size_max", "bytes_out", "requests"),
    ("latency_max", "latency", "responses"),
)
_OF_LOGINS = (("renewal_time_max", "renewal_time", "renewals"),)
"""The largest value of a sample, the sum, and the number of what is added up."""
_BY_TOPIC = ("records_sent", "records_retried", "records_failed", "bytes_sent")


def reports_differ(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield what is reported of a producer that is not so."""
    yield from _health_differs(engine)
    yield from _statistics_differ(engine, now)
    yield from _peaks_differ(engine.stats, _OF_BATCHES)
    yield from _peaks_differ(engine.client.io_stats, _OF_LOGINS)
    for node in engine.client.io_stats.nodes.values():
        yield from _peaks_differ(node, _OF_NODES)


def _health_differs(engine: ProducerEngine) -> Iterator[str]:
    """A producer is ready if a broker is connected and the last request for an id was answered."""
    found, sender = health(engine, "running"), engine.driver.sender
    links = engine.client._links()
    is_connected = any(each.ready_since > -inf and each.last_error is None for each in links)
    is_open = engine._start_error is None and (
        engine._connector is None or engine._connector.done()
    )
    is_ready = is_connected and is_open and sender.producer_id.last_error is None
    if found.ready != is_ready or found.ready == (found.error is not None):
        yield f"health() says ready={found.ready}, error={found.error}, and it is {is_ready}"
    batches = [*engine.accumulator.incomplete()]
    oldest = min(batches, key=lambda each: each.created_at, default=None)
    waits_for = found.waiting_for if oldest is None else str(sender.wait_of(oldest))
    if (found.batches_pending, found.waiting_for) != (len(batches), waits_for):
        yield f"{len(batches)} are pending, the oldest is {waits_for}, health() says {found}"
    for node_id, node in found.nodes.items():
        link = engine.client.link(node_id)
        connection = None if link is None else link._connection
        in_flight = 0 if connection is None else connection.in_flight
        if node.in_flight != in_flight:
            yield f"node {node_id} has {in_flight} requests in flight, health() says {node}"


def _statistics_differ(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Statistics have each batch without an outcome, under its partition."""
    found = _partitions(engine, now)  # `statistics()` would begin another sample of each broker
    batches = [*engine.accumulator.incomplete()]
    for where in {*found} | {each.topic_partition for each in batches}:
        own = [each for each in batches if each.topic_partition == where]
        expected = (
            sum(each.count for each in own if not each.on_wire),
            sum(each.count for each in own if each.on_wire),
            max((now - each.created_at for each in own), default=None),
        )
        stated = found.get(where)
        if stated is None or expected != (
            stated.queued_records,
            stated.in_flight_records,
            stated.oldest_s,
        ):
            yield f"{where} has {expected} queued, in flight and as age, statistics say {stated}"


def _peaks_differ(stats: Sampled, kinds: tuple[tuple[str, str, str], ...]) -> Iterator[str]:
    """The largest value of a sample is between its mean and its sum."""
    if not stats._samples:
        return
    for peak, total, count in kinds:
        before, largest = stats._samples[-1].totals, getattr(stats, peak)
        added = getattr(stats, total) - before[total]
        number = getattr(stats, count) - before[count]
        slack = _ROUNDING * (1 + abs(getattr(stats, total)))
        if not largest - slack <= added <= number * largest + slack:
            yield f"{peak} is {largest}, and {number} of {total} are {added} together"


class _Totals(NamedTuple):
    version: int
    own: dict[str, int]
    by_topic: dict[str, tuple[TopicStats, dict[str, int]]]


class TopicTotals:
    """The totals of the producer and its topics; `check` them whenever the loop is idle."""

    def __init__(self) -> None:
        self._before: _Totals | None = None

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield totals of topics that grow by something else than those of the producer.

        New metadata drop the totals of topics that are not used any more.
        """
        stats, before = engine.stats, self._before
        own = {name: getattr(stats, name) for name in _BY_TOPIC}
        by_topic = {
            topic: (each, {name: getattr(each, name) for name in _BY_TOPIC})
            for topic, each in stats.topics.items()
        }
        self._before = _Totals(engine.metadata.version, own, by_topic)
        if before is None or before.version != engine.metadata.version:
            return
        none = dict.fromkeys(_BY_TOPIC, 0)
        for name in _BY_TOPIC:
            grown = own[name] - before.own[name]
            of_topics = sum(
                totals[name] - before.by_topic.get(topic, (each, none))[1][name]
                for topic, (each, totals) in by_topic.items()
            )
            if grown != of_topics:
                yield f"{name} grows by {grown}, those of the topics by {of_topics}"
