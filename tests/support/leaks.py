"""Watches one event loop during one test: what was started there must have ended.

Owns: finding tasks and transports that outlive a test, and collecting the loop's reports of
unhandled errors. Not here: pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_GRACE_S = 1.0
"""How long tasks and transports that are about to end, such as closing connections, may take."""
_TURNS = 100


class LeakError(AssertionError):
    """A test left a task, a transport or an unhandled error on its event loop."""


@asynccontextmanager
async def no_leaks() -> AsyncIterator[None]:
    """Fail when the block leaves tasks or transports, or the loop had to report an error.

    What exists before the block, such as a cluster shared by a module, is ignored.

    Raises:
        LeakError: Something was left.
    """
    loop = asyncio.get_running_loop()
    reports: list[str] = []
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reports.append(_describe(context)))
    old_tasks, old_transports = asyncio.all_tasks(loop), _open_transports(loop)
    try:
        yield
        tasks = await _still_running(old_tasks)
        transports = await _still_open(loop, old_transports)
    finally:
        loop.set_exception_handler(handler)
    findings = [f"unhandled: {report}" for report in reports]
    findings += [f"task still running: {task!r}" for task in tasks]
    findings += [f"transport still open: {transport}" for transport in transports]
    for task in tasks:
        task.cancel()
    if findings:
        raise LeakError("the test left on its event loop:\n" + "\n".join(sorted(findings)))


async def _still_running(old: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    new = asyncio.all_tasks() - old - {asyncio.current_task()}
    if not new:
        return set()
    _, pending = await asyncio.wait(new, timeout=_GRACE_S)
    return pending


async def _still_open(loop: asyncio.AbstractEventLoop, old: set[str]) -> set[str]:
    """A server's end of a connection closes some turns after the client's."""
    for _ in range(_TURNS):
        if not _open_transports(loop) - old:
            break
        await asyncio.sleep(_GRACE_S / _TURNS)
    return _open_transports(loop) - old


def _open_transports(loop: asyncio.AbstractEventLoop) -> set[str]:
    """Return descriptions of the open socket transports; asyncio lists them, uvloop does not.

    Where the loop does not list them, an unclosed transport is found when it is collected: it then
    gives a ResourceWarning, which is an error here.
    """
    transports = dict(getattr(loop, "_transports", {})).values()
    return {repr(transport) for transport in transports if not transport.is_closing()}


def _describe(context: dict[str, Any]) -> str:
    exception = context.get("exception")
    facts = [str(context.get("message", ""))]
    facts += [
        f"{name}={context[name]!r}" for name in ("task", "future", "handle") if name in context
    ]
    if exception is not None:
        facts.append(f"{type(exception).__name__}: {exception}")
    return "; ".join(facts)
