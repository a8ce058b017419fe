"""The driver's requests for a micro-batch that is written exactly once, as its page has them.

On virtual time, with three brokers and two tasks; connections are kept between calls, as `CALLERS`
keeps them.
"""

from __future__ import annotations

import random
import re
from collections import Counter

from support.pages import page
from support.stage import Stage, play
from support.two_phase import PREFIX, TOPIC, Process, Query, Worker, rows_of

from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.exactly_once.attempts import TaskResult
from aioproducer.spark.exactly_once.ledger import Ledger
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.wire.api_keys import ApiKey

TASKS, EPOCHS = 2, 10


class Counting(Process):
    """Counts its requests."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.requests: Counter[str] = Counter()

    def sent(self, data: bytes) -> None:
        """Notes the kind of a request."""
        key = int.from_bytes(bytes(data[4:6]), "big")
        self.requests["".join(each.title() for each in ApiKey(key).name.split("_"))] += 1


class Costs(Query):
    """A query whose plans and commits are counted."""

    async def counts(self) -> dict[str, Counter[str]]:
        """The requests of each micro-batch's plan and commit, which are always the same."""
        self._calm = True
        self._workers = [Worker(self._stage, self.rng)]
        driver = Counting(self._stage)
        client = CoordinatorClient(self._config, dialer=driver.line, rng=random.Random(2))
        found: list[dict[str, Counter[str]]] = []
        for epoch in range(EPOCHS):
            driver.requests.clear()
            async with Ledger(self._config, PREFIX, TOPIC, client) as ledger:
                plan = await TwoPhaseCommit(ledger).plan()
            counts = {"plan": Counter(driver.requests)}
            results: list[TaskResult | None] = [
                await self._attempt(self._workers[0], plan, epoch, n, rows_of(epoch)[n::TASKS])
                for n in range(TASKS)
            ]
            driver.requests.clear()
            async with Ledger(self._config, PREFIX, TOPIC, client) as ledger:
                await TwoPhaseCommit(ledger).commit(epoch, results)
            found.append(counts | {"commit": Counter(driver.requests)})
        await client.close()
        assert all(each == found[-1] for each in found[2:])  # connected, and with a past
        return found[-1]


def of_the_page() -> dict[str, Counter[str]]:
    rows = re.findall(
        r"^\| (plan|commit) \| (\d+) \| (.*) \|$", page("aioproducer/spark/EXACTLY_ONCE.md"), re.M
    )
    found = {}
    for call, total, text in rows:
        kinds = re.findall(r"(\d+) `(\w+)`", text)
        found[call] = Counter({name: int(count) for count, name in kinds})
        assert found[call].total() == int(total)
    return found


def test_a_micro_batch_takes_the_requests_of_the_page() -> None:
    async def act(stage: Stage) -> dict[str, Counter[str]]:
        return await Costs(stage, 1, 2).counts()

    limits = {"max_block_ms": 8000, "request_timeout_ms": 3000, "delivery_timeout_ms": 20_000}
    found = play(act, brokers=3, **limits)
    assert found == of_the_page()
