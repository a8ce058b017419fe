"""Writes librdkafka.jsonl: record batches as librdkafka builds them, with what went into them.

Rerun: `python golden_librdkafka.py > librdkafka.jsonl` where confluent-kafka is installed. Its
producer writes to librdkafka's own mock cluster (reached through ctypes), from which the batches
are fetched back raw: the mock sets the base offset and changes nothing else.
"""

from __future__ import annotations

import ctypes
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import confluent_kafka

T = 1_700_000_000_000

Row = tuple[int, list[Any] | None, list[Any] | None, list[list[Any]]]


def blob(unit: str | bytes, times: int = 1) -> list[Any]:
    """Bytes, written as the hex of a unit and how often it is repeated."""
    return [(unit.encode() if isinstance(unit, str) else unit).hex(), times]


def unblob(pair: list[Any] | None) -> bytes | None:
    return None if pair is None else bytes.fromhex(pair[0]) * pair[1]


def several_blocks() -> list[Row]:
    """More than one block of xerial's snappy (32 KiB) and of lz4 (64 KiB)."""
    return [
        (T + i, blob(f"key-{i}"), blob(f"flight {i} departs; ", 250), [["n", blob(str(i))]])
        for i in range(30)
    ]


def small() -> list[Row]:
    return [(T, blob("k"), blob("a", 300), []), (T + 1, None, blob("b", 300), [["h", None]])]


CASES: list[tuple[str, dict[str, Any], list[Row]]] = [
    ("one record", {}, [(T, blob("key"), blob("value"), [])]),
    (
        "nulls and empties",
        {},
        [
            (T, None, None, []),
            (T, blob(""), blob(""), []),
            (T, None, blob(""), []),
            (T, blob(""), None, []),
        ],
    ),
    (
        "headers: duplicate, null, empty, unicode",
        {},
        [
            (
                T,
                None,
                blob("v"),
                [
                    ["a", blob("1")],
                    ["a", blob("2")],
                    ["n", None],
                    ["e", blob("")],
                    ["Zürich ✈ 🚀", blob(bytes(range(256)))],
                ],
            ),
            (T, None, blob("w"), []),
        ],
    ),
    (
        "timestamps back and forth",
        {},
        [(T + d, None, blob("v"), []) for d in (0, -86_400_000, 10**12, 63, -64, 64)],
    ),
    (
        "lengths at the borders of varints",
        {},
        [
            (T, blob("k", key), blob("v", value), [])
            for key, value in ((63, 64), (64, 8191), (8191, 8192), (1, 40), (1, 56), (1, 57))
        ],
    ),
    ("offsets of two bytes", {}, [(T + i * 50, None, blob("v"), []) for i in range(130)]),
    ("idempotent", {"enable.idempotence": True}, small()),
    *(
        (f"{codec} {size}", {"compression.type": codec}, rows)
        for codec in ("gzip", "snappy", "lz4", "zstd")
        for size, rows in (("small", small()), ("several blocks", several_blocks()))
    ),
]


def mock_cluster() -> str:
    """Start librdkafka's mock cluster for the life of this process; returns its address."""
    [path] = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob(
        "librdkafka*.so*"
    )
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    client = library.rd_kafka_new(0, None, None, ctypes.c_size_t(0))
    cluster = library.rd_kafka_mock_cluster_new(ctypes.c_void_p(client), 1)
    address: bytes = library.rd_kafka_mock_cluster_bootstraps(ctypes.c_void_p(cluster))
    return address.decode()


def produce(address: str, topic: str, options: dict[str, Any], rows: list[Row]) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 500, "log_level": 0, **options}
    )
    for timestamp, key, value, headers in rows:
        producer.produce(
            topic,
            unblob(value),
            unblob(key),
            partition=0,
            timestamp=timestamp,
            headers=[(name, unblob(content)) for name, content in headers],
        )
    if producer.flush(30):
        raise RuntimeError(f"{topic} was not delivered")


def fetch(address: str, topic: str) -> bytes:
    """The topic's log from offset 0, by a Fetch request of version 4."""
    name = topic.encode()
    request = struct.pack(">hhih", 1, 4, 1, -1)
    request += struct.pack(">iiiib", -1, 100, 1, 1 << 24, 0)
    request += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, 1 << 24)
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        response = stream.read(int.from_bytes(stream.read(4), "big"))
    # correlation id, throttle time, one topic and its name, one partition: index, error, three
    # offsets and the count of aborted transactions come before the records.
    position = 4 + 4 + 4 + 2 + len(name) + 4 + 4
    error, _, _, aborted = struct.unpack_from(">hqqi", response, position)
    if error or aborted > 0:
        raise RuntimeError(f"{topic} cannot be fetched: error {error}, {aborted} aborted")
    [size] = struct.unpack_from(">i", response, position + 22)
    return response[position + 26 : position + 26 + size]


def main() -> None:
    address = mock_cluster()
    for number, (name, options, rows) in enumerate(CASES):
        topic = f"golden-{number}"
        produce(address, topic, options, rows)
        batch = fetch(address, topic)
        producer_id, epoch, sequence = struct.unpack_from(">qhi", batch, 43)
        case = {
            "name": name,
            "codec": options.get("compression.type", "none"),
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "transactional": False,
            "log_append_time": None,
            "base_offset": 0,
            "leader_epoch": struct.unpack_from(">i", batch, 12)[0],
            "records": rows,
            "batch": batch.hex(),
        }
        sys.stdout.write(json.dumps(case, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
