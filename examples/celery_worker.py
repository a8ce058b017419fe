"""A Celery worker whose tasks publish: a producer in each process that the worker forks.

    python -m aioproducer cluster --topic orders:6                  # in another terminal
    celery --app examples.celery_worker worker --concurrency 2      # needs a broker for the tasks

Connections, threads and event loops do not survive a fork. So nothing is started when this module
is imported; Celery's signals tell when a process begins and when it ends. The same goes for any
server that forks: `multiprocessing.Pool(initializer=start_producer)`, uWSGI's `postfork`.
A producer that was started before a fork refuses to work in the child, with a `ForkedError`.
"""

from __future__ import annotations

import json
import os
from typing import Any

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

from aioproducer.blocking import Producer

TOPIC = "orders"
CLOSE_S = 15.0

app = Celery("orders", broker=os.environ.get("CELERY_BROKER_URL"))
producer = Producer(
    bootstrap_servers=os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092"),
    max_block_ms=5_000,
    request_timeout_ms=5_000,
    delivery_timeout_ms=10_000,
)


@worker_process_init.connect
def start_producer(**_: Any) -> None:
    producer.start()


@worker_process_shutdown.connect
def close_producer(**_: Any) -> None:
    producer.close(CLOSE_S)


@app.task
def publish(order: dict[str, Any]) -> int | None:
    """Returns when the order is acknowledged; a failure is the task's."""
    return producer.send(TOPIC, json.dumps(order).encode()).result().offset
