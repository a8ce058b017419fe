"""Refused rows of a task as a file of JSON lines, for `dead.letter.path`.

Invariants
- A file appears under its name when it is complete and on disk, before the task's transaction can
  be committed: no row is left out of Kafka and of the files.
- The part of an attempt that fails is removed. A killed worker leaves a hidden `.part` file.
- No file replaces another: names are unique.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Self

from aioproducer._util.paths import is_folder
from aioproducer.errors import SerializationError
from aioproducer.loader.dead_letter_file import line_of, text_fields, writing
from aioproducer.loader.errors import DeadLetterError
from aioproducer.loader.rows import Position
from aioproducer.spark.rows import SENDING, RefusedRow

_NEW: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
)


def check_folder(folder: str, process: str) -> None:
    """Raise unless this process can make files in a directory."""
    if not (is_folder(folder) and os.access(folder, os.W_OK | os.X_OK)):
        raise DeadLetterError(
            f"dead.letter.path {folder!r} is not a directory that {process} can write to",
            advice="create it, or mount it, on every executor and on the driver",
        )


class DeadLetterPart:
    """The file of one pass of a task attempt; a context that removes what was not published."""

    def __init__(self, folder: str, topic: str | None, spark_partition: int, attempt: int) -> None:
        self._folder = Path(folder)
        self._topic = topic
        self._partition = spark_partition
        name = f"part-{spark_partition:05d}-{attempt}-{uuid.uuid4().hex}.ndjson"
        self.path: Path = self._folder / name
        self._hidden = self._folder / f".{name}.part"
        self._file: IO[bytes] | None = None
        check_folder(folder, "this worker")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._hidden.unlink()
            self._file = None

    def write(self, rows: Iterable[tuple[int, RefusedRow]]) -> None:
        """Append rows, each with its number in the task; blocks on the file system."""
        lines = b"".join(self._line(*each) for each in rows)
        with writing(self.path):
            if self._file is None:
                # Rows may be confidential: the file is for its owner alone.
                self._file = os.fdopen(os.open(self._hidden, _NEW, 0o600), "wb")
            self._file.write(lines)

    def publish(self) -> None:
        """Put the rows on disk and give the file its name; without rows there is no file."""
        if self._file is None:
            return
        with writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._hidden.rename(self.path)
            _sync_folder(self._folder)
        self._file = None

    def _line(self, number: int, refused: RefusedRow) -> bytes:
        error, row, stage, _ = refused
        is_delivery = stage == SENDING and not isinstance(error, SerializationError)
        return line_of(
            Position(f"spark partition {self._partition}", None, number),
            "delivery" if is_delivery else "row",
            f"{type(error).__name__}: {error}",
            row.value,
            **text_fields("key", row.key),
            topic=self._topic if row.topic is None else row.topic,
            partition=row.partition,
            timestamp_ms=row.timestamp_ms,
            headers=[{"name": name, **text_fields("value", value)} for name, value in row.headers],
        )


def _sync_folder(folder: Path) -> None:
    """Put the name of a new file on disk, where directories can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
