"""Client telemetry against simulated brokers, on virtual time (KIP-714, KIP-1076)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from itertools import pairwise

import pytest
from support.stage import Stage, play

from aioproducer.errors import (
    IllegalStateError,
    InvalidRequestError,
    KafkaTimeoutError,
    ProducerClosedError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from aioproducer.metrics import ApplicationMetric, MetricKind
from aioproducer.testing.broker import (
    ConnectionFault,
    ErrorAnswer,
    Fault,
    ReceivedMetrics,
    TelemetrySubscription,
)
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.wire.api_keys import ApiKey

SENT = "org.apache.kafka.producer.record.send.total"
ROOMY = {"buffer_memory": 1 << 20}
GET, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY


def subscribe(stage: Stage, *metrics: str, **options) -> list[ReceivedMetrics]:
    """Asks for metrics every ten seconds; returns the list in which they arrive."""
    telemetry = stage.world.cluster.telemetry
    options = {"interval_ms": 10_000, **options}
    telemetry.subscription = TelemetrySubscription(metrics or ("",), **options)
    return telemetry.received


async def send(stage: Stage, count: int) -> None:
    for delivery in [await stage.producer.send("t", b"v") for _ in range(count)]:
        await delivery


def test_what_is_asked_for_is_pushed_at_the_interval_with_what_was_added_since():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, "org.apache.kafka.producer.record.send", "no.such.metric")
        async with stage.producer as producer:
            await send(stage, 3)
            await asyncio.sleep(16)
            assert 5_000 <= received[0].at_ms - stage.world.wall_ms() + 16_000 <= 15_100
            await send(stage, 4)
            await asyncio.sleep(20)
            identity = await producer.client_instance_id()
        assert [push.value(SENT) for push in received] == [3, 4, 0, 0]
        assert [push.terminating for push in received] == [False, False, False, True]
        assert {push.client_instance_id for push in received} == {identity}
        gaps = [after.at_ms - before.at_ms for before, after in pairwise(received[:-1])]
        assert all(10_000 <= gap < 10_100 for gap in gaps)
        assert {name.rsplit(".", 2)[0] for name in received[0].points} == {SENT.rsplit(".", 2)[0]}
        (first,), (second,) = received[0].points[SENT], received[1].points[SENT]
        assert first.monotonic
        assert first.delta
        assert first.start_ns < first.time_ns == second.start_ns < second.time_ns

    play(act, **ROOMY)


def test_the_first_deltas_count_from_the_start_of_the_producer():
    async def act(stage: Stage) -> None:
        await asyncio.sleep(100)
        received = subscribe(stage, SENT)
        began_ms = stage.world.wall_ms()
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(16)
        (point,) = received[0].points[SENT]
        assert began_ms - 1_000 < point.start_ns // 1_000_000 <= began_ms

    play(act, **ROOMY)


def test_without_deltas_totals_are_pushed_from_the_start():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT, delta=False)
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(16)
            await send(stage, 4)
            await asyncio.sleep(10)
        assert [push.value(SENT) for push in received] == [3, 7, 7]
        assert len({point.start_ns for push in received for point in push.points[SENT]}) == 1

    play(act, **ROOMY)


def test_the_metrics_the_kip_asks_of_every_producer_are_there():
    async def act(stage: Stage) -> None:
        received = subscribe(stage)
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(16)
        of_a_node = {"request.latency.avg", "request.latency.max"}
        needed = {
            "connection.creation.rate",
            "connection.creation.total",
            "produce.throttle.time.avg",
            "produce.throttle.time.max",
            "record.queue.time.avg",
            "record.queue.time.max",
            *(f"node.{name}" for name in of_a_node),
        }
        assert {f"org.apache.kafka.producer.{name}" for name in needed} <= set(received[0].points)
        latency = received[0].points["org.apache.kafka.producer.node.request.latency.max"]
        assert {"node-1"} <= {point.attributes["node_id"] for point in latency}
        assert max(point.value for point in latency) >= 2

    play(act, **ROOMY)


def test_resource_attributes_say_which_client_it_is():
    async def act(stage: Stage) -> None:
        received = subscribe(stage)
        async with stage.producer:
            await asyncio.sleep(16)
        assert received[0].resource == {"client_rack": "r1", "transactional_id": "txn"}

    play(act, client_rack="r1", transactional_id="txn", **ROOMY)


@pytest.mark.parametrize(
    ("codecs", "used"), [((4, 3, 1, 2), 4), ((3,), 3), ((2,), 2), ((1,), 1), ((), 0), ((9,), 0)]
)
def test_pushes_are_compressed_with_the_first_codec_that_both_have(codecs, used):
    async def act(stage: Stage) -> None:
        received = subscribe(stage, codecs=codecs)
        async with stage.producer:
            await asyncio.sleep(16)
        assert {push.codec for push in received} == {used}
        assert all(push.points for push in received)

    play(act, **ROOMY)


def test_brokers_without_a_plugin_are_asked_nothing():
    async def act(stage: Stage) -> None:
        asked = stage.faults.add(Fault(ConnectionFault(), api=GET, times=None))
        async with stage.producer as producer:
            with pytest.raises(UnsupportedVersionError, match="ClientTelemetry"):
                await producer.client_instance_id()
            await asyncio.sleep(100)
            received = subscribe(stage)
            await asyncio.sleep(100)
        assert (asked.struck, received) == (0, [])

    play(act, **ROOMY)


def test_a_subscription_that_wants_nothing_costs_one_request_per_interval():
    async def act(stage: Stage) -> None:
        subscribe(stage)
        telemetry = stage.world.cluster.telemetry
        telemetry.subscription = TelemetrySubscription((), interval_ms=10_000)
        asked = stage.faults.add(Fault(ConnectionFault(), api=GET, times=None))
        async with stage.producer:
            await asyncio.sleep(35)
            assert asked.struck == 4
            telemetry.subscription = TelemetrySubscription(("",), interval_ms=10_000)
            await asyncio.sleep(30)
            assert telemetry.received

    play(act, **ROOMY)


def test_a_push_opens_a_connection_and_a_question_for_a_subscription_does_not():
    async def act(stage: Stage) -> None:
        async def opened_in_a_minute() -> float:
            before = stage.producer.metrics()["connection_creation_total"]
            await asyncio.sleep(60)
            return stage.producer.metrics()["connection_creation_total"] - before

        telemetry = stage.world.cluster.telemetry
        received = subscribe(stage, SENT, interval_ms=20_000)
        async with stage.producer:
            assert await opened_in_a_minute() >= 2
            assert len(received) >= 2
            telemetry.subscription = TelemetrySubscription((), interval_ms=20_000)
            await opened_in_a_minute()
            assert await opened_in_a_minute() == 0

    play(act, connections_max_idle_ms=5_000, metadata_max_age_ms=3_600_000, **ROOMY)


def test_a_push_that_needs_a_connection_is_a_second_late():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT, interval_ms=20_000)
        async with stage.producer:
            await asyncio.sleep(100)
        gaps = [after.at_ms - before.at_ms for before, after in pairwise(received[:-1])]
        assert len(gaps) >= 2
        assert all(21_000 <= gap < 21_100 for gap in gaps)

    play(act, connections_max_idle_ms=5_000, metadata_max_age_ms=3_600_000, **ROOMY)


def count_subscription_requests(stage: Stage) -> Fault:
    """Ask for no metric every 60 s; return what counts the requests for a subscription."""
    stage.world.cluster.telemetry.subscription = TelemetrySubscription((), interval_ms=60_000)
    return stage.faults.add(Fault(ConnectionFault(), api=GET, times=None))


async def first_request(asked: Fault) -> None:
    while not asked.struck:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.01)


def test_every_10_s_a_subscription_that_is_due_is_asked_for_if_a_broker_is_connected():
    async def act(stage: Stage) -> None:
        asked = count_subscription_requests(stage)
        async with stage.producer:
            await first_request(asked)
            due_at = stage.loop.time() + 60
            await asyncio.sleep(67)  # it was due, and no broker was connected
            await send(stage, 1)
            await asyncio.sleep(due_at + 9.9 - stage.loop.time())
            assert asked.struck == 1
            await asyncio.sleep(0.2)
            assert asked.struck == 2

    play(act, connections_max_idle_ms=5_000, metadata_max_age_ms=3_600_000, **ROOMY)


def test_a_subscription_is_asked_for_within_10_s_of_a_connection():
    async def act(stage: Stage) -> None:
        asked = count_subscription_requests(stage)
        async with stage.producer:
            await first_request(asked)
            await asyncio.sleep(60.1)  # it was due, and no broker was connected
            assert asked.struck == 1
            await send(stage, 1)
            connected_at = stage.loop.time()
            while asked.struck == 1:
                await send(stage, 1)
                await asyncio.sleep(0.1)
            assert stage.loop.time() - connected_at <= 10

    play(act, connections_max_idle_ms=5_000, metadata_max_age_ms=3_600_000, **ROOMY)


def test_a_changed_subscription_is_fetched_at_once_and_nothing_is_lost():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT)
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(16)
            await send(stage, 4)
            subscribe(stage, "org.apache.kafka.producer.record", interval_ms=20_000)
            await asyncio.sleep(45)
        assert [push.value(SENT) for push in received][:2] == [3, 4]
        assert len(received[1].points) > 1

    play(act, **ROOMY)


@pytest.mark.parametrize("api", [GET, PUSH])
def test_one_request_is_in_flight_however_late_its_answer_is(api):
    async def act(stage: Stage) -> None:
        subscribe(stage)
        late = stage.faults.delay(8_000, api, times=None)
        async with stage.producer:
            while not late.struck:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.1)
            await asyncio.sleep(7)
            assert late.struck == 1
            stage.faults.remove(late)

    play(act, **ROOMY)


def test_a_request_for_a_subscription_whose_answer_is_lost_is_repeated_after_the_interval():
    async def act(stage: Stage) -> None:
        telemetry = stage.world.cluster.telemetry
        telemetry.subscription = TelemetrySubscription((), interval_ms=10_000)
        lost = stage.faults.add(Fault(ConnectionFault(answer=False, close=True), api=GET, skip=1))
        asked = stage.faults.add(Fault(ConnectionFault(), api=GET, times=None))
        async with stage.producer:
            for number, requests in enumerate([(0, 1), (1, 1), (1, 2), (1, 3)]):
                await asyncio.sleep(5 if number == 0 else 10)
                assert (lost.struck, asked.struck) == requests
                await send(stage, 1)  # the producer is connected

    play(act, **ROOMY)


@pytest.mark.parametrize("error", [TelemetryTooLargeError, ThrottlingQuotaExceededError])
def test_a_refused_push_is_made_up_for_at_the_next_interval(error):
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT)
        refusal = stage.faults.add(Fault(ErrorAnswer(error.code), api=PUSH))
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(16)
            assert (refusal.struck, received) == (1, [])
            await asyncio.sleep(10)
            assert [push.value(SENT) for push in received] == [3]

    play(act, **ROOMY)


def test_a_push_whose_answer_is_lost_is_not_pushed_twice():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT)
        lost = ConnectionFault(answer=False, close=True)
        stage.faults.add(Fault(lost, api=PUSH))
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(60)
        assert sum(push.value(SENT) for push in received) == 3
        assert len(received) > 2

    play(act, **ROOMY)


def test_an_unsupported_codec_is_not_used_again():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, codecs=(4, 1))
        stage.faults.add(Fault(ErrorAnswer(UnsupportedCompressionTypeError.code), api=PUSH))
        async with stage.producer:
            await asyncio.sleep(35)
        assert {push.codec for push in received} == {1}

    play(act, **ROOMY)


@pytest.mark.parametrize("api", [GET, PUSH])
@pytest.mark.parametrize("error", [InvalidRequestError, UnsupportedVersionError])
def test_a_broker_that_cannot_make_sense_of_us_is_left_alone(api, error):
    async def act(stage: Stage) -> None:
        received = subscribe(stage)
        refusals = stage.faults.add(Fault(ErrorAnswer(error.code), api=api, times=None))
        async with stage.producer:
            await asyncio.sleep(250)
            await send(stage, 1)
        assert refusals.struck <= 2  # the last push may be tried
        assert not received

    play(act, **ROOMY)


def test_an_unknown_subscription_id_is_replaced_at_once():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT)
        stage.faults.add(Fault(ErrorAnswer(UnknownSubscriptionIdError.code), api=PUSH))
        asked = stage.faults.add(Fault(ConnectionFault(), api=GET, times=None))
        async with stage.producer:
            await asyncio.sleep(15.5)
            assert asked.struck == 2
            await asyncio.sleep(11)
        assert received

    play(act, **ROOMY)


def test_metrics_that_are_too_large_are_not_pushed(caplog):
    async def act(stage: Stage) -> None:
        received = subscribe(stage, max_bytes=100)
        pushes = stage.faults.add(Fault(ConnectionFault(), api=PUSH, times=None))
        async with stage.producer:
            await asyncio.sleep(40)
        assert (pushes.struck, received) == (0, [])

    play(act, **ROOMY)
    assert "are not pushed: the brokers take 100 at most" in caplog.text


@pytest.mark.parametrize(
    ("max_bytes", "is_pushed"),
    [
        (lambda size: 0, True),  # no limit
        (lambda size: 1, False),
        (lambda size: size - 1, False),
        (lambda size: size, True),
    ],
)
def test_metrics_as_large_as_the_brokers_take_are_pushed(
    max_bytes: Callable[[int], int], is_pushed: bool
) -> None:
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT, codecs=())
        async with stage.producer:
            await asyncio.sleep(16)
            limit = max_bytes(len(received[0].data))
            subscribe(stage, SENT, codecs=(), max_bytes=limit)
            await asyncio.sleep(10)  # the next push is refused, as the subscription has changed
            pushes = stage.faults.add(Fault(ConnectionFault(), api=PUSH, times=None))
            await asyncio.sleep(30)
            assert bool(pushes.struck) is is_pushed

    play(act, **ROOMY)


@pytest.mark.parametrize("options", [{"metrics": ("no.such.metric",)}, {"max_bytes": 10}])
def test_metrics_that_are_not_pushed_are_read_once_per_interval(options):
    readings = []

    async def act(stage: Stage) -> None:
        subscribe(stage, *options.pop("metrics", ()), **options)
        orders = ApplicationMetric("orders", "shop-metrics", lambda: readings.append(1) or 1.0)
        stage.producer.register_metric(orders)
        async with stage.producer:
            await asyncio.sleep(65)
            assert 4 <= len(readings) <= 7

    play(act, **ROOMY)


def test_a_metric_that_cannot_be_encoded_stops_neither_telemetry_nor_records(caplog):
    async def act(stage: Stage) -> None:
        received = subscribe(stage)
        tags: dict[str, str] = {}
        stage.producer.register_metric(
            ApplicationMetric("orders", "shop-metrics", lambda: 1, tags=tags)
        )
        tags["shop"] = "\ud800"  # refused by the constructor
        async with stage.producer:
            await send(stage, 3)
            await asyncio.sleep(50)
            assert 2 <= caplog.text.count("telemetry failed unexpectedly") <= 5
            tags.clear()
            await asyncio.sleep(30)
            assert [push.value(SENT) for push in received][:1] == [3]

    play(act, **ROOMY)


class Laborious(VirtualLoop):
    """Its clock may advance while something runs."""

    spent = 0.0

    def time(self) -> float:
        return super().time() + self.spent


def test_metrics_that_take_long_to_read_are_read_less_often():
    loop = Laborious(random.Random(1))

    def count() -> float:
        loop.spent += 0.5
        return 1.0

    async def act(stage: Stage) -> None:
        received = subscribe(stage, interval_ms=1_000)
        stage.producer.register_metric(ApplicationMetric("orders", "shop-metrics", count))
        async with stage.producer:
            await asyncio.sleep(60)
        regular = [push for push in received if not push.terminating]
        gaps = [after.at_ms - before.at_ms for before, after in pairwise(regular)]
        assert len(gaps) >= 3
        assert all(10_000 <= gap < 20_000 for gap in gaps)

    play(act, loop=loop, **ROOMY)


class Hasty(VirtualLoop):
    """Its timers are early by 10 ms, as on a coarse clock, unless they are set again."""

    def __init__(self) -> None:
        self._early: set[float] = set()
        super().__init__(random.Random(1))

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        early = when if when in self._early else when - 0.01
        self._early.add(when)
        return super().call_at(early, callback, *args, context=context)


def test_no_push_is_early_if_the_timers_of_the_loop_are():
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT)
        async with stage.producer:
            await asyncio.sleep(60)
        gaps = [after.at_ms - before.at_ms for before, after in pairwise(received[:-1])]
        assert len(gaps) >= 3
        assert all(10_000 <= gap < 10_100 for gap in gaps)

    play(act, loop=Hasty(), **ROOMY)


def test_nothing_is_pushed_after_the_last_push():
    async def act(stage: Stage) -> None:
        subscribe(stage, SENT, interval_ms=100)
        await stage.producer.start()
        await asyncio.sleep(1)
        late = stage.faults.delay(300, PUSH, times=None)
        while not late.struck:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.25)
        await stage.producer.close()
        assert late.struck == 2

    play(act, **ROOMY)


@pytest.mark.parametrize("answered", [True, False])
def test_the_last_push_does_not_count_again_what_a_push_in_flight_has(answered):
    async def act(stage: Stage) -> None:
        received = subscribe(stage, SENT)
        await stage.producer.start()
        await send(stage, 3)
        late = stage.faults.delay(300 if answered else 20_000, PUSH)
        while not late.struck:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
        before = stage.loop.time()
        await stage.producer.close()
        assert stage.loop.time() - before <= 1.5
        assert [push.value(SENT) for push in received] == ([3, 0] if answered else [3])

    play(act, **ROOMY)


def test_a_last_push_that_is_not_answered_delays_the_close_only_briefly():
    async def act(stage: Stage) -> None:
        subscribe(stage)
        await stage.producer.start()
        await asyncio.sleep(16)
        stage.lose()
        before = stage.loop.time()
        await stage.producer.close()
        assert stage.loop.time() - before <= 1.5

    play(act, **ROOMY)


def test_a_close_without_time_sends_no_last_push():
    async def act(stage: Stage) -> None:
        received = subscribe(stage)
        await stage.producer.start()
        await asyncio.sleep(16)
        await stage.producer.close(0)
        assert {push.terminating for push in received} == {False}

    play(act, **ROOMY)


def test_metrics_of_the_application_are_pushed_beside_ours_until_taken_away(caplog):
    async def act(stage: Stage) -> None:
        received = subscribe(stage, "org.apache.kafka.shop")
        orders = [5.0, 7.0]
        counted = ApplicationMetric(
            "orders-total",
            "shop-metrics",
            lambda: orders[0],
            MetricKind.COUNTER,
            tags={"ti-ll": "1"},
        )
        broken = ApplicationMetric("broken", "shop-metrics", lambda: 1 / 0)
        stage.producer.register_metric(counted)
        stage.producer.register_metric(broken)
        with pytest.raises(IllegalStateError, match="the producer's own"):
            stage.producer.register_metric(ApplicationMetric("x", "producer-metrics", lambda: 1))
        async with stage.producer:
            await asyncio.sleep(16)
            before = len(received)
            stage.producer.unregister_metric(counted)
            await asyncio.sleep(20)
        ((point,),) = received[0].points.values()
        assert set(received[0].points) == {"org.apache.kafka.shop.orders.total"}
        assert (point.value, point.attributes) == (5, {"ti_ll": "1"})
        assert len(received) == before

    play(act, **ROOMY)
    assert caplog.text.count("metric broken of the application raised") == 1


def test_with_metrics_push_off_nothing_is_asked_and_there_is_no_id():
    async def act(stage: Stage) -> None:
        subscribe(stage)
        asked = stage.faults.add(Fault(ConnectionFault(), api=GET, times=None))
        async with stage.producer as producer:
            await asyncio.sleep(20)
            with pytest.raises(IllegalStateError, match="enable_metrics_push"):
                await producer.client_instance_id()
        assert asked.struck == 0

    play(act, enable_metrics_push=False, **ROOMY)


def test_with_metrics_push_off_a_start_in_the_background_connects_all_the_same():
    async def act(stage: Stage) -> None:
        await stage.producer.start(wait=False)
        await stage.producer.send_and_wait("t", b"v")
        await asyncio.sleep(1)
        health = stage.producer.health()
        assert (health.state, health.error) == ("running", None)
        await stage.producer.close()

    play(act, enable_metrics_push=False)


def test_waiting_for_an_instance_id_is_bounded():
    async def act(stage: Stage) -> None:
        subscribe(stage)
        silence = ConnectionFault(answer=False)
        stage.faults.add(Fault(silence, api=GET, times=None))
        async with stage.producer as producer:
            with pytest.raises(KafkaTimeoutError, match="after 2000 ms"):
                await producer.client_instance_id(2)

    play(act, **ROOMY)


@pytest.mark.parametrize(
    "reason", [ConnectionFault(answer=False), ErrorAnswer(ThrottlingQuotaExceededError.code)]
)
@pytest.mark.parametrize("timeout", [None, 0])
def test_a_wait_for_an_instance_id_ends_with_the_producer(
    timeout: float | None, reason: ConnectionFault | ErrorAnswer
) -> None:
    async def act(stage: Stage) -> None:
        subscribe(stage)
        stage.faults.add(Fault(reason, api=GET, times=None))
        await stage.producer.start()
        waiting = [asyncio.create_task(stage.producer.client_instance_id(100)) for _ in range(2)]
        await asyncio.sleep(1)
        began = stage.loop.time()
        await stage.producer.close(timeout)
        for each in waiting:
            with pytest.raises(ProducerClosedError, match="during the wait"):
                await each
        assert stage.loop.time() - began < 1

    play(act, **ROOMY)
