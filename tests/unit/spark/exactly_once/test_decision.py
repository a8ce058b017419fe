"""The record of a decision: any parts come back, anything else is refused."""

from __future__ import annotations

import base64
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioproducer._util.varints import varint
from aioproducer.spark.errors import DecisionRecordError
from aioproducer.spark.exactly_once.decision import (
    METADATA_LIMIT,
    Decision,
    Part,
    TransactionNames,
    decode,
    encode,
)
from aioproducer.types import PreparedTransaction

NAMES = TransactionNames("query")
WORKERS = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
NUMBERS = st.integers(0, 2**40)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    epoch = draw(st.integers(0, 2**60))
    workers = draw(st.lists(WORKERS, min_size=1, max_size=5))
    partitions = draw(st.lists(NUMBERS, unique=True, max_size=60).map(sorted))
    parts = [
        Part(
            partition,
            draw(NUMBERS),
            PreparedTransaction(
                NAMES.attempt(draw(st.sampled_from(workers)), epoch, draw(st.integers(0, 999))),
                draw(st.integers(0, 2**63 - 1)),
                draw(st.integers(0, 32_767)),
                draw(st.sampled_from([1, 2])),
            ),
        )
        for partition in partitions
    ]
    return Decision(epoch, draw(st.text(max_size=40)), tuple(parts))


@given(decisions())
def test_a_decision_comes_back_from_its_pieces(decision: Decision) -> None:
    pieces = encode(decision, NAMES)
    assert all(len(piece) <= METADATA_LIMIT and piece.isascii() for piece in pieces)
    assert decode(decision.epoch, dict(enumerate(pieces)), NAMES) == decision


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 60), st.data())
def test_a_damaged_record_is_refused_or_says_the_same(count: int, data: st.DataObject) -> None:
    decision = many(count, workers=3)
    (piece,) = encode(decision, NAMES)
    at = data.draw(st.integers(0, len(piece) - 1))
    changed = data.draw(st.characters().filter(lambda character: character != piece[at]))
    with pytest.raises(DecisionRecordError, match="cannot be read"):
        decode(8, {0: piece[:at]}, NAMES)
    # The last character has bits that mean nothing.
    with suppress(DecisionRecordError):
        assert decode(8, {0: piece[:at] + changed + piece[at + 1 :]}, NAMES) == decision


def many(count: int, *, workers: int) -> Decision:
    parts = tuple(
        Part(
            number,
            100_000 + number * 7919 % 999,
            PreparedTransaction(
                NAMES.attempt(
                    f"{number % workers * 0x9E3779B97F4A7C15 % 2**64:016x}", 8, number % 9
                ),
                7000 + number * 31 % 500,
                number % 3,
                2,
            ),
        )
        for number in range(count)
    )
    return Decision(8, "0d8b4f2e-8f3c-4a6e-9f3b-1c2d3e4f5a6b", parts)


def test_the_transactions_of_200_tasks_fit_into_one_partition() -> None:
    assert len(encode(many(200, workers=50), NAMES)) == 1


def test_a_missing_or_a_foreign_piece_is_noticed() -> None:
    decision = many(2000, workers=2000)
    pieces = encode(decision, NAMES)
    assert len(pieces) > 3
    whole = dict(enumerate(pieces))
    assert decode(8, whole | {len(pieces): "something else"}, NAMES) == decision
    others = encode(many(1990, workers=1990), NAMES)
    for wrong in (
        {number: piece for number, piece in whole.items() if number != 1},
        whole | {1: pieces[2]},
        whole | {1: others[1]},
        whole | {1: None},
        {},
    ):
        with pytest.raises(DecisionRecordError, match=r"transactional\.id\.prefix"):
            decode(8, wrong, NAMES)


def test_only_ids_of_attempts_are_remembered() -> None:
    part = Part(0, 1, PreparedTransaction("somebody-else", 1, 0, 2))
    with pytest.raises(DecisionRecordError, match="somebody-else"):
        encode(Decision(0, "", (part,)), NAMES)


@pytest.mark.parametrize(
    "name",
    [
        "query-driver",
        "query-w0123456789abcdef-0",
        "query-w0123456789abcde-0-1",
        "query-w0123456789abcdef-2-1",
        "query-w0123456789abcdef-0-1-",
        "query2-w0123456789abcdef-0-1",
    ],
)
def test_ids_of_others_are_distinguished(name: str) -> None:
    assert NAMES.read(name) is None
    assert NAMES.read(NAMES.attempt("0123456789abcdef", 7, 12)) == ("0123456789abcdef", 12)


def record(content: bytes) -> dict[int, str | None]:
    return {0: f"aioproducer/0/1:{base64.b85encode(zlib.compress(content, 9)).decode()}"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (varint(0) + varint(3_000_000) + varint(0), "cut off"),
        (varint(1 << 60) + varint(0) + varint(0), "cut off"),
        (varint(0) + varint(0) + varint(1) + b"\0" * 6 + b"\x80", "cut off"),
        (varint(0) + varint(0) + varint(1) + b"\0" * 3_000_000, "too long"),
        (varint(0) + varint(0) + varint(1) + b"\xff" * 10 + b"\1" * 7, "a number is too long"),
    ],
)
def test_a_record_takes_no_more_memory_and_time_than_it_has_parts(
    content: bytes, reason: str
) -> None:
    pieces = record(b"\1" + content)
    tracemalloc.start()
    try:
        with pytest.raises(DecisionRecordError, match=f"read: {reason}|read: it is {reason}"):
            decode(8, pieces, NAMES)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8_000_000


def test_a_decision_that_cannot_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.spark.exactly_once.decision._LONGEST", 500)
    assert encode(many(30, workers=3), NAMES)
    with pytest.raises(DecisionRecordError, match="100 transactions of epoch 8"):
        encode(many(100, workers=3), NAMES)


def test_a_transactional_id_with_too_many_digits_is_no_attempts() -> None:
    """Any client may open a transaction under such an id; Python refuses its number."""
    attempt = NAMES.attempt("0" * 16, 0, 12)
    assert NAMES.read(attempt) == ("0" * 16, 12)
    assert NAMES.read(attempt + "1" * 5000) is None
