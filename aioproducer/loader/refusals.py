"""Rows that Kafka refused in a transaction, which is done again without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioproducer.errors import KafkaError
from aioproducer.loader.errors import SourceError
from aioproducer.loader.rows import Position


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is not sent: Kafka has refused it before."""

    error: KafkaError


class Refusals:
    """The rows to leave out, from the first refusal until a commit covers them."""

    def __init__(self) -> None:
        self._rows: dict[Position, LeftOut] = {}
        self._met: set[Position] = set()

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, refused: Mapping[Position, KafkaError]) -> bool:
        """Add rows before the source begins again; return whether there is a new one among them."""
        known = len(self._rows)
        self._rows |= {position: LeftOut(error) for position, error in refused.items()}
        self._met.clear()
        return len(self._rows) > known

    def of(self, position: Position) -> LeftOut | None:
        """Return why the row at this position is left out, if it is."""
        found = self._rows.get(position)
        if found is not None:
            self._met.add(position)
        return found

    def touch(self, positions: Iterable[Position]) -> bool:
        """Return whether one of these rows, or of those since the last commit, is left out."""
        return bool(self._met) or any(position in self._rows for position in positions)

    def on_commit(self) -> None:
        """Drop the rows that the source has yielded again: the commit covers them."""
        for position in self._met:
            del self._rows[position]
        self._met.clear()

    def check_all_met(self) -> None:
        """Raise unless the source has yielded all of these rows again; called at its end."""
        missing = [position for position in self._rows if position not in self._met]
        if missing:
            raise SourceError(
                f"{missing[0]} was refused by Kafka, and is not there when the input is read again",
                advice="load exactly once from what can be read again: files, lists",
            )
