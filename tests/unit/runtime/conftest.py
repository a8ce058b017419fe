"""The fixture that runs a test once per form of the fast path."""

from __future__ import annotations

from importlib import import_module

import pytest

from aioproducer.records import IMPLEMENTATION

from .send.fast_paths import form


@pytest.fixture(params=["native", "pure"])
def fast_path_form(request: pytest.FixtureRequest):
    """Use the native fast path, or the pure-Python one: the same tests hold for both."""
    if request.param == "pure":
        fast_path = import_module("aioproducer.runtime.send._fast_path_py")
        delivery = import_module("aioproducer.runtime.delivery._delivery_py")
    else:
        if IMPLEMENTATION != "native":
            pytest.skip("the native core is not in use")
        fast_path = import_module("aioproducer.runtime.send._fast_path")
        delivery = import_module("aioproducer.runtime.delivery._delivery")
    with form(fast_path, delivery):
        yield fast_path
