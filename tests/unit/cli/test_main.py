"""The command line in this process, as far as it goes without a cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from aioproducer import __version__
from aioproducer.cli import app, main
from aioproducer.cli.exit_codes import ExitCode


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return code, output.out, output.err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"aioproducer {__version__}\n", "")


@pytest.mark.parametrize(
    "command", ["load", "produce", "topics", "cluster", "perf", "doctor", "options"]
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "Usage: aioproducer" in out


@pytest.mark.parametrize(
    ("option", "number"),
    [("--partitions", 2**31), ("--partitions", -2), ("--replication-factor", 2**15)],
)
def test_counts_that_no_topic_can_have_are_refused(
    option: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "topics", "create", "t", option, str(number), "-b", "localhost:1")
    assert code == ExitCode.USAGE
    assert option in err


def every_command() -> list[tuple[str, ...]]:
    """The words before `--help` for each group and command there is."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, (*words, name))

    return list(below(get_command(app.app), ()))


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
@pytest.mark.parametrize("columns", ["80", "200"])
def test_flags_have_no_placeholder_for_a_value_in_help(
    words: tuple[str, ...],
    columns: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = run(capsys, *words, "--help")
    assert code == 0
    assert "--help" in out
    assert "bool" not in out.lower()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["load"],
        ["load", "x.csv"],
        ["load", "x.csv", "--topic", "t", "--nonsense"],
        ["perf", "--topic", "t", "--num-records", "many"],
    ],
)
def test_wrong_command_line_is_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert "Error" in err


@pytest.mark.parametrize("around", [["sasl.password="], ["sasl.password", "="]])
def test_a_value_after_a_space_is_not_shown(
    around: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "produce", "-t", "t", "-X", *around, "Tr0ub4dor")
    assert code == ExitCode.USAGE
    assert "without a space around =" in err
    assert "Tr0ub4dor" not in err


def test_an_argument_too_many_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "doctor", "x.csv", "y.csv")
    assert code == ExitCode.USAGE
    assert "y.csv" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["load", "x.csv", "-t", "t", "-X", "linger.mss=1"], "did you mean linger.ms?"),
        (["load", "-", "-t", "t"], "standard input has no name to infer a format from"),
        (["load", "x.csv", "-t", "t", "-f", "xml"], "unknown format 'xml'; known are csv"),
        (["load", "x.csv", "-t", "t", "--delimiter", ",,"], "delimiter must be one character"),
        (["load", "x.csv", "-t", "t", "--header", "x"], "--header takes NAME=VALUE"),
        (["load", "x.csv", "-t", "t", "--timestamp-unit", "days"], "s, ms, us, ns, not 'days'"),
        (["load", "x.csv", "-t", "t", "--value", "a", "--raw"], "exclude each other"),
        (["cluster", "--topic", "t:x"], "--topic takes NAME[:PARTITIONS[:REPLICAS]]"),
        (["cluster", "--engine", "steam"], "--engine is embedded or kafka"),
        (["cluster", "--engine", "kafka", "--port", "1"], "real brokers take free ports"),
        (["cluster", "--brokers", "3", "--port", "65534"], "leaves no room for 3 brokers"),
        (["cluster", "--topic", "t:3000000000"], "at most 2147483647 partitions"),
        (["cluster", "--topic", "t:1:40000"], "and 32767 replicas"),
        (["topics", "describe", "t\udcff"], "'t\\udcff' is not valid UTF-8"),
        (["topics", "create", "t", "--topic-config", "a=\udcff"], "is not valid UTF-8"),
        (["doctor", "-t", "\udcff"], "is not valid UTF-8"),
        (["perf", "-t", "\udcff"], "is not valid UTF-8"),
        (["perf", "-t", "t", "-X", "transactional.id=a"], "sends without transactions"),
        (["produce", "-t", "t", "-X", "transactional.id=a"], "leave transactional.id out"),
    ],
)
def test_impossible_option_is_explained_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err
    assert err.startswith("aioproducer: ")
    assert len(err.splitlines()) <= 2


def test_missing_file_is_found_before_the_cluster_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = run(capsys, "load", "missing.csv", "--topic", "t")
    assert code == ExitCode.INPUT
    assert err.splitlines() == [
        "aioproducer: engine: local (single files of moderate size)",
        "aioproducer: cannot read missing.csv: no such file or directory",
    ]


def test_a_load_with_a_transactional_id_is_one_exactly_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["load", "missing.csv", "--topic", "t", "-X", "transactional.id=a"]
    code, _, err = run(capsys, *command)
    assert code == ExitCode.USAGE
    assert "leave transactional.id out, or add --exactly-once" in err
    assert run(capsys, *command, "--exactly-once")[0] == ExitCode.INPUT


def test_bug_is_one_line_unless_debugging(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arguments: list[str]) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(app, "_invoke", broken)
    assert main([]) == ExitCode.BUG
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oops" in err
    assert "Traceback" not in err
    monkeypatch.setenv("AIOPRODUCER_DEBUG", "1")
    assert main([]) == ExitCode.BUG
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_missing_extra_is_named_with_the_remedy(package: str, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from aioproducer.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert "pip install 'aioproducer[cli]'" in done.stderr
    assert package in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_the_package_does_not_import_the_command_line() -> None:
    code = "import sys, aioproducer.loader; print({'typer', 'rich', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_ctrl_c_while_the_commands_are_imported_ends_without_a_traceback() -> None:
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'aioproducer.cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from aioproducer.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "")
