"""The report of a load, while it runs and when it is over.

Invariants (whenever a `Progress` can be seen)
- read = sent + rejected
- sent = acknowledged + failed + outstanding
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aioproducer.loader.state import LoadState


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of one run of a load.

    Attributes:
        read: Rows taken from the source.
        rejected: Rows that could not become a record.
        sent: Records handed to the producer.
        acknowledged: Records Kafka has acknowledged.
        failed: Records that were refused or given up.
        bytes_sent: Keys and values of the records sent.
        input_bytes: How far into the input.
        input_total: The size of the input, None when not known.
        elapsed_s: Seconds since the run began.
    """

    read: int = 0
    rejected: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    bytes_sent: int = 0
    input_bytes: int = 0
    input_total: int | None = None
    elapsed_s: float = 0.0

    @property
    def outstanding(self) -> int:
        """Records sent and without an outcome yet."""
        return self.sent - self.acknowledged - self.failed

    @property
    def rows_per_second(self) -> float:
        """Acknowledged records per second, on average."""
        return self.acknowledged / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def fraction(self) -> float | None:
        """The share of the input that was read, 0 to 1; None when its size is not known."""
        return min(1.0, self.input_bytes / self.input_total) if self.input_total else None


@dataclass(slots=True)
class BatchCounts:
    """Mutable counts of a few rows, so that each row costs only an addition."""

    rejected: int = 0
    sent: int = 0
    bytes_sent: int = 0

    def added_to(self, progress: Progress, elapsed_s: float) -> Progress:
        """Return the progress with these rows."""
        return replace(
            progress,
            read=progress.read + self.rejected + self.sent,
            rejected=progress.rejected + self.rejected,
            sent=progress.sent + self.sent,
            bytes_sent=progress.bytes_sent + self.bytes_sent,
            elapsed_s=elapsed_s,
        )


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load.

    Attributes:
        progress: The counts of this run.
        state: The position up to which all is settled, over all runs that were resumed.
    """

    progress: Progress
    state: LoadState

    @property
    def complete(self) -> bool:
        """Whether the whole input is settled; False after `Loader.stop()`."""
        return self.state.complete
