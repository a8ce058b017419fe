"""The token of a query: read as Starlette reads it, and removed from what servers log."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from aioproducer.starlette import take_token


@pytest.mark.parametrize(
    ("query", "left"),
    [
        (b"", b""),
        (b"token=s3same", b""),
        (b"a=1&token=s3same&b=%20", b"a=1&b=%20"),
        (b"%74oken=s3%73ame", b""),
        (b"token=other&token=s3same", b""),
        (b"token=a+b%2Bc%C3%A9", b""),
        (b"token", b""),
        (b"tokens=1&&Token=2", b"tokens=1&&Token=2"),
        (b"token=\xff%ff", b""),
    ],
)
def test_a_token_is_taken_out_of_the_query(query: bytes, left: bytes) -> None:
    expected = QueryParams(query).get("token", "")
    scope = {"type": "http", "query_string": query}
    assert take_token(scope) == expected
    assert scope["query_string"] == left
    assert take_token(scope) == expected


def test_a_scope_does_not_show_the_token_it_had() -> None:
    scope = {"type": "http", "query_string": b"token=s3same"}
    take_token(scope)
    assert "s3same" not in repr(scope)
