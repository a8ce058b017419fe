"""Coroutine functions in all the forms in which an application may pass one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from starlette.applications import Starlette

from aioproducer._checks.callables import makes_coroutines
from aioproducer.errors import ConfigError
from aioproducer.loader import LoadOptions
from aioproducer.spark import batch_writer
from aioproducer.starlette import answer_kafka_errors


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


CALLBACKS: dict[str, Callable[[Callable[..., Any]], object]] = {
    "on_refusal": lambda f: answer_kafka_errors(Starlette(), on_refusal=f),
    "on_progress": lambda f: LoadOptions(on_progress=f),
    "on_batch": lambda f: batch_writer(
        {"kafka.bootstrap.servers": "a:1", "topic": "t"}, on_batch=f
    ),
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_whose_coroutine_would_not_be_awaited_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a plain function, not the coroutine"):
        CALLBACKS[name](later)
    CALLBACKS[name](print)
