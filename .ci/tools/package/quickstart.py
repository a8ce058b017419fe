"""Runs the quickstart of README.md in an empty folder and times it.

    python -m tools.package.quickstart [WHEEL]

The steps are read from README.md and run one by one. They differ in two points from what a reader
does: pip installs a wheel of this repository, and the brokers listen on a free port.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
BAR_S = 60.0
_FENCE = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_READY_S = 60.0


def steps(readme: str) -> Iterator[tuple[str, str]]:
    """The commands and programs of the section, in order."""
    section = readme.split("## Quickstart", 1)[1].split("\n## ", 1)[0]
    for kind, block in _FENCE.findall(section):
        if kind == "python":
            yield "program", block
        else:
            for line in block.splitlines():
                yield "command", line.removeprefix("$ ").partition("  #")[0].rstrip()


def main(wheel: Path) -> int:
    """Do all steps; 0 if they worked within the bar."""
    wheel = wheel.resolve()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    port = _free_port()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _Shell(Path(folder), port) as shell:
        for kind, text in steps(readme):
            if kind == "program":
                (Path(folder) / "first.py").write_text(
                    text.replace("localhost:9092", f"localhost:{port}"), encoding="utf-8"
                )
                continue
            command = text.replace("'aioproducer[cli]'", f"'aioproducer[cli] @ {wheel.as_uri()}'")
            shell.type(command)
            print(f"{time.monotonic() - begin:6.1f} s  {text}", flush=True)
    total = time.monotonic() - begin
    print(f"{total:6.1f} s  from an empty folder to a record read back (bar: {BAR_S:.0f} s)")
    return 0 if total < BAR_S else 1


class _Shell:
    """Runs commands one after the other; `&` leaves one running."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._left_running: list[subprocess.Popen[str]] = []
        # Python's variables of this process do not reach the commands.
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        } | {"PIP_QUIET": "1", "AIOPRODUCER_BOOTSTRAP_SERVERS": f"localhost:{port}"}

    def __enter__(self) -> _Shell:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._left_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(20)

    def type(self, command: str) -> None:
        """Run a command to its end, or, with `&`, until it is ready."""
        if command.startswith("source "):
            scripts = self._folder / ".venv" / "bin"
            self._environment["PATH"] = f"{scripts}{os.pathsep}{self._environment['PATH']}"
            return
        if command.endswith("&"):
            command = command.removesuffix("&").rstrip() + f" --port {self._port}"
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._left_running.append(process)
            _await_listener(self._port)
            return
        subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            check=True,
            timeout=600,
        )


def _wheel() -> Path:
    """The wheel in `dist/` that the README's `python3` can install."""
    version = "import sys; print('cp%d%d' % sys.version_info[:2])"
    tag = subprocess.check_output(["python3", "-c", version], text=True).strip()
    wheels = list((ROOT / "dist").glob(f"*-{tag}-*.whl"))
    if not wheels:
        raise SystemExit(f"dist/ has no wheel for python3, which is {tag}: see `make package`")
    return wheels[0]


def _free_port() -> int:
    """The first of three ports in a row that are free, below those that systems give away."""
    for port in random.sample(range(20_000, 30_000, 3), 100):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in range(port, port + 3):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return port
    raise SystemExit("no three ports in a row are free")


def _await_listener(port: int) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit("the brokers did not come up")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else _wheel()))
