"""A Celery worker whose tasks publish: one producer in each process that the worker forks.

    python -m aioproducer cluster --topic orders:6                  # in another terminal
    celery --app examples.celery_worker worker --concurrency 2      # needs a broker for the tasks

Connections, threads and event loops do not survive a fork. So nothing is started when this module
is imported: Celery's signals start and close the producer of each process. Other servers that fork
need the same: `multiprocessing.Pool(initializer=start_producer)`, uWSGI's `postfork`.
A producer that was started before a fork raises `ForkedError` in the child.
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
    # Celery logs an error of this function and goes on. So do not wait for Kafka, which may be down
    # now: until it answers, tasks fail after `delivery_timeout_ms`.
    producer.start(wait=False)


@worker_process_shutdown.connect
def close_producer(**_: Any) -> None:
    producer.close(CLOSE_S)


@app.task
def publish(order: dict[str, Any]) -> int | None:
    """Wait for the acknowledgement; an error fails the task."""
    return producer.send(TOPIC, json.dumps(order).encode()).result().offset
