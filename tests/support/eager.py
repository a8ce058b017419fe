"""Eager tasks (Python 3.12), which some applications use on their loop."""

from __future__ import annotations

import asyncio
import sys

import pytest


def start_tasks_eagerly() -> None:
    """Makes the running loop run the first steps of a task when it is created, or skips."""
    if sys.version_info < (3, 12):
        pytest.skip("there are no eager tasks")
    else:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
