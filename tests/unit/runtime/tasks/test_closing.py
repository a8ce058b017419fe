"""Remains of a producer whose loop is closed."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aioproducer.runtime.tasks.closing import silence, tasks_named


@pytest.mark.parametrize("is_silenced", [True, False])
def test_silenced_tasks_are_destroyed_without_a_report(is_silenced: bool) -> None:
    loop = asyncio.new_event_loop()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def start() -> None:
        for name in ("mine-1", "mine-2"):
            loop.create_task(asyncio.sleep(60), name=name)  # noqa: RUF006 - it is to be lost
        await asyncio.sleep(0)

    loop.run_until_complete(start())
    assert sorted(task.get_name() for task in tasks_named(loop, "mine-")) == ["mine-1", "mine-2"]
    if is_silenced:
        silence(tasks_named(loop, "mine-"))
    loop.close()
    gc.collect()
    destroyed = ["Task was destroyed but it is pending!"] * 2
    assert [each["message"] for each in reported] == ([] if is_silenced else destroyed)
