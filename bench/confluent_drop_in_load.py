"""The worker of the benchmark of the confluent drop-in: records produced by one `Producer`.

Arguments: bootstrap, topic, client (`confluent-kafka` or `drop-in`), mode (see `MODES`), count.
When it has warmed up it reports `ready`; each time `go` is said it produces `count` records and
reports `round` with the CPU time of the process, all threads.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.workers import arguments, tell

MODULES = {"confluent-kafka": "confluent_kafka", "drop-in": "aioproducer.compat.confluent"}
"""Only one is imported: where both are, the drop-in's messages are instances of both classes."""

MODES = ("poll after each", "callbacks that ask for the offset", "no callbacks")
_POLL_EVERY = 1_000
_END_S = 120.0
_WARM_UP = 5_000
_VALUE = b"0123456789abcdef" * 6 + b"0123"


def _produce(producer: Any, topic: str, mode: str, count: int) -> None:
    every, reported = _POLL_EVERY, _look
    if mode == "poll after each":
        every, reported = 1, _ignore
    options: dict[str, Callable[[Any, Any], None]] = {"on_delivery": reported}
    if mode == "no callbacks":
        options = {}
    for number in range(count):
        producer.produce(topic, _VALUE, **options)
        if not number % every:
            producer.poll(0)
    if left := producer.flush(_END_S):
        raise TimeoutError(f"{left} records without an outcome")


def _ignore(error: Any, message: Any) -> None:
    if error is not None:
        raise RuntimeError(str(error))


def _look(error: Any, message: Any) -> None:
    _ignore(error, message)
    message.partition(), message.offset()


def _measure(bootstrap: str, topic: str, client: str, mode: str, count: int) -> None:
    producer_class = importlib.import_module(MODULES[client]).Producer
    producer = producer_class({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
    _produce(producer, topic, mode, _WARM_UP)
    tell("ready")
    for number, _ in enumerate(sys.stdin, start=1):
        gc.collect()
        started = time.process_time()
        _produce(producer, topic, mode, count)
        tell(f"round-{number}", cpu_us=(time.process_time() - started) / count * 1e6)


if __name__ == "__main__":
    _measure(**arguments())
