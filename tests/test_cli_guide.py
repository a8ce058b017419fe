"""The guide to the command line says what the commands print."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.pages import DOCS, page

from aioproducer.cli import main
from aioproducer.cli.checkup.findings import CODES
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.testing import ThreadedCluster

ROOT = Path(__file__).parent.parent
CLI = page("cli")
_COMMAND_S = 60.0


def transcripts(text: str) -> list[tuple[str, str]]:
    """Each command of the console blocks with what it is said to print."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def tidy(printed: str) -> str:
    """Without what keeps columns apart."""
    return "\n".join(" ".join(line.split()) for line in printed.strip().splitlines())


def as_pattern(printed: str) -> str:
    """`...` stands for anything, any number for any other."""
    pattern = re.escape(tidy(printed))
    return re.sub(r"\d+", r"[\\d.]+", pattern.replace(re.escape("..."), ".*"))


def printed_by(command: str) -> str:
    """Return the output of a command, on both streams; without a shell where none is needed."""
    if command.startswith("aioproducer ") and not set(command) & set("|;>"):
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            main(shlex.split(command)[1:])
        return printed.getvalue()
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_COMMAND_S,
    )
    return done.stdout


def test_the_commands_in_the_guide_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "aioproducer"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aioproducer "$@"\n')
    script.chmod(0o755)
    (properties,) = re.findall(r"```properties\n(.*?)```", CLI, flags=re.DOTALL)
    with ThreadedCluster(brokers=3) as cluster:
        server = cluster.bootstrap_servers.split(",")[0]
        (tmp_path / "client.properties").write_text(properties.replace("localhost:9092", server))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", server)
        for command, expected in transcripts(CLI):
            shown = tidy(printed_by(command).replace(server, "localhost:9092"))
            assert re.fullmatch(as_pattern(expected), shown, flags=re.DOTALL), (command, shown)


def test_the_tables_of_the_guide_to_the_command_line_are_complete() -> None:
    for code, advice in CODES.items():
        assert f"| `{code}` | {advice} |" in CLI
    for exit_code in ExitCode:
        assert f"| {int(exit_code)} | {exit_code.meaning} |" in CLI
    for name in re.findall(r"!\[.*?\]\((.*?)\)", CLI):
        assert (DOCS / name).is_file()
