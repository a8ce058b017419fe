"""The state file of a load: how far everything is settled, so that a later run goes on there.

Owns: the file's format and its atomic replacement. Must not know: Kafka, the terminal.

Invariants
- Every row up to `position` is acknowledged by Kafka or stands in the dead-letter file. Rows behind
  it may have been acknowledged too: a resumed load sends them again (at least once).
- The file is always a whole one: written beside its place, put on disk, then renamed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aioproducer.loader.errors import StateError
from aioproducer.loader.rows import Position

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Settled:
    """How many rows up to a position ended how."""

    acknowledged: int = 0
    rejected: int = 0
    failed: int = 0
    dead_letter_bytes: int = 0

    @property
    def rows(self) -> int:
        """How many in all."""
        return self.acknowledged + self.rejected + self.failed


@dataclass(frozen=True, slots=True)
class LoadState:
    """What a load has settled.

    Attributes:
        topic: Where it loads to.
        position: The last row of the settled ones; None before the first.
        complete: The input was read to its end and all of it is settled.
        settled: The counts up to `position`, over all runs.
    """

    topic: str
    position: Position | None = None
    complete: bool = False
    settled: Settled = field(default_factory=Settled)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replaces the file at `path` atomically; raises `StateError`."""
        target = Path(path)
        # A name of each thread's own: a cancelled load may write while its thread still does.
        beside = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            with beside.open("w", encoding="utf-8") as file:
                json.dump(self.as_dict(), file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise StateError(f"cannot write the state file {target}: {error.strerror}") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LoadState | None:
        """The state at `path`, None where there is no file; raises `StateError`."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read the state file {path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                f"{path} is not a state file of a load",
                advice="delete it to start over, or name another one",
            ) from error

    def as_dict(self) -> dict[str, Any]:
        """Its facts, as JSON knows them."""
        position = None if self.position is None else self.position._asdict()
        return {"version": _VERSION, **asdict(self), "position": position}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LoadState:
        """What `as_dict` gave; raises ValueError, TypeError or KeyError for anything else."""
        if content["version"] != _VERSION:
            raise ValueError("another version")
        position = content["position"]
        return cls(
            topic=str(content["topic"]),
            position=None if position is None else Position(**position),
            complete=bool(content["complete"]),
            settled=Settled(**content["settled"]),
        )
