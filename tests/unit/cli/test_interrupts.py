"""Signals of a command on a loop without signal handlers, as those of Windows are."""

from __future__ import annotations

import asyncio
import signal

import pytest

from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.interrupts import Interrupts


class LoopWithoutSignals(asyncio.SelectorEventLoop):
    add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler
    remove_signal_handler = asyncio.AbstractEventLoop.remove_signal_handler


def run_interrupted(interrupts: Interrupts) -> None:
    """Run a command that waits, and gets Ctrl-C."""

    async def main() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        with interrupts.caught(task):
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            await task

    with asyncio.Runner(loop_factory=LoopWithoutSignals) as runner:
        runner.run(main())


def test_ctrl_c_aborts_a_command_on_a_loop_without_signal_handlers() -> None:
    interrupts = Interrupts()
    with pytest.raises(asyncio.CancelledError):
        run_interrupted(interrupts)
    assert interrupts.code == ExitCode.INTERRUPTED


def test_handlers_of_signals_are_restored_on_a_loop_without_signal_handlers() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(asyncio.CancelledError):
        run_interrupted(Interrupts())
    assert {number: signal.getsignal(number) for number in before} == before
