"""An exception that comes while the fast path is shown a batch (pure form, which has lines)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aioproducer.runtime.send._fast_path_py import FastPath
from aioproducer.runtime.send.validation import PartitionChoice


class Builder:
    """Raises once as its owner is set."""

    def __init__(self) -> None:
        self.__dict__["asked"] = 0

    def __setattr__(self, name: str, value: object) -> None:
        raise KeyboardInterrupt

    def try_append(self, *parts: object) -> int:
        self.__dict__["asked"] += 1
        return 0


async def test_builder_without_an_owner_gets_no_record() -> None:
    meta = SimpleNamespace(name="t", partitions=(0,))
    metadata = SimpleNamespace(version=1, topic=lambda name: meta)
    opened: list[object] = []
    batches = SimpleNamespace(
        size_limit=1000,
        hashes_keys=True,
        sticks=True,
        append_checked=lambda *record: opened.append(record),
        send_spare=lambda: None,
        count_till_next_turn=lambda: None,
    )
    fast_path = FastPath(
        batches,
        10,
        metadata=metadata,
        loop=asyncio.get_running_loop(),
        wall_ms=lambda: 1,
        choice=PartitionChoice(lambda *_: 0),
    )
    builder = Builder()
    batch = SimpleNamespace(
        builder=builder, full=False, topic_partition=SimpleNamespace(partition=0)
    )
    with pytest.raises(KeyboardInterrupt):
        fast_path.use_batch(meta, batch, None)
    assert fast_path.append_nowait("t", b"v", None, None, 0, 1) is None
    assert len(opened) == 1
    assert not builder.asked
