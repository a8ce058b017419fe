"""The guides in `aioproducer/docs` say what is true: every snippet runs."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from aioproducer import Producer, serializers, testing
from aioproducer.cli import main
from aioproducer.cli.checkup.findings import CODES
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.serializers import SchemaRegistry
from aioproducer.testing import EmbeddedCluster, StubSchemaRegistry, ThreadedCluster, read_topic

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "aioproducer" / "docs"
TESTING = (DOCS / "testing.md").read_text(encoding="utf-8")
SERIALIZERS = (DOCS / "serializers.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_tests_in_the_guide_to_testing_pass(tmp_path: Path) -> None:
    tests = blocks(TESTING)
    for number, test in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "aioproducer.testing.plugin"]
    command += ["-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"]
    command += ["--strict-markers", "-p", "no:cacheprovider", str(tmp_path)]
    # Installed plugins stay out, so that it does not matter whether this one is among them.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(tests)} passed" in done.stdout


async def test_the_snippets_about_serializers_work(capsys: pytest.CaptureFixture[str]) -> None:
    stub = StubSchemaRegistry()

    def registry(url: str, **options: Any) -> SchemaRegistry:
        return SchemaRegistry(url, transport=stub.transport, **options)

    async with EmbeddedCluster(topics={"orders": 1, "customers": 1}) as cluster:
        servers = cluster.bootstrap_servers
        scope: dict[str, Any] = {"Producer": Producer}
        snippets = blocks(SERIALIZERS)
        *others, first_registered, deployed = snippets
        # A schema has to be registered before records use it.
        for snippet in (*others, first_registered.split("async with")[0], deployed):
            await _run(snippet.replace("localhost:9092", servers), scope, registry)
        await _run(first_registered.replace("localhost:9092", servers), scope, registry)
        orders = (await read_topic(servers, "orders"))[0]
        customers = (await read_topic(servers, "customers"))[0]
    assert [record.value for record in orders] == [
        b'{"id":1,"lines":[2,3]}',
        b"{'id': 1}",
        b"{'id': 1}",
    ]
    assert tuple(orders[1].headers) == (("value-format", b"compact"),)
    assert customers[0].value == b"\x00\x00\x00\x00\x01\x06Ada\x02\x48"
    assert capsys.readouterr().out.startswith("orders value id\n(")


async def _run(snippet: str, scope: dict[str, Any], registry: Any) -> None:
    """Runs a snippet with `await` in it; what it defines, the next one knows."""
    body = textwrap.indent(snippet, "    ") + "\n    globals().update(locals())\n"
    scope["_registry"] = registry
    body = body.replace("SchemaRegistry(", "_registry(")
    exec(f"async def snippet():\n{body}", scope)
    await scope["snippet"]()


def test_names_in_the_guides_exist() -> None:
    for text, module in ((TESTING, testing), (SERIALIZERS, serializers)):
        for names in re.findall(rf"from {module.__name__} import (.*)", text):
            for name in names.split(", "):
                assert name in module.__all__
    for name in re.findall(r"`(\w+Serializer)\b", SERIALIZERS):
        assert name in serializers.__all__


def test_every_public_name_can_be_imported() -> None:
    for module in (serializers, testing):
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = module.nothing


# -- the command line -----------------------------------------------------------------------------

CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
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
    """What a command prints, on both streams; what needs no shell costs no process."""
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
