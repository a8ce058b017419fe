from __future__ import annotations

import asyncio
import dataclasses
import gc
import selectors
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import inf
from random import Random
from uuid import UUID

import pytest

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.config import ProducerConfig
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    MetadataTimeoutError,
    NameResolutionError,
    NodeDisconnectedError,
    NotKafkaError,
    ProducerClosedError,
    ProducerFailedError,
    RebootstrapRequiredError,
    RequestTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aioproducer.runtime.settings import make_metadata_requests
from aioproducer.runtime.tasks.closing import tasks_named
from aioproducer.runtime.tasks.metadata import MetadataTask
from aioproducer.types import Node, TopicPartition
from aioproducer.wire.messages.common import NodeEndpoint
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

UNKNOWN_TOPIC, INVALID_TOPIC, UNAUTHORIZED, REBOOTSTRAP_REQUIRED = 3, 17, 29, 129
UNSUPPORTED_VERSION = 35


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: time jumps to the next timer."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None):
        if timeout is None:
            raise RuntimeError("deadlock: nothing is scheduled")
        self.loop.now += max(timeout, 0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


Answer = Callable[[int, list[str]], MetadataResponse | BaseException | None]
"""(node, topics) -> what comes back; None for silence."""


class FakeClient:
    """Brokers that by default connect in 10 ms and answer in 10 ms."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.on_event: Callable[[], None] = lambda: None
        self.bootstrap = [-1, -2]
        self.rebootstraps = True
        self.nodes: Mapping[int, Node] = {}
        self.ready: set[int] = set()
        self.dialing: set[int] = set()
        self.busy: set[int] = set()
        self.retry_at: dict[int, float] = {}
        self.errors: dict[int, KafkaError] = {}
        self.versions = (0, 13)
        self.dial: Callable[[int], KafkaError | None] = lambda node_id: None
        self.answer: Answer = lambda node_id, names: response()
        self.requests: list[tuple[float, int, list[str]]] = []
        self.flags: list[bool] = []
        self.dials: list[tuple[float, int]] = []
        self.reported: list[set[int]] = []
        self.looks = 0
        self.rebootstrap_required: KafkaError | None = None
        self.cluster_ids: list[str | None] = []
        self.throttled: dict[int, float] = {}
        self.avoided: set[int] = set()

    def rebootstrap(self) -> None:
        self.set_nodes({})
        self.ready.clear()
        self.busy.clear()
        self.rebootstrap_required = None

    def set_nodes(self, nodes: Mapping[int, Node], cluster_id: str | None = None) -> None:
        self.nodes = dict(nodes)
        self.cluster_ids.append(cluster_id)
        self.reported.append(set(nodes))
        self.ready -= {n for n in self.ready if n >= 0 and n not in nodes}

    def least_loaded_node(self, now: float) -> int | None:
        self.looks += 1
        for group in (list(self.nodes), self.bootstrap):
            ready = [n for n in group if n in self.ready]
            free = [n for n in group if self.retry_at.get(n, 0) <= now and n not in self.dialing]
            dialing = [n for n in group if n in self.dialing]
            if ready or dialing or free:
                return (ready or dialing or free)[0]
        return None

    def can_ask(self, node_id: int, now: float) -> bool:
        return node_id in self.ready

    def any_connected(self) -> bool:
        return bool(self.ready | self.busy)

    def next_chance_at(self, now: float) -> float:
        waiting = {n for n in (*self.nodes, *self.bootstrap) if n not in self.dialing | self.busy}
        moments = (self.retry_at.get(node, 0) for node in waiting)
        return min((at for at in moments if at > now), default=inf)

    def maybe_connect(self, node_id: int, now: float) -> None:
        if node_id in self.dialing | self.ready | self.busy or self.retry_at.get(node_id, 0) > now:
            return
        self.dials.append((now, node_id))
        self.dialing.add(node_id)
        error = self.dial(node_id)
        if not isinstance(error, SilenceError):
            self.loop.call_later(0.01, self._connected, node_id, error)

    def _connected(self, node_id: int, error: KafkaError | None) -> None:
        self.dialing.discard(node_id)
        if error is None:
            self.ready.add(node_id)
            self.errors.pop(node_id, None)
        else:
            self.errors[node_id] = error
            self.retry_at[node_id] = self.loop.time() + 0.5
        self.on_event()

    def api_version(
        self, node_id: int, kind: type, lowest: int = 0, highest: int | None = None
    ) -> int:
        assert kind is MetadataRequest
        if self.versions[1] < lowest:
            raise UnsupportedVersionError("no common version", node_id=node_id)
        return self.versions[1]

    def send(
        self,
        node_id: int,
        request: MetadataRequest,
        *,
        now: float,
    ) -> asyncio.Future[object]:
        names = [topic.name for topic in request.topics or []]
        self.requests.append((round(now, 3), node_id, names))
        self.flags.append(request.allow_auto_topic_creation)
        future = self.loop.create_future()
        outcome = self.answer(node_id, names)
        if isinstance(outcome, asyncio.CancelledError):
            self.loop.call_later(0.01, future.cancel)
        elif isinstance(outcome, BaseException):
            self.loop.call_later(0.01, future.set_exception, outcome)
        elif outcome is not None:
            self.loop.call_later(0.01, future.set_result, outcome)
        return future

    def throttled_for(self, node_id: int, now: float) -> float:
        return self.throttled.get(node_id, 0.0)

    def connection_failures(self, node_id: int) -> KafkaError | None:
        return self.errors.get(node_id)

    def failures(self) -> dict[int, KafkaError | None]:
        usable = (
            self.nodes if self.nodes and not self.rebootstraps else [*self.nodes, *self.bootstrap]
        )
        return {node_id: self.errors.get(node_id) for node_id in usable}

    def asked(self) -> list[list[str]]:
        return [names for _, _, names in self.requests]


class SilenceError(KafkaError):
    """A dial that never ends."""


def topic(name: str, partitions: int = 1, *, error: int = 0, leader: int = 1, epoch: int = 0):
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=UUID(int=0 if error else 7),
        partitions=[
            MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=epoch)
            for i in range(0 if error else partitions)
        ],
    )


def response(*topics: MetadataResponseTopic, nodes=(1, 2), error: int = 0) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"host{n}", port=9092) for n in nodes],
        topics=list(topics),
        cluster_id="c",
        error_code=error,
    )


def answer_with(**partitions: int) -> Answer:
    """Answers for these topics; all others are unknown."""

    def answer(node_id: int, names: list[str]) -> MetadataResponse:
        return response(
            *(
                topic(name, partitions[name])
                if name in partitions
                else topic(name, error=UNKNOWN_TOPIC)
                for name in names
            )
        )

    return answer


class World:
    """A metadata task with everything it touches."""

    def __init__(self, loop: VirtualLoop, servers: int = 2, **options) -> None:
        self.loop = loop
        bootstrap = [f"boot{number}:{number}" for number in range(1, servers + 1)]
        config = ProducerConfig(bootstrap_servers=bootstrap, **options)
        self.metadata = Metadata(
            max_age_s=config.metadata_max_age_ms / 1000,
            max_idle_s=config.metadata_max_idle_ms / 1000,
            backoff=ExponentialBackoff(0.1, 1.0, jitter=0),
            allow_auto_create=config.allow_auto_create_topics,
            rng=Random(1),
        )
        self.client = FakeClient(loop)
        self.client.bootstrap = [-number for number in range(1, servers + 1)]
        self.client.rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self.updates: list[int] = []
        self.ends: list[KafkaError] = []
        self.task = MetadataTask(
            self.metadata,
            make_metadata_requests(config, self.metadata),
            self.client,  # type: ignore[arg-type]
            config,
            loop=loop,
            on_update=lambda: self.updates.append(self.metadata.version),
            on_end=self.ends.append,
        )
        self.client.on_event = self.task.wake

    def in_s(self, seconds: float) -> float:
        return self.loop.time() + seconds


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    complaints: list[dict] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    yield loop
    gc.collect(1)  # Unretrieved errors complain when they are collected.
    left = asyncio.all_tasks(loop)
    loop.close()
    assert not left
    assert not complaints


def play(
    loop: VirtualLoop,
    act: Callable[[World], Awaitable[None]],
    *,
    in_background: bool = False,
    **options,
) -> World:
    """Runs a scene with a started task, and closes it."""

    async def scene() -> World:
        world = World(loop, **options)
        world.task.start(in_background=in_background)
        try:
            await act(world)
        finally:
            await world.task.close()
        return world

    return loop.run_until_complete(scene())


# -- fetching ----------------------------------------------------------------------------------


def test_the_first_answer_comes_from_a_bootstrap_server_and_gives_the_client_its_brokers(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert world.client.reported == [{1, 2}]
        assert world.updates == [1]
        assert world.client.requests == [(0.01, -1, [])]
        await world.task.waits.wait_for_bootstrap(world.in_s(0))

    play(loop, act)


def test_a_waiter_gets_its_topic_from_the_answer_itself(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=3)
        known = await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert known is world.metadata.topic("t")
        assert len(known.partitions) == 3
        assert loop.time() == pytest.approx(0.02)

    play(loop, act)


def test_a_known_topic_is_returned_without_a_request(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=3)
        known = await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert await world.task.waits.wait_for_topic("t", world.in_s(0)) is known
        assert await world.task.waits.wait_for_partition("t", 2, world.in_s(0)) is known
        assert len(world.client.requests) == 1

    play(loop, act)


def test_a_topic_wanted_while_a_request_is_out_is_asked_for_right_after_it(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1, u=1)
        first = asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))
        await asyncio.sleep(0.015)
        assert world.client.asked() == [["t"]]
        await world.task.waits.wait_for_topic("u", world.in_s(60))
        assert first.done()
        await first
        assert world.client.requests[1:] == [(0.03, 1, ["u"])]  # A new connection

    play(loop, act)


def test_thousands_of_waiters_for_one_topic_cost_one_request(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        deadline = world.in_s(60)
        waits = [world.task.waits.wait_for_topic("t", deadline) for _ in range(2000)]
        known = await asyncio.gather(*waits)
        assert {id(one) for one in known} == {id(world.metadata.topic("t"))}
        assert len(world.client.requests) == 1

    play(loop, act)


def test_a_topic_that_is_not_there_yet_is_asked_for_with_growing_pauses_until_it_is(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with()
        loop.call_later(3, setattr, world.client, "answer", answer_with(t=1))
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        times = [at for at, _, _ in world.client.requests]
        assert times == pytest.approx([0.01, 0.13, 0.24, 0.45, 0.86, 1.67, 2.68, 3.69])

    play(loop, act)


def test_a_partition_that_is_not_there_yet_is_waited_for(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=2)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        loop.call_later(1, setattr, world.client, "answer", answer_with(t=3))
        known = await world.task.waits.wait_for_partition("t", 2, world.in_s(60))
        assert len(known.partitions) == 3

    play(loop, act)


def test_everything_is_asked_for_again_by_age(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        await asyncio.sleep(25)
        assert world.client.asked() == [["t"]] * 3
        assert [at for at, _, _ in world.client.requests] == pytest.approx([0.01, 10.03, 20.04])

    play(loop, act, metadata_max_age_ms=10_000)


def test_a_topic_that_a_call_waits_for_does_not_expire_idle(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: RequestTimeoutError("slow")
        loop.call_later(30, setattr, world.client, "answer", answer_with(t=1))
        await world.task.waits.wait_for_topic("t", world.in_s(60))

    play(loop, act, metadata_max_idle_ms=5_000)


def test_a_refresh_asks_for_every_topic_in_use_and_reports_that_it_was_answered(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        world.client.answer = answer_with(t=2)
        assert await world.task.waits.refresh(world.in_s(60)) is True
        assert len(world.metadata.topic("t").partitions) == 2
        assert world.client.asked() == [["t"], ["t"]]

    play(loop, act)


def test_a_refresh_is_not_ended_by_the_answer_to_an_earlier_request(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        first = asyncio.create_task(world.task.waits.refresh(world.in_s(60)))
        while len(world.client.requests) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = asyncio.create_task(world.task.waits.refresh(world.in_s(60)))
        assert await first is True
        assert not second.done()
        assert await second is True
        assert world.client.asked() == [["t"]] * 3

    play(loop, act)


def test_a_refresh_without_an_answer_ends_at_its_deadline(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.answer = lambda node_id, names: RequestTimeoutError("slow")
        began = loop.time()
        assert await world.task.waits.refresh(world.in_s(5)) is False
        assert loop.time() - began == pytest.approx(5)

    play(loop, act)


def test_a_refresh_that_was_answered_or_cancelled_leaves_no_timer(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert await world.task.waits.refresh(world.in_s(12_345)) is True
        world.client.answer = lambda node_id, names: None
        refresh = asyncio.create_task(world.task.waits.refresh(world.in_s(12_345)))
        await asyncio.sleep(1)
        refresh.cancel()
        await asyncio.wait([refresh])
        left = [each for each in loop._scheduled if not each.cancelled()]
        assert max([each.when() for each in left], default=0) < 12_000

    play(loop, act)


def test_a_refresh_ends_with_the_producer(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.answer = lambda node_id, names: None
        refresh = asyncio.create_task(world.task.waits.refresh(world.in_s(60)))
        await asyncio.sleep(1)
        await world.task.close()
        for wait in (refresh, world.task.waits.refresh(world.in_s(60))):
            with pytest.raises(ProducerClosedError):
                await wait

    play(loop, act)


def test_the_request_carries_the_flag_for_automatic_creation(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert world.client.flags == [False]

    play(loop, act, allow_auto_create_topics=False)


@pytest.mark.parametrize(("version", "epoch"), [(8, -1), (9, 5)])
def test_epochs_of_answers_below_version_9_are_not_trusted(loop, version, epoch):
    async def act(world: World) -> None:
        world.client.versions = (0, version)
        world.client.answer = lambda node_id, names: response(topic("t", epoch=5))
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert world.metadata.leader_epoch("t", 0) == epoch

    play(loop, act)


def test_a_broker_that_has_only_the_first_version_may_create_topics(loop):
    async def act(world: World) -> None:
        world.client.versions = (0, 0)
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))

    play(loop, act)


def test_a_broker_without_a_common_version_is_named_without_advice_about_topics(loop):
    async def act(world: World) -> None:
        world.client.versions = (0, -1)
        with pytest.raises(UnsupportedVersionError, match="no common version"):
            await world.task.waits.wait_for_topic("t", world.in_s(60))

    play(loop, act)


def test_topics_that_are_wanted_as_well_are_part_of_the_next_request(loop):
    async def act(world: World) -> None:
        world.task.waits.also_wanted = ["early"]
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert world.client.asked() == [["early"]]
        world.client.dial = lambda node_id: KafkaConnectionError("refused")
        world.client.ready.clear()
        world.metadata.request_update()
        await asyncio.sleep(30)
        world.client.dial = lambda node_id: None
        await asyncio.sleep(1)
        assert world.client.asked()[1] == ["early"]

    play(loop, act, metadata_max_idle_ms=5_000)


def test_a_node_named_by_a_leader_hint_is_passed_to_the_client_at_once(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        endpoint = NodeEndpoint(node_id=9, host="host9", port=9092)
        world.metadata.on_leader_hints({TopicPartition("t", 0): (9, 1)}, [endpoint])
        assert world.client.reported[-1] == {1, 2, 9}

    play(loop, act)


def test_after_the_end_neither_the_task_nor_its_listener_is_left(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        await world.task.close()
        assert tasks_named(loop, "aioproducer-metadata") == []
        endpoint = NodeEndpoint(node_id=9, host="host9", port=9092)
        world.metadata.on_leader_hints({TopicPartition("t", 0): (9, 1)}, [endpoint])
        assert world.client.reported == [{1, 2}]

    play(loop, act)


# -- reasons -----------------------------------------------------------------------------------


def test_the_timeout_says_which_topic_after_how_long_and_what_the_broker_answered(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with()
        with pytest.raises(MetadataTimeoutError) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(1.5))
        error = caught.value
        assert (error.topic, error.partition, error.elapsed_ms) == ("t", None, 1500)
        assert error.message.startswith(
            "the topic is not present in metadata: the topic does not exist, a broker answered "
            "UNKNOWN_TOPIC_OR_PARTITION"
        )
        assert "create the topic" in (error.advice or "")
        assert "topic t, after 1500 ms" in str(error)
        assert loop.time() == pytest.approx(1.5)

    play(loop, act)


def test_the_timeout_says_which_partition_and_how_many_there_are(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=2)
        with pytest.raises(MetadataTimeoutError) as caught:
            await world.task.waits.wait_for_partition("t", 5, world.in_s(0.5))
        error = caught.value
        assert (error.topic, error.partition, error.elapsed_ms) == ("t", 5, 500)
        assert error.message == (
            "the partition is not present in metadata: the topic has 2 partition(s)"
        )

    play(loop, act)


def test_the_timeout_names_the_servers_that_could_not_be_reached_and_why(loop):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: KafkaConnectionError(f"refused by {node_id}")
        with pytest.raises(MetadataTimeoutError) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(5))
        assert caught.value.message == (
            "the topic is not present in metadata: no broker could be asked yet; connection "
            "failures: bootstrap server boot1:1: refused by -1, bootstrap server boot2:2: "
            "refused by -2"
        )
        with pytest.raises(BootstrapError, match=r"boot1:1: refused by -1.*after 3000 ms"):
            await world.task.waits.wait_for_bootstrap(world.in_s(3))

    play(loop, act)


@pytest.mark.parametrize(
    ("servers", "end"),
    [
        (7, "boot7:7: refused by -7"),
        (8, "boot8:8: refused by -8"),
        (9, "boot8:8: refused by -8, and 1 more"),
        (12, "boot8:8: refused by -8, and 4 more"),
    ],
)
def test_the_timeout_names_eight_servers_and_counts_the_others(loop, servers, end):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: KafkaConnectionError(f"refused by {node_id}")
        with pytest.raises(MetadataTimeoutError) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(5))
        assert caught.value.message.endswith(end)

    play(loop, act, servers=servers)


def unresolvable(node_id: int) -> KafkaError:
    return NameResolutionError(f"boot{-node_id} is unknown", node_id=node_id)


@pytest.mark.parametrize(("timeout_ms", "tries"), [(0, 1), (5_000, 6)])
def test_a_start_without_a_name_that_resolves_ends_at_the_resolve_timeout(loop, timeout_ms, tries):
    async def act(world: World) -> None:
        world.client.dial = unresolvable
        with pytest.raises(BootstrapError, match=r"boot1:1: boot1 is.*boot2:2: boot2") as caught:
            await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert "bootstrap_resolve_timeout_ms" in str(caught.value)
        assert timeout_ms / 1000 <= loop.time() <= timeout_ms / 1000 + 1
        assert {node for _, node in world.client.dials} == {-1, -2}
        assert len(world.client.dials) >= 2 * tries

    play(loop, act, bootstrap_resolve_timeout_ms=timeout_ms)


def test_the_resolve_timeout_begins_with_the_start_and_has_passed_at_its_last_ms(loop):
    async def act(world: World) -> None:
        world.client.dial = unresolvable
        with pytest.raises(BootstrapError) as caught:
            await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert loop.time() == pytest.approx(100.02)
        assert caught.value.elapsed_ms == 20

    loop.now = 100.0
    play(loop, act, bootstrap_resolve_timeout_ms=20)


def test_a_name_that_appears_before_the_resolve_timeout_is_used(loop):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: None if loop.time() > 20 else unresolvable(node_id)
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert 20 < loop.time() < 21

    play(loop, act, bootstrap_resolve_timeout_ms=30_000)


def test_one_name_that_resolves_is_waited_for_beside_others_that_do_not(loop):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: (
            unresolvable(-1)
            if node_id == -1
            else KafkaConnectionError("refused")
            if loop.time() < 5
            else None
        )
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert 5 <= loop.time() < 7

    play(loop, act)


def test_names_that_stop_resolving_once_the_cluster_is_known_end_nothing(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.dial = unresolvable
        world.client.ready.clear()
        world.client.answer = answer_with(t=1)
        waiting = asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))
        await asyncio.sleep(30)
        assert not waiting.done()
        world.client.dial = lambda node_id: None
        await waiting

    play(loop, act)


def other_service(node_id: int) -> KafkaError:
    return NotKafkaError(f"server {node_id} answers in HTTP", node_id=node_id)


def test_a_start_at_servers_of_another_protocol_ends_at_once(loop):
    async def act(world: World) -> None:
        world.client.dial = other_service
        with pytest.raises(BootstrapError, match="no bootstrap server is a Kafka broker") as caught:
            await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert caught.value.elapsed_ms == 20  # two attempts to connect, one after the other
        assert "server -1 answers in HTTP" in str(caught.value.__cause__)
        with pytest.raises(BootstrapError, match="no bootstrap server is a Kafka broker"):
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert loop.time() < 52

    loop.now = 50.0
    play(loop, act)


def test_a_start_in_the_background_goes_on_when_a_server_is_kafka_at_last(loop):
    reported: list[KafkaError] = []

    async def scene() -> None:
        world = World(loop)
        world.client.dial = other_service
        world.client.answer = answer_with(t=1)
        world.task.on_fatal_error = reported.append
        world.task.start(in_background=True)
        started = asyncio.create_task(world.task.waits.wait_for_bootstrap(None))
        for _ in range(2):
            with pytest.raises(BootstrapError, match="no bootstrap server is a Kafka broker"):
                await world.task.waits.wait_for_topic("t", world.in_s(60))
            await asyncio.sleep(5)
        assert len(reported) == 1
        assert not started.done()
        world.client.dial = lambda node_id: None
        await started
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert loop.time() < 15
        await world.task.close()

    loop.run_until_complete(scene())


def test_once_a_server_fails_otherwise_calls_wait_for_a_broker_again(loop):
    async def scene() -> None:
        world = World(loop, servers=1)
        world.client.dial = other_service
        world.task.start(in_background=True)
        with pytest.raises(BootstrapError, match="no bootstrap server is a Kafka broker"):
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        world.client.dial = lambda node_id: KafkaConnectionError("refused")
        await asyncio.sleep(5)
        with pytest.raises(MetadataTimeoutError, match="refused"):
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        await world.task.close()

    loop.run_until_complete(scene())


@pytest.mark.parametrize(("version", "is_answered"), [(0, True), (1, False)])
def test_only_the_first_version_may_list_no_brokers(loop, version, is_answered):
    async def act(world: World) -> None:
        world.client.versions = (0, version)
        world.client.answer = lambda node_id, names: response(nodes=())
        waiting = asyncio.create_task(world.task.waits.wait_for_bootstrap(world.in_s(5)))
        await asyncio.sleep(1)
        assert waiting.done() is is_answered
        await asyncio.wait([waiting])
        assert (waiting.exception() is None) is is_answered

    play(loop, act)


def refusing(text: str) -> Callable[[int], KafkaError]:
    return lambda node_id: AuthenticationError(text, node_id=node_id)


def test_each_kind_of_refusal_of_a_start_in_the_background_is_logged_once(loop, caplog):
    async def act(world: World) -> None:
        reported: list[KafkaError] = []
        world.task.on_fatal_error = reported.append
        world.client.dial = refusing("wrong password")
        await asyncio.sleep(5)
        world.client.dial = lambda node_id: UnsupportedVersionError("too old")
        await asyncio.sleep(5)
        assert len(reported) > 10
        assert {type(error) for error in reported} == {AuthenticationError, UnsupportedVersionError}
        lines = [r.getMessage() for r in caplog.records if "cannot be used" in r.getMessage()]
        assert ["wrong password" in line for line in lines] == [True, False]
        world.client.dial = lambda node_id: None
        await world.task.waits.wait_for_bootstrap(None)

    play(loop, act, in_background=True)


@pytest.mark.parametrize("in_background", [False, True])
def test_a_refusal_of_a_producer_that_has_started_is_one_failed_request(
    loop, caplog, in_background
):
    async def act(world: World) -> None:
        reported: list[KafkaError] = []
        world.task.on_fatal_error = reported.append
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.answer = lambda node_id, names: UnsupportedVersionError("too old")
        world.metadata.request_update()
        await asyncio.sleep(1)
        assert reported == []
        assert "fetching metadata failed: UNSUPPORTED_VERSION" in caplog.text
        assert "metadata is fetched again" not in caplog.text
        world.client.answer = lambda node_id, names: response()
        await asyncio.sleep(2)
        assert "metadata is fetched again" in caplog.text
        assert "cannot be used" not in caplog.text

    with caplog.at_level("INFO", "aioproducer.runtime"):
        play(loop, act, in_background=in_background)


def test_after_a_refusal_the_next_server_is_dialed_at_once(loop):
    async def act(world: World) -> None:
        world.client.dial = refusing("wrong password")
        await asyncio.sleep(0.4)
        assert [(round(at, 2), node) for at, node in world.client.dials] == [(0, -1), (0.01, -2)]

    play(loop, act)


def test_refusals_of_all_servers_count_as_one_failed_attempt(loop):
    async def act(world: World) -> None:
        world.client.dial = refusing("wrong password")
        with pytest.raises(AuthenticationError):
            await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert "(" not in world.metadata.explain_failures().text.partition(":")[0]

    play(loop, act)


@pytest.mark.parametrize("error", [AuthenticationError("bad"), UnsupportedVersionError("too new")])
def test_a_server_that_refuses_the_client_does_not_end_a_start_at_another(loop, error):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: error if node_id == -1 else None
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert world.metadata.fatal_error is None
        assert loop.time() < 0.1

    play(loop, act)


def test_a_broker_that_refuses_the_client_fails_no_wait_that_another_can_end(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready.clear()  # the connections were idle
        world.client.dial = lambda node_id: AuthenticationError("bad") if node_id == 1 else None
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert world.client.requests[-1][1] == 2

    play(loop, act)


@pytest.mark.parametrize("strategy", ["none", "rebootstrap"])
def test_a_wait_fails_once_all_brokers_refuse_the_client(loop, strategy):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready.clear()
        world.client.rebootstraps = strategy == "rebootstrap"
        world.client.dial = lambda node_id: (
            AuthenticationError("bad") if node_id >= 0 else SilenceError("silent")
        )
        with pytest.raises(AuthenticationError):
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert loop.time() < 1

    play(loop, act, metadata_recovery_strategy=strategy)


def test_an_answer_that_refuses_the_client_wakes_waiters_at_once(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: response(error=UNSUPPORTED_VERSION)
        with pytest.raises(UnsupportedVersionError):
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert loop.time() < 1

    play(loop, act)


@pytest.mark.parametrize("node", [0, 2])
def test_the_timeout_names_brokers_once_they_are_known(loop, node):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: response(nodes=(1, node))
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready.clear()
        world.client.errors = {node: KafkaConnectionError("no route")}
        world.client.dial = lambda node_id: SilenceError()
        with pytest.raises(MetadataTimeoutError, match=f"broker {node} host{node}:9092: no route"):
            await world.task.waits.wait_for_topic("t", world.in_s(5))

    play(loop, act)


def test_the_timeout_names_the_brokers_that_throttle_and_what_to_do(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with()
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        assert "client's quota" not in (world.metadata.explain("t", None).advice or "")
        world.client.throttled = {1: 7.4}
        with pytest.raises(MetadataTimeoutError) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(1))
        assert caught.value.message.endswith("throttled by: broker 1 host1:9092 for another 7 s")
        assert "raise the client's quota" in (caught.value.advice or "")

    play(loop, act)


def test_bootstrap_servers_are_named_while_no_broker_can_be_reached_and_only_then(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        refused = KafkaConnectionError("refused")
        world.client.errors = {-1: refused, -2: refused, 1: refused}
        text = world.metadata.explain_failures().text
        assert text == "connection failures: broker 1 host1:9092: refused"
        world.client.errors[2] = refused
        text = world.metadata.explain_failures().text
        assert "broker 2 host2:9092: refused, bootstrap server boot1:1: refused" in text

    play(loop, act)


def test_the_timeout_names_the_last_failed_request(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: RequestTimeoutError("no answer")
        with pytest.raises(MetadataTimeoutError, match=r"request failed \(3 in a row\): no answer"):
            await world.task.waits.wait_for_topic("t", world.in_s(0.5))

    play(loop, act)


def test_a_wait_without_time_left_fails_at_once_but_asks(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        with pytest.raises(MetadataTimeoutError) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(0))
        assert caught.value.elapsed_ms == 0
        await asyncio.sleep(0.1)
        assert world.metadata.topic("t") is not None

    play(loop, act)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(INVALID_TOPIC, InvalidTopicError), (UNAUTHORIZED, TopicAuthorizationFailedError)],
)
def test_permanent_reasons_wake_waiters_at_once(loop, code, kind):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: response(
            *(topic(n, error=code) for n in names)
        )
        with pytest.raises(kind) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert loop.time() < 0.1
        assert (caught.value.topic, caught.value.elapsed_ms) == ("t", 20)

    play(loop, act)


def test_a_forbidden_topic_is_asked_for_anew_and_an_invalid_one_is_not(loop):
    async def act(world: World) -> None:
        codes = {"forbidden": UNAUTHORIZED, "in valid": INVALID_TOPIC}
        world.client.answer = lambda node_id, names: response(
            *(topic(name, error=codes[name]) for name in names)
        )
        for name in codes:
            with pytest.raises(KafkaError):
                await world.task.waits.wait_for_topic(name, world.in_s(60))
        count = len(world.client.requests)
        with pytest.raises(InvalidTopicError):
            await world.task.waits.wait_for_topic("in valid", world.in_s(60))
        assert len(world.client.requests) == count
        world.client.answer = answer_with(forbidden=1)
        await world.task.waits.wait_for_topic("forbidden", world.in_s(60))
        assert world.client.requests[count][2] == ["forbidden"]

    play(loop, act)


def test_a_negative_partition_is_refused_at_once(loop):
    async def act(world: World) -> None:
        with pytest.raises(InvalidPartitionError):
            await world.task.waits.wait_for_partition("t", -1, world.in_s(60))

    play(loop, act)


@pytest.mark.parametrize("error", [AuthenticationError("bad"), UnsupportedVersionError("too new")])
def test_a_connection_error_that_waiting_cannot_cure_wakes_all_waiters_at_once(loop, error):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: error
        waits = [
            world.task.waits.wait_for_bootstrap(world.in_s(60)),
            world.task.waits.wait_for_topic("t", world.in_s(60)),
        ]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(error)] * 2
        assert loop.time() < 0.1

    play(loop, act)


def test_the_task_goes_on_trying_after_refused_credentials(loop):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: AuthenticationError("bad")
        with pytest.raises(AuthenticationError):
            await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.dial = lambda node_id: None
        await asyncio.sleep(3)
        assert world.metadata.version == 1
        await world.task.waits.wait_for_bootstrap(world.in_s(0))

    play(loop, act)


def test_a_broker_too_old_for_the_flag_is_a_clear_error_when_topics_must_not_be_created(loop):
    async def act(world: World) -> None:
        world.client.versions = (0, 3)
        with pytest.raises(UnsupportedVersionError, match="allow_auto_create_topics=True"):
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert world.client.requests == []

    play(loop, act, allow_auto_create_topics=False)


def test_a_broker_too_old_for_the_flag_is_asked_when_topics_may_be_created(loop):
    async def act(world: World) -> None:
        world.client.versions = (0, 1)
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))

    play(loop, act)


# -- failures and pauses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        NodeDisconnectedError("gone"),
        OSError("odd"),
        asyncio.CancelledError(),
        response(nodes=()),
        response(error=-1),
        object(),
    ],
    ids=["disconnect", "foreign exception", "cancelled", "no brokers", "error", "another message"],
)
def test_a_failed_request_is_repeated_after_a_backoff(loop, outcome):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: outcome
        loop.call_later(0.5, setattr, world.client, "answer", answer_with(t=1))
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        times = [at for at, _, _ in world.client.requests]
        assert times == pytest.approx([0.01, 0.12, 0.33, 0.74])

    play(loop, act)


def test_with_no_broker_to_be_reached_the_task_sleeps_between_attempts(loop):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: KafkaConnectionError("refused")
        await asyncio.sleep(60)
        # Two servers, each dialled every half second (the backoff) and a bit.
        assert 200 <= len(world.client.dials) <= 240
        assert world.client.looks <= 3 * len(world.client.dials)

    play(loop, act)


def test_a_dial_that_never_ends_costs_a_look_a_second(loop):
    async def act(world: World) -> None:
        world.client.dial = lambda node_id: SilenceError()
        await asyncio.sleep(600)
        assert len(world.client.dials) == 1
        assert 590 <= world.client.looks <= 610

    play(loop, act)


def test_a_request_without_an_answer_costs_nothing_while_it_is_out(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: None
        await asyncio.sleep(0.1)
        looks = world.client.looks
        for _ in range(100):
            world.task.wake()
            await asyncio.sleep(1)
        assert world.client.looks == looks

    play(loop, act)


def test_events_that_cannot_matter_do_not_wake_the_task(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        await asyncio.sleep(1)
        looks = world.client.looks
        for _ in range(100):
            world.client.on_event()
            await asyncio.sleep(0)
        assert world.client.looks == looks

    play(loop, act)


# -- starting over (KIP-899, KIP-1102) ---------------------------------------------------------


def test_without_metadata_for_the_trigger_time_the_bootstrap_servers_are_asked_again(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with(t=1)
        await world.task.waits.wait_for_topic("t", world.in_s(60))
        world.client.ready = {1, 2}
        world.client.answer = lambda node_id, names: (
            response(topic("t", leader=3, epoch=1), nodes=(3,))
            if node_id < 0
            else RequestTimeoutError("slow")
        )
        world.metadata.request_update()
        await asyncio.sleep(299)
        assert world.metadata.cluster.leader("t", 0) == 1
        await asyncio.sleep(3)
        assert world.client.reported == [{1, 2}, set(), {3}]
        assert world.metadata.cluster.leader("t", 0) == 3

    play(loop, act, metadata_max_idle_ms=600_000)


def test_a_broker_may_ask_to_start_over(loop, caplog):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready = {1, 2}
        world.client.answer = lambda node_id, names: response(
            nodes=(5,), error=0 if node_id < 0 else REBOOTSTRAP_REQUIRED
        )
        world.metadata.request_update()
        await asyncio.sleep(1)
        assert world.client.reported == [{1, 2}, set(), {5}]
        assert "starting over from the bootstrap servers: the broker asked for it" in caplog.text

    play(loop, act)


def test_a_server_that_keeps_asking_to_start_over_is_asked_with_pauses(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: response(error=REBOOTSTRAP_REQUIRED)
        await asyncio.sleep(60)
        assert len(world.client.requests) < 70

    play(loop, act)


def test_a_broker_that_was_not_the_one_meant_makes_the_client_start_over_at_once(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready = {1, 2}
        await asyncio.sleep(1)
        world.client.rebootstrap_required = RebootstrapRequiredError("not me", node_id=1)
        world.client.on_event()
        await asyncio.sleep(0.1)
        assert world.client.reported == [{1, 2}, set(), {1, 2}]
        assert [node_id for _, node_id, _ in world.client.requests] == [-1, -1]

    play(loop, act)


def test_brokers_that_are_never_the_ones_meant_are_asked_for_with_pauses(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        for _ in range(600):
            world.client.rebootstrap_required = RebootstrapRequiredError("not me", node_id=1)
            world.client.on_event()
            await asyncio.sleep(0.1)
        assert 50 < len(world.client.requests) < 90

    play(loop, act)


def test_an_answer_that_comes_after_a_new_start_is_not_taken_in(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready = {1, 2}
        world.client.answer = lambda node_id, names: (
            response(nodes=(1, 2, 3)) if node_id > 0 else response(nodes=(4,))
        )
        await asyncio.sleep(1)
        world.metadata.request_update()
        await asyncio.sleep(0.005)  # its answer takes 10 ms
        assert len(world.client.requests) == 2
        world.client.rebootstrap_required = RebootstrapRequiredError("not me", node_id=1)
        world.client.on_event()
        await asyncio.sleep(1)
        assert world.client.reported == [{1, 2}, set(), {4}]

    play(loop, act)


def test_with_a_trigger_of_0_ms_bootstrap_servers_get_the_time_to_connect(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.errors[1] = world.client.errors[2] = NodeDisconnectedError("gone")
        for _ in range(5):
            world.metadata.request_update()
            await asyncio.sleep(5)
        assert len(world.client.requests) == 6
        assert len(world.client.dials) < 20

    play(loop, act, metadata_recovery_rebootstrap_trigger_ms=0)


@pytest.mark.parametrize("trigger_ms", [0, 300_000])
def test_busy_connections_do_not_start_the_rebootstrap_timer(loop, trigger_ms):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready, world.client.busy = set(), {1, 2}
        world.metadata.request_update()
        await asyncio.sleep(400)
        world.client.ready, world.client.busy = {1}, {2}
        world.client.on_event()
        await asyncio.sleep(1)
        assert world.client.reported == [{1, 2}]
        assert world.client.requests[-1][1] == 1

    play(
        loop,
        act,
        metadata_recovery_rebootstrap_trigger_ms=trigger_ms,
        metadata_max_age_ms=3_600_000,
    )


def test_with_a_trigger_of_0_ms_one_failed_request_is_enough(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready = {1, 2}
        world.client.answer = lambda node_id, names: (
            response() if node_id < 0 else RequestTimeoutError("slow")
        )
        world.metadata.request_update()
        await asyncio.sleep(1)
        assert world.client.reported == [{1, 2}, set(), {1, 2}]

    play(loop, act, metadata_recovery_rebootstrap_trigger_ms=0)


def test_another_cluster_is_reported_to_the_client_and_to_the_user(loop, caplog):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.answer = lambda node_id, names: dataclasses.replace(response(), cluster_id="d")
        world.metadata.request_update()
        await asyncio.sleep(5)
        assert world.client.cluster_ids == ["c", "d"]

    with caplog.at_level("WARNING", "aioproducer.runtime"):
        play(loop, act)
    assert [r.getMessage() for r in caplog.records if "d instead of c" in r.getMessage()]


def test_with_the_strategy_none_the_client_does_not_start_over(loop):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        world.client.ready = {1, 2}
        world.client.answer = lambda node_id, names: response(error=REBOOTSTRAP_REQUIRED)
        world.metadata.request_update()
        await asyncio.sleep(600)
        assert world.client.reported == [{1, 2}]

    play(loop, act, metadata_recovery_strategy="none")


# -- cancelling, failing, closing --------------------------------------------------------------


def test_a_cancelled_waiter_is_dropped_and_the_others_are_served(loop):
    async def act(world: World) -> None:
        world.client.answer = answer_with()
        kept = asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))
        dropped = asyncio.create_task(world.task.waits.wait_for_topic("u", world.in_s(60)))
        await asyncio.sleep(0.5)
        dropped.cancel()
        await asyncio.wait([dropped])
        assert dropped.cancelled()
        await asyncio.sleep(5)
        world.client.answer = answer_with(t=1)
        assert (await kept).name == "t"

    play(loop, act)


def test_a_wait_can_be_bounded_from_outside(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: None
        with pytest.raises(TimeoutError) as caught:
            await asyncio.wait_for(world.task.waits.wait_for_topic("t", world.in_s(60)), 1)
        assert not isinstance(caught.value, KafkaError)
        assert loop.time() == pytest.approx(1)

    play(loop, act)


def test_a_waiter_cancelled_in_the_turn_it_fails_leaves_no_complaint(loop):
    async def act(world: World) -> None:
        waiter = asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))
        await asyncio.sleep(0)
        world.task.waits.fail(ProducerClosedError("over"))
        waiter.cancel()
        await asyncio.wait([waiter])
        assert waiter.cancelled()

    play(loop, act)


def test_closing_wakes_waiters_at_once_and_refuses_new_ones(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: None
        waits = [
            asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60))),
            asyncio.create_task(world.task.waits.wait_for_partition("t", 3, world.in_s(60))),
            asyncio.create_task(world.task.waits.wait_for_bootstrap(world.in_s(60))),
        ]
        await asyncio.sleep(1)
        await world.task.close()
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ProducerClosedError] * 3
        assert loop.time() == pytest.approx(1)
        with pytest.raises(ProducerClosedError) as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert caught.value.topic == "t"

    play(loop, act)


def test_an_answer_that_comes_after_the_end_changes_nothing(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: NodeDisconnectedError("closed")
        await asyncio.sleep(0.015)
        await world.task.close()
        await asyncio.sleep(1)
        assert world.metadata.version == 0

    play(loop, act)


def test_a_producer_that_failed_fails_its_waiters_with_the_cause(loop):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: None
        waiter = asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))
        await asyncio.sleep(1)
        world.task.waits.fail(ProducerFailedError("the sender died"))
        with pytest.raises(ProducerFailedError, match="the sender died"):
            await waiter

    play(loop, act)


def test_a_task_that_dies_passes_the_cause_to_every_waiter(loop):
    async def act(world: World) -> None:
        def broken(now: float) -> int | None:
            raise ZeroDivisionError("a bug")

        world.client.least_loaded_node = broken  # type: ignore[method-assign]
        with pytest.raises(ProducerFailedError, match="a bug") as caught:
            await world.task.waits.wait_for_topic("t", world.in_s(60))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        await asyncio.sleep(0.1)
        assert [type(error) for error in world.ends] == [ProducerFailedError]
        with pytest.raises(ProducerFailedError, match="a bug"):
            await world.task.waits.wait_for_topic("u", world.in_s(60))

    play(loop, act)


def test_a_task_that_an_interrupt_ends_fails_every_waiter(loop, caplog):
    async def begin() -> tuple[World, asyncio.Task[object]]:
        def interrupted(now: float) -> int | None:
            raise KeyboardInterrupt

        world = World(loop)
        world.client.least_loaded_node = interrupted  # type: ignore[method-assign]
        loop.call_later(0.1, world.task.start)
        return world, asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))

    world, waiting = loop.run_until_complete(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(waiting)
    with pytest.raises(ProducerFailedError, match="KeyboardInterrupt"):
        loop.run_until_complete(waiting)
    assert loop.time() < 1
    assert [type(error) for error in world.ends] == [ProducerFailedError]
    loop.run_until_complete(world.task.close())
    assert caplog.records == []


@pytest.mark.parametrize("name", ["", "no topic", ".", "x" * 250])
def test_an_impossible_name_is_refused_without_a_request(loop, name):
    async def act(world: World) -> None:
        await world.task.waits.wait_for_bootstrap(world.in_s(60))
        with pytest.raises(InvalidTopicError):
            await world.task.waits.wait_for_topic(name, world.in_s(60))
        with pytest.raises(InvalidTopicError):
            await world.task.waits.wait_for_partition(name, 0, world.in_s(60))
        await asyncio.sleep(1)
        assert len(world.client.requests) == 1

    play(loop, act)


@pytest.mark.parametrize("delay_s", [None, 0, 1])
def test_a_task_that_is_cancelled_from_outside_fails_every_waiter(loop, delay_s):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: None
        waiter = asyncio.create_task(world.task.waits.wait_for_topic("t", world.in_s(60)))
        if delay_s is not None:
            await asyncio.sleep(delay_s)
        (task,) = tasks_named(loop, "aioproducer-metadata")
        task.cancel()
        for wait in (waiter, world.task.waits.wait_for_topic("u", world.in_s(60))):
            with pytest.raises(ProducerFailedError, match="cancelled from outside"):
                await wait
        assert [type(error) for error in world.ends] == [ProducerFailedError]
        assert loop.time() <= 1.1

    play(loop, act)


def test_closing_before_starting_is_fine(loop):
    async def scene() -> None:
        world = World(loop)
        await world.task.close()
        with pytest.raises(ProducerClosedError):
            await world.task.waits.wait_for_topic("t", world.in_s(60))

    loop.run_until_complete(scene())


def test_failures_are_logged_ever_more_rarely(loop, caplog):
    async def act(world: World) -> None:
        world.client.answer = lambda node_id, names: RequestTimeoutError("slow")
        await asyncio.sleep(10)

    play(loop, act)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert all("fetching metadata failed: slow" in line for line in lines)
