"""Micro-batches by `batch_writer`, which pause at given moments while the query is killed.

Owns: the moments of a micro-batch that the driver writes itself. Those of tasks are in `source.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aioproducer.spark.direct import DirectEpochs
from aioproducer.spark.foreach import MAX_ROWS, batch_writer
from support.spark_faults.deaths import PLANNED
from support.spark_faults.source import hit, note


class FaultyBatches:
    """A function for `foreachBatch`; its faults are those of `source.py` that hit a query.

    Args:
        options: Of the sink.
        query: Names the query.
        faults: `moment`, `batch`, `how`, `pause` and `notes`; with `by.tasks`, tasks write all
            micro-batches.
    """

    def __init__(self, options: Mapping[str, str], query: str, faults: dict[str, Any]) -> None:
        by_tasks = faults.get("by.tasks", False)
        self._faults = faults
        self._write: Any = batch_writer(options, query=query, max_rows=0 if by_tasks else MAX_ROWS)
        self._epochs = FaultyEpochs(faults)
        if not by_tasks:
            self._write._direct = self._epochs

    def __call__(self, frame: Any, batch: int) -> None:
        self._epochs.batch = batch
        self._epochs.hit_at("planning")
        if self._faults.get("moment") == "any":
            note(self._faults, PLANNED)
        self._write(frame, batch)
        self._epochs.hit_at("ended")


class FaultyEpochs(DirectEpochs):
    """Epochs of the driver: everything else is as in production.

    Attributes:
        batch: The micro-batch that is written.
    """

    def __init__(self, faults: dict[str, Any]) -> None:
        super().__init__()
        self.batch: int = -1
        self._faults = faults

    def hit_at(self, moment: str) -> None:
        """Pause if this is the moment, in this micro-batch."""
        faults = self._faults
        if faults.get("moment") == moment and faults["batch"] in {self.batch, None}:
            hit(faults)

    def _written(
        self, producer: Any, plan: Any, decision: Any, batches: Iterable[Any], refused: Any
    ) -> Any:
        return super()._written(producer, plan, decision, self._interrupted(batches), refused)

    def _interrupted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 0:
                self.hit_at("writing")

    def _commit(self, producer: Any, epoch: int) -> None:
        self.hit_at("before decision")
        super()._commit(producer, epoch)
        self.hit_at("decided")
