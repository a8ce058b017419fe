"""The worker that reads: confluent-kafka's consumer, judging numbers as they come.

Arguments: bootstrap, topic, value_bytes. It reports `progress` each second. On `finish` with what
was sent, it reads to the ends of all partitions and reports `findings`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from bench.numbering import Numbering, number_of
from bench.workers import arguments, rss_of, tell

_CHUNK = 5_000
_POLL_S = 0.2
_FINISH_TIMEOUT_S = 120.0
_METADATA_TIMEOUT_S = 60.0
_TRANSIENT = frozenset(
    [
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._PARTITION_EOF,
    ]
)
"""Errors of a reader while brokers break. To miss records that retention deleted is not one."""


class _Reader:
    def __init__(self, bootstrap: str, topic: str, value_bytes: int) -> None:
        self._topic = topic
        self._value_bytes = value_bytes
        self._numbering = Numbering()
        self._errors: Counter[str] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "numbers",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "check.crcs": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 1_000,
                "topic.metadata.refresh.interval.ms": 5_000,
                "queued.max.messages.kbytes": 32_768,
            }
        )
        found = self._consumer.list_topics(topic, timeout=_METADATA_TIMEOUT_S).topics[topic]
        self._partitions = sorted(found.partitions)
        self._consumer.assign(
            [TopicPartition(topic, id_, OFFSET_BEGINNING) for id_ in self._partitions]
        )

    def run(self, finish: threading.Event, last_order: dict[str, Any]) -> None:
        """Read until `finish` comes, then to the ends."""
        reported = 0.0
        deadline = None
        while True:
            for message in self._consumer.consume(_CHUNK, _POLL_S):
                error = message.error()
                if error is None:
                    self._numbering.see(*number_of(message.value(), self._value_bytes))
                elif error.code() in _TRANSIENT or error.retriable():
                    self._errors[error.name()] += 1
                else:
                    raise KafkaException(error)
            now = time.monotonic()
            if now - reported >= 1:
                reported = now
                self._report()
            if finish.is_set():
                deadline = deadline or now + _FINISH_TIMEOUT_S
                if self._finished(last_order) or now > deadline:
                    return self._conclude(last_order)

    def close(self) -> None:
        self._consumer.close()

    def _report(self) -> None:
        numbering = self._numbering
        tell(
            "progress",
            at=time.monotonic(),
            read=numbering.read,
            missing=numbering.missing,
            duplicated=numbering.duplicated,
            reordered=numbering.reordered,
            rss=rss_of(),
        )

    def _finished(self, order: dict[str, Any]) -> bool:
        return self._numbering.complete(_counts(order)) and self._at_the_ends()

    def _at_the_ends(self) -> bool:
        places = self._consumer.position(
            [TopicPartition(self._topic, id_) for id_ in self._partitions]
        )
        for place in places:
            _, high = self._consumer.get_watermark_offsets(place, timeout=_METADATA_TIMEOUT_S)
            if max(place.offset, 0) < high:
                return False
        return True

    def _conclude(self, order: dict[str, Any]) -> None:
        found = self._numbering.findings(
            _counts(order), map(tuple, order["failed"]), map(tuple, order["denied"])
        )
        tell("findings", **asdict(found), errors=dict(self._errors))


def _counts(order: dict[str, Any]) -> dict[int, int]:
    return {int(source): count for source, count in order["sent"].items()}


def main() -> None:
    reader = _Reader(**arguments())
    tell("ready")
    finish = threading.Event()
    last_order: dict[str, Any] = {}

    def listen() -> None:
        last_order.update(json.loads(sys.stdin.readline() or '{"sent": {}}'))
        last_order.setdefault("failed", [])
        last_order.setdefault("denied", [])
        finish.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        reader.run(finish, last_order)
    finally:
        reader.close()


if __name__ == "__main__":
    main()
