"""HTTP requests that are sent when they are due, over connections that stay open.

Owns: just enough of HTTP/1.1 to post and to see the answer's status. Not here: what is posted,
what the figures mean; the pace is `bench.pacing`'s.

    python -m bench.http_load '{"port": 8000, "rate": 2000, "count": 40000, "connections": 64}'

A request that is due while all connections are busy waits for one; its latency counts from when it
was due.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any

from bench.pacing import paced
from bench.workers import arguments, new_runner, tell

if TYPE_CHECKING:
    from bench.clients import Pair

SUBJECTS = 1_000
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def request(number: int) -> bytes:
    """An event of some 100 bytes, as `POST /events`."""
    event = {"type": "clicked", "subject": f"user-{number}", "data": {"text": "x" * 40}}
    body = json.dumps(event).encode()
    head = (
        "POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def requests() -> Iterator[Pair]:
    return ((made, None) for made in cycle([request(number) for number in range(SUBJECTS)]))


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: HttpLoad) -> None:
        self._load = load
        self._received = b""
        self._finish: Callable[[], None] | None = None
        self._transport: Any = None  # uvloop's is no asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self, data: bytes, finish: Callable[[], None]) -> None:
        self._finish = finish
        if self._transport is not None:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_END)
        if not end:
            return
        lower = head.lower()
        at = lower.index(_LENGTH) + len(_LENGTH)
        if len(body) < int(lower[at:].split(b"\r\n", 1)[0]):
            return
        self._received = b""
        finish, self._finish = self._finish, None
        if finish is not None:
            self._load.answered(self, int(head[9:12]), finish)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += self._finish is not None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class HttpLoad:
    """The connections with which `paced` sends requests."""

    def __init__(self) -> None:
        self.refused = 0
        self.lost = 0
        self._idle: deque[Connection] = deque()
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()

    async def connect(self, port: int, connections: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, made = await loop.create_connection(lambda: Connection(self), "127.0.0.1", port)
            self._idle.append(made)

    def fire(self, pair: Pair, finish: Callable[[], None]) -> Coroutine[None, None, None] | None:
        data, _ = pair
        if self._idle:
            self._idle.popleft().send(data, finish)
        else:
            self._waiting.append((data, finish))
        return None

    def answered(self, connection: Connection, status: int, finish: Callable[[], None]) -> None:
        self.refused += status != 201
        finish()
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


async def main(port: int, rate: float, count: int, connections: int) -> None:
    load = HttpLoad()
    await load.connect(port, connections)
    found = await paced(load, requests(), rate, count)
    load.close()
    tell("latencies", seconds=found, refused=load.refused, lost=load.lost)


if __name__ == "__main__":
    with new_runner() as runner:
        runner.run(main(**arguments()))
