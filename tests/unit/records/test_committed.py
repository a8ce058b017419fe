"""Batches that readers of committed records may see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioproducer.records.batch import RecordBatch, encode_batch, parse_header
from aioproducer.records.committed import CommittedView, batches_between
from aioproducer.records.layout import CONTROL, TRANSACTIONAL
from aioproducer.wire.messages.fetch import AbortedTransaction, PartitionData

from .helpers import built, joined


def batch(
    producer_id: int, offset: int, *, records: int = 1, is_marker: bool = False, plain: bool = False
) -> RecordBatch:
    """A batch of a transaction, or a plain one, or a transaction's marker."""
    header = parse_header(
        joined(encode_batch(b"", count=records, base_timestamp=0, max_timestamp=0))
    )
    attributes = 0 if plain else TRANSACTIONAL | (CONTROL if is_marker else 0)
    return replace(header, base_offset=offset, producer_id=producer_id, attributes=attributes)


def test_records_of_an_aborted_transaction_are_hidden_from_its_first_one_to_its_marker() -> None:
    # In any order: the transaction of producer 1 is the first.
    view = CommittedView([AbortedTransaction(2, 100), AbortedTransaction(1, 5)])
    log = [
        (batch(1, 3), True),
        (batch(1, 5), False),
        (batch(2, 6), True),
        (batch(1, 7), False),
        (batch(1, 8, plain=True), True),
        (batch(1, 9, is_marker=True), False),
        (batch(1, 10), True),
        (batch(2, 11, is_marker=True), False),
        (batch(2, 100), False),
        (batch(3, 101), True),
        (batch(2, 102, is_marker=True), False),
        (batch(2, 103), True),
    ]
    assert [view.is_shown(each) for each, _ in log] == [is_shown for _, is_shown in log]


@pytest.mark.parametrize(("first", "is_shown"), [(5, False), (7, False), (8, True)])
def test_a_transaction_may_begin_at_any_record_of_a_batch(first: int, is_shown: bool) -> None:
    view = CommittedView([AbortedTransaction(1, first)])
    assert view.is_shown(batch(1, 5, records=3)) is is_shown


def test_transactions_that_begin_at_once_are_all_hidden() -> None:
    view = CommittedView([AbortedTransaction(producer_id, 5) for producer_id in (1, 2, 3)])
    assert [view.is_shown(batch(producer_id, 5)) for producer_id in (1, 2, 3, 4)] == [
        False,
        False,
        False,
        True,
    ]


def test_without_aborted_transactions_markers_alone_are_hidden() -> None:
    view = CommittedView([])
    assert view.is_shown(batch(1, 0))
    assert not view.is_shown(batch(1, 1, is_marker=True))


def test_records_outside_of_the_range_are_left_out() -> None:
    batch_bytes = joined(built([(0, None, value, ()) for value in (b"0", b"1", b"2")]))
    log = b"".join(offset.to_bytes(8) + batch_bytes[8:] for offset in (0, 3, 6, 9))
    found = [
        (read.base_offset, [record.offset for record in records])
        for read, records in batches_between(PartitionData(records=log), 4, 7)
    ]
    assert found == [(3, [4, 5]), (6, [6])]
