"""Records with an asynchronous serializer that interceptors see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer import RecordMetadata
from aioproducer.errors import WouldBlockError
from aioproducer.types import HeaderPairs


class Reports:
    """An interceptor that keeps what is reported to it."""

    def __init__(self) -> None:
        self.seen: list[tuple[RecordMetadata, BaseException | None, HeaderPairs]] = []

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
    ) -> None:
        self.seen.append((metadata, error, headers))


async def encode(data: str) -> bytes:
    await asyncio.sleep(1)
    return data.encode()


@pytest.mark.parametrize("part", ["key", "value"])
def test_send_nowait_names_the_serializer_that_has_to_wait_and_reports_the_record(
    part: str,
) -> None:
    reports = Reports()
    parts: dict[str, Any] = {part: "v"}
    options: dict[str, Any] = {f"{part}_serializer": encode}

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            with pytest.raises(WouldBlockError, match=f"the {part}_serializer") as caught:
                producer.send_nowait("t", **parts, partition=0, timestamp_ms=7)
            [(metadata, error, headers)] = reports.seen
            assert (metadata.topic, metadata.partition, metadata.timestamp_ms) == ("t", 0, 7)
            assert (metadata.offset, error, headers) == (None, caught.value, ())
        assert stage.values("t") == []

    play(act, interceptor_classes=[reports], **options)


def test_a_record_is_sent_as_given_once_its_serializers_have_finished() -> None:
    reports = Reports()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            sent = await producer.send_and_wait(
                "t", "v", "k", headers={"h": b"1"}, partition=0, timestamp_ms=7
            )
        [record] = [record for batch in stage.batches("t") for record in batch.records()]
        assert (record.key, record.value, record.timestamp_ms) == (b"k", b"v", 7)
        assert reports.seen == [(sent, None, (("h", b"1"),))]

    play(act, interceptor_classes=[reports], key_serializer=encode, value_serializer=encode)
