"""Regular expressions of schemas.

Input: a pattern and the text it is searched in, separated by a zero byte.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from aioproducer.serializers.registry.patterns import Pattern, PatternError
from fuzz.guard import Target, require

_SHORT = 12


def run(data: bytes) -> None:
    source, _, raw = data.partition(b"\0")
    pattern, text = source.decode("utf-8", "replace"), raw.decode("utf-8", "replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = Pattern(pattern)
            found = made.is_found_in(text * 50)
        except PatternError:
            return
    require(isinstance(found, bool), "{!r} gave {}", pattern, found)
    if not 0 < len(text) <= _SHORT or len(pattern) > _SHORT:
        return
    matched = re.search(pattern, text) is not None
    require(made.is_found_in(text) == matched, "{!r} in {!r}: {}", pattern, text, not matched)


def seeds() -> Iterator[bytes]:
    for pattern, text in (
        (r"^[a-z]+$", "abc"),
        (r"^(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"),
        (r"(a|aa)*b", "aaaa"),
        (r"\b\w{2,4}\b|x?", "one two"),
        (r"(?i)A[^b-d]", "ae"),
        (r"^(?=.*\d).{8,}$", "password1"),
        (r"(\d+)-\1", "12-12"),
        (r"(a{1,10}){10}b", "a" * 60),
    ):
        yield f"{pattern}\0{text}".encode()


TARGET = Target("patterns", run, seeds, bytes_per_byte=4000, extra_bytes=32 << 20, longest=300)
