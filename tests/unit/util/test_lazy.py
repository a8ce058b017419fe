"""Public names that are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

LAZY_PACKAGES = ["aioproducer.serializers", "aioproducer.spark", "aioproducer.testing"]


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_every_public_name_of_a_lazy_package_can_be_imported(package: str) -> None:
    module = import_module(package)

    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_a_name_that_a_lazy_package_does_not_have_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = import_module(package).Nothing


def test_a_lazy_name_is_kept_after_its_first_use() -> None:
    from aioproducer.serializers import JsonSerializer

    assert vars(sys.modules["aioproducer.serializers"])["JsonSerializer"] is JsonSerializer
