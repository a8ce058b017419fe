"""Bytes cut into lines, with bounded memory.

Invariants
- Every chunk read is passed on at once as the complete lines in it, so a slow pipe is never held
  back until a batch is full.
- A line longer than the limit comes as `CutLine`, its first bytes only; the rest is skipped.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

CHUNK_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"


class CutLine(bytes):
    """The first bytes of a line that is longer than the limit."""

    __slots__ = ()


def read_lines(stream: io.BufferedIOBase, max_line_bytes: int) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, without their line feed, one non-empty list per chunk read."""
    rest: list[bytes] = []  # the pieces of a line that goes on: added up, they take quadratic time
    size = 0
    skipping = False
    first = True
    while chunk := stream.read1(CHUNK_BYTES):
        if skipping:
            _, found, chunk = chunk.partition(b"\n")
            skipping = not found
            if skipping:
                continue
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest, size = [], 0
        rest.append(last)
        size += len(last)
        if first and (lines or size >= len(_BOM)):
            first = False
            if lines:
                lines[0] = lines[0].removeprefix(_BOM)
            else:
                rest = [b"".join(rest).removeprefix(_BOM)]
                size = len(rest[0])
        if size > max_line_bytes:
            lines.append(b"".join(rest))
            rest, size, skipping = [], 0, True
        if lines:
            yield cut_lines(lines, max_line_bytes)
    if any(rest):
        yield cut_lines([b"".join(rest)], max_line_bytes)


def cut_lines(lines: list[bytes], limit: int) -> list[bytes]:
    """Return lines within the length limit; a longer one becomes a `CutLine`."""
    if max(map(len, lines), default=0) <= limit:
        return lines
    return [line if len(line) <= limit else CutLine(line[:limit]) for line in lines]
