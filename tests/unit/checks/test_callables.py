"""Coroutine functions in all the forms in which an application may pass one."""

from __future__ import annotations

from functools import partial
from unittest.mock import AsyncMock, Mock

import pytest

from aioproducer._checks.callables import makes_coroutines


async def later(*_: object) -> None:
    """A coroutine function."""


class Later:
    """Its call is a coroutine function."""

    async def __call__(self, *_: object) -> None:
        """Do nothing."""

    async def method(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "function",
    [later, Later(), Later().method, AsyncMock(), partial(later), partial(partial(Later(), 1), 2)],
    ids=["function", "object", "method", "mock", "partial", "partial of an object"],
)
def test_what_only_makes_a_coroutine_is_found(function: object) -> None:
    assert makes_coroutines(function)


@pytest.mark.parametrize(
    "function", [print, Mock(), partial(print), None], ids=["function", "mock", "partial", "none"]
)
def test_anything_else_is_a_plain_function(function: object) -> None:
    assert not makes_coroutines(function)
