"""JSON of peers: what has too many values is refused before they are made."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._util.bounded_json import JsonLimitError, decoded_json, decoded_object

LONGEST = 2 << 20


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * 600_000 + "[]]",
        "[" + "{}," * 600_000 + "{}]",
        "[" + "1," * 900_000 + "1]",
        "[" + '"",' * 600_000 + '""]',
        "[" + '"\\\\",' * 400_000 + '""]',
        '["\\\\\\"",' + "[]," * 600_000 + "[]]",
        "[" * 1_000_000,
        '"' * 2_000_000,
        " " * 3_000_000,
    ],
)
def test_values_beyond_the_limit_are_refused_before_they_are_made(text: str) -> None:
    data = text.encode()
    tracemalloc.start()
    try:
        with pytest.raises(JsonLimitError, match=r"too many values|longer than 2097152"):
            decoded_json(data, LONGEST)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20_000_000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match=r"codec|Expecting|Invalid"):
        decoded_json('{"a": [1]}'.encode(encoding), LONGEST)


def test_a_schema_of_many_values_is_one_value() -> None:
    schema = json.dumps({"fields": [{"name": "f", "doc": 'a "quoted" word, [or] {two}'}] * 20_000})
    assert decoded_json(json.dumps({"schema": schema}).encode(), LONGEST) == {"schema": schema}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.booleans(),
)
def test_json_within_the_limits_is_decoded_as_usual(value: Any, in_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=in_ascii)
    assert decoded_json(text.encode("utf-8"), LONGEST) == json.loads(text)
    assert decoded_json(text, LONGEST) == json.loads(text)


@given(st.text(alphabet='[]{},:"\\1 ', max_size=60))
def test_no_text_hides_values_from_the_count(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        return
    count = text.count('"') // 2 + sum(map(json.dumps(json.loads(text)).count, ",[{"))
    decoded_json(text, LONGEST, most_values=count)


@pytest.mark.parametrize(
    "data", [b'["a"]', b"no JSON", b"\xff", b"[" * 100_000, b'"' * 3_000_000], ids=range(5)
)
def test_what_is_no_object_is_an_empty_one(data: bytes) -> None:
    assert decoded_object(data, LONGEST) == {}
    assert decoded_object(b'{"a": 1}', LONGEST) == {"a": 1}
