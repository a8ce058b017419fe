"""A broker refuses a batch because of some of its records: those fail, the others are written."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.batch import OutgoingRecord, ProducerBatch
from aioproducer.core.sending import produce_answers
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.produce_rules import action_for
from aioproducer.errors import (
    BatchRefusedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    NodeDisconnectedError,
    TransactionAbortableError,
    error_for_code,
)
from aioproducer.records.batch import DecodedRecord, parse_header
from aioproducer.records.message_set import records_of
from aioproducer.types import Persistence, TopicPartition
from aioproducer.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from ..support import Core
from ..transactions.transaction_stage import Stage

INVALID_RECORD = 87
OUT_OF_ORDER = 45


class Broker:
    """A partition's log that takes no record whose value begins with `bad`."""

    def __init__(self, code: int = INVALID_RECORD, *, names: bool = True) -> None:
        self.log: list[bytes] = []
        self.stamps: list[tuple[int, int]] = []
        self.requests = 0
        self._code = code
        self._names = names

    def answer(self, batch: ProducerBatch) -> ProduceResponse:
        self.requests += 1
        assert batch.encoded is not None
        data = parse_header(batch.encoded.header + bytes(batch.encoded.body))
        values = [record.value or b"" for record in data.records()]
        bad = [index for index, value in enumerate(values) if value.startswith(b"bad")]
        if bad:
            return refusal(self._code, bad if self._names else [])
        base = len(self.log)
        self.log += values
        self.stamps += [
            (data.producer_epoch, data.base_sequence + place) for place in range(data.count)
        ]
        return one(PartitionProduceResponse(index=0, error_code=0, base_offset=base))


def one(answer: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])])


def refusal(code: int, bad: list[int]) -> ProduceResponse:
    return one(
        PartitionProduceResponse(
            index=0,
            error_code=code,
            base_offset=-1,
            error_message="some records are bad",
            record_errors=[BatchIndexAndErrorMessage(index, f"no {index}") for index in bad],
        )
    )


def make_core(*, idempotent: bool = True, **options: object) -> Core:
    if not idempotent:
        return Core((1,), batch_size=4000, guarantee_order=True, **options)  # type: ignore[arg-type]
    sequencer = Sequencer(5)
    core = Core((1,), batch_size=4000, sequencer=sequencer, **options)  # type: ignore[arg-type]
    core.sender.on_identity(ProducerIdentity(9, 0))
    return core


def batch_of(core: Core, *values: bytes) -> ProducerBatch:
    """A separate batch."""
    first = core.append(value=values[0])
    for value in values[1:]:
        assert core.append(value=value) is first
    first.close()
    return first


def run(core: Core, broker: Broker) -> None:
    """Until every batch has its outcome."""
    for _ in range(400):
        for dispatch in core.poll():
            (batch,) = dispatch.batches
            core.sender.on_response(1, [batch], broker.answer(batch), core.now)
        if not core.accumulator.has_incomplete:
            return
        core.now += 0.01
    raise AssertionError("batches are left without an outcome")


def offsets(batch: ProducerBatch) -> list[int | None]:
    """The place of each record; None for one that failed."""
    found = []
    for index in range(batch.count):
        place = batch.outcome_of(index)
        assert place is not None
        base = place[0].base_offset
        found.append(None if base is None else base + place[1])
    return found


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("code", [INVALID_RECORD, 32, 10, 18])
def test_only_the_records_to_blame_fail(code: int, names: bool, idempotent: bool) -> None:
    core, broker = make_core(idempotent=idempotent), Broker(code, names=names)
    batch = batch_of(core, b"bad0", b"1", b"2", b"bad3", b"bad4", b"5")
    later = batch_of(core, b"6")
    run(core, broker)
    assert broker.log == [b"1", b"2", b"5", b"6"]
    assert offsets(batch) == [None, 0, 1, None, None, 2]
    assert offsets(later) == [3]
    for index in (0, 3, 4):
        error = batch.record_error(index)
        assert type(error) is error_for_code(code)
        assert error.node_id == 1
        assert error.persistence is Persistence.NOT_PERSISTED
        assert (f"no {index}" in str(error)) is names
    assert (core.stats.records_acknowledged, core.stats.records_failed) == (4, 3)
    assert core.pool.available == core.pool.total


def test_named_records_cost_one_more_request() -> None:
    core, broker = make_core(), Broker()
    values = [b"%d" % number for number in range(300)]
    values[77] = b"bad"
    batch = batch_of(core, *values)
    run(core, broker)
    assert broker.requests == 2
    assert broker.log == values[:77] + values[78:]
    assert [index for index in range(300) if batch.record_error(index)] == [77]


def test_a_record_that_is_not_named_is_found_in_a_few_requests() -> None:
    core, broker = make_core(), Broker(names=False)
    values = [b"%d" % number for number in range(300)]
    values[77] = b"bad"
    batch = batch_of(core, *values)
    run(core, broker)
    assert broker.requests <= 20
    assert broker.log == values[:77] + values[78:]
    assert [index for index in range(300) if batch.record_error(index)] == [77]


def test_a_batch_whose_records_are_all_named_fails_at_once() -> None:
    core, broker = make_core(), Broker()
    batch = batch_of(core, b"bad0", b"bad1")
    run(core, broker)
    assert broker.requests == 1
    assert [type(batch.record_error(index)) for index in (0, 1)] == [InvalidRecordError] * 2


def test_a_broker_that_names_one_record_at_a_time_comes_to_an_end() -> None:
    core = make_core()
    batch = batch_of(core, *[b"%d" % number for number in range(5)])
    for _ in range(5):
        (dispatch,) = core.poll()
        core.sender.on_response(1, dispatch.batches, refusal(INVALID_RECORD, [0]), core.now)
    assert batch.done
    assert [type(batch.record_error(index)) for index in range(5)] == [InvalidRecordError] * 5


@pytest.mark.parametrize("named", [[-1, 7], [2**31 - 1]])
def test_records_that_the_batch_does_not_have_are_not_to_blame(named: list[int]) -> None:
    core, broker = make_core(), Broker()
    batch = batch_of(core, b"0", b"1")
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, refusal(INVALID_RECORD, named), core.now)
    run(core, broker)
    assert offsets(batch) == [0, 1]


def test_a_refusal_of_the_whole_batch_is_no_records_fault() -> None:
    core = make_core()
    batch = batch_of(core, b"0", b"1")
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, refusal(29, [9]), core.now)
    errors = [batch.record_error(index) for index in (0, 1)]
    assert [error.code for error in errors] == [29, 29]  # type: ignore[union-attr]


def test_later_batches_are_numbered_anew_and_keep_their_order() -> None:
    core, broker = make_core(), Broker()
    run_one = batch_of(core, b"0")
    run(core, broker)
    waiting = []
    for values in ([b"bad", b"1", b"2"], [b"3"], [b"4"]):
        batch_of(core, *values)
        waiting += core.poll()
    (first, *others) = waiting
    core.sender.on_response(1, first.batches, broker.answer(first.batches[0]), core.now)
    assert core.poll() == []  # what is on the wire is numbered as it is
    for dispatch in others:
        core.sender.on_response(1, dispatch.batches, refusal(OUT_OF_ORDER, []), core.now)
    core.now += 1
    run(core, broker)
    assert run_one.done
    assert broker.log == [b"0", b"1", b"2", b"3", b"4"]
    assert broker.stamps == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert core.data_losses == []


@pytest.mark.parametrize("names", [True, False])
def test_what_is_left_of_a_batch_is_not_written_after_a_later_one(names: bool) -> None:
    # A broker whose state of the producer expired takes a batch without its predecessor.
    core, broker = make_core(), Broker(names=names)
    batch_of(core, b"0")
    run(core, broker)
    batch = batch_of(core, b"bad", b"1", b"2")
    (first,) = core.poll()
    batch_of(core, b"3")
    (second,) = core.poll()
    core.sender.on_response(1, first.batches, broker.answer(batch), core.now)
    core.sender.on_response(1, second.batches, broker.answer(second.batches[0]), core.now)
    run(core, broker)
    assert broker.log == [b"0", b"3"]
    assert broker.stamps == [(0, 0), (0, 4)]
    errors = [batch.record_error(index) for index in range(3)]
    assert {error.persistence for error in errors if error} == {Persistence.NOT_PERSISTED}
    for error in errors[1:]:
        assert isinstance(error, BatchRefusedError)
        assert "later batch" in str(error)


def test_the_rest_of_a_batch_is_as_old_as_the_batch() -> None:
    core = make_core(delivery_timeout=5.0)
    batch = batch_of(core, b"bad", b"1")
    (dispatch,) = core.poll()
    core.now += 3
    core.sender.on_response(1, dispatch.batches, Broker().answer(batch), core.now)
    core.nodes.unready[1] = core.now + 100
    core.now += 1.9
    core.poll()
    assert not batch.done
    core.now += 0.1
    core.poll()
    error = batch.record_error(1)
    assert isinstance(error, DeliveryTimeoutError)
    assert "some records are bad" in str(error)
    assert error.persistence is Persistence.NOT_PERSISTED
    assert isinstance(batch.record_error(0), InvalidRecordError)
    assert core.pool.available == core.pool.total


@pytest.mark.parametrize("idempotent", [True, False])
def test_records_that_may_be_written_are_not_sent_again(idempotent: bool) -> None:
    core = make_core(idempotent=idempotent)
    batch = batch_of(core, b"0", b"bad", b"2")
    (dispatch,) = core.poll()
    core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 1
    (again,) = core.poll()
    core.sender.on_response(1, again.batches, Broker().answer(batch), core.now)
    errors = [batch.record_error(index) for index in range(3)]
    assert [type(error) for error in errors] == [
        BatchRefusedError,
        InvalidRecordError,
        BatchRefusedError,
    ]
    assert {error.persistence for error in errors if error} == {Persistence.POSSIBLY_PERSISTED}
    innocent = errors[0]
    assert innocent is not None
    assert innocent.retriable
    assert isinstance(innocent.__cause__, InvalidRecordError)
    assert "some records are bad" in str(innocent)


def test_nothing_of_a_batch_that_is_whole_or_not_at_all_is_sent_again() -> None:
    for broker in (Broker(), Broker(names=False), Broker(10, names=False)):
        core = make_core()
        batch = batch_of(core, b"0", b"bad", b"2")
        batch.indivisible = True
        run(core, broker)
        assert broker.log == []
        errors = [batch.record_error(index) for index in range(3)]
        assert all(error and error.persistence is Persistence.NOT_PERSISTED for error in errors)
        assert isinstance(errors[0], BatchRefusedError)
        assert isinstance(errors[2], BatchRefusedError)


def test_a_blamed_record_fails_its_transaction_and_the_others_say_so() -> None:
    stage = Stage().begun()
    batch = stage.core.append()
    assert stage.core.append() is batch
    (dispatch,) = stage.core.poll()
    stage.core.sender.on_response(1, dispatch.batches, refusal(INVALID_RECORD, [1]), stage.core.now)
    assert isinstance(batch.record_error(0), BatchRefusedError)
    assert isinstance(batch.record_error(1), InvalidRecordError)
    with pytest.raises(TransactionAbortableError, match="some records are bad"):
        stage.done(stage.manager.commit())


def test_a_record_that_is_not_named_is_found_in_a_transaction_too() -> None:
    stage = Stage().begun()
    batch = stage.core.append(value=b"0")
    assert stage.core.append(value=b"bad") is batch
    broker = Broker(names=False)
    for _ in range(3):
        (dispatch,) = stage.core.poll()
        stage.core.sender.on_response(
            1, dispatch.batches, broker.answer(dispatch.batches[0]), stage.core.now
        )
    assert batch.record_error(0) is None
    assert isinstance(batch.record_error(1), InvalidRecordError)
    with pytest.raises(TransactionAbortableError):
        stage.done(stage.manager.commit())


def test_failures_that_were_not_retrieved_are_counted_per_record() -> None:
    core = make_core()
    unretrieved: list[int] = []
    core.accumulator._on_unretrieved = lambda batch: unretrieved.append(
        batch.count - batch.retrieved
    )
    batch = batch_of(core, b"bad0", b"1", b"bad2")
    run(core, Broker())
    batch.mark_retrieved(2)
    del batch
    assert unretrieved == [1]


def test_parts_have_room_for_records_whose_timestamps_are_far_apart() -> None:
    # A timestamp is written as its distance from that of the batch's first record.
    meta = make_core().metadata.topic("t")
    assert meta is not None
    batch = ProducerBatch(TopicPartition("t", 0), bytearray(4000), 4000, now=0.0)
    times = [0] * 30 + [2**60] + [0] * 29
    for time in times:
        assert batch.try_append(OutgoingRecord(meta, 0, time, None, None, (), 100))
    parts = batch.split((range(30), range(30, 60)))
    assert [part.count for part in parts] == [30, 30]
    written = [record.timestamp_ms for part in parts for record in records_in(part)]
    assert written == times


def records_in(batch: ProducerBatch) -> list[DecodedRecord]:
    assert batch.builder is not None
    return records_of(batch.builder)


def test_a_record_that_is_blamed_often_makes_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def error(code: int, message: str | None = None) -> InvalidRecordError:
        made.append(code)
        return InvalidRecordError(message)

    monkeypatch.setattr(produce_answers, "error_from_code", error)
    answer = PartitionProduceResponse(
        error_code=INVALID_RECORD,
        record_errors=[BatchIndexAndErrorMessage(index % 2, "bad") for index in range(10_000)],
    )
    action = action_for(INVALID_RECORD, idempotent=True)
    blamed = produce_answers.named_record_errors(answer, 2, action)
    assert list(blamed or ()) == [0, 1]
    assert len(made) == 2
