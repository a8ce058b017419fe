"""Shared parts of the tests of directly sent records."""

from __future__ import annotations

import asyncio

from aioproducer import Producer


def transport_of(producer: Producer) -> asyncio.WriteTransport:
    """The transport to broker 1."""
    assert producer._engine is not None
    link = producer._engine.client.link(1)
    assert link is not None
    connection = link.ready_connection(asyncio.get_running_loop().time())
    assert connection is not None
    return connection._transport


def send_by_queue(producer: Producer) -> None:
    """Keep the producer from sending records directly."""
    assert producer._engine is not None
    producer._engine.appender.batch_appender.drop_spare()
    producer._engine.sender_task._sends_directly = False
    producer._engine.sender_task._routes.clear()
