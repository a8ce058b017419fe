"""The transactional client that runs through the faults, here or in a separate process.

Owns: what a transaction consists of, what a careful application does about each error. Not here:
faults, the verdict.

Every transaction has 1 to 40 records over all partitions; half of them also move the position of a
consumer group, and each tenth is aborted on purpose. A call that ran out of time is repeated. What
is abortable is aborted; after a fatal error a new producer with the same transactional id goes on.

    python -m support.transactions.client '{"topic": ...}'

writes every event as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from aioproducer import Producer, TopicPartition
from aioproducer.errors import (
    FatalTransactionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFailedError,
    ProducerFencedError,
)
from support.transactions.history import State, value_of

FENCED_EXIT = 3
"""The exit code of a process whose producer was fenced."""
_ABORT_EVERY = 10
_LONGEST = 40
_FATAL = (FatalTransactionError, ProducerFailedError, ProducerFencedError)


class Phase(StrEnum):
    """The moments at which a fault may meet the client: each is announced before it begins."""

    INIT = "InitProducerId"
    BEGIN = "the first record"
    PRODUCE = "the middle of producing"
    OFFSETS = "send_offsets"
    COMMIT = "EndTxn (commit)"
    COMMITTED = "right after the commit"
    ABORT = "EndTxn (abort)"


@dataclass(frozen=True)
class Work:
    """The work of a client.

    Attributes:
        first: The number of its first transaction.
        transactions: How many it commits at least.
        reopen_every: After how many transactions it goes on with a new producer; 0 for never.
        stands_down: Whether a fenced client ends, instead of taking over again.
        call_timeout_s: How long a single call is repeated.
    """

    bootstrap_servers: str
    topic: str
    partitions: int
    group: str
    transactional_id: str
    first: int = 0
    transactions: int = 500
    reopen_every: int = 0
    stands_down: bool = False
    request_timeout_ms: int = 3_000
    transaction_timeout_ms: int = 60_000
    max_block_ms: int = 8_000
    call_timeout_s: float = 90.0


Report = Callable[[dict[str, Any]], None]
Pause = Callable[[Phase], Awaitable[None]]


class TransactionalClient:
    """Commits transactions until there are enough and no more are wanted.

    Args:
        work: What to do.
        report: Called with each event that `History.note` takes, as it happens.
        pause: Awaited before each phase.
        wanted: Whether more transactions are wanted although there are enough.
    """

    def __init__(
        self,
        work: Work,
        report: Report,
        pause: Pause,
        wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._work = work
        self._report = report
        self._pause = pause
        self._wanted = wanted
        self._producer: Producer | None = None
        self._number = work.first
        self.committed = 0
        self.producers = 0
        self.slowest_s = 0.0

    async def run(self) -> None:
        """Do the work.

        Raises:
            ProducerFencedError: By another client, if this one ends when it is fenced.
            KafkaTimeoutError: A call had no outcome within `call_timeout_s`.
        """
        try:
            while self.committed < self._work.transactions or self._wanted():
                began = time.monotonic()
                await self._one_more()
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        finally:
            await self._close()

    async def _one_more(self) -> None:
        try:
            producer = self._producer or await self._open()
            await self._transact(producer)
        except _FATAL as error:
            self._trouble(error)
            await self._close()
            if self._work.stands_down:
                raise
        if self._work.reopen_every and self._number % self._work.reopen_every == 0:
            await self._close()

    async def _open(self) -> Producer:
        work = self._work
        await self._pause(Phase.INIT)
        self.producers += 1
        producer = Producer(
            bootstrap_servers=work.bootstrap_servers,
            transactional_id=work.transactional_id,
            transaction_timeout_ms=work.transaction_timeout_ms,
            request_timeout_ms=work.request_timeout_ms,
            max_block_ms=work.max_block_ms,
            linger_ms=2,
        )
        self._producer = producer
        await producer.start(init_transactions=False)
        await self._insist(producer.init_transactions)
        return producer

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(0)

    async def _transact(self, producer: Producer) -> None:
        number, total = self._number, 1 + self._number * 7 % _LONGEST
        self._number += 1
        await self._pause(Phase.BEGIN)
        offsets = number % 2 == 0
        self._report({"kind": "begin", "number": number, "total": total, "offsets": offsets})
        try:
            deliveries = await self._fill(producer, number, total, offsets)
            if number % _ABORT_EVERY != _ABORT_EVERY - 1:
                await self._pause(Phase.COMMIT)
                self._move(number, State.COMMITTING)
                await self._insist(producer.commit_transaction)
                lost = sum(each.exception() is not None for each in deliveries)
                self._move(number, State.COMMITTED, lost)
                self.committed += 1
                await self._pause(Phase.COMMITTED)
                return
        except _FATAL:
            raise
        except KafkaError as error:
            self._trouble(error)
        await self._pause(Phase.ABORT)
        await self._insist(producer.abort_transaction)
        self._move(number, State.ABORTED)

    async def _fill(self, producer: Producer, number: int, total: int, offsets: bool) -> list[Any]:
        work = self._work
        await self._insist(producer.begin_transaction)
        deliveries = []
        for turn in range(total):
            if turn == total // 2:
                await producer.flush()
                await self._pause(Phase.PRODUCE)
            value, partition = value_of(number, turn, total), (number + turn) % work.partitions
            deliveries.append(await producer.send(work.topic, value, partition=partition))
        if offsets:
            await self._pause(Phase.OFFSETS)
            position = {TopicPartition(work.topic, 0): number + 1}
            await producer.send_offsets_to_transaction(position, work.group)
        return deliveries

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeats a call that ran out of time, as its error advises."""
        end = time.monotonic() + self._work.call_timeout_s
        while True:
            try:
                return await call()
            except KafkaTimeoutError as error:
                self._trouble(error)
                if time.monotonic() > end:
                    raise

    def _move(self, number: int, state: State, lost: int = 0) -> None:
        self._report({"kind": "move", "number": number, "state": state.value, "lost": lost})

    def _trouble(self, error: KafkaError) -> None:
        cause = error.__cause__
        because = f" ({type(cause).__name__})" if cause is not None else ""
        self._report({"kind": "trouble", "reason": f"{type(error).__name__}{because}"})


def command(work: Work) -> list[str]:
    """Return the command that runs a client in a separate process."""
    return [sys.executable, "-m", __name__, json.dumps(asdict(work))]


def _report(event: dict[str, Any]) -> None:
    # Unbuffered, so that everything that was reported survives a kill.
    sys.stdout.buffer.write(json.dumps(event).encode() + b"\n")
    sys.stdout.buffer.flush()


async def _announce(phase: Phase) -> None:
    _report({"kind": "phase", "phase": phase.value})


def main() -> int:
    client = TransactionalClient(Work(**json.loads(sys.argv[1])), _report, _announce)
    try:
        asyncio.run(client.run())
    except ProducerFencedError:
        return FENCED_EXIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
