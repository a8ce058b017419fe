"""Completion as a shell asks for it: by the environment, with the words so far."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aioproducer.cli import main


def completed(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    monkeypatch.setenv("_AIOPRODUCER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert not ended.value.code
    shown = capsys.readouterr()
    assert shown.err == ""
    return set(shown.out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("aioproducer do", {"doctor"}),
        ("aioproducer topics de", {"describe", "delete"}),
        ("aioproducer load --exactly", {"--exactly-once"}),
        ("aioproducer load x -f nd", {"ndjson"}),
        ("aioproducer perf -X linger", {"linger.ms="}),
    ],
)
def test_the_shell_gets_the_possible_next_words(
    words: str,
    expected: set[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert completed(words, capsys, monkeypatch) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_AIOPRODUCER_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert not ended.value.code
    script = capsys.readouterr().out
    assert "_AIOPRODUCER_COMPLETE" in script
    assert "aioproducer" in script


def test_the_installed_command_completes() -> None:
    asked = {
        "_AIOPRODUCER_COMPLETE": "complete_bash",
        "COMP_WORDS": "aioproducer do",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["doctor"], "")
