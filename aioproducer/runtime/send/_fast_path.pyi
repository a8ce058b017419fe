import asyncio
from collections.abc import Callable, Container
from typing import Any

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.batching.partitioners import BuiltInPartitioner
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.runtime.delivery._delivery_py import Delivery
from aioproducer.runtime.send.fast_path_protocol import FastPathSettings, OpenBatch
from aioproducer.runtime.send.validation import PartitionChoice
from aioproducer.types import HeadersInput, TopicMetadata

def wall_clock_ms() -> int: ...

class FastPath:
    waiting: int
    records_this_turn: int
    appended: int
    ceiling: int
    check_transaction: Callable[[], None] | None
    def __init__(
        self,
        settings: FastPathSettings,
        *,
        metadata: Metadata,
        loop: asyncio.AbstractEventLoop,
        wall_ms: Callable[[], int],
        choice: PartitionChoice,
        on_full_turn: Callable[[], object],
        open_batch: OpenBatch,
        send_spare: Callable[[], None],
    ) -> None: ...
    @property
    def open(self) -> bool: ...
    def append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        awaited: bool = False,
        /,
    ) -> Delivery | None: ...
    def append_nowait(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        /,
    ) -> Delivery | None: ...
    def delivery(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp_ms: int,
        key_size: int,
        value_size: int,
    ) -> Delivery: ...
    def use_batch(
        self,
        meta: TopicMetadata,
        batch: ProducerBatch,
        sticky: BuiltInPartitioner | None,
        is_spare: bool = False,
        /,
    ) -> None: ...
    def count_sticky_bytes(self, topic: str) -> None: ...
    def drop_topic(self, topic: str) -> None: ...
    def retain(self, topics: Container[str]) -> None: ...
    def close(self) -> None: ...

def install_native_send(
    cls: type, name: str, function: Callable[..., object], waits: bool, /
) -> None: ...
