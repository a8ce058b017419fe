"""The output of commands, whatever standard output is."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from aioproducer.cli.console import print_facts, print_text, write_line


@pytest.mark.parametrize(
    ("encoding", "shown"), [("latin-1", b"\\u20ac"), ("utf-8", b"\xe2\x82\xac")]
)
def test_characters_that_the_output_has_no_code_for_are_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding=encoding))
    write_line("5 \u20ac")
    print_facts("\u20ac.csv -> t", [("rows", "1")])
    print_text(Text("\u20ac"))
    assert output.getvalue().count(shown) == 3
