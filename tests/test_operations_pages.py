"""The pages about operating a producer: their programs run, their options and names exist."""

from __future__ import annotations

import asyncio
import builtins
import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import DOCS, blocks, page

from aioproducer import errors
from aioproducer.config import ProducerConfig
from aioproducer.testing import ThreadedCluster, end_offsets

PAGES = [
    *("comparison", "cookbook", "deployment", "faq", "guarantees", "managed", "permissions"),
    *("troubleshooting", "versions"),
]


def test_a_service_that_is_ended_by_sigterm_delivers_what_it_accepted(tmp_path: Path) -> None:
    (program,) = blocks(page("deployment"))
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        text = program.replace("localhost:9092", servers)
        (tmp_path / "app.py").write_text(text, encoding="utf-8")
        service = subprocess.Popen([sys.executable, str(tmp_path / "app.py")])
        try:
            asyncio.run(_until_something_arrived(servers))
            service.send_signal(signal.SIGTERM)
            assert service.wait(30) == 0
        finally:
            service.kill()
            service.wait()


async def _until_something_arrived(servers: str) -> None:
    for _ in range(300):
        if any((await end_offsets(servers, "orders")).values()):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the service has sent nothing")


def test_the_snippets_about_logging_work(capsys: pytest.CaptureFixture[str]) -> None:
    levels, formatter, _ = blocks(page("logging"))  # `test_snippets` runs the third
    root, net = logging.getLogger(), logging.getLogger("aioproducer.net")
    ours = logging.getLogger("aioproducer")
    before = (root.level, net.level, [*root.handlers], [*ours.handlers])
    try:
        exec(levels, {})
        assert net.level == logging.ERROR
        exec(formatter, {})
        ours.warning("broker %d is gone", 1)
        said = capsys.readouterr().err.splitlines()
        assert json.loads(said[0]) == {
            "level": "WARNING",
            "logger": "aioproducer",
            "message": "broker 1 is gone",
        }
    finally:
        root.setLevel(before[0])
        net.setLevel(before[1])
        root.handlers[:], ours.handlers[:] = before[2], before[3]


def test_the_properties_of_managed_services_are_valid(tmp_path: Path) -> None:
    found = re.findall(r"```properties\n(.*?)```", page("managed"), re.DOTALL)
    assert len(found) == 5
    for text in found:
        properties = tmp_path / "client.properties"
        properties.write_text(text.replace(":PORT", ":9093"), encoding="utf-8")
        config = ProducerConfig.from_file(str(properties), allow=["aws"])
        assert config.security_protocol.endswith("SSL")


@pytest.mark.parametrize("name", PAGES)
def test_every_error_that_a_page_names_exists(name: str) -> None:
    for error in re.findall(r"`([A-Z]\w+Error)`", page(name)):
        assert hasattr(errors, error) or hasattr(builtins, error), error


@pytest.mark.parametrize("name", PAGES)
def test_every_option_that_a_page_sets_exists(name: str) -> None:
    known = set(ProducerConfig.__dataclass_fields__)
    for option in re.findall(r"`([a-z]+(?:_[a-z]+)+)=", page(name)):
        assert option in known | {"allow"}, option


def test_every_page_is_on_the_site() -> None:
    table = (DOCS.parents[1] / ".ci" / "tools" / "site" / "pages.py").read_text(encoding="utf-8")
    for path in DOCS.glob("*.md"):
        assert f'"{path.stem}"' in table, path.name


@pytest.mark.skipif(os.name == "nt", reason="systemd and signals")
def test_the_loggers_that_the_page_names_exist() -> None:
    text = page("logging")
    for name in re.findall(r"`(aioproducer\.[a-z]+)`", text):
        layer = name.removeprefix("aioproducer.")
        sources = DOCS.parent.rglob("*.py")
        assert any(f'log.get("{layer}")' in path.read_text(encoding="utf-8") for path in sources)
