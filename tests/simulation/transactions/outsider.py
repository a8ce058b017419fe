"""A process that decides about prepared transactions that other processes wrote.

Owns: their ends by `TransactionAdmin`: made again after errors, repeated later, asked for the other
way round. Not here: how they were prepared, what is right.

    asks whether it is prepared -> ends it until that has an outcome -> sometimes, when others may
    have gone on: ends it again, or tries the opposite
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    KafkaError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
)
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.transaction_admin import TransactionAdmin
from simulation.transactions.book import Outcome, TransactionEntry
from simulation.transactions.caller import Caller, GaveUpError
from simulation.transactions.context import RunContext
from simulation.transactions.line import Line
from simulation.transactions.protocol_checks import ClientProtocolChecks

if TYPE_CHECKING:
    from aioproducer.net.dial.dialer import Dialer
    from aioproducer.types import PreparedTransaction

_TRIES = 6
"""An answer that is wrong by a fault comes three times at most."""
_AGAIN_S = 0.2


class SimAdmin(TransactionAdmin):
    """The production one, given the run's network and chance."""

    def __init__(self, config: ProducerConfig, dialer: Dialer, rng: random.Random) -> None:
        super().__init__(config)
        self._dialer = dialer
        self._rng = rng

    def _new_client(self) -> CoordinatorClient:
        return CoordinatorClient(self._config, dialer=self._dialer, rng=self._rng)


class Outsider:
    """Decides about one prepared transaction.

    Args:
        context: The run it belongs to.
        tx: What the books say of it.
        prepared: What its process has handed over.
        commit: The decision.
        alone: Whether no other process decides at the same time.
    """

    def __init__(
        self,
        context: RunContext,
        tx: TransactionEntry,
        prepared: PreparedTransaction,
        *,
        commit: bool,
        alone: bool,
    ) -> None:
        self._context = context
        self._tx = tx
        self._prepared = prepared
        self._commit = commit
        self._alone = alone
        self._loop = context.loop
        self._rng = context.chance_of(f"outsider {tx.number}")
        config = context.config_without_id()
        name, complain = f"the outsider of {tx.label}", context.book.complaints.append
        block = 2 * config.max_block_ms / 1000  # an end that is refused makes a second question
        self._caller = Caller(name, block, self._rng, context.ledger, context.trace)
        identity = ProducerIdentity(prepared.producer_id, prepared.epoch)
        backoff_s = config.retry_backoff_ms / 1000
        checks = ClientProtocolChecks(name, context.cluster, complain, backoff_s, identity)
        self._on_call = checks.on_call
        self._admin = SimAdmin(config, Line(context.network, checks.watch), self._rng)

    async def decide(self) -> None:
        """Ends it, with luck; and comes back to it later."""
        await asyncio.sleep(self._rng.choice((0.0, 0.01, 0.3, 1.0)))
        async with self._admin:
            if self._alone and self._rng.random() < 0.3:
                await self._ask()
            known = await self._until_decided()
        if known:
            # A connection that is kept would make a late decision no different from the first.
            later = asyncio.ensure_future(self._come_back())
            self._context.attend(later)

    async def _until_decided(self) -> bool:
        """Return whether there is an outcome, known or lost for good."""
        for _ in range(_TRIES):
            try:
                await self._end(commit=self._commit)
            except PreparedTransactionUnknownError:
                if self._alone:
                    self._tx.lose(self._loop.time())
                return False
            except GaveUpError:
                return False
            except KafkaError as error:
                self._context.trace(f"{self._tx.label} is not ended yet: {error!r}")
            else:
                return True
            await asyncio.sleep(_AGAIN_S)
        return False

    async def _come_back(self) -> None:
        """Late decisions get the outcome of the first one, and change nothing that came after."""
        rng = self._rng
        async with self._admin:
            for commit in (self._commit, not self._commit):
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.choice((0.02, 0.2, 1.0, 3.0)))
                    try:
                        await self._end(commit=commit)
                    except KafkaError as error:
                        self._context.trace(f"{self._tx.label} was left alone: {error!r}")

    async def _end(self, *, commit: bool) -> None:
        """End the transaction, and check the outcome that the call reports."""

        async def finish() -> None:
            self._on_call()
            await self._admin.finish(self._prepared, commit=commit)

        tx, was_open = self._tx, self._tx.outcome is Outcome.UNREPORTED
        try:
            await self._caller.call("finish", finish)
        except PreparedTransactionEndedError as error:
            self._context.trace(f"{tx.label} has ended otherwise: {error}")
            tx.report(Outcome.REFUSED if commit else Outcome.COMMITTED)
            if was_open and self._alone:
                tx.lose(self._loop.time())
        else:
            self._context.trace(f"{tx.label} is ended from outside, commit={commit}")
            if not self._prepared.empty:
                tx.report(Outcome.COMMITTED if commit else Outcome.ABORTED)

    async def _ask(self) -> None:
        answers: list[bool] = []

        async def ask() -> None:
            self._on_call()
            answers.append(await self._admin.still_prepared(self._prepared))

        try:
            await self._caller.call("still_prepared", ask)
        except KafkaError as error:
            self._context.trace(f"it is unknown whether {self._tx.label} is prepared: {error!r}")
        if answers and not answers[-1]:
            self._tx.lose(self._loop.time())
