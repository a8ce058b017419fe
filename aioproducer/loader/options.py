"""The options of a load, and the producer interface it needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aioproducer._checks.callables import refuse_coroutine_function
from aioproducer._util.paths import real_path
from aioproducer.errors import ConfigError
from aioproducer.loader.mapping import RecordMapping
from aioproducer.loader.progress import Progress
from aioproducer.loader.streams import STDIN
from aioproducer.loader.window import DeliveryLike
from aioproducer.types import HeadersInput


class ProducerLike(Protocol):
    """The part of `Producer` that the loader needs."""

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryLike:
        """Accept one record; wait for buffer memory."""
        ...

    async def flush(self, timeout: float | None = None) -> object:
        """Return when every accepted record has its outcome."""
        ...

    async def partitions_for(self, topic: str) -> Sequence[object]:
        """Return the topic's partitions."""
        ...


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of a load.

    Attributes:
        mapping: The columns that become key, value, headers and so on.
        dead_letter: The file of rejected rows; None makes the first one end the load.
        state: The state file; None keeps none.
        resume: Resume from the state file; without one, begin at the start.
        max_outstanding: Rows that may be unsettled at a time.
        on_progress: Called on the event loop now and then, and at the end.
        progress_interval_s: How often.
        state_interval_s: How often the state file is written.
        exactly_once: Commit rows and position in the same transactions, and resume after the last
            committed one of the transactional id. Needs a transactional `Producer`, and a source
            that gives the same rows again: a transaction with a record that Kafka rejects is
            aborted and repeated without it.
        topic_timeout_s: How long to wait for a topic that does not exist; None for as long as
            the producer's `max_block_ms`.
        unsent_fail: When an error of Kafka ends the load, count rows as failed that were read and
            not accepted yet: for inputs that cannot be read again.
        transaction_rows: After how many rows a transaction ends.
        transaction_s: After what time it ends, if not before: at most a quarter of the producer's
            `transaction_timeout_ms`.
    """

    mapping: RecordMapping = field(default_factory=RecordMapping)
    dead_letter: str | os.PathLike[str] | None = None
    state: str | os.PathLike[str] | None = None
    resume: bool = False
    max_outstanding: int = 20_000
    on_progress: Callable[[Progress], None] | None = None
    progress_interval_s: float = 0.2
    state_interval_s: float = 2.0
    exactly_once: bool = False
    topic_timeout_s: float | None = None
    unsent_fail: bool = False
    transaction_rows: int = 50_000
    transaction_s: float = 2.0

    def check_paths(self, inputs: Sequence[Path]) -> None:
        """Refuse a load that would write over what it reads, or one file for two purposes.

        Raises:
            ConfigError: two of the paths are the same file, maybe by a link.
        """
        named = [("the input", path) for path in inputs]
        for name, given in (("the dead-letter file", self.dead_letter), ("the state", self.state)):
            if given is None:
                continue
            path = Path(given)
            for other_name, other in named:
                if _is_same(path, other):
                    shown = "standard input" if str(other) == STDIN else other
                    raise ConfigError(f"{name} {path} is the same file as {other_name} {shown}")
            named.append((name, path))

    def __post_init__(self) -> None:
        if self.exactly_once and (self.resume or self.state is not None):
            raise ConfigError(
                "a load that is exactly once keeps its position in Kafka and always goes on there: "
                "leave out the state file and resume"
            )
        if self.transaction_rows < 1 or self.transaction_s <= 0:
            raise ConfigError("a transaction needs some rows and some time")
        if self.max_outstanding < 1:
            raise ConfigError("max_outstanding must be at least 1")
        if self.resume and self.state is None:
            raise ConfigError("to resume, a load needs its state file")
        refuse_coroutine_function("on_progress", self.on_progress)


def _is_same(one: Path, other: Path) -> bool:
    try:
        if str(other) == STDIN:  # a shell has opened the file
            return os.path.samestat(one.stat(), os.fstat(0)) and one.is_file()
        return one.samefile(other) and one.is_file()
    except OSError:  # one of them does not exist yet
        return real_path(str(one)) == real_path(str(other))
