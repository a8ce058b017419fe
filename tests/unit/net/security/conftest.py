"""An authority, brokers with security, and the watch over secrets in every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.security.certificates import Authority
from support.security.leaks import Evidence, collected


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(autouse=True)
def evidence() -> Iterator[Evidence]:
    """The output and the log of the test; it must not hold a secret."""
    with collected() as evidence:
        yield evidence
    assert evidence.found() == []
