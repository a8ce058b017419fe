"""The walks of CONTRIBUTING.md lead through files that exist, and their steps work."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from aioproducer.config import OPTIONS
from aioproducer.config.table import CoreOptions
from aioproducer.config.table_security import SecurityOptions
from aioproducer.errors.advice import ADVICE

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout")


def walks() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition("## Walks")[2].partition("\n## ")[0]


def test_every_file_on_the_way_exists() -> None:
    named = re.findall(r"`((?:aioproducer|tests|\.ci)/[\w./]+)`", walks())
    assert len(named) > 15
    for path in named:
        assert (ROOT / path).exists(), path


def test_every_tool_on_the_way_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    named = set(re.findall(r"python -m (tools\.\w+)", walks()))
    assert named
    for module in named:
        assert importlib.import_module(module)


def test_every_option_is_a_field_of_the_two_tables() -> None:
    fields = {*CoreOptions.__dataclass_fields__, *SecurityOptions.__dataclass_fields__}
    assert fields >= OPTIONS.keys()


def test_advice_has_a_text_for_each_code() -> None:
    assert all(text and not text.endswith(".") for text in ADVICE.values())


def test_the_files_for_the_place_that_hosts_the_repository_are_well_formed() -> None:
    found = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(found) >= 5
    for path in found:
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), path.name
