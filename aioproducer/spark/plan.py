"""Decisions of the driver before the tasks of a write, sent to every task.

Invariants
- A plan pickles, and its secrets are those the user wrote into the options.
- A stream is exactly once only with a checkpoint, by which its decisions are found again. A batch
  job without a name gets one that is used once: if its driver crashes between the decision and the
  ends, no driver finishes it, and brokers abort what is left at its timeout.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, UnsupportedVersionError
from aioproducer.records.arrow_layout import ArrowColumns
from aioproducer.spark.columns.encoding import EncodedPart, encoded_parts
from aioproducer.spark.columns.schema import plan_columns
from aioproducer.spark.dead_letter_files import check_folder
from aioproducer.spark.exactly_once import writes
from aioproducer.spark.exactly_once.attempts import Plan
from aioproducer.spark.options import Guarantee, SourceOptions
from aioproducer.spark.pool import Kind, is_task_id
from aioproducer.spark.wording import option_errors
from aioproducer.transaction_admin import TransactionAdmin

QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property with the id of a query, which its checkpoint keeps."""
_TIMEOUT: Final = "transaction_timeout_ms"


class TaskPlace(NamedTuple):
    """A task's number: the Spark partition, and the attempt from 0."""

    partition: int
    attempt: int


class Epoch(NamedTuple):
    """The unit that becomes visible as a whole: a micro-batch's number and its query's id.

    A batch job is its own epoch; its plan has its id.
    """

    epoch: int
    owner: str | None


JOB: Final = Epoch(writes.JOB_EPOCH, None)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The plan by which a DataFrame or the micro-batches of a stream are written.

    Attributes:
        options: as the user gave them.
        columns: what makes up a record.
        prefix: the common start of transactional ids; None where there are no transactions.
        job: the id of a batch job.
        exactly_once: the driver's findings before the tasks; None unless `begun()`.
        encoded: keys and values in a format of a schema registry.
    """

    options: SourceOptions
    columns: ArrowColumns
    prefix: str | None = None
    job: str | None = None
    exactly_once: Plan | None = None
    encoded: tuple[EncodedPart, ...] = ()

    @classmethod
    def of_batch(
        cls, given: Mapping[str, str], fields: Sequence[tuple[str, str]], *, overwrite: bool
    ) -> Self:
        """Return the plan of `df.write`."""
        if overwrite:
            raise ConfigError(
                "records in Kafka cannot be overwritten, only appended",
                advice='use mode("append") or INSERT INTO',
            )
        options = SourceOptions.parse(given, "write")
        job = options.own.get("job.id") or str(uuid.uuid4())
        prefix = None
        if options.guarantee is not Guarantee.AT_LEAST_ONCE:
            base = options.own.get("transactional.id.prefix")
            prefix = writes.prefix_for_job(job, options.topic, base)
        columns, encoded = _columns(fields, options)
        return cls(options, columns, prefix, job, encoded=encoded)

    @classmethod
    def of_stream(cls, given: Mapping[str, str], fields: Sequence[tuple[str, str]]) -> Self:
        """Return the plan of `df.writeStream`; errors as `of_batch`."""
        options = SourceOptions.parse(given, "stream")
        prefix = None
        if options.guarantee is not Guarantee.AT_LEAST_ONCE:
            prefix = options.own.get("transactional.id.prefix")
            if prefix is None:
                if (checkpoint := options.own.get("checkpointlocation")) is None:
                    raise ConfigError(
                        f"delivery.guarantee={options.guarantee.value} needs "
                        'option("checkpointLocation", ...), or a transactional.id.prefix where '
                        "the session sets the checkpoint"
                    )
                prefix = writes.prefix_for_checkpoint(checkpoint)
        columns, encoded = _columns(fields, options)
        return cls(options, columns, prefix, encoded=encoded)

    def begun(self) -> Self:
        """Fence other drivers, and end the transactions they have left; called once per epoch."""
        if self.options.dead_letter_path is not None:
            check_folder(self.options.dead_letter_path, "the driver")
        if self.options.guarantee is not Guarantee.EXACTLY_ONCE or self.exactly_once is not None:
            self.end_orphans()
            return self
        with option_errors(self.options.kafka):
            return replace(self, exactly_once=self.driver().plan())

    def end_orphans(self) -> None:
        """Abort the open transactions of killed tasks (`task-transactions`), once no task runs.

        Until the brokers' timeout they would hold up read_committed consumers.
        """
        if self.options.guarantee is not Guarantee.TASK_TRANSACTIONS:
            return
        prefix = self.prefix or ""

        async def ending() -> None:
            async with TransactionAdmin(self.options.config()) as admin:
                for each in await admin.open_transactions(f"{prefix}-"):
                    if is_task_id(each.transactional_id, prefix):
                        await admin._aborted(each)

        with suppress(UnsupportedVersionError):  # not available before Kafka 3.0
            asyncio.run(ending())

    def config(self) -> ProducerConfig:
        """Return the options of producers that take part in exactly once."""
        config = self.options.config()
        if _TIMEOUT in config.explicitly_set or config.transaction_two_phase_commit_enable:
            return config
        return config.replace(transaction_timeout_ms=writes.DEFAULT_TRANSACTION_TIMEOUT_MS)

    @property
    def marker_topic(self) -> str:
        """The topic under which decisions are stored."""
        return self.options.own.get("marker.topic") or self.options.topic or ""

    @property
    def epoch(self) -> Epoch:
        """The epoch of a batch job."""
        return Epoch(int(self.options.own.get("job.epoch", writes.JOB_EPOCH)), self.job)

    @property
    def kind(self) -> Kind:
        """The common options of connections for exactly once."""
        return Kind(frozenset(self.options.kafka.items()), "")

    def driver(self) -> writes.ExactlyOnce:
        """Return the driver's side of exactly once."""
        lost = self.options.own.get("accept.lost.epoch")
        return writes.ExactlyOnce(
            self.config(),
            self.prefix or "",
            self.marker_topic,
            accept_lost=None if lost is None else int(lost),
            kind=self.kind,
            # A job without a name gets an id for this one plan.
            used_once=self.job is not None and not self.options.own.get("job.id"),
            topic_timeout_s=self.options.topic_timeout_s,
        )


def _columns(
    fields: Sequence[tuple[str, str]], options: SourceOptions
) -> tuple[ArrowColumns, tuple[EncodedPart, ...]]:
    if not options.include_headers:
        fields = [field for field in fields if field[0] != "headers"]
    fields, encoded = encoded_parts(fields, options)
    return plan_columns(fields, options.topic), encoded
