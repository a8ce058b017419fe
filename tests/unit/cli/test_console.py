"""The output of commands, whatever standard output is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from aioproducer.cli.console import print_facts, print_text, write_line
from aioproducer.cli.exit_codes import ExitCode


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


COMMAND = f'exec "{sys.executable}" -m aioproducer'
OUTPUTS = [("--version",), ("--help",), ("load", "--help"), ("options", "acks")]


def run_in_shell(arguments: tuple[str, ...], output: str) -> subprocess.CompletedProcess[str]:
    line = f"{COMMAND} {' '.join(arguments)} {output}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", OUTPUTS, ids=" ".join)
def test_output_that_cannot_be_written_is_named_and_no_bug(arguments: tuple[str, ...]) -> None:
    done = run_in_shell(arguments, "> /dev/full")
    message = "aioproducer: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (ExitCode.FILES, message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("output", ["2> /dev/full", "2>&-"])
def test_a_usage_error_that_cannot_be_shown_has_its_exit_code_and_no_output(output: str) -> None:
    done = run_in_shell(("nonsense",), output)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")


@pytest.mark.parametrize("arguments", OUTPUTS, ids=" ".join)
def test_output_that_is_closed_from_the_start_is_a_broken_pipe(arguments: tuple[str, ...]) -> None:
    done = run_in_shell(arguments, ">&-")
    message = "aioproducer: standard output was closed (broken pipe)\n"
    assert (done.returncode, done.stderr) == (ExitCode.BROKEN_PIPE, message)


def test_help_for_a_reader_that_has_gone_is_a_broken_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aioproducer", "load", "--help"],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == ExitCode.BROKEN_PIPE
