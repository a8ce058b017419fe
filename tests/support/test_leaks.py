"""The watch over leaks finds each kind of leak, and nothing where there is none."""

from __future__ import annotations

import asyncio

import pytest

from support import leaks
from support.leaks import LeakError, no_leaks


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_GRACE_S", 0.05)


async def accept_and_close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_task_left_running_is_found_and_cancelled() -> None:
    with pytest.raises(LeakError, match=r"task still running: .*leaked"):
        async with no_leaks():
            task = asyncio.create_task(asyncio.sleep(60), name="leaked")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_is_about_to_end_is_waited_for() -> None:
    async with no_leaks():
        task = asyncio.create_task(asyncio.sleep(0.01))
    assert task.done()


async def test_a_task_that_was_there_before_is_ignored() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    async with no_leaks():
        pass
    task.cancel()


async def test_a_callback_that_raises_is_found() -> None:
    with pytest.raises(LeakError, match=r"unhandled: .*ZeroDivisionError"):
        async with no_leaks():
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            await asyncio.sleep(0)


async def test_a_task_whose_error_was_not_retrieved_is_found() -> None:
    async def fail() -> None:
        raise ValueError("lost")

    with pytest.raises(LeakError, match=r"never retrieved.*ValueError: lost"):
        async with no_leaks():
            task = asyncio.create_task(fail())
            await asyncio.wait([task])
            del task


async def test_an_open_transport_is_found() -> None:
    if not hasattr(asyncio.get_running_loop(), "_transports"):
        pytest.skip("this event loop does not list its transports; ResourceWarning finds them")
    server = await asyncio.start_server(accept_and_close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(LeakError, match=r"transport still open: .*Transport"):
        async with no_leaks():
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_a_closed_connection_is_no_leak() -> None:
    async with no_leaks():
        server = await asyncio.start_server(accept_and_close, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()


async def test_an_error_inside_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        async with no_leaks():
            _ = 1 / 0
