"""The guides in `aioproducer/docs` say what is true: every snippet runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioproducer import serializers, testing

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "aioproducer" / "docs"
TESTING = (DOCS / "testing.md").read_text(encoding="utf-8")
SERIALIZERS = (DOCS / "serializers.md").read_text(encoding="utf-8")


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
