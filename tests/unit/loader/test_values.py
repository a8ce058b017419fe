from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.no_time import NoTime

from aioproducer.loader.values import (
    WrittenNumber,
    json_float,
    partition_number,
    timestamp_ms,
    to_bytes,
    to_json,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        ("é", "é".encode()),
        (7, b"7"),
        (2.5, b"2.5"),
        (True, b"true"),
        (Decimal("1.10"), b"1.10"),
        (date(2013, 1, 2), b"2013-01-02"),
        (UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
    ],
)
def test_value_becomes_bytes(value: object, expected: bytes | None) -> None:
    assert to_bytes(value) == expected


def test_text_with_undecodable_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="not valid UTF-8"):
        to_bytes(b"\xff".decode("utf-8", "surrogateescape"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@given(json_values)
def test_json_says_what_the_value_is(value: object) -> None:
    assert json.loads(to_json(value)) == value


def test_json_of_what_json_has_not() -> None:
    value = {
        "nan": float("nan"),
        "deep": [float("inf"), 1.5],
        "bytes": b"text",
        "binary": b"\xff",
        "when": datetime(2013, 1, 2, 3, tzinfo=UTC),
    }
    assert json.loads(to_json(value)) == {
        "nan": None,
        "deep": [None, 1.5],
        "bytes": "text",
        "binary": "/w==",
        "when": "2013-01-02T03:00:00+00:00",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, b"NaN"), (math.inf, b"Infinity"), (-math.inf, b"-Infinity"), (1.5, b"1.5")],
)
def test_a_float_that_json_has_not_is_the_text_that_spark_casts_it_to(
    value: float, text: bytes
) -> None:
    assert to_bytes(value) == text


@pytest.mark.parametrize("text", ["1.5", "0.30000000000000004", "1e2", "5e-324", "-0.0"])
def test_a_number_of_json_that_a_float_equals_is_that_float(text: str) -> None:
    assert type(json_float(text)) is float
    assert json_float(text) == float(text)


@pytest.mark.parametrize(
    "text", ["1e400", "-1e400", "1e-400", "12345678901234567.89", "1e99999999999999999999"]
)
def test_a_number_of_json_that_no_float_equals_is_a_key_as_it_is_written(text: str) -> None:
    assert isinstance(json_float(text), WrittenNumber)
    assert to_bytes(json_float(text)) == text.encode()


def test_a_number_of_json_that_would_be_infinity_is_not_written_as_null() -> None:
    with pytest.raises(ValueError, match="'1e400' is too large a number"):
        to_json({"x": [json_float("1e400")]})


def test_value_without_json_form_is_refused() -> None:
    with pytest.raises(ValueError, match="type object has no JSON form"):
        to_json({"a": object()})


def test_keys_that_are_no_texts_have_no_json_form() -> None:
    with pytest.raises(ValueError, match="has no JSON form"):
        to_json({(1, 2): 3})
    with pytest.raises(ValueError, match="has no JSON form"):
        to_json({"a": math.nan, "b": {(1, 2): 3}})


def test_keys_become_texts() -> None:
    keys = {date(2013, 1, 2): 1, Decimal("1.50"): math.nan, b"\xff": 3, 4: 4, math.inf: 5}
    made = to_json({"map": keys})
    assert made == '{"map":{"2013-01-02":1,"1.50":null,"/w==":3,"4":4,"inf":5}}'


MOMENT = datetime(2013, 1, 1, 10, tzinfo=UTC)
MOMENT_MS = 1_357_034_400_000


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (None, "ms", None),
        ("", "ms", None),
        ("2013-01-01T10:00:00Z", "ms", MOMENT_MS),
        ("2013-01-01T11:00:00+01:00", "ms", MOMENT_MS),
        ("2013-01-01 10:00:00", "ms", MOMENT_MS),
        ("1357034400.5", "s", MOMENT_MS + 500),
        (1357034400.123, "s", MOMENT_MS + 123),
        (1357034400123.0, "ms", MOMENT_MS + 123),
        (MOMENT_MS, "ms", MOMENT_MS),
        (1357034400, "s", MOMENT_MS),
        (MOMENT_MS * 1000 + 999, "us", MOMENT_MS),
        (MOMENT_MS * 10**6, "ns", MOMENT_MS),
        (MOMENT, "s", MOMENT_MS),
        (MOMENT.astimezone(timezone(timedelta(hours=3))), "ms", MOMENT_MS),
        (date(1970, 1, 2), "ms", 86_400_000),
        (0, "ms", 0),
    ],
)
def test_timestamp_becomes_milliseconds(value: object, unit: str, expected: int | None) -> None:
    assert timestamp_ms(value, unit) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", ["soon", "1_000", "\u0661", "NaN", True, [], float("inf"), -1, "1969-12-31"]
)
def test_what_is_no_timestamp_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"timestamp|before 1970"):
        timestamp_ms(value, "ms")


@pytest.mark.parametrize("value", ["1e999999", "1e999990", "9" * 30, "1e99999999999", 10**4000])
def test_a_number_without_bound_is_no_timestamp_and_takes_no_time(value: object) -> None:
    with pytest.raises(ValueError, match=r"no timestamp|later than"):
        timestamp_ms(value, "ms")  # a minute, or OverflowError


@given(st.integers(0, 2**40))
def test_units_agree(millis: int) -> None:
    assert timestamp_ms(millis, "ms") == timestamp_ms(millis * 1000, "us") == millis
    assert timestamp_ms(str(millis * 10**6), "ns") == millis


def test_partition_numbers() -> None:
    assert [partition_number(value) for value in (None, "", "7", 3, 2.0)] == [None, None, 7, 3, 2]
    assert partition_number(Decimal("2.0")) == 2
    decimals = (Decimal("1e999990"), Decimal("NaN"), Decimal("-1e999990"), Decimal("2.5"))
    for bad in ("x", "1_0", "\u0661", "-1", -1, 1.5, 2**31, float("nan"), object(), *decimals):
        with pytest.raises(ValueError, match="no partition number"):
            partition_number(bad)


def test_no_time_is_null() -> None:
    missing = NoTime(2026, 1, 2)
    assert to_bytes(missing) is None
    assert to_json({"at": [missing]}) == '{"at":[null]}'
    assert timestamp_ms(missing, "ms") is None
