"""Whatever brokers answer and applications call: no commit after a loss, no stale epoch, no end."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.actions import Dispatch
from aioproducer.core.transactions.operations import Operation, OperationKind
from aioproducer.core.transactions.requests import TransactionalRequest
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TRANSITIONS, TransactionState
from aioproducer.errors import (
    IllegalStateError,
    NodeDisconnectedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata
from aioproducer.wire.messages.transactions import EndTxnRequest

from .transaction_stage import T0, Stage

S = TransactionState
CALLS = [kind for kind in OperationKind if kind is not OperationKind.INIT]
OPEN = {S.IN_TRANSACTION, S.PREPARED, S.ABORTABLE_ERROR}
GROUP = ConsumerGroupMetadata("group")
PASSING = (0, 0, 0, 0, 14, 15, 16, 51)
"""Codes for coordinators: success, or what goes away by itself."""
FOR_BATCHES = (*[0] * 40, 6, 19, 45, 51, 87, 120)
STEPS = 250


class Play:
    """The application, two coordinators and a broker, each doing what `rng` says."""

    def __init__(self, level: int, rng: random.Random) -> None:
        self.rng = rng
        self.stage = Stage(level, delivery_timeout=20.0).ready()
        self.manager = self.stage.manager
        self.requests: list[TransactionalRequest] = []
        self.dispatches: list[Dispatch] = []
        self.batches: list[ProducerBatch] = []
        self.refused = False
        self.commit_was_asked = False
        self.operations: list[Operation] = []
        self.commits = 0
        self.failures = 0

    def step(self) -> None:
        """Do one step; some steps are drawn more often than others."""
        state, rng = self.manager.state, self.rng
        actions: list[tuple[float, Callable[[], None]]] = [
            (6, self.sender_has_a_turn),
            (4, self.requests_something),
            (2, self.time_passes),
            (0.3, lambda: self.call(rng.choice(CALLS))),
            (0.05, lambda: self.stage.core.sequencer.on_recreated("t")),
        ]
        if state is S.READY:
            actions.append((4, lambda: self.call(OperationKind.BEGIN)))
        if state in OPEN:
            end = rng.choice([OperationKind.COMMIT, OperationKind.COMMIT, OperationKind.ABORT])
            actions.append((1.5, lambda: self.call(end)))
        if state is S.IN_TRANSACTION:
            actions += [
                (4, self.sends),
                (0.5, lambda: self.call(OperationKind.SEND_OFFSETS)),
                (0.4, lambda: self.call(OperationKind.PREPARE)),
            ]
        if state in {S.IN_TRANSACTION, S.PREPARED, S.COMMITTING} and not self.manager.is_prepared:
            actions.append((0.1, self.sends_too_much))
        if self.dispatches:
            actions += [(4, self.broker_answers), (0.2, self.broker_is_lost)]
        if self.requests:
            actions += [(4, self.coordinator_answers), (0.3, self.coordinator_is_lost)]
        weights, choices = zip(*actions, strict=True)
        rng.choices(choices, weights)[0]()
        self.sees_outcomes()
        self.state_follows_the_table(state)

    # -- the application -------------------------------------------------------------------------

    def call(self, kind: OperationKind) -> None:
        before = self.manager.state
        try:
            match kind:
                case OperationKind.BEGIN:
                    operation = self.manager.begin(self.stage.level)
                case OperationKind.PREPARE:
                    operation = self.manager.prepare()
                case OperationKind.COMMIT:
                    operation = self.manager.commit()
                case OperationKind.ABORT:
                    operation = self.manager.abort()
                case _:
                    operation = self.manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP)
        except (IllegalStateError, TransactionAbortableError):
            assert self.manager.state is before
            return
        if kind is not OperationKind.SEND_OFFSETS and operation not in self.operations:
            self.operations.append(operation)

    def sees_outcomes(self) -> None:
        for operation in [each for each in self.operations if each.done]:
            self.manager.on_seen(operation)
            self.operations.remove(operation)
            if operation.error is not None:
                continue
            if operation.kind in {OperationKind.PREPARE, OperationKind.COMMIT}:
                self.commits += operation.kind is OperationKind.COMMIT
                assert not self.refused
                assert all(batch.done and batch.record_error(0) is None for batch in self.batches)
            if operation.kind in {OperationKind.COMMIT, OperationKind.ABORT}:
                assert operation.kind is OperationKind.COMMIT or not self.commit_was_asked
                self.batches, self.refused, self.commit_was_asked = [], False, False

    def sends(self) -> None:
        batch = self.stage.core.append(self.rng.randrange(2))
        if batch not in self.batches:
            self.batches.append(batch)

    def sends_too_much(self) -> None:
        self.manager.on_send_refused(self.manager.number, RecordTooLargeError("big"))
        self.refused |= not self.commit_was_asked

    # -- brokers and network ---------------------------------------------------------------------

    def sender_has_a_turn(self) -> None:
        for dispatch in self.stage.core.poll():
            for batch in dispatch.batches:
                # Stamped with what holds now, in a transaction that is still open.
                assert (batch.producer_id, batch.producer_epoch) == self.manager.identity
                assert self.manager.state in {S.IN_TRANSACTION, S.PREPARED, S.COMMITTING}
            self.dispatches.append(dispatch)

    def broker_answers(self) -> None:
        dispatch = self.dispatches.pop(self.rng.randrange(len(self.dispatches)))
        self.stage.core.answer(dispatch, self.rng.choice(FOR_BATCHES))

    def broker_is_lost(self) -> None:
        dispatch = self.dispatches.pop(0)
        error = NodeDisconnectedError("gone")
        self.stage.core.sender.on_failure(1, dispatch.batches, error, self.stage.core.now)

    def requests_something(self) -> None:
        request = self.stage.next_request()
        if request is None:
            return
        assert not self.requests, "two requests at a time"
        self.stage.send(request)
        self.requests.append(request)
        message = self.stage.message(request)
        if isinstance(message, EndTxnRequest):
            assert not self.dispatches, "a batch may arrive after the end"
            assert (message.producer_id, message.producer_epoch) == self.manager.identity
            if message.committed:
                self.commit_was_asked = True
                assert not self.refused
                assert all(batch.done for batch in self.batches)
                assert all(batch.record_error(0) is None for batch in self.batches)

    def coordinator_answers(self) -> None:
        self.stage.respond(self.requests.pop(), self.rng.choice(PASSING))

    def coordinator_is_lost(self) -> None:
        self.stage.lose(self.requests.pop())

    def time_passes(self) -> None:
        self.stage.wait(21.0 if self.rng.random() < 0.01 else self.rng.choice([0.01, 0.2, 1.0]))

    # -- what holds ------------------------------------------------------------------------------

    def state_follows_the_table(self, before: TransactionState) -> None:
        assert self.manager.state is not S.FATAL_ERROR, self.manager.error
        if before is not self.manager.state is S.ABORTABLE_ERROR:
            self.failures += 1
        reachable = {before}
        for _ in range(3):  # One event may have several consequences.
            reachable |= {target for state in reachable for target in TRANSITIONS[state]}
        assert self.manager.state in reachable

    def all_is_well(self) -> None:
        """Once all brokers behave, every wait ends and the producer goes on."""
        stage, manager = self.stage, self.manager
        for dispatch in self.dispatches:
            stage.core.acknowledge(dispatch)
        for request in self.requests:
            stage.respond(request)
        for operation in self.operations:
            try:
                stage.wait()
                stage.done(operation)
            except TransactionAbortableError:
                pass
        if manager.state in OPEN:
            stage.wait()
            stage.done(manager.abort())
        stage.wait()
        stage.begin()
        batch = stage.core.append()
        stage.done(manager.commit())
        assert batch.record_error(0) is None
        assert Rpc.END in stage.sent


@settings(max_examples=100)
@given(level=st.sampled_from([1, 2]), seed=st.integers(0, 2**32))
def test_whatever_happens_no_loss_is_committed_and_life_goes_on(level: int, seed: int) -> None:
    play = Play(level, random.Random(seed))
    for _ in range(STEPS):
        play.step()
    play.all_is_well()


@pytest.mark.parametrize("level", [1, 2])
def test_the_play_has_commits_and_failures(level: int) -> None:
    plays = [Play(level, random.Random(seed)) for seed in range(30)]
    for play in plays:
        for _ in range(STEPS):
            play.step()
    assert sum(play.commits for play in plays) > 15
    assert sum(play.failures for play in plays) > 5
