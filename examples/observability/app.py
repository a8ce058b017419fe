"""A program with metrics for Prometheus: traffic to embedded brokers, with a fault now and then.

    pip install 'aioproducer[metrics]'
    python examples/observability/app.py            # metrics: http://localhost:8001/metrics
    python examples/observability/app.py --fail     # some records fail, so that alerts fire

The dashboard and the alerts are described in README.md of this folder.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from aioproducer import Producer
from aioproducer.metrics.prometheus import ProducerCollector
from aioproducer.testing import EmbeddedCluster

TOPICS = {"orders": 6, "invoices": 3}
TICK_S = 0.1
FAULT_EVERY_S = 15.0


@contextmanager
def exported(producer: Producer, port: int) -> Iterator[int]:
    """Serve the producer's metrics over HTTP from a thread; yield the port."""
    registry = CollectorRegistry()
    registry.register(ProducerCollector(producer))
    server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def send_traffic(producer: Producer, rate: float) -> None:
    """Send about `rate` records per second in waves of 60 seconds; failures are logged."""
    loop = asyncio.get_running_loop()
    number = itertools.count()
    while True:
        wave = 1 + 0.5 * math.sin(loop.time() * 2 * math.pi / 60)
        for _ in range(round(rate * TICK_S * wave)):
            n = next(number)
            topic = "invoices" if n % 4 == 0 else "orders"
            await producer.send(topic, f'{{"id": {n}}}'.encode(), key=b"%d" % (n % 50))
        await asyncio.sleep(TICK_S)


async def break_brokers(cluster: EmbeddedCluster, *, fail: bool) -> None:
    """Answer some requests with errors: retriable ones, and with `fail` others too."""
    while True:
        await asyncio.sleep(FAULT_EVERY_S)
        cluster.faults.next("produce").answers("NOT_ENOUGH_REPLICAS")
        if fail:
            cluster.faults.next("produce").answers("TOPIC_AUTHORIZATION_FAILED")


async def main(port: int, rate: float, *, fail: bool) -> None:
    async with (
        EmbeddedCluster(brokers=3, topics=TOPICS) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="orders") as producer,
    ):
        with exported(producer, port) as listening:
            print(f"http://localhost:{listening}/metrics (Ctrl-C ends it)", flush=True)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send_traffic(producer, rate))
                tasks.create_task(break_brokers(cluster, fail=fail))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--rate", type=float, default=500, help="records per second")
    parser.add_argument("--fail", action="store_true", help="let some records fail")
    arguments = parser.parse_args()
    try:
        asyncio.run(main(arguments.port, arguments.rate, fail=arguments.fail))
    except KeyboardInterrupt:
        pass
