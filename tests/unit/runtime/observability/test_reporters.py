"""Metrics reporters: their calls, the times of these, and that they harm nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer.config import ProducerConfig
from aioproducer.errors import BootstrapError, ConfigError
from aioproducer.interceptors import ClusterInfo
from aioproducer.metrics import ApplicationMetric, LiveMetric
from aioproducer.runtime.observability.registry import ClientSource, MetricsRegistry
from aioproducer.runtime.observability.reporters import MetricsReporting

ROOMY = {"buffer_memory": 1 << 20}
JMX = "org.apache.kafka.common.metrics.JmxReporter"


class Ledger:
    """Keeps the arguments of each call."""

    def __init__(self) -> None:
        self.config: ProducerConfig | None = None
        self.metrics: dict[object, LiveMetric] = {}
        self.at_start: Sequence[LiveMetric] = ()
        self.clusters: list[ClusterInfo] = []
        self.closed = 0

    def configure(self, config: ProducerConfig) -> None:
        self.config = config

    def init(self, metrics: Sequence[LiveMetric]) -> None:
        self.at_start = metrics
        self.metrics = {metric.identity: metric for metric in metrics}

    def metric_change(self, metric: LiveMetric) -> None:
        self.metrics[metric.identity] = metric

    def metric_removal(self, metric: LiveMetric) -> None:
        del self.metrics[metric.identity]

    def on_cluster(self, cluster: ClusterInfo) -> None:
        self.clusters.append(cluster)

    def close(self) -> None:
        self.closed += 1

    def values(self, name: str, **tags: str) -> list[float]:
        """The values of the metrics of that name, or of one of them."""
        return [
            metric.measured().value
            for metric in self.metrics.values()
            if metric.name == name and tags.items() <= metric.tags.items()
        ]


class Grumbler:
    """Raises whenever it is called."""

    def configure(self, config: ProducerConfig) -> None:
        raise RuntimeError("configure grumbles")

    def init(self, metrics: Sequence[LiveMetric]) -> None:
        raise RuntimeError("init grumbles")

    def metric_change(self, metric: LiveMetric) -> None:
        raise RuntimeError("metric_change grumbles")

    def close(self) -> None:
        raise RuntimeError("close grumbles")


class Starter:
    """Has one method only."""

    def init(self, metrics: Sequence[LiveMetric]) -> None:
        pass


class Silent:
    """A reporter that ignores every call."""

    def close(self) -> None:
        pass


class Waiting:
    """Would have to be awaited."""

    async def init(self, metrics: Sequence[LiveMetric]) -> None:
        pass


class Demanding(Ledger):
    """Needs an argument."""

    def __init__(self, whatever: str) -> None:
        super().__init__()


ledger = Ledger()


def reported(*reporters: object, **options: Any) -> dict[str, Any]:
    return {"metric_reporters": list(reporters), **ROOMY, **options}


def test_metrics_are_reported_at_the_start_and_as_topics_and_brokers_come():
    ledger = Ledger()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            assert ledger.config is producer.config
            assert ledger.values("record-send-total", topic="t") == []
            await producer.send_and_wait("t", b"v")
            await asyncio.sleep(1.1)
            assert ledger.values("record-send-total", topic="t") == [1]
            assert ledger.values("request-total", **{"node-id": "node-1"})[0] > 0
            await producer.send_and_wait("t", b"v")
            assert ledger.values("record-send-total", topic="t") == [2]
            identities = {metric.identity for metric in ledger.metrics.values()}
            group_and_name = {(each.group, each.name) for each in producer.all_metrics()}
            assert {identity[:2] for identity in identities} == group_and_name
        assert "record-send-total" in {metric.name for metric in ledger.at_start}
        assert [cluster.cluster_id for cluster in ledger.clusters] == [
            stage.producer.engine.metadata.cluster.cluster_id
        ]
        assert ledger.closed == 1

    play(act, **reported(ledger))


def test_a_metric_is_reported_once_until_it_goes_or_is_replaced():
    ledger, changes = Ledger(), []
    ledger.metric_change = changes.append

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            await asyncio.sleep(1.1)
            assert "record-send-total" in {metric.name for metric in changes}
            changes.clear()
            await asyncio.sleep(5)
            assert changes == []
            one, two = (
                ApplicationMetric("orders", "shop-metrics", lambda count=count: count)
                for count in (1.0, 2.0)
            )
            for metric in (one, two):
                producer.register_metric(metric)
                await asyncio.sleep(1.1)
            assert changes == [one, two]

    play(act, **reported(ledger))


def test_metrics_of_a_topic_that_is_no_longer_used_are_removed():
    ledger = Ledger()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            await producer.send_and_wait("u", b"v")
            for _ in range(12):
                await producer.send_and_wait("u", b"v")
                await asyncio.sleep(1)
            assert ledger.values("record-send-total", topic="t") == []
            assert ledger.values("record-send-total", topic="u") == [13]
            await producer.send_and_wait("t", b"v")
            await asyncio.sleep(1.1)
            assert ledger.values("record-send-total", topic="t") == [1]

    play(act, **reported(ledger, metadata_max_idle_ms=5000, metadata_max_age_ms=1000))


def test_the_last_changes_are_reported_before_the_end_and_nothing_afterwards():
    ledger = Ledger()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
        assert ledger.values("record-send-total", topic="t") == [1]
        await stage.producer.close()
        stage.producer.register_metric(ApplicationMetric("late", "shop-metrics", lambda: 1))
        await asyncio.sleep(5)
        assert ledger.closed == 1
        assert ledger.values("late") == []

    play(act, **reported(ledger))


def test_a_start_that_fails_ends_the_reporters_too():
    ledger = Ledger()

    async def act(stage: Stage) -> None:
        stage.lose()
        with pytest.raises(BootstrapError):
            await stage.producer.start()
        assert ledger.closed == 1

    play(act, **reported(ledger, max_block_ms=2000))


def test_what_a_reporter_raises_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture):
    ledger = Ledger()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            await asyncio.sleep(1.1)
        assert stage.values("t") == [b"v"]

    play(act, **reported(Grumbler(), ledger))
    for method in ("configure", "init", "close"):
        assert caplog.text.count(f"reporter Grumbler.{method} raised") == 1
    # The first one, and at the end how many there were.
    assert caplog.text.count("reporter Grumbler.metric_change raised") == 2
    assert ledger.values("record-send-total", topic="t") == [1]
    assert ledger.closed == 1


def test_a_reporter_may_lack_a_method_that_those_after_it_have() -> None:
    ledger = Ledger()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
        assert ledger.config is producer.config
        assert ledger.values("record-send-total", topic="t") == [1]
        assert ledger.closed == 1

    play(act, **reported(Starter(), ledger))


async def test_reporters_are_closed_once_and_only_after_a_start() -> None:
    ledger, registry = Ledger(), MetricsRegistry()
    registry.register(ApplicationMetric("one", "shop-metrics", lambda: 1))
    loop = asyncio.get_running_loop()
    reporting = MetricsReporting([ledger], lambda: registry.sources(None), loop)
    reporting.close()
    assert ledger.closed == 0
    reporting.start(ProducerConfig(bootstrap_servers="a:1"))
    reporting.close()
    registry.register(ApplicationMetric("late", "shop-metrics", lambda: 1))
    reporting.close()
    assert ledger.closed == 1
    assert ledger.values("late") == []


def test_an_object_for_each_metric_is_made_only_for_changes():
    class Rows(list[Any]):
        iterated = 0

        def __iter__(self) -> Iterator[Any]:
            self.iterated += 1
            return super().__iter__()

    async def act(stage: Stage) -> None:
        ledger, rows, loop = Ledger(), Rows(), asyncio.get_running_loop()
        topic = ClientSource("t", object(), "topics", {}, rows, loop.time)
        reporting = MetricsReporting([ledger], lambda: [topic], loop)
        reporting.start(stage.producer.config)
        await asyncio.sleep(60)
        reporting.close()
        assert rows.iterated == 1

    play(act)


def named(**options: object) -> ProducerConfig:
    return ProducerConfig.from_properties({"bootstrap.servers": "a:1", **options}, allow=["class"])


def test_properties_name_reporters_and_javas_jmx_reporter_is_left_out(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    here = Ledger.__module__
    config = named(**{"metric.reporters": f"{JMX}, {here}.Ledger,{here}.ledger"})
    made, given = config.metric_reporters
    assert type(made) is Ledger
    assert given is ledger
    assert f"{JMX} is left out" in caplog.text
    assert named(**{"metric.reporters": JMX}).metric_reporters == ()
    assert named(**{"metric.reporters": ""}).metric_reporters == ()
    assert config.replace(linger_ms=1).metric_reporters == (made, given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("com.shop.Reporter", "'com.shop.Reporter' cannot be made"),
        ("Reporter", "'Reporter' cannot be made"),
        (f"{__name__}.Nobody", "cannot be made"),
        (f"{__name__}.Demanding", "cannot be made"),
        ("math.pi", "neither init nor metric_change"),
        ([Ledger], "not the class"),
        ([Silent()], "neither init nor metric_change"),
        ([Waiting()], "coroutine function"),
        (7, "sequence of objects or names"),
    ],
)
def test_what_is_no_reporter_is_refused(given: Any, words: str):
    with pytest.raises(ConfigError, match=words):
        ProducerConfig(bootstrap_servers="a:1", metric_reporters=given)
