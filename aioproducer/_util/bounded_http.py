"""One HTTP exchange whose memory is bounded, whatever the other side sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


class UnboundedAnswerError(Exception):
    """The response is longer than allowed, or compressed without a request for that."""


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None,
    longest: int,
) -> tuple[int, bytes]:
    """Return the status and the body of one response; the caller bounds the time.

    Raises:
        UnboundedAnswerError: the body is compressed, or has more than `longest` bytes.
        httpx.RequestError: the request could not be made.
    """
    asked = {**headers, "Accept-Encoding": "identity"}
    async with client.stream(method, url, headers=asked, content=content) as response:
        # What is not compressed cannot grow: so the bound is one of memory, too.
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnboundedAnswerError("it is compressed, which was not requested")
        received = bytearray()
        async for part in response.aiter_bytes():
            received += part
            if len(received) > longest:
                raise UnboundedAnswerError(f"it exceeds {longest} bytes")
        return response.status_code, bytes(received)
