"""confluent-kafka's Producer, with and without delivery callbacks."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self

from confluent_kafka import KafkaException, Producer, SerializingProducer
from confluent_kafka.serialization import StringSerializer

from bench.clients import HEADERS, Adapter, Job, Pair, RoundRobin, Watch

_NAMES = {"linger": "linger.ms", "batch": "batch.size", "codec": "compression.type"}
_FULL_WAIT_S = 0.01
_POLL_EVERY = 1_000
_POLL_S = 0.05
_END_S = 120.0


def configuration(job: Job) -> dict[str, Any]:
    """Return the settings of both of confluent-kafka's producers."""
    return {
        "bootstrap.servers": job.bootstrap,
        "enable.idempotence": True,
        **job.options(_NAMES),
    }


class Client(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._producer: Any = (
            SerializingProducer(configuration(job) | {"value.serializer": StringSerializer()})
            if job.extra == "serializer"
            else Producer(configuration(job))
        )
        self._poller: threading.Thread | None = None
        self._ended = threading.Event()

    async def __aenter__(self) -> Self:
        self._producer.list_topics(self.topic, timeout=_END_S)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ended.set()
        if self._poller is not None:
            self._poller.join()
        self._producer.flush(_END_S)

    async def each(self, records: Iterable[Pair]) -> None:
        watch = Watch()
        is_watched = self.job.extra == "interceptor"
        failed: deque[object] = deque(maxlen=1)

        def delivered(problem: object, _: object) -> None:
            if problem is not None:
                failed.append(problem)
            if is_watched:
                watch.on_end()

        if self.job.extra:
            self._send_with(records, delivered, watch)
        else:
            self._send(records, {"on_delivery": delivered})
        if failed:
            raise KafkaException(failed[0])

    async def dropped(self, records: Iterable[Pair]) -> None:
        self._send(records, {})

    def fire(self, record: Pair, done: Callable[[], None]) -> None:
        if self._poller is None:
            self._poller = threading.Thread(target=self._poll)
            self._poller.start()

        def delivered(problem: object, _: object) -> None:
            if problem is None:
                done()

        self._producer.produce(self.topic, record[0], record[1], on_delivery=delivered)

    def _send(self, records: Iterable[Pair], options: dict[str, Any]) -> None:
        produce, poll, topic = self._producer.produce, self._producer.poll, self.topic
        for number, (value, key) in enumerate(records):
            while True:
                try:
                    produce(topic, value, key, **options)
                    break
                except BufferError:
                    poll(_FULL_WAIT_S)
            if not number % _POLL_EVERY:
                poll(0)
        if left := self._producer.flush(_END_S):
            raise TimeoutError(f"{left} records without an outcome")

    def _send_with(
        self, records: Iterable[Pair], delivered: Callable[[object, object], None], watch: Watch
    ) -> None:
        """Send with what each record has or goes through; there are no partitioners in Python."""
        extra, robin = self.job.extra, RoundRobin()
        topics = itertools.cycle(self.job.topics)
        options: dict[str, Any] = {"on_delivery": delivered}
        if extra == "headers":
            options["headers"] = HEADERS
        partitions = len(self._producer.list_topics(self.topic).topics[self.topic].partitions)
        produce, poll = self._producer.produce, self._producer.poll
        for number, ((value, key), topic) in enumerate(zip(records, topics, strict=False)):
            if extra == "partitioner":
                options["partition"] = robin.pick(partitions)
            elif extra == "interceptor":
                watch.on_send((topic, value, key))
            while True:
                try:
                    produce(topic, value=value, key=key, **options)
                    break
                except BufferError:
                    poll(_FULL_WAIT_S)
            if not number % _POLL_EVERY:
                poll(0)
        if left := self._producer.flush(_END_S):
            raise TimeoutError(f"{left} records without an outcome")

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(_POLL_S)
