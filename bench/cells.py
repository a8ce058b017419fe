"""The measured cells: clients, ways to send, and the matrix of both.

Owns: which combinations exist, how many records each gets, which belong to which section. Not
here: how a cell is run.

A cell is one point: a client, its way to send (mode), the server, record size, compression,
partitions, keyed or not, tuning, and what each record goes through besides (extra). `common` tuning
is linger 5 ms, batches of 128 KiB; `own` is what the client does by default. Idempotence and
acks=all are asked for in either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

LINGER_MS = 5
BATCH_BYTES = 128 << 10
TASKS = 1_000
RATE = 1_000
TURN_RECORDS = 500
FILL_TOPICS, FILL_PARTITIONS, FILL_RATE = 100, 12, 50_000
KNOWN_MANY, KNOWN_FEW = 10_000, 10
MANY_TOPICS = 5_000
EXTRAS: Mapping[str, str] = {
    "": "",
    "topics": f"round robin over {MANY_TOPICS:,} topics",
    "partitioner": "a partitioner in Python",
    "interceptor": "a function called before each record and one for its outcome",
    "serializer": "a serializer in Python",
    "headers": "two headers",
}
"""What a record has, or goes through, besides the usual."""


@dataclass(frozen=True, slots=True)
class Client:
    """A program that sends.

    Attributes:
        module: Its adapter in `bench.clients`; "" for a program of another kind.
        loop: The event loop it runs on.
        core: What `AIOPRODUCER_IMPL` is set to.
        modes: The ways it has to send many records.
    """

    module: str
    modes: tuple[str, ...]
    loop: str = "asyncio"
    core: str = "native"


_OURS = ("each", "dropped", "gather", "tasks", "many", "arrow")
_ASYNC = ("each", "dropped", "gather", "tasks")
CLIENTS: Mapping[str, Client] = {
    "aioproducer": Client("ours", _OURS),
    "aioproducer-uvloop": Client("ours", _OURS, loop="uvloop"),
    "aioproducer-pure": Client("ours", _OURS[:-1], core="pure"),
    "aiokafka": Client("aiokafka_client", _ASYNC),
    "confluent": Client("confluent", ("each", "dropped")),
    "confluent-aio": Client("confluent_aio", _ASYNC),
    "kafka-python": Client("kafka_python", ("each", "dropped")),
    "java": Client("", ("each",)),
    "streams": Client("streams", ()),
}
MODES: Mapping[str, str] = {
    "each": "await send() in a loop, then every delivery, one by one (callbacks where that is all)",
    "dropped": "send in a loop, ignore the deliveries, flush()",
    "gather": "await send() in a loop, then asyncio.gather(*deliveries)",
    "tasks": f"{TASKS:,} tasks, each send_and_wait() in a loop",
    "many": "send_many(), one result",
    "arrow": "send_arrow() of a table that is in memory",
    "latency": f"send_and_wait() at {RATE:,}/s, linger 0, counted from when each was due",
    "fill": f"{FILL_TOPICS} topics x {FILL_PARTITIONS} partitions, {FILL_RATE:,} records/s",
    "active": "send() to ten given partitions of a topic, then every delivery",
}

_BY_CLIENT = {
    "aiokafka": 120_000,
    "confluent-aio": 120_000,
    "kafka-python": 60_000,
    "aioproducer-pure": 150_000,
}
_BY_MODE = {
    "each": 800_000,
    "dropped": 800_000,
    "gather": 200_000,
    "tasks": 200_000,
    "many": 1_200_000,
    "arrow": 2_400_000,
    "latency": 36 * TURN_RECORDS,
    "fill": 3 * FILL_RATE,
    "active": 400_000,
}
_BY_BOTH = {("confluent-aio", "latency"): 6 * TURN_RECORDS}
"""Records of 100 bytes that take about one or two seconds; the smallest number counts. Those of
latency are whole turns, for each of which AIOProducer takes seconds."""

_SHARE_BY_SIZE = {100: 1.0, 1_024: 0.4, 10_240: 0.06}
_SHARE_SPREAD_THIN = 0.1
"""With thousands of partitions a batch holds a record or two."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One point of the matrix; its `key` names it in results."""

    client: str
    mode: str
    server: str = "kafka"
    size: int = 100
    codec: str = "none"
    partitions: int = 6
    keyed: bool = False
    tuning: str = "common"
    extra: str = ""

    @property
    def turns(self) -> int:
        """The number of turns of a run; with more than one, the clients of a round alternate."""
        return self.records // TURN_RECORDS if self.mode == "latency" else 1

    @property
    def key(self) -> str:
        keyed = "keyed" if self.keyed else "unkeyed"
        parts = (self.client, self.mode, self.server, f"{self.size}B", self.codec)
        extra = [self.extra] if self.extra else []
        return "/".join((*parts, f"{self.partitions}p", keyed, self.tuning, *extra))

    @property
    def topics(self) -> int:
        """The number of topics that the records go to."""
        if self.extra == "topics":
            return MANY_TOPICS
        return FILL_TOPICS if self.mode == "fill" else 1

    @property
    def records(self) -> int:
        """The number of records to send."""
        most = _BY_MODE[self.mode]
        most = min(
            most,
            _BY_CLIENT.get(self.client, most),
            _BY_BOTH.get((self.client, self.mode), most),
        )
        spread_thin = self.partitions == KNOWN_MANY and self.mode != "active"
        spread_thin = spread_thin or self.extra == "topics"
        return int(most * _SHARE_BY_SIZE[self.size] * (_SHARE_SPREAD_THIN if spread_thin else 1))


def _of(clients: Iterable[str], modes: Iterable[str], **facts: object) -> list[Cell]:
    wanted = list(modes)
    return [
        replace(Cell(client, mode), **facts)  # type: ignore[arg-type]
        for mode in wanted
        for client in clients
        if mode in CLIENTS[client].modes
    ]


_FAST = ("aioproducer", "aioproducer-uvloop")
_PEERS = ("aiokafka", "confluent", "confluent-aio", "kafka-python", "java")
_ALL = (*_FAST, "aioproducer-pure", *_PEERS)


def _cost() -> list[Cell]:
    return [
        *_of(_ALL, ["each"]),
        *_of((*_FAST, "confluent"), ["dropped"]),
        *_of((*_FAST, "aiokafka", "confluent-aio"), ["gather", "tasks"]),
        *_of(_FAST, ["many", "arrow"]),
    ]


def _sink() -> list[Cell]:
    clients = ("aioproducer", "aiokafka", "confluent", "java")
    return _of(clients, ["each", "dropped", "arrow"], server="sink")


def _own() -> list[Cell]:
    return _of(("aioproducer", *_PEERS), ["each"], tuning="own")


def _latency() -> list[Cell]:
    clients = (*_FAST, "streams", "aiokafka", "confluent", "confluent-aio")
    return [Cell(client, "latency", partitions=1) for client in clients]


def _fill() -> list[Cell]:
    return [
        Cell(client, "fill", server="sink", partitions=FILL_PARTITIONS)
        for client in ("aioproducer", "java")
    ]


def _known() -> list[Cell]:
    return [
        Cell("aioproducer", "active", server="embedded", partitions=count)
        for count in (KNOWN_MANY, KNOWN_FEW)
    ]


_SPREAD: dict[str, Any] = {"server": "sink", "partitions": 1}
"""For thousands of topics, which take Kafka minutes to create."""


def _extras() -> list[Cell]:
    clients = ("aioproducer", "aiokafka", "confluent")
    return [
        Cell(client, "each", extra=extra, **_SPREAD if extra == "topics" else {})
        for extra in EXTRAS
        if extra
        for client in clients
    ]


def _matrix() -> list[Cell]:
    """Every size, codec, number of partitions, keyed or not, against both servers."""
    points = itertools.product(
        ("kafka", "sink"), (100, 1_024, 10_240), ("none", "lz4", "zstd"), (1, 100, 10_000)
    )
    cells = []
    for server, size, codec, partitions in points:
        facts = {"server": server, "size": size, "codec": codec, "partitions": partitions}
        cells += _of(_ALL, ["each"], **facts)
        cells += _of(("aioproducer", "confluent"), ["dropped"], **facts)
        cells += _of(("aioproducer",), ["many", "arrow"], **facts)
    # Java's tool sends no keys.
    keyed = [replace(cell, keyed=True) for cell in cells if cell.client != "java"]
    return cells + keyed


def _shapes() -> list[Cell]:
    """One step from the common cell in each direction."""
    steps: list[dict[str, object]] = [
        {"size": 1_024},
        {"size": 10_240},
        {"codec": "lz4"},
        {"codec": "zstd"},
        {"keyed": True},
    ]
    clients = ("aioproducer", "aiokafka", "confluent")
    return [cell for facts in steps for cell in _of(clients, ["each"], **facts)]


ESSENTIAL: Mapping[str, list[Cell]] = {
    "cost": _cost(),
    "latency": _latency(),
    "sink": _sink(),
    "fill": _fill(),
    "known": _known(),
    "extras": _extras(),
}
"""The sections of `make bench`: what the bars need."""

FULL: Mapping[str, list[Cell]] = ESSENTIAL | {
    "own": _own(),
    "shapes": _shapes(),
    "matrix": _matrix(),
}
"""Those of `make bench-full`."""


def select(sections: Mapping[str, list[Cell]], words: Iterable[str]) -> list[Cell]:
    """Return the cells that these words name, each once, in order.

    Words of one kind (sections, clients, modes) add up, words of different kinds narrow down:
    `cost latency aiokafka` is both sections for one client. No words: everything. An unknown word
    raises ValueError.
    """
    asked = set(words)
    if unknown := asked.difference(FULL, CLIENTS, MODES):
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    by_section, by_client = asked & set(FULL), asked & set(CLIENTS)
    by_mode = asked - by_section - by_client  # `latency` and `fill` are sections first
    found = [
        cell
        for name, cells in (FULL if by_section else sections).items()
        if not by_section or name in by_section
        for cell in cells
        if (not by_client or cell.client in by_client) and (not by_mode or cell.mode in by_mode)
    ]
    return list(dict.fromkeys(found))
