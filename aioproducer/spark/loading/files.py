"""The files of a load, and its steps.

Invariants
- Every file is listed, in folders of folders too, but for names that begin with `_` or `.`.
- The same files give the same steps, in the same order.
- Files whose folders name other columns, or none, are in another step: Spark would leave out files
  without such a folder, and fails for other differences.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from aioproducer._util.paths import exists, real_path
from aioproducer.loader.errors import SourceError
from aioproducer.loader.sources import FORMATS, format_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP_BYTES: Final = 512 * 1024 * 1024
"""A step ends after the file that reaches this: a crashed load repeats at most this much."""

COMPRESSED: Final = (".gz", ".bz2", ".deflate", ".zst")
"""The ends of the names of files that Spark unpacks."""
_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+:/")
"""With a slash: `dump-12:30.csv` is a file of this machine. One letter is a drive of Windows."""
_GLOB: Final = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file, as its file system describes it."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """Files that are loaded together.

    Attributes:
        root: the folder that was asked for; names of folders below it, `year=2013`, are columns.
        files: in the order of their paths; their folders name the same columns.
    """

    root: str
    files: tuple[InputFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> list[str]:
        """The paths for Spark's readers, literal, not patterns."""
        return [re.sub(r"([*?\[\]{}\\])", r"\\\1", file.path) for file in self.files]

    @property
    def local_paths(self) -> list[Path]:
        """The paths of the files of this machine."""
        return [Path(_local(file.path)) for file in self.files if file.path.startswith("file:")]

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that folders name."""
        return _layout(self.root, self.files[0].path)[1]


def digest(steps: Iterable[Step]) -> str:
    """Return a digest of files as they are now."""
    facts = [f"{file.path}\n{file.size}\n{file.modified_ms}" for s in steps for file in s.files]
    return hashlib.sha256("\n".join(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def unescaped(name: str) -> str:
    """Return a folder's name as Spark reads it: `%2F` is a slash, character by character."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), name)


def absolute(name: str) -> str:
    """Return a path as Spark understands it; one without a scheme is of this machine."""
    return name if _SCHEME.match(name) else f"file:{Path(name).absolute()}"


def is_remote(name: str) -> bool:
    """Return whether it names another file system than this machine's."""
    return _SCHEME.match(name) is not None and not name.startswith("file:")


def is_pattern(name: str) -> bool:
    """Return whether it is a pattern for file names."""
    return _GLOB.search(name) is not None and not exists(name)


def list_steps(
    spark: SparkSession, inputs: Sequence[str], step_bytes: int = STEP_BYTES
) -> list[Step]:
    """Return the steps of a load of these inputs: files, folders, patterns."""
    steps: list[Step] = []
    known: dict[str, str] = {}
    for name in inputs:
        files = _files(spark, name)
        if not files:
            raise SourceError(f"cannot read {name}: there is no file in it")
        refuse_same(files, known)
        steps += _split(_root(absolute(name), files), files, step_bytes)
    return steps


def refuse_same(files: Iterable[InputFile], known: dict[str, str]) -> None:
    """Refuse a file whose rows would be loaded twice; `known` are the paths of others by place."""
    for file in files:
        is_local = file.path.startswith("file:")
        place = real_path(_local(file.path)) if is_local else file.path
        other = known.get(place)
        if other == file.path:
            raise SourceError(f"{file.path} is in more than one of the inputs")
        if other is not None:
            raise SourceError(
                f"{other} and {file.path} are the same file, by a link",
                advice="remove the link, or name the folders and files that it does not lead to",
            )
        known[place] = file.path


def has_file(steps: Iterable[Step], name: str) -> bool:
    """Return whether a file of a load has this name, which may be a URL as Spark gives it."""
    names = {_local(absolute(name)), _local(absolute(unquote(name)))}
    return any(_local(file.path) in names for step in steps for file in step.files)


def format_of(steps: Iterable[Step]) -> str:
    """Return the format that the names of all files have."""
    advice = f"name the format: {', '.join(FORMATS)}"
    found: dict[str, str] = {}
    for path in (file.path for step in steps for file in step.files):
        name = PurePosixPath(path)
        stem = name.stem if name.suffix.lower() in COMPRESSED else name.name
        kind = format_named(stem)
        if kind is None:
            raise SourceError(f"no format is known for the name {name.name}", advice=advice)
        found.setdefault(kind, path)
    if len(found) > 1:
        examples = "; ".join(f"{kind}: {PurePosixPath(path).name}" for kind, path in found.items())
        raise SourceError(f"there are files of several formats ({examples})", advice=advice)
    return next(iter(found))


def _files(spark: SparkSession, name: str) -> list[InputFile]:
    from pyspark.errors import AnalysisException

    path = absolute(name)
    if not is_pattern(name):
        path = re.sub(r"([*?\[\]{}\\])", r"\\\1", path)
    try:
        found = (
            spark.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(path)
            .selectExpr("path", "length", "unix_millis(modificationTime)")
            .collect()
        )
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        raise SourceError(f"cannot read {name}: no such file or directory") from error
    return sorted((InputFile(*row) for row in found), key=lambda file: file.path)


def _root(name: str, files: Sequence[InputFile]) -> str:
    """Return the folder whose subfolders may be partitions; for a single file, its own folder."""
    name = name.rstrip("/")
    if _GLOB.search(name):
        name = name[: _GLOB.search(name).start()].rpartition("/")[0]  # type: ignore[union-attr]
    elif len(files) == 1 and _local(files[0].path) == _local(name):
        return name.rpartition("/")[0]
    return name


def _local(path: str) -> str:
    """Return the path without its scheme, which has several forms: `file:/` and `file:///`."""
    return re.sub(r"^file:/*", "/", path)


def _layout(root: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Return the folder that has those that name columns, and the columns."""
    folders = _local(path).removeprefix(_local(root)).split("/")[:-1]
    above = list(takewhile(lambda name: "=" not in name, folders))
    below = folders[len(above) :]
    columns = tuple(unescaped(name.partition("=")[0]) for name in below if "=" in name)
    return ("/".join(above) if columns else "", columns)


def _split(root: str, files: Sequence[InputFile], step_bytes: int) -> list[Step]:
    alike: dict[tuple[str, tuple[str, ...]], list[InputFile]] = {}
    for file in files:
        alike.setdefault(_layout(root, file.path), []).append(file)
    return [step for some in alike.values() for step in _cut(root, some, step_bytes)]


def _cut(root: str, files: Sequence[InputFile], step_bytes: int) -> list[Step]:
    steps: list[Step] = []
    begun: list[InputFile] = []
    size = 0
    for file in files:
        begun.append(file)
        size += file.size
        if size >= step_bytes:
            steps.append(Step(root, tuple(begun)))
            begun, size = [], 0
    if begun:
        steps.append(Step(root, tuple(begun)))
    return steps
