"""`stats_cb`: a JSON text, at most every `statistics.interval.ms`, from a call of the producer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import starmap
from typing import Any, Final

from aioproducer._util.clock import SystemClock
from aioproducer.compat.confluent._loop_side import LoopSide
from aioproducer.compat.confluent._reports import Reports
from aioproducer.compat.confluent._settings import Settings
from aioproducer.runtime.observability.statistics import BrokerStatistics

_TOTALS: Final = {
    "tx": "request_total",
    "tx_bytes": "outgoing_byte_total",
    "rx": "response_total",
    "rx_bytes": "incoming_byte_total",
    "txmsgs": "record_acknowledged_total",
    "txmsg_bytes": "batch_byte_total",
}
"""librdkafka's names of this producer's metrics."""
STATES: Final = {
    "disconnected": "INIT",
    "backing_off": "DOWN",
    "connecting": "CONNECT",
    "handshaking": "APIVERSION_QUERY",
    "ready": "UP",
    "throttled": "UP",
    "closed": "DOWN",
}
"""librdkafka's names of the states of brokers."""


class Clock:
    """Makes the text when it is due."""

    def __init__(self, settings: Settings, reports: Reports) -> None:
        self._settings = settings
        self._reports = reports
        self._begun = SystemClock.monotonic()
        self.is_on: bool = settings.stats_cb is not None and settings.statistics_s > 0
        self._due = self._begun + settings.statistics_s

    def left(self) -> float:
        """Return the seconds until they are due."""
        return max(0.0, self._due - SystemClock.monotonic())

    def report_if_due(self, loop_side: LoopSide) -> None:
        """Have statistics read in the loop and reported, if they are due."""
        now = SystemClock.monotonic()
        if not self.is_on or now < self._due:
            return
        self._due = now + self._settings.statistics_s
        loop_side.run_soon(lambda: self._report(now, loop_side))

    def _report(self, now: float, loop_side: LoopSide) -> None:
        callback, text = self._settings.stats_cb, json.dumps(self._values(now, loop_side))
        self._reports.add(lambda: callback(text))

    def _values(self, now: float, loop_side: LoopSide) -> dict[str, Any]:
        reports, settings, producer = self._reports, self._settings, loop_side.producer
        client_id = settings.config.client_id
        totals: Mapping[str, float] = {} if producer is None else producer.metrics()
        brokers = {} if producer is None else producer.statistics().brokers
        return {
            "name": f"{client_id}#producer",
            "client_id": client_id,
            "type": "producer",
            "ts": int(now * 1_000_000),
            "time": int(time.time()),
            "age": int((now - self._begun) * 1_000_000),
            "replyq": 0,
            "msg_cnt": reports.count,
            "msg_size": reports.bytes,
            "msg_max": settings.max_records,
            "msg_size_max": settings.max_bytes,
            "simple_cnt": 0,
            **{name: int(totals.get(total, 0)) for name, total in _TOTALS.items()},
            "rxmsgs": 0,
            "rxmsg_bytes": 0,
            "connected": producer is not None,
            "brokers": {each["name"]: each for each in starmap(_broker, brokers.items())},
            "topics": {},
        }


def _broker(node: int, broker: BrokerStatistics) -> dict[str, Any]:
    address = f"{broker.host}:{broker.port}"
    return {
        "name": f"{address}/{node}",
        "nodeid": node,
        "nodename": address,
        "state": STATES[broker.state],
        "waitresp_cnt": broker.in_flight,
        "tx": broker.requests,
        "txbytes": broker.bytes_out,
        "rx": broker.responses,
        "rxbytes": broker.bytes_in,
        "rtt": {
            "avg": int(broker.latency_avg_ms * 1000),
            "max": int(broker.latency_max_ms * 1000),
        },
        "toppars": {},
    }
