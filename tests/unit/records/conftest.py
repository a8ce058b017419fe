"""The fixture that runs a test once per implementation of the builder."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture(params=["native", "pure"], scope="session")
def core(request: pytest.FixtureRequest) -> ModuleType:
    """The native core or its pure-Python implementation: the same tests hold for both."""
    try:
        return import_module(f"aioproducer.records._{request.param}")
    except ImportError:
        pytest.skip(f"the {request.param} core is not built")


@pytest.fixture(scope="session")
def both() -> tuple[ModuleType, ModuleType]:
    """The two implementations, to be compared with each other."""
    native = pytest.importorskip("aioproducer.records._native")
    return native, import_module("aioproducer.records._pure")
