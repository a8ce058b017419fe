"""The process that reads Parquet and ORC files with pyarrow, one after the other.

An answer is a line of JSON, and where that says `"rows": true` record batches as an Arrow stream
and another line. A line without rows ends the answer; its `error` is null if all rows were read.
"""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_process import MAX_MEMORY_BYTES
from aioproducer.loader.formats.orc import read_orc
from aioproducer.loader.formats.parquet import read_parquet
from aioproducer.loader.streams import InputFile

_MAX_REQUEST_BYTES = 1000
_MAX_MESSAGE = 2000

_Reader = Callable[[io.BufferedIOBase, int], Iterator[Any]]
_READERS: dict[str, _Reader] = {"Parquet": read_parquet, "ORC": read_orc}


def main() -> None:
    """Answer the requests that come over the socket which is this process's standard input."""
    _limit_memory()
    with socket.socket(fileno=0) as requests, requests.makefile("wb") as answers:
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 1)
            if not message:
                return
            request = json.loads(message)
            _answer(answers, descriptors[0], request["format"], request["skip"])


def read_here(name: str, file: io.BufferedIOBase, skip: int) -> Iterator[Any]:
    """Yield the rows after the first `skip` as record batches, read in this process."""
    try:
        file.seek(0)
        for part in _READERS[name](file, skip):
            part.validate(full=True)
            yield part
    except Exception as error:  # whatever a library raises for a malformed file
        raise _described(error, name) from error


def _answer(answers: BinaryIO, descriptor: int, name: str, skip: int) -> None:
    failure: dict[str, str | None] = {"error": None}
    raw = InputFile(descriptor, owned=True, interrupt=threading.Event())
    with io.BufferedReader(raw) as file:
        try:
            file.seek(0)
            _write_rows(answers, _READERS[name](file, skip), raw)
        except (BrokenPipeError, ConnectionResetError):
            raise  # the process that asked is gone
        except Exception as error:  # whatever a library raises for a hostile file
            described = _described(error, name)
            failure = {"error": described.message, "advice": described.advice}
    _say(answers, failure)


def _write_rows(answers: BinaryIO, parts: Iterator[Any], read: InputFile) -> None:
    from pyarrow import ipc

    first = next(parts, None)
    if first is None:
        return
    _say(answers, {"rows": True})
    with ipc.new_stream(answers, first.schema) as stream:
        for part in chain([first], parts):
            stream.write_batch(part, custom_metadata={"consumed": str(read.consumed)})
            answers.flush()


def _say(answers: BinaryIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what).encode() + b"\n")
    answers.flush()


def _described(error: Exception, name: str) -> SourceError:
    if isinstance(error, SourceError):
        return SourceError(error.message, advice=error.advice)
    if isinstance(error, MemoryError):
        return SourceError(f"it takes more memory than there is, or than {MAX_MEMORY_BYTES} bytes")
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return SourceError(f"not readable as {name}: {text[:_MAX_MESSAGE]}")


def _limit_memory() -> None:
    import resource  # not on Windows, where `read_here` is used alone

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MAX_MEMORY_BYTES if most == resource.RLIM_INFINITY else min(most, MAX_MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
