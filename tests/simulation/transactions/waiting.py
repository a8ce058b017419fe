"""Rules for the transactions of a producer that hold whenever it waits.

Owns: what must be true of one transactional producer at an idle moment. Not here: when it is
checked, see `simulation.liveness`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aioproducer.core.transactions.operations import OperationKind
from aioproducer.core.transactions.states import TransactionState

if TYPE_CHECKING:
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.runtime.engine import ProducerEngine

_S = TransactionState
_ABORTED = frozenset({_S.ABORTING, _S.ABORTABLE_ERROR})
_MAY_COMMIT = frozenset({_S.IN_TRANSACTION, _S.COMMITTING})
_WAITS_IN: Mapping[OperationKind, frozenset[TransactionState]] = {
    OperationKind.INIT: frozenset({_S.INITIALIZING}),
    OperationKind.BEGIN: frozenset({_S.INITIALIZING, _S.ABORTING}),
    OperationKind.PREPARE: frozenset({_S.PREPARED}),
    OperationKind.COMMIT: frozenset({_S.COMMITTING}),
    OperationKind.ABORT: frozenset({_S.ABORTING}),
}


def broken_in_transactions(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield what does not fit the state of a waiting producer's transaction."""
    if engine.transactions is None:
        return
    manager = engine.transactions.manager
    for rule in _RULES:
        for text in rule(engine, manager):
            yield f"the producer is {manager.state.value}, and {text}"


def _keeps_what_is_aborted(engine: ProducerEngine, manager: TransactionManager) -> Iterator[str]:
    """Additions of an aborted transaction, and its records that were never sent."""
    if manager.state not in _ABORTED:
        return
    if manager.contents.has_additions:
        yield "has additions"
    for batch in engine.accumulator.incomplete():
        if not batch.pins and not batch.has_sequence:
            yield f"a batch of {batch.topic_partition} that was not sent waits"


def _gate_is_wrong(engine: ProducerEngine, manager: TransactionManager) -> Iterator[str]:
    """A fast path that takes records without a check although no transaction is open."""
    is_open = engine.appender.fast_path.check_transaction is None
    if is_open != (manager.state is _S.IN_TRANSACTION):
        yield f"its fast path is {'open' if is_open else 'closed'}"


def _goes_on_without_sequences(
    engine: ProducerEngine, manager: TransactionManager
) -> Iterator[str]:
    """Batches that no request may have, as the broker lacks one before them in this epoch."""
    if manager.state not in _MAY_COMMIT:
        return
    for where, each in engine.accumulator.sequencer._partitions.items():
        first = each.unwritten_from
        waits = [batch for batch in each.in_flight if not batch.pins]
        if each.identity == manager.identity and first is not None and waits:
            yield f"{len(waits)} batches of {where} cannot be sent in this epoch"


def _call_waits_for_another_state(
    engine: ProducerEngine, manager: TransactionManager
) -> Iterator[str]:
    """Calls that have no outcome, and whose outcome this state does not lead to."""
    for kind, states in _WAITS_IN.items():
        if kind in manager._operations and manager.state not in states:
            yield f"{kind.value}() waits"


_RULES = (
    _keeps_what_is_aborted,
    _gate_is_wrong,
    _goes_on_without_sequences,
    _call_waits_for_another_state,
)
