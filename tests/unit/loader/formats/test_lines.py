from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from aioproducer.loader.formats.lines import CutLine, read_lines
from loader.fakes import Chunks


def lines_of(chunks: list[bytes], limit: int = 1000) -> list[bytes]:
    return [line for lines in read_lines(Chunks(chunks), limit) for line in lines]


@given(st.lists(st.lists(st.sampled_from([b"a", b"\n", b"\r", b",", b"\xc3\xa9"])).map(b"".join)))
def test_lines_are_the_same_however_the_content_is_cut_into_chunks(chunks: list[bytes]) -> None:
    expected = b"".join(chunks).split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert lines_of(chunks) == expected


def test_last_line_needs_no_line_feed() -> None:
    assert lines_of([b"one\ntwo"]) == [b"one", b"two"]


def test_byte_order_mark_is_dropped_even_when_cut_in_two() -> None:
    assert lines_of([b"\xef\xbb", b"\xbfone\ntwo\n"]) == [b"one", b"two"]


def test_byte_order_mark_inside_the_content_stays() -> None:
    assert lines_of([b"one\n\xef\xbb\xbftwo\n"]) == [b"one", b"\xef\xbb\xbftwo"]


def test_lines_of_a_chunk_come_before_the_next_chunk_is_read() -> None:
    stream = Chunks([b"one\ntwo\nthr", b"ee\n"])
    lines = read_lines(stream, 100)
    assert next(lines) == [b"one", b"two"]
    assert next(lines) == [b"three"]


@given(st.integers(1, 7), st.integers(1, 40))
def test_too_long_line_is_cut_and_the_next_one_is_whole(chunk_size: int, length: int) -> None:
    content = b"ok\n" + b"x" * (10 + length) + b"\nnext\n"
    chunks = [content[at : at + chunk_size] for at in range(0, len(content), chunk_size)]
    lines = lines_of(chunks, limit=10)
    assert lines == [b"ok", b"x" * 10, b"next"]
    assert [type(line) is CutLine for line in lines] == [False, True, False]


def test_long_line_takes_linear_time() -> None:
    chunks = [b"x" * 16384] * 2000
    began = time.process_time()
    assert [len(line) for line in lines_of(chunks, limit=1 << 30)] == [16384 * 2000]
    assert time.process_time() - began < 2


def test_endless_line_is_not_held_in_memory() -> None:
    read = 0

    class Endless(Chunks):
        def read1(self, size: int = -1, /) -> bytes:
            nonlocal read
            read += 1
            return b"x" * 1000 if read < 10_000 else b""

    assert lines_of_endless(Endless([])) == [1000 + 1000]


def lines_of_endless(stream: Chunks) -> list[int]:
    return [len(line) for lines in read_lines(stream, 2000) for line in lines]
