"""A task is noted by its creator before it runs."""

from __future__ import annotations

import asyncio

from support.eager import start_tasks_eagerly

from aioproducer._util.tasks import start_later


async def test_a_task_begins_in_a_later_turn_also_with_an_eager_task_factory() -> None:
    start_tasks_eagerly()
    steps = []

    async def work() -> str:
        steps.append("work")
        return "done"

    task = start_later(asyncio.get_running_loop(), work(), name="a name")
    steps.append("noted")
    assert await task == "done"
    assert steps == ["noted", "work"]
    assert task.get_name() == "a name"
