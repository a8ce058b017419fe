"""Files as byte streams: plain, gzipped, members of zip archives, standard input.

Invariants
- The compression of a file is recognized by its first bytes, not by its name.
- Memory is bounded: input that must be seekable and is not is copied to a temporary file.
- A read that waits for a pipe or terminal raises `ReadInterruptedError` within `_POLL_S` after
  `interrupt` is set, so half a line is never taken for a row.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import os
import re
import select
import stat
import sys
import tempfile
import threading
import zipfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from zlib import crc32

from aioproducer._util.printable import printable
from aioproducer.loader.errors import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = "-"
_Opener: TypeAlias = Callable[[ExitStack], io.BufferedIOBase]
# Without O_NONBLOCK the opening of a named pipe would wait for its writer, uninterruptibly.
_READ = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # Windows has the last one alone
    _READ |= getattr(os, _flag, 0)
_POLL_S = 0.1
_PIECE = 256 * 1024
_LONGEST_COPY = 8 * 1024**3
"""Of what has to be seekable and is not: few packed bytes would fill the disk."""
_PACKED: Final = frozenset({".gz", ".bz2", ".xz", ".zst", ".lz4"})
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_OTHERS: Final[Mapping[str, re.Pattern[bytes]]] = {
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
"""Compressions that are not unpacked here, by the command that does it."""
_LONGEST_MAGIC: Final = 10


class ReadInterruptedError(Exception):
    """The end of a read that waits was requested."""


class InputFile(io.RawIOBase):
    """A file descriptor that counts what is read, and whose wait can be ended."""

    def __init__(self, descriptor: int, *, owned: bool, interrupt: threading.Event) -> None:
        status = os.fstat(descriptor)
        self._descriptor = descriptor
        self._owned = owned
        self._interrupt = interrupt
        self._regular = stat.S_ISREG(status.st_mode)
        self.size: int | None = status.st_size if self._regular else None
        self.consumed: int = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`, as all below."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def seekable(self) -> bool:
        """Return whether it is a plain file."""
        return self._regular

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the place of the next read."""
        return os.lseek(self._descriptor, offset, whence)

    def tell(self) -> int:
        """Return the position of the next read."""
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what is there, waiting only while there is nothing."""
        view = memoryview(buffer).cast("B")
        data: bytes | None = None
        while data is None:
            self._wait_for_input()
            with suppress(BlockingIOError):  # another process has read it from the pipe
                data = os.read(self._descriptor, len(view))
        if not data and self.size is not None and len(view) and self.tell() < self.size:
            raise SourceError("it became shorter while it was read")  # as by `copytruncate`
        view[: len(data)] = data
        self.consumed += len(data)
        return len(data)

    def close(self) -> None:
        """Close the descriptor if this object opened it."""
        if not self.closed and self._owned:
            os.close(self._descriptor)
        super().close()

    def _wait_for_input(self) -> None:
        # A poll with a bound instead of a wake-up pipe: nothing to close, nothing to leak, and a
        # pipe that is busy never waits at all.
        if self._regular or not hasattr(select, "poll"):  # as on Windows
            return
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        is_ready = False
        while not is_ready:
            is_ready = bool(poller.poll(_POLL_S * 1000))
            if self._interrupt.is_set():
                raise ReadInterruptedError


def open_input(name: str, interrupt: threading.Event) -> InputFile:
    """Open a file by name, or standard input for `-`."""
    if name == STDIN:
        if sys.__stdin__ is None:  # closed before the program began: 0 is another file by now
            raise SourceError("it is closed")
        return InputFile(0, owned=False, interrupt=interrupt)
    descriptor = os.open(name, _READ)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(f"{name} is a directory")
        return InputFile(descriptor, owned=True, interrupt=interrupt)
    except BaseException:
        os.close(descriptor)
        raise


@dataclass(frozen=True, slots=True)
class Member:
    """One stream of rows: a file, or one member of an archive.

    `before` is a checksum of the archive's members before it.
    """

    file: str
    name: str | None
    open: _Opener
    consumed: Callable[[], int]
    before: int = 0

    @property
    def format_name(self) -> str:
        """The name without the suffix of a compression: it has the suffix of the format."""
        path = PurePath(self.name or self.file)
        return path.stem if path.suffix.lower() in _PACKED else path.name


def members(file: str, interrupt: threading.Event, pattern: str | None) -> Iterator[Member]:
    """Yield the streams in one file, in their order.

    Each member's stream is valid until the next is asked for.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(open_input(file, interrupt))
        stream = stack.enter_context(io.BufferedReader(raw))
        if not stream.peek(len(_ZIP_MAGIC)).startswith(_ZIP_MAGIC):
            yield Member(file, None, lambda inner: _ungzip(stream, inner), lambda: raw.consumed)
            return
        archive = stack.enter_context(_archive(on_disk(stream, stack)))
        wanted = [info for info in archive.infolist() if _is_data(info, pattern)]
        names = Counter(info.filename for info in wanted)
        if twice := [name for name, count in names.items() if count > 1]:
            # A position in one of them would be taken for another's.
            raise SourceError(
                f"the archive has several members {printable(twice[0])!r}",
                advice="unpack it, and load the files themselves",
            )
        before = 0
        for info in wanted:
            opener = _opener(archive, info)
            yield Member(file, info.filename, opener, lambda: raw.consumed, before)
            content = f"{info.filename}/{info.CRC}".encode("utf-8", "backslashreplace")
            before = crc32(content, before)


def on_disk(stream: io.BufferedIOBase, stack: ExitStack) -> io.BufferedIOBase:
    """Return the stream itself if it is a file that can seek, else a copy of it on disk.

    The descriptor of either has the content from its start, also for another process.
    """
    raw = getattr(stream, "raw", None)
    if isinstance(raw, InputFile | io.FileIO) and raw.seekable():
        return stream
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    while piece := stream.read(_PIECE):
        if copy.tell() + len(piece) > _LONGEST_COPY:
            raise SourceError(
                f"it has more than {_LONGEST_COPY} bytes unpacked, for which a copy is not made",
                advice="unpack it, and load the file itself",
            )
        copy.write(piece)
    copy.seek(0)
    return cast("io.BufferedIOBase", copy)


def _archive(stream: io.BufferedIOBase) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(stream)
    except (NotImplementedError, ValueError) as error:
        # zipfile's errors for a later version of the format and for a name that is no text.
        raise SourceError(f"not readable as a zip archive: {error}") from error


def _opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Opener:
    def open_member(stack: ExitStack) -> io.BufferedIOBase:
        # Of bzip2 and LZMA, `zipfile` unpacks all that it has read: bytes may become gigabytes.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise SourceError(
                f"{printable(info.filename)} is compressed with a method other than deflate",
                advice="unpack the archive, and load the files themselves",
            )
        try:
            member = cast("zipfile.ZipExtFile", archive.open(info))
        except (RuntimeError, ValueError) as error:  # an encrypted member, a name that is no text
            raise SourceError(str(error)) from error
        return _ungzip(stack.enter_context(member), stack)

    return open_member


def _ungzip(
    stream: io.BufferedReader[Any] | zipfile.ZipExtFile, stack: ExitStack
) -> io.BufferedIOBase:
    head = stream.peek(_LONGEST_MAGIC)
    if not head.startswith(_GZIP_MAGIC):
        _refuse_others(head)
        return stream
    unpacked = stack.enter_context(gzip.GzipFile(fileobj=stream))
    head = unpacked.peek(_LONGEST_MAGIC)
    if head.startswith((_GZIP_MAGIC, _ZIP_MAGIC)):
        raise SourceError(
            "it is packed twice: what gzip unpacks of it is packed as well",
            advice="unpack it once, or pipe it: gzip -dc FILE | aioproducer load - -f FORMAT",
        )
    _refuse_others(head)
    return unpacked


def _refuse_others(head: bytes) -> None:
    """Refuse what would be taken for lines of text."""
    for command, magic in _OTHERS.items():
        if magic.match(head):
            raise SourceError(
                f"it is compressed with {command}, which is not unpacked here",
                advice=f"unpack it first, or pipe it: {command} -dc FILE | aioproducer load - "
                "-f FORMAT",
            )


def not_text(line: bytes) -> SourceError | None:
    """Return the error of a file with such a first line, if that is packed or UTF-16."""
    if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return SourceError("it is UTF-16, not UTF-8", advice="convert it: iconv -f UTF-16")
    kinds = {"gzip": line.startswith(_GZIP_MAGIC), "zip": line.startswith(_ZIP_MAGIC)}
    kinds |= {name: magic.match(line) is not None for name, magic in _OTHERS.items()}
    kind = next((name for name, is_found in kinds.items() if is_found), None)
    if kind is None:
        return None
    return SourceError(f"it is packed with {kind}, and is read as text", advice="unpack it first")


def _is_data(info: zipfile.ZipInfo, pattern: str | None) -> bool:
    path = Path(info.filename)
    if not info.filename or info.is_dir() or path.name.startswith(".") or "__MACOSX" in path.parts:
        return False
    return pattern is None or fnmatch.fnmatch(info.filename, pattern)
