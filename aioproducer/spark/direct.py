"""Epochs that the driver writes itself, exactly once in one transaction each.

`DirectEpochs` writes rows and decision in a transaction of the driver's own id, `<prefix>-driver`:
there are no tasks, so nothing has to be prepared. Decisions are kept as `two_phase.py` keeps them:
the next epoch, or the same one once more, may as well be written by tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aioproducer.blocking import Producer
from aioproducer.errors import CommitOutcomeUnknownError, KafkaTimeoutError
from aioproducer.spark.errors import FENCED, DecisionUnknownError, SupersededError
from aioproducer.spark.exactly_once.decision import Decision, TransactionNames, encode
from aioproducer.spark.exactly_once.ledger import superseded
from aioproducer.spark.plan import Epoch, SinkPlan, TaskPlace
from aioproducer.spark.replay import Refused, written_without_refused
from aioproducer.spark.reports.tasks import TaskReport
from aioproducer.spark.task import send_rows
from aioproducer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.spark.exactly_once.attempts import Plan

_TRIES: Final = 5
_PLACE: Final = TaskPlace(0, 0)


class DirectEpochs:
    """The driver of one query while it writes by itself; used by one thread at a time.

    Planning an epoch under the same prefix fences this driver: its next epoch then ends
    with a `SupersededError`. Call `leave` before this process lets tasks write an epoch.
    """

    def __init__(self) -> None:
        self._producer: Producer | None = None
        self._decided: Plan | None = None

    def write(
        self, plan: SinkPlan, epoch: Epoch, batches: Iterable[pa.RecordBatch]
    ) -> TaskReport | None:
        """Write an epoch in one transaction; return None if it is in Kafka already."""
        owner = epoch.owner or ""
        producer, decided = self._begun(plan)
        if decided.is_decided(epoch.epoch, owner):
            return None
        try:
            decision = Decision(epoch.epoch, owner, ())
            kept = list(batches)
            report = written_without_refused(
                lambda refused, _: self._written(producer, plan, decision, kept, refused),
                lambda: True,
            )
        except BaseException:
            self.leave()
            raise
        self._decided = replace(decided, decided=epoch.epoch, decided_by=owner)
        return report

    def leave(self) -> None:
        """Give up the driver's id; the next `write` takes it again."""
        producer, self._producer, self._decided = self._producer, None, None
        if producer is not None:
            producer.close(0)

    def __del__(self) -> None:
        # Spark drops the function of a query that has ended, and does not call it before.
        if self._producer is not None:
            self._producer._close_soon()

    def _written(
        self,
        producer: Producer,
        plan: SinkPlan,
        decision: Decision,
        batches: Iterable[pa.RecordBatch],
        refused: Refused,
    ) -> TaskReport:
        names = TransactionNames(plan.prefix or "")
        (record,) = encode(decision, names)
        offsets = {
            TopicPartition(plan.marker_topic, 0): OffsetAndMetadata(decision.epoch + 1, record)
        }
        try:
            producer.begin_transaction()
            try:
                report = send_rows(producer, plan, _PLACE, iter(batches), refused)
                producer.send_offsets_to_transaction(offsets, names.prefix)
            except BaseException:
                producer.abort_transaction()
                raise
            self._commit(producer, decision.epoch)
        except FENCED as error:
            raise superseded(decision.epoch) from error
        return report

    def _commit(self, producer: Producer, epoch: int) -> None:
        try:
            producer.commit_transaction()
        except (CommitOutcomeUnknownError, KafkaTimeoutError) as error:
            raise DecisionUnknownError(
                f"whether epoch {epoch} is decided is not known: {error}", epoch=epoch
            ) from error

    def _begun(self, plan: SinkPlan) -> tuple[Producer, Plan]:
        """Return a producer that has fenced every other driver, and what was decided by then."""
        if self._producer is not None and self._decided is not None:
            return self._producer, self._decided
        self.leave()
        for _ in range(_TRIES):
            # Ends what other drivers have left; then none may have decided before this began.
            decided = plan.driver().plan()
            names = TransactionNames(plan.prefix or "")
            producer = Producer(plan.config(), transactional_id=names.driver)
            producer.start()
            try:
                last = plan.driver().last_decision()
            except BaseException:
                producer.close(0)
                raise
            found = (None, None) if last is None else (last.epoch, last.owner)
            if found == (decided.decided, decided.decided_by):
                self._producer, self._decided = producer, decided
                return producer, decided
            producer.close(0)
        raise SupersededError(
            "another query or job with this transactional.id.prefix decides epochs at the same "
            "time; this one has written nothing"
        )
