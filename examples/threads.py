"""A synchronous program that publishes from several threads, without asyncio.

    python -m aioproducer cluster --topic readings:3      # in another terminal
    python examples/threads.py

One blocking `Producer` for the whole program, shared by all threads. `send()` returns when the
record is in the buffer, and waits while the buffer is full; its handle has the outcome.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

from aioproducer import KafkaError
from aioproducer.blocking import DeliveryHandle, Producer

TOPIC = "readings"
SENSORS = 4
READINGS = 1_000


def measure(producer: Producer, sensor: int) -> int:
    """Publish one sensor's readings in order; return how many are stored."""
    handles: list[DeliveryHandle] = []
    for number in range(READINGS):
        value = json.dumps({"sensor": sensor, "number": number}).encode()
        handles.append(producer.send(TOPIC, value, key=b"sensor-%d" % sensor))
    stored = 0
    for handle in handles:
        try:
            handle.result()
            stored += 1
        except KafkaError as error:
            print(f"sensor {sensor}: {error}")
    return stored


def main(bootstrap_servers: str) -> int:
    with (
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        ThreadPoolExecutor(SENSORS) as pool,
    ):
        stored = sum(pool.map(lambda sensor: measure(producer, sensor), range(SENSORS)))
    print(f"{stored} of {SENSORS * READINGS} readings stored")
    return 0 if stored == SENSORS * READINGS else 1


if __name__ == "__main__":
    raise SystemExit(main(os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")))
