"""A separate process in which pyarrow reads files: a malformed one can end that process only.

Invariants
- What comes from the process is validated before a value of it is used.
- No process is left after `close`, nor after the end of this one.
- On Windows files are read in this process: a malformed one can end it.
"""

from __future__ import annotations

import io
import json
import multiprocessing.spawn
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, ClassVar

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_rows import check_names, rows_of
from aioproducer.loader.formats.format import imported
from aioproducer.loader.rows import RowBatch
from aioproducer.loader.streams import InputFile, on_disk

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_MEMORY_BYTES = 4 << 30
"""Of the process. A row group or a stripe is in memory as a whole; writers make 64 to 256 MiB."""
_MAX_LINE = 100_000
_WORKER = "aioproducer.loader.formats.arrow_worker"
_START = f"import sys; sys.path[:] = sys.argv[1:]; from {_WORKER} import main; main()"


class ArrowProcess:
    """A process that reads one file after the other; the first one starts it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._worker: _Worker | None = None

    def __enter__(self) -> ArrowProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def read(
        self, name: str, stream: io.BufferedIOBase, skip: int, stack: ExitStack
    ) -> Iterator[RowBatch]:
        """Yield the rows after the first `skip`; the process ends if not all of them are taken."""
        pyarrow = imported("pyarrow", name, "arrow")
        file = on_disk(stream, stack)
        row = skip + 1
        with ExitStack() as unless_complete:
            unless_complete.callback(self.close)
            try:
                for part in self._parts(name, file, skip):
                    check_names(part.schema.names)
                    yield RowBatch("", None, row, rows_of(part), tuple(part.schema.names))
                    row += part.num_rows
            except (pyarrow.ArrowException, ValueError, OverflowError) as error:
                raise SourceError(f"not readable as {name}: {error}") from error
            unless_complete.pop_all()

    def _parts(self, name: str, file: io.BufferedIOBase, skip: int) -> Iterator[Any]:
        if not hasattr(socket, "send_fds"):  # Windows passes no open file over a socket
            # By name, as in the other process: the formats that it reads import this module.
            batches: Iterator[Any] = import_module(_WORKER).read_here(name, file, skip)
            return batches
        if self._worker is None:
            self._worker = _Worker(name, self._stack)
        return self._worker.read(name, file, skip)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._worker = None
        self._stack.close()


class ArrowFormat:
    """Base of the formats that pyarrow reads: `ArrowProcess.read` takes their names.

    Alone, each file is read by a process that ends with `stack`.
    """

    __slots__ = ()
    name: ClassVar[str]

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[RowBatch]:
        """See `Format`."""
        return stack.enter_context(ArrowProcess()).read(self.name, stream, skip, stack)


class _Worker:
    """The running process; `stack` ends it."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        executable = multiprocessing.spawn.get_executable()
        if not executable or (getattr(sys, "frozen", False) and executable == sys.executable):
            raise SourceError(
                f"{name} files are read in another process, for which there is no interpreter",
                advice="name one with multiprocessing.set_executable()",
            )
        self._executable: str = os.fsdecode(executable)
        ours, theirs = socket.socketpair()
        self._requests: socket.socket = stack.enter_context(ours)
        self._answers: IO[bytes] = stack.enter_context(io.BufferedReader(_Answers(ours)))
        with theirs:
            self._process: subprocess.Popen[bytes] = _started(name, self._executable, theirs)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)

    def read(self, name: str, file: io.BufferedIOBase, skip: int) -> Iterator[Any]:
        """Yield the rows of a file as record batches; see `arrow_worker` for what is exchanged."""
        try:
            request = json.dumps({"format": name, "skip": skip}).encode()
            socket.send_fds(self._requests, [request], [file.fileno()])
            answer = self._line()
            if answer.get("rows"):
                yield from _batches(self._answers, getattr(file, "raw", None))
                answer = self._line()
        except (EOFError, ConnectionError) as error:
            raise self._ended(name) from error
        if (reason := answer["error"]) is not None:
            raise SourceError(reason, advice=answer.get("advice"))

    def _line(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._answers.readline(_MAX_LINE))
        return answer

    def _ended(self, name: str) -> SourceError:
        status = self._process.wait()
        if status >= 0:
            return SourceError(
                f"the process that reads {name} files ended with exit status {status}",
                advice=f"can {self._executable} import aioproducer and pyarrow?",
            )
        return SourceError(
            f"not readable as {name}: the process that read it ended with "
            f"{signal.Signals(-status).name}",
            advice=f"is it malformed, or does it need more than {MAX_MEMORY_BYTES >> 30} GiB of "
            "memory at once?",
        )


def _started(name: str, executable: str, requests: socket.socket) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [executable, "-I", "-c", _START, *map(str, sys.path)],
            stdin=requests.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # where native code reports how it ends the process
            process_group=0,  # Ctrl-C is for this process, which ends that one
        )
    except OSError as error:
        raise SourceError(
            f"the process that reads {name} files cannot start: {error}",
            advice="name an interpreter with multiprocessing.set_executable()",
        ) from error


class _Answers(io.RawIOBase):
    """Bytes from the process; their end is an error, as it answers until it is killed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Receive what is there."""
        if received := self._connection.recv_into(buffer):
            return received
        raise EOFError


def _batches(answers: IO[bytes], source: object) -> Iterator[Any]:
    """Yield the record batches of an Arrow stream, and count what was read of the file for them."""
    from pyarrow import ipc

    counted = 0
    with ipc.open_stream(answers) as stream:
        while True:
            try:
                batch, facts = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            batch.validate(full=True)
            if isinstance(source, InputFile):
                consumed = int(facts[b"consumed"])
                source.consumed += consumed - counted
                counted = consumed
            yield batch
