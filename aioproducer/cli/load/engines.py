"""The choice of a load's engine: this process, or Spark.

The engine of a load:

    a load that only one of them can do    that one
    folders, patterns, other file systems  Spark
    large inputs that Spark can divide     Spark: it takes some ten seconds to start
    everything else                        this process
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from aioproducer._util.paths import exists, is_file, is_folder
from aioproducer.errors import ConfigError
from aioproducer.loader.sources import format_named
from aioproducer.spark.loading.files import COMPRESSED, is_pattern, is_remote

LARGE_BYTES: Final = 2 * 1024**3
"""From here on two cores with Spark are sooner done than one without."""

_WITHOUT_SPARK: Final = "pip install 'aioproducer[spark]'"


class Engine(Enum):
    """The values of `--engine`."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why that one."""

    engine: Engine
    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The facts of a command that the choice depends on."""

    files: Sequence[str]
    format: str | None = None
    member: str | None = None
    master: str | None = None


def choose(engine: str, wanted: Wanted) -> Choice:
    """Return the engine of a load."""
    try:
        asked = Engine(engine)
    except ValueError:
        names = ", ".join(each.value for each in Engine)
        raise ConfigError(f"--engine takes one of {names}, not {engine!r}") from None
    if "" in wanted.files:  # to Spark, the working directory
        raise ConfigError("the name of an input is empty", advice="is a variable not set?")
    needs_local, needs_spark = _only_local(wanted), _only_spark(wanted)
    if needs_local and needs_spark:
        raise ConfigError(f"no engine can do both: {needs_local}, and {needs_spark}")
    if asked is Engine.LOCAL:
        if needs_spark:
            raise ConfigError(f"--engine local cannot do it: {needs_spark}")
        return Choice(Engine.LOCAL, "asked for")
    if asked is Engine.SPARK:
        if needs_local:
            raise ConfigError(f"--engine spark cannot do it: {needs_local}")
        return _spark("asked for")
    if needs_spark:
        return _spark(needs_spark)
    if needs_local:
        return Choice(Engine.LOCAL, needs_local)
    return _by_size(wanted)


def _by_size(wanted: Wanted) -> Choice:
    size = sum(Path(name).stat().st_size for name in wanted.files if is_file(name))
    if size < LARGE_BYTES:
        return Choice(Engine.LOCAL, "single files of moderate size")
    large = f"{size / 1e9:,.1f} GB"
    # Several of Spark's tasks can read one file of these; compressed text is one stream.
    name = wanted.files[0]
    kind = None if name.lower().endswith(COMPRESSED) else wanted.format or format_named(name)
    if len(wanted.files) == 1 and kind not in {"parquet", "orc", "ndjson", "lines"}:
        return Choice(Engine.LOCAL, f"{large}, but one file that Spark cannot divide")
    if not _is_installed():
        return Choice(Engine.LOCAL, f"{large}, but there is no Spark ({_WITHOUT_SPARK})")
    return Choice(Engine.SPARK, large)


def _only_local(wanted: Wanted) -> str:
    """Return why Spark cannot do it; empty if it can."""
    if "-" in wanted.files:
        return "standard input is read in this process"
    if wanted.member is not None or any(name.lower().endswith(".zip") for name in wanted.files):
        return "archives are read in this process"
    if any(exists(name) and not (is_file(name) or is_folder(name)) for name in wanted.files):
        return "pipes are read in this process"
    return ""


def _only_spark(wanted: Wanted) -> str:
    """Return why this process cannot do it; empty if it can."""
    if wanted.master is not None:
        return f"--master {wanted.master} is Spark's"
    for name in wanted.files:
        if is_folder(name):
            return f"{name} is a folder"
        if is_remote(name):
            return f"{name} is not a file of this machine"
        if is_pattern(name):
            return f"{name} is a pattern"
    return ""


def _spark(reason: str) -> Choice:
    if not _is_installed():
        raise ConfigError(
            f"it takes Spark ({reason}), which is not installed", advice=_WITHOUT_SPARK
        )
    return Choice(Engine.SPARK, reason)


def _is_installed() -> bool:
    return find_spec("pyspark") is not None and find_spec("pyarrow") is not None
