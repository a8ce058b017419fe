"""The wait for a topic that may not exist yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer.errors import MetadataTimeoutError
from aioproducer.loader.topic import wait_for_topic
from aioproducer.testing import VirtualKafka

OPTIONS = {"allow_auto_create_topics": False, "max_block_ms": 3000}


@pytest.mark.parametrize("within_s", [1.0, 60.0])
def test_a_missing_topic_is_waited_for_as_long_as_asked_whatever_max_block_ms_is(
    run_virtual: Callable[..., Any], within_s: float
) -> None:
    async def waiting(kafka: VirtualKafka) -> None:
        async with kafka.producer(**OPTIONS) as producer:
            began = kafka.now
            with pytest.raises(MetadataTimeoutError) as caught:
                await wait_for_topic(producer, "missing", within_s)
            assert kafka.now - began == pytest.approx(within_s, abs=0.1)
            assert caught.value.elapsed_ms == pytest.approx(1000 * within_s, abs=100)
            assert caught.value.topic == "missing"

    run_virtual(waiting)


def test_a_topic_that_is_created_after_max_block_ms_is_found(
    run_virtual: Callable[..., Any],
) -> None:
    async def waiting(kafka: VirtualKafka) -> None:
        async with kafka.producer(**OPTIONS) as producer:
            loop = producer.event_loop
            assert loop is not None
            loop.call_later(10, kafka.create_topic, "late")
            await wait_for_topic(producer, "late", 60)
            assert 10 <= kafka.now < 15

    run_virtual(waiting)
