"""Producers that are dropped without `close()`, closed without their loop, or copied by a fork."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.children import environment
from support.stage import Stage, play
from support.waiting import until

from aioproducer import Producer
from aioproducer.blocking import Producer as BlockingProducer
from aioproducer.compat.confluent import Producer as ConfluentProducer
from aioproducer.errors import (
    DeliveryTimeoutError,
    ProducerClosedError,
    TransactionAbortedError,
)
from aioproducer.testing import ThreadedCluster
from aioproducer.testing.world.producer import SimProducer

UNCLOSED = r"unclosed <.*Producer .*>: call close\(\)"
OPTIONS: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


def left_of(stage: Stage) -> list[str]:
    """Tasks, connections and timers of producers."""
    return [each for each in stage.left() if not each.startswith("timer of asyncio.timeouts")]


async def dropped(stage: Stage, **options: object) -> asyncio.Future[object]:
    """Sends one record by a producer and drops it; the record's delivery."""
    producer = SimProducer(stage.world, purpose="dropped", **options)
    await producer.start()
    await producer.warm_up(["t"])
    if producer.config.transactional_id is not None:
        await producer.begin_transaction()
    delivery = await producer.send("t", b"v")
    assert left_of(stage) != []
    with pytest.warns(ResourceWarning, match=UNCLOSED):
        del producer
        gc.collect()
    return asyncio.ensure_future(delivery)


def test_what_a_dropped_producer_has_accepted_is_delivered_and_everything_ends() -> None:
    async def act(stage: Stage) -> None:
        delivery = await dropped(stage, **OPTIONS)
        assert (await delivery).offset == 0
        await asyncio.sleep(1)
        assert left_of(stage) == []
        assert stage.values("t") == [b"v"]

    play(act)


def test_what_a_dropped_producer_cannot_deliver_fails_in_its_time() -> None:
    async def act(stage: Stage) -> None:
        delivery = await dropped(stage, **OPTIONS)
        stage.lose()
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        await asyncio.sleep(1)
        assert left_of(stage) == []

    play(act)


def test_the_transaction_of_a_dropped_producer_is_aborted() -> None:
    async def act(stage: Stage) -> None:
        delivery = await dropped(stage, transactional_id="x", **OPTIONS)
        with pytest.raises(TransactionAbortedError):
            await delivery
        await asyncio.sleep(1)
        assert left_of(stage) == []

    play(act)


def test_dropping_a_producer_that_is_closed_says_nothing() -> None:
    async def act(stage: Stage) -> None:
        async with SimProducer(stage.world, purpose="closed") as producer:
            await producer.send("t", b"v")
        del producer
        gc.collect()

    play(act)


async def test_a_producer_may_be_dropped_in_another_thread(cluster: ThreadedCluster) -> None:
    found = [Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)]
    await found[0].start()
    await found[0].send("t", b"v")

    def drop() -> None:
        found.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match=UNCLOSED):
        await asyncio.to_thread(drop)
    await until(lambda: tasks_left() == [])
    assert cluster.values("t") == [b"v"]


def test_the_producer_inside_a_blocking_one_leaves_the_warning_to_it(
    cluster: ThreadedCluster,
) -> None:
    producer = BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)
    producer.start()
    finalized_first_in_a_cycle(producer._producer)
    producer.close(5)


def test_the_producer_inside_the_drop_in_for_confluent_leaves_the_warning_to_it(
    cluster: ThreadedCluster,
) -> None:
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.list_topics(timeout=10)
    assert producer._own_loop_side.producer is not None
    finalized_first_in_a_cycle(producer._own_loop_side.producer)
    producer.close()


def finalized_first_in_a_cycle(producer: Producer) -> None:
    """Do what the collector may do to a producer inside another, in another thread than its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer.__del__()


def tasks_left() -> list[str]:
    return [each.get_name() for each in asyncio.all_tasks() if "aioproducer" in each.get_name()]


def run(program: str, *arguments: str) -> str:
    """Return what a program writes to its standard error."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, capture_output=True, env=environment(), text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_producer_dropped_at_the_end_of_asyncio_run_leaves_no_report(
    cluster: ThreadedCluster,
) -> None:
    program = """
import asyncio, sys
from aioproducer import Producer

async def main():
    producer = Producer(bootstrap_servers=sys.argv[1])
    await producer.start()
    await producer.send_and_wait("t", b"v")

asyncio.run(main())
"""
    assert run(program, cluster.bootstrap_servers) == ""


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "kept.append(producer)",
        "del producer; gc.collect(); await asyncio.sleep(0.05)",
        "asyncio.create_task(producer.close()); await asyncio.sleep(0.05)",
        "asyncio.create_task(producer.flush()); await asyncio.sleep(0.05)",
    ],
)
def test_records_lost_at_the_end_of_asyncio_run_are_counted_in_the_log(
    cluster: ThreadedCluster, end: str
) -> None:
    program = f"""
import asyncio, gc, logging, sys, warnings
from aioproducer import Producer

logging.basicConfig(level=logging.ERROR)
warnings.simplefilter("ignore")
kept, counts = [], []

async def main():
    producer = Producer(
        bootstrap_servers=sys.argv[1],
        on_delivery_error=lambda where, count, error: counts.append(count),
    )
    await producer.start()
    await producer.send_and_wait("t", b"v")
    print("ready", flush=True)
    input()
    for _ in range(40):
        await producer.send("t", b"lost")
        await asyncio.sleep(0)
    {end}

asyncio.run(main())
print(sum(counts), "lost")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, cluster.bootstrap_servers],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        cluster.freeze_broker(1)
        said, _ = child.communicate("\n", timeout=30)
    assert "40 lost" in said
    assert "the producer is closed; 40 record(s) failed" in said


# -- loops that are closed -------------------------------------------------------------------------


async def begin(producer: Producer) -> None:
    await producer.start()
    await producer.warm_up(["t"])
    await producer.send("t", b"lost")


@pytest.mark.filterwarnings("ignore:.*(transport|loop is closed):ResourceWarning")  # asyncio's own
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_producer_whose_loop_is_closed_can_be_closed(
    cluster: ThreadedCluster, cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)

    if cancelled:
        asyncio.run(begin(producer))  # which cancels all tasks at its end
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin(producer))
        loop.close()
    asyncio.run(producer.close())
    asyncio.run(producer.close())
    if not cancelled:
        assert "1 record(s) are given up, as the event loop is closed" in caplog.text
    with pytest.raises(ProducerClosedError):
        asyncio.run(producer.send("t", b"v"))
    del producer
    gc.collect()


def test_the_brokers_see_the_end_of_a_producer_whose_loop_is_closed(
    cluster: ThreadedCluster,
) -> None:
    program = """
import asyncio, os, sys
from aioproducer import Producer

def sockets():
    found = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
        except OSError:
            pass
    return found

producer = Producer(bootstrap_servers=sys.argv[1])
loop = asyncio.new_event_loop()
loop.run_until_complete(producer.start())
loop.close()
assert sockets() > 0
asyncio.run(producer.close())
assert sockets() == 0, sockets()
"""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no list of open files here")
    assert run(program, cluster.bootstrap_servers) == ""


# -- forks -----------------------------------------------------------------------------------------

FORK = """
import asyncio, gc, os, sys, warnings
from aioproducer.{module} import Producer

warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: threads and fork
producer = Producer(bootstrap_servers=sys.argv[1])
{start}
sys.stderr.flush()
child = os.fork()
if child == 0:
    {child}
    gc.collect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
{end}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.parametrize("child", ["pass", "del producer", "producer.close(); del producer"])
def test_a_forked_child_of_a_blocking_producer_says_nothing(
    cluster: ThreadedCluster, child: str
) -> None:
    program = FORK.format(
        module="blocking",
        start="producer.start(); handle = producer.send('t', b'v'); handle.result(30)",
        child=child,
        end="producer.send_and_wait('t', b'w'); producer.close()",
    )
    assert run(program, cluster.bootstrap_servers) == ""
    assert cluster.values("t") == [b"v", b"w"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.parametrize("child", ["pass", "del producer"])
def test_a_forked_child_of_an_asynchronous_producer_says_nothing(
    cluster: ThreadedCluster, child: str
) -> None:
    program = FORK.format(
        module="client.producer",
        start="loop = asyncio.new_event_loop(); loop.run_until_complete(producer.start())",
        child=child,
        end="loop.run_until_complete(producer.close()); loop.close()",
    )
    assert run(program, cluster.bootstrap_servers) == ""


# -- the blocking producer -------------------------------------------------------------------------


def test_a_blocking_producer_that_is_dropped_delivers_and_ends(cluster: ThreadedCluster) -> None:
    before = threading.active_count()
    producer = BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)
    producer.start()
    producer.warm_up(["t"])
    handle = producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match=UNCLOSED):
        del producer
        gc.collect()
    assert handle.result(30).offset == 0
    asyncio.run(until(lambda: threading.active_count() == before))
    assert cluster.values("t") == [b"v"]


def test_a_blocking_producer_dropped_before_the_exit_delivers(cluster: ThreadedCluster) -> None:
    program = """
import gc, sys
from aioproducer.blocking import Producer

producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
producer.start()
for number in range(1000):
    producer.send("t", b"%d" % number)
del producer
gc.collect()
"""
    assert run(program, cluster.bootstrap_servers) == ""
    assert len(cluster.values("t")) == 1000
