"""No public name, parameter or default changes unnoticed."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from aioproducer.records import IMPLEMENTATION

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_name("public_api.txt")


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons word signatures anew")
@pytest.mark.skipif(IMPLEMENTATION != "native", reason="signatures of the native core")
def test_the_public_api_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    from tools.public_api import text

    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    changes = "\n".join(difflib.unified_diff(recorded, text().splitlines(), lineterm="", n=1))
    assert not changes, f"if this is meant: PYTHONPATH=.ci python -m tools.public_api\n{changes}"


NOT_IMPORTED = frozenset(
    ["DataFrame", "Message", "SparkSession", "StructType", "TracerProvider", "httpx", "random"]
)
"""Names of optional packages in annotations, and what the logic of test brokers may not import."""


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")
def test_annotations_of_public_names_can_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    from tools.public_api import public_objects

    unknown = {}
    for name, value in public_objects():
        try:
            get_type_hints(value)
        except NameError as error:
            if error.name not in NOT_IMPORTED:
                unknown[name] = error.name
    assert not unknown
