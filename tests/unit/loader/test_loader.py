from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import (
    ConfigError,
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    RecordTooLargeError,
)
from aioproducer.loader import (
    DeadLetterError,
    FileSource,
    LinesFormat,
    Loader,
    LoadOptions,
    LoadResult,
    LoadState,
    MappingError,
    Position,
    Progress,
    RecordMapping,
    RejectedRowError,
    RowBatch,
    RowsSource,
    SourceError,
    StateError,
)
from aioproducer.testing import VirtualKafka, run_virtual
from loader.fakes import FakeProducer

KEYED = RecordMapping(key=("key",), value="value")


def lines_file(tmp_path: Path, count: int, *, bad: tuple[int, ...] = ()) -> FileSource:
    """Rows `1:v1`, `2:v2` ...; those in `bad` have no separator."""
    file = tmp_path / "rows.txt"
    rows = (f"bad{n}" if n in bad else f"{n}:v{n}" for n in range(1, count + 1))
    file.write_text("".join(f"{row}\n" for row in rows))
    return FileSource(file, format=LinesFormat(key_separator=":"))


def values(*numbers: int) -> list[bytes]:
    return [b"v%d" % number for number in numbers]


def dead_rows(path: Path) -> list[tuple[int, str]]:
    entries = (json.loads(line) for line in path.read_text().splitlines())
    return [(entry["row"], entry["stage"]) for entry in entries]


async def until(condition: Any) -> None:
    """Lets the load's thread and the loop work; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_every_row_is_sent_and_acknowledged(tmp_path: Path) -> None:
    producer = FakeProducer()
    result = await Loader(producer, lines_file(tmp_path, 3), "t", LoadOptions(KEYED)).run()
    assert [(s.topic, s.key, s.value) for s in producer.sent] == [
        ("t", b"%d" % n, b"v%d" % n) for n in (1, 2, 3)
    ]
    assert result.complete
    progress = result.progress
    counts = (progress.read, progress.sent, progress.acknowledged, progress.bytes_sent)
    assert counts == (3, 3, 3, 9)
    assert producer.flushes == 1


async def test_headers_partition_and_timestamp_reach_the_producer() -> None:
    producer = FakeProducer(partitions=1)
    mapping = RecordMapping(
        headers=(("h", b"1"),), timestamp="at", partition_by=("at",), value="at"
    )
    await Loader(producer, RowsSource([{"at": 5}]), "t", LoadOptions(mapping)).run()
    (sent,) = producer.sent
    assert (sent.headers, sent.timestamp_ms, sent.partition) == ((("h", b"1"),), 5, 0)


async def test_bad_rows_go_to_the_dead_letter_file_and_the_rest_is_loaded(tmp_path: Path) -> None:
    producer, dead = FakeProducer(), tmp_path / "dead"
    source = lines_file(tmp_path, 5, bad=(2, 4))
    result = await Loader(producer, source, "t", LoadOptions(KEYED, dead_letter=dead)).run()
    assert producer.values == values(1, 3, 5)
    assert dead_rows(dead) == [(2, "row"), (4, "row")]
    assert (result.progress.read, result.progress.rejected, result.progress.sent) == (5, 2, 3)


async def test_a_load_keeps_the_dead_letters_of_a_load_of_another_file(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, dead_letter=tmp_path / "dead")
    await Loader(FakeProducer(), lines_file(tmp_path, 3, bad=(2,)), "t", options).run()
    (tmp_path / "rows.txt").rename(tmp_path / "others.txt")
    others = FileSource(tmp_path / "others.txt", format=LinesFormat(key_separator=":"))
    producer = FakeProducer()
    with pytest.raises(DeadLetterError, match=r"has rows of .*rows\.txt"):
        await Loader(producer, others, "t", options).run()
    assert (dead_rows(tmp_path / "dead"), producer.sent) == ([(2, "row")], [])


async def test_a_load_of_rows_that_are_read_once_keeps_the_dead_letters_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    options = LoadOptions(KEYED, dead_letter=tmp_path / "dead", state=tmp_path / "state")
    rows = [{"key": "k", "value": "v"}, {"value": "no key"}]
    for _ in range(2):
        await Loader(FakeProducer(), RowsSource(iter(rows)), "t", options).run()
    assert dead_rows(tmp_path / "dead") == [(2, "row"), (2, "row")]
    state = LoadState.read(tmp_path / "state")
    assert state is not None
    assert state.settled.dead_letter_bytes == (tmp_path / "dead").stat().st_size


async def test_without_dead_letter_file_the_first_bad_row_ends_the_load(tmp_path: Path) -> None:
    producer, state = FakeProducer(hold=True), tmp_path / "state"
    source = lines_file(tmp_path, 5, bad=(3,))
    loader = Loader(producer, source, "t", LoadOptions(KEYED, state=state))
    with pytest.raises(RejectedRowError, match=r"rows.txt row 3: no key separator"):
        await loader.run()
    # What was accepted is flushed and counted; nothing after the bad row was sent.
    assert producer.values == values(1, 2)
    assert loader.progress.outstanding == 0
    saved = LoadState.read(state)
    assert saved is not None
    assert saved.position is not None
    assert (saved.position.row, saved.complete) == (2, False)


async def test_too_large_record_is_a_dead_letter_and_the_load_goes_on(tmp_path: Path) -> None:
    producer, dead = FakeProducer(), tmp_path / "dead"
    producer.refuse[b"v2"] = RecordTooLargeError("too large")
    producer.fail[b"v3"] = RecordTooLargeError("the broker finds it too large")
    source = lines_file(tmp_path, 4)
    result = await Loader(producer, source, "t", LoadOptions(KEYED, dead_letter=dead)).run()
    assert dead_rows(dead) == [(2, "delivery"), (3, "delivery")]
    assert (result.progress.acknowledged, result.progress.failed) == (2, 2)
    assert json.loads(dead.read_text().splitlines()[0])["raw"] == "2:v2"


@pytest.mark.parametrize("at_once", [True, False])
async def test_without_dead_letter_file_the_error_of_a_refused_record_names_its_row(
    tmp_path: Path, at_once: bool
) -> None:
    producer = FakeProducer()
    (producer.refuse if at_once else producer.fail)[b"v2"] = RecordTooLargeError("too large")
    named = r"rows\.txt row 2: too large .*name a dead-letter file"
    with pytest.raises(RecordTooLargeError, match=named):
        await Loader(producer, lines_file(tmp_path, 3), "t", LoadOptions(KEYED)).run()


async def test_a_row_for_a_partition_that_does_not_exist_is_a_dead_letter(tmp_path: Path) -> None:
    producer, dead = FakeProducer(partitions=2), tmp_path / "dead"
    options = LoadOptions(RecordMapping(partition="p", value="p"), dead_letter=dead)
    rows = RowsSource([{"p": "1"}, {"p": 2}, {"p": None}])
    await Loader(producer, rows, "t", options).run()
    assert [sent.partition for sent in producer.sent] == [1, None]
    (line,) = dead.read_text().splitlines()
    assert json.loads(line)["reason"] == "there is no partition 2: the topic has 2"


async def test_lost_cluster_ends_the_load_before_the_unacknowledged_row(tmp_path: Path) -> None:
    producer, state, dead = FakeProducer(hold=True), tmp_path / "state", tmp_path / "dead"
    producer.fail[b"v3"] = DeliveryTimeoutError("no acknowledgement")
    options = LoadOptions(KEYED, state=state, dead_letter=dead)
    loader = Loader(producer, lines_file(tmp_path, 5, bad=(2, 4)), "t", options)
    with pytest.raises(DeliveryTimeoutError):
        await loader.run()
    assert (loader.progress.acknowledged, loader.progress.failed) == (2, 1)
    saved = LoadState.read(state)
    assert saved is not None
    assert saved.position == Position(str(tmp_path / "rows.txt"), None, 2)
    assert (saved.settled.acknowledged, saved.settled.rejected, saved.settled.failed) == (1, 1, 0)


async def test_error_of_send_ends_the_load_and_keeps_what_was_accepted(tmp_path: Path) -> None:
    producer, state = FakeProducer(hold=True), tmp_path / "state"
    producer.refuse[b"v3"] = KafkaTimeoutError("no room")
    loader = Loader(producer, lines_file(tmp_path, 5), "t", LoadOptions(KEYED, state=state))
    with pytest.raises(KafkaTimeoutError):
        await loader.run()
    assert (loader.progress.read, loader.progress.acknowledged) == (2, 2)
    assert loader.state.position is not None
    assert loader.state.position.row == 2


async def test_resumed_load_goes_on_after_the_finished_rows(tmp_path: Path) -> None:
    state, dead = tmp_path / "state", tmp_path / "dead"
    options = LoadOptions(KEYED, state=state, dead_letter=dead, resume=True)
    first = FakeProducer(hold=True)
    first.fail[b"v3"] = DeliveryTimeoutError()
    with pytest.raises(DeliveryTimeoutError):
        await Loader(first, lines_file(tmp_path, 6, bad=(2, 5)), "t", options).run()
    assert dead_rows(dead) == [(2, "row"), (5, "row")]
    second = FakeProducer()
    result = await Loader(second, lines_file(tmp_path, 6, bad=(2, 5)), "t", options).run()
    assert second.values == values(3, 4, 6)
    assert dead_rows(dead) == [(2, "row"), (5, "row")]
    settled = result.state.settled
    assert (settled.acknowledged, settled.rejected, result.progress.read) == (4, 2, 4)


async def test_resuming_a_complete_load_does_nothing(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await Loader(FakeProducer(), lines_file(tmp_path, 3), "t", options).run()
    producer = FakeProducer()
    loader = Loader(producer, lines_file(tmp_path, 3), "t", options)
    result = await loader.run()
    assert (result.complete, producer.sent, result.progress.read) == (True, [], 0)
    assert result.state.settled.acknowledged == 3
    assert loader.state == result.state == LoadState.read(tmp_path / "state")


@pytest.mark.parametrize("rows", [2, 4])
async def test_a_complete_load_is_not_resumed_with_a_changed_input(
    tmp_path: Path, rows: int
) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await Loader(FakeProducer(), lines_file(tmp_path, 3), "t", options).run()
    loader = Loader(FakeProducer(), lines_file(tmp_path, rows), "t", options)
    changed = f"the input had 15 bytes when it was loaded, and has {5 * rows} now"
    with pytest.raises(StateError, match=rf"nothing is left to resume, and {changed} -> leave out"):
        await loader.run()
    assert loader.state == LoadState.read(tmp_path / "state")
    again = replace(options, resume=False)
    assert (await Loader(FakeProducer(), lines_file(tmp_path, rows), "t", again).run()).complete


async def test_a_complete_load_is_not_resumed_with_another_input(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await Loader(FakeProducer(), lines_file(tmp_path, 3), "t", options).run()
    (tmp_path / "rows.txt").rename(tmp_path / "others.txt")
    others = FileSource(tmp_path / "others.txt", format=LinesFormat(key_separator=":"))
    with pytest.raises(StateError, match=r"rows\.txt is not among the inputs"):
        await Loader(FakeProducer(), others, "t", options).run()


async def interrupted_load(tmp_path: Path, options: LoadOptions) -> None:
    """Load 1.txt and 3.txt; the state is after the first row of 3.txt."""
    for name in "123":
        (tmp_path / f"{name}.txt").write_text(f"{name}:v{name}\n{name}:v4\n")
    producer = FakeProducer(hold=True)
    producer.fail[b"v4"] = DeliveryTimeoutError()
    (tmp_path / "1.txt").write_text("1:v1\n")
    with pytest.raises(DeliveryTimeoutError):
        await Loader(producer, numbered(tmp_path, 1, 3), "t", options).run()


def numbered(tmp_path: Path, *numbers: int) -> FileSource:
    files = [tmp_path / f"{number}.txt" for number in numbers]
    return FileSource(files, format=LinesFormat(key_separator=":"))


@pytest.mark.parametrize("inputs", [(1, 2, 3), (2, 3)], ids=["added", "added for another"])
async def test_a_load_is_not_resumed_with_an_input_added_before_its_position(
    tmp_path: Path, inputs: tuple[int, ...]
) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await interrupted_load(tmp_path, options)
    added = r"3\.txt row 1: \S+2\.txt comes before it, and did not, or had another size, when"
    with pytest.raises(StateError, match=added):
        await Loader(FakeProducer(), numbered(tmp_path, *inputs), "t", options).run()


async def test_a_load_is_not_resumed_after_an_input_that_has_changed_before_its_position(
    tmp_path: Path,
) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await interrupted_load(tmp_path, options)
    with (tmp_path / "1.txt").open("a") as file:
        file.write("1:more\n")
    with pytest.raises(StateError, match=r"1\.txt comes before it, and did not, or had another"):
        await Loader(FakeProducer(), numbered(tmp_path, 1, 3), "t", options).run()


async def test_a_state_of_earlier_versions_has_the_names_of_inputs_without_their_sizes(
    tmp_path: Path,
) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await interrupted_load(tmp_path, options)
    content = json.loads((tmp_path / "state").read_text())
    content["files_before"] = f"{crc32(os.fsencode(tmp_path / '1.txt')):08x}"
    (tmp_path / "state").write_text(json.dumps(content))
    producer = FakeProducer()
    await Loader(producer, numbered(tmp_path, 1, 3), "t", options).run()
    assert producer.values == values(4)


async def test_a_load_is_resumed_with_an_input_added_after_its_position(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await interrupted_load(tmp_path, options)
    producer = FakeProducer()
    await Loader(producer, numbered(tmp_path, 1, 3, 2), "t", options).run()
    assert producer.values == values(4, 2, 4)


async def test_a_load_is_resumed_without_inputs_before_its_position(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await interrupted_load(tmp_path, options)
    producer = FakeProducer()
    await Loader(producer, numbered(tmp_path, 3), "t", options).run()
    assert producer.values == values(4)


async def test_a_state_of_earlier_versions_has_no_size_of_the_input(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await Loader(FakeProducer(), lines_file(tmp_path, 3), "t", options).run()
    content = json.loads((tmp_path / "state").read_text())
    assert content.pop("input_bytes") == 15
    (tmp_path / "state").write_text(json.dumps(content))
    assert (await Loader(FakeProducer(), lines_file(tmp_path, 4), "t", options).run()).complete


async def test_state_of_another_topic_is_refused(tmp_path: Path) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    await Loader(FakeProducer(), lines_file(tmp_path, 3), "t", options).run()
    with pytest.raises(StateError, match="belongs to a load into 't'"):
        await Loader(FakeProducer(), lines_file(tmp_path, 3), "other", options).run()


@pytest.mark.parametrize("is_complete", [True, False])
async def test_state_of_other_rows_is_refused(tmp_path: Path, is_complete: bool) -> None:
    options = LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    rows = [{"key": "1", "value": "v1"}, {"key": "2", "value": "v2"} if is_complete else {}]
    with nullcontext() if is_complete else pytest.raises(RejectedRowError):
        await Loader(FakeProducer(), RowsSource(rows, name="monday"), "t", options).run()
    with pytest.raises(StateError, match="belongs to a load of 'monday'"):
        await Loader(FakeProducer(), RowsSource(rows, name="tuesday"), "t", options).run()


async def test_stop_ends_the_reading_and_delivers_what_was_accepted(tmp_path: Path) -> None:
    producer = FakeProducer(hold=True)
    options = LoadOptions(KEYED, state=tmp_path / "state")
    loader = Loader(producer, lines_file(tmp_path, 10_000), "t", options)
    producer.on_send = lambda count: loader.stop() if count == 700 else None
    result = await loader.run()
    assert not result.complete
    assert result.progress.sent == result.progress.acknowledged == len(producer.sent)
    assert 700 <= len(producer.sent) < 10_000
    assert result.state.position is not None
    assert result.state.position.row == len(producer.sent)
    assert LoadState.read(tmp_path / "state") == result.state


async def test_stop_ends_a_send_that_waits(tmp_path: Path) -> None:
    producer = FakeProducer(hold=True)
    producer.block_after = 2
    loader = Loader(producer, lines_file(tmp_path, 5), "t", LoadOptions(KEYED))
    running = asyncio.create_task(loader.run())
    await until(lambda: len(producer.sent) == 2)
    loader.stop()
    result = await running
    assert (result.progress.sent, result.progress.acknowledged, result.complete) == (2, 2, False)


async def test_stop_ends_a_read_that_waits(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    try:
        os.write(writer, b"1:v1\n2:half")
        producer = FakeProducer()
        source = FileSource(pipe, format=LinesFormat(key_separator=":"))
        loader = Loader(producer, source, "t", LoadOptions(KEYED))
        running = asyncio.create_task(loader.run())
        await until(lambda: producer.sent)
        loader.stop()
        result = await running
    finally:
        os.close(writer)
    assert (producer.values, result.complete) == (values(1), False)


async def test_stop_before_the_start_loads_nothing(tmp_path: Path) -> None:
    loader = Loader(FakeProducer(), lines_file(tmp_path, 5), "t", LoadOptions(KEYED))
    loader.stop()
    result = await loader.run()
    assert (result.progress.sent, result.complete) == (0, False)


async def test_cancelled_load_leaves_the_state_of_what_was_settled(tmp_path: Path) -> None:
    producer = FakeProducer(hold=True)
    producer.block_after = 4
    loader = Loader(
        producer, lines_file(tmp_path, 9), "t", LoadOptions(KEYED, state=tmp_path / "state")
    )
    running = asyncio.create_task(loader.run())
    await until(lambda: len(producer.sent) == 4)
    producer.release(3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert producer.flushes == 0
    assert (loader.progress.acknowledged, loader.progress.outstanding) == (3, 1)
    saved = LoadState.read(tmp_path / "state")
    assert saved is not None
    assert saved.position is not None
    assert saved.position.row == 3


async def test_cancellation_after_stop_still_ends_the_load(tmp_path: Path) -> None:
    class NeverFlushed(FakeProducer):
        async def flush(self, timeout: float | None = None) -> int:
            await asyncio.Event().wait()
            return 0

    producer = NeverFlushed(hold=True)
    producer.block_after = 1
    loader = Loader(producer, lines_file(tmp_path, 9), "t", LoadOptions(KEYED))
    running = asyncio.create_task(loader.run())
    await until(lambda: producer.sent)
    loader.stop()
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("bound", [1, 7, 100])
async def test_unsettled_rows_are_bounded(tmp_path: Path, bound: int) -> None:
    producer = FakeProducer(hold=True)
    options = LoadOptions(KEYED, max_outstanding=bound)
    running = asyncio.create_task(Loader(producer, lines_file(tmp_path, 500), "t", options).run())
    while not running.done():
        await asyncio.sleep(0)
        producer.release(3)
    assert producer.most_open <= bound
    assert (await running).progress.acknowledged == 500


async def test_unreadable_input_ends_the_load_after_what_was_read(tmp_path: Path) -> None:
    class Broken:
        name, total_bytes = "broken", None

        def batches(self, after: Position | None = None) -> Iterator[RowBatch]:
            yield RowBatch("broken", None, 1, [{"key": "1", "value": "v1"}], None)
            raise SourceError("cannot read broken: damaged")

        def interrupt(self) -> None:
            return

    producer = FakeProducer(hold=True)
    loader = Loader(producer, Broken(), "t", LoadOptions(KEYED, state=tmp_path / "state"))
    with pytest.raises(SourceError, match="damaged"):
        await loader.run()
    assert loader.progress.acknowledged == 1
    assert not loader.state.complete
    assert loader.state.position == Position("broken", None, 1)


@pytest.mark.parametrize("kind", [futures.Future, asyncio.Future])
async def test_rows_that_raise_what_a_cancelled_future_does_fail_the_load(kind: type[Any]) -> None:
    cancelled = kind()
    cancelled.cancel()

    def rows() -> Iterator[dict[str, str]]:
        yield {"key": "1", "value": "v1"}
        cancelled.result()

    with pytest.raises(SourceError, match="cannot read rows: it raised CancelledError"):
        await Loader(FakeProducer(), RowsSource(rows()), "t", LoadOptions(KEYED)).run()


async def test_unknown_column_ends_the_load_at_once(tmp_path: Path) -> None:
    mapping = RecordMapping(key=("missing",))
    with pytest.raises(MappingError, match="no column 'missing'"):
        await Loader(FakeProducer(), lines_file(tmp_path, 2), "t", LoadOptions(mapping)).run()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
async def test_load_is_not_complete_without_its_dead_letters_on_disk(tmp_path: Path) -> None:
    producer, state = FakeProducer(), tmp_path / "state"
    options = LoadOptions(KEYED, state=state, dead_letter=Path("/dev/full"))
    loader = Loader(producer, lines_file(tmp_path, 3, bad=(2,)), "t", options)
    with pytest.raises(DeadLetterError, match="No space"):
        await loader.run()
    assert (loader.progress.acknowledged, loader.progress.rejected) == (2, 1)
    assert loader.state == LoadState.read(state) == LoadState("t")


async def test_full_disk_under_the_dead_letters_ends_the_load_before_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.loader import dead_letter_file

    def full(*args: object) -> None:
        raise DeadLetterError("cannot write the dead-letter file: no space")

    monkeypatch.setattr(dead_letter_file.DeadLetterFile, "write", full)
    options = LoadOptions(KEYED, dead_letter=tmp_path / "dead")
    loader = Loader(FakeProducer(), lines_file(tmp_path, 4, bad=(3,)), "t", options)
    with pytest.raises(DeadLetterError, match="no space"):
        await loader.run()
    assert loader.state.position is not None
    assert loader.state.position.row == 2


async def test_progress_is_reported_while_running_and_at_the_end(tmp_path: Path) -> None:
    seen: list[Progress] = []
    producer = FakeProducer(hold=True)
    options = LoadOptions(
        KEYED, on_progress=seen.append, progress_interval_s=0.001, max_outstanding=200
    )
    running = asyncio.create_task(Loader(producer, lines_file(tmp_path, 1000), "t", options).run())
    while not running.done():
        await asyncio.sleep(0.002)
        producer.release(150)
    result = await running
    assert len(seen) > 2
    assert seen[-1] == result.progress
    assert seen[-1].fraction == 1.0
    for earlier, later in itertools.pairwise(seen):
        assert earlier.acknowledged <= later.acknowledged
        assert later.read == later.sent + later.rejected
        assert later.outstanding >= 0


async def test_progress_counts_what_is_acknowledged_while_the_source_pauses() -> None:
    class OneRowPerBatch(RowsSource):
        _clock = staticmethod(itertools.count().__next__)

    is_counted = threading.Event()
    seen_in_the_pause: list[bool] = []

    def rows() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        seen_in_the_pause.append(is_counted.wait(30))

    def show(progress: Progress) -> None:
        if progress.acknowledged == 1:
            is_counted.set()

    options = LoadOptions(on_progress=show, progress_interval_s=0.001)
    await Loader(FakeProducer(), OneRowPerBatch(rows()), "t", options).run()
    assert seen_in_the_pause == [True]


@pytest.mark.parametrize("trouble", [OSError("display gone"), asyncio.CancelledError()])
async def test_failing_display_does_not_end_the_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: BaseException
) -> None:
    def broken(progress: Progress) -> None:
        raise trouble

    options = LoadOptions(KEYED, on_progress=broken)
    result = await Loader(FakeProducer(), lines_file(tmp_path, 3), "t", options).run()
    assert result.complete
    assert "on_progress failed" in caplog.text


async def test_state_is_saved_while_running(tmp_path: Path) -> None:
    state = tmp_path / "state"
    producer = FakeProducer()
    seen: list[LoadState | None] = []
    producer.on_send = lambda count: (
        seen.append(LoadState.read(state)) if count % 500 == 0 else None
    )
    options = LoadOptions(KEYED, state=state, state_interval_s=0.0)
    result = await Loader(producer, lines_file(tmp_path, 20_000), "t", options).run()
    running = [saved for saved in seen if saved is not None]
    assert running
    assert not any(saved.complete for saved in running)
    assert LoadState.read(state) == result.state


async def test_rows_in_memory_are_loaded_again_whole() -> None:
    source = RowsSource([{"key": "1", "value": "v1"}])
    for topic in ("first", "second"):
        producer = FakeProducer()
        await Loader(producer, source, topic, LoadOptions(KEYED)).run()
        assert producer.values == values(1)


async def test_a_pipe_is_loaded_again_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = FileSource(pipe, format=LinesFormat(key_separator=":"))
    for topic in ("first", "second"):
        producer = FakeProducer()
        writing = asyncio.create_task(asyncio.to_thread(pipe.write_bytes, b"1:v1\n"))
        await Loader(producer, source, topic, LoadOptions(KEYED)).run()
        await writing
        assert producer.values == values(1)


async def test_a_stopped_load_resumes_from_the_same_source(tmp_path: Path) -> None:
    source = RowsSource([{"key": str(n), "value": f"v{n}"} for n in range(1, 2001)])
    producer, options = FakeProducer(), LoadOptions(KEYED, state=tmp_path / "state", resume=True)
    loader = Loader(producer, source, "t", options)
    stopped = asyncio.create_task(loader.run())
    await until(lambda: producer.sent)
    loader.stop()
    assert not (await stopped).complete
    assert (await Loader(producer, source, "t", options).run()).complete
    assert producer.values == values(*range(1, 2001))


async def test_the_end_of_a_load_ends_no_other_load_of_its_source() -> None:
    is_over = threading.Event()
    readings = itertools.count()

    class Rows:
        def __iter__(self) -> Iterator[dict[str, str]]:
            waits = next(readings) == 0
            for n in range(1, 2001):
                if waits and n == 600:
                    is_over.wait(10)
                yield {"key": str(n), "value": f"v{n}"}

    slow, quick, source = FakeProducer(), FakeProducer(), RowsSource(Rows())
    loading = asyncio.create_task(Loader(slow, source, "t", LoadOptions(KEYED)).run())
    await until(lambda: slow.sent)
    assert (await Loader(quick, source, "t", LoadOptions(KEYED)).run()).complete
    is_over.set()
    assert (await loading).complete
    assert (len(slow.sent), len(quick.sent)) == (2000, 2000)


async def test_a_load_that_fails_ends_no_other_load_of_its_rows() -> None:
    is_over = threading.Event()
    readings = itertools.count()

    class Rows:
        def __iter__(self) -> Iterator[dict[str, str]]:
            is_other = next(readings) == 1
            for n in range(1, 2001):
                if n == 600 and not is_other:
                    yield {}  # without the key
                if n == 600:
                    is_over.wait(10)
                yield {"key": str(n), "value": f"v{n}"}

    failing, other, source = FakeProducer(), FakeProducer(), RowsSource(Rows())
    first = asyncio.create_task(Loader(failing, source, "t", LoadOptions(KEYED)).run())
    await until(lambda: failing.sent)
    second = asyncio.create_task(Loader(other, source, "t", LoadOptions(KEYED)).run())
    await until(lambda: other.sent)
    is_over.set()
    with pytest.raises(RejectedRowError):
        await first
    assert (await second).complete
    assert len(other.sent) == 2000


async def test_loader_runs_once(tmp_path: Path) -> None:
    loader = Loader(FakeProducer(), lines_file(tmp_path, 1), "t", LoadOptions(KEYED))
    await loader.run()
    with pytest.raises(IllegalStateError, match="runs once"):
        await loader.run()


def test_impossible_options_are_refused() -> None:
    for options in ({"max_outstanding": 0}, {"resume": True}):
        with pytest.raises(ConfigError):
            LoadOptions(**options)  # type: ignore[arg-type]


OUTCOMES = st.lists(
    st.sampled_from(["ok", "bad", "large", "refused", "timeout"]), min_size=1, max_size=12
)


@given(OUTCOMES, st.integers(1, 5), st.booleans())
def test_whatever_happens_every_row_is_accounted_for_and_nothing_is_skipped_on_resume(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[str], bound: int, hold: bool
) -> None:
    """Runs and resumes until the load is complete; each run cures one lost row."""
    directory = tmp_path_factory.mktemp("load")
    bad = tuple(number for number, outcome in enumerate(outcomes, 1) if outcome == "bad")
    options = LoadOptions(
        KEYED,
        dead_letter=directory / "dead",
        state=directory / "state",
        resume=True,
        max_outstanding=bound,
    )
    delivered: set[bytes | None] = set()
    cured = 0

    async def run_once() -> tuple[Loader, LoadResult | None]:
        producer = FakeProducer(hold=hold)
        lost = [n for n, outcome in enumerate(outcomes, 1) if outcome == "timeout"][cured:]
        for number, outcome in enumerate(outcomes, 1):
            if outcome == "large":
                producer.fail[b"v%d" % number] = RecordTooLargeError("large")
            elif outcome == "refused":
                producer.refuse[b"v%d" % number] = RecordTooLargeError("refused")
            elif number in lost:
                producer.fail[b"v%d" % number] = DeliveryTimeoutError("lost")
        loader = Loader(producer, lines_file(directory, len(outcomes), bad=bad), "t", options)
        if hold:
            later = asyncio.get_running_loop().call_soon
            producer.on_send = lambda count: later(producer.release, 1)
        try:
            result = await loader.run()
        except DeliveryTimeoutError:
            result = None
        delivered.update(set(producer.values) - set(producer.fail))
        return loader, result

    for _ in range(len(outcomes) + 1):
        loader, result = asyncio.run(run_once())
        progress = loader.progress
        assert progress.read == progress.sent + progress.rejected
        assert progress.outstanding == 0
        if result is not None:
            break
        cured += 1
    assert result is not None
    assert result.complete
    expected_dead = [
        n for n, outcome in enumerate(outcomes, 1) if outcome in {"bad", "large", "refused"}
    ]
    assert [row for row, _ in dead_rows(directory / "dead")] == expected_dead
    expected = {b"v%d" % n for n, outcome in enumerate(outcomes, 1) if outcome in {"ok", "timeout"}}
    assert delivered == expected
    settled = result.state.settled
    assert settled.acknowledged == len(expected)
    assert settled.rejected == len(bad)
    assert settled.acknowledged + settled.rejected + settled.failed == len(outcomes)


@pytest.mark.parametrize(
    ("dead_letter", "state"),
    [("a.csv", None), ("link", None), ("./sub/../a.csv", None), (None, "link"), ("new", "new")],
)
def test_the_files_of_a_load_are_different_ones(
    tmp_path: Path, dead_letter: str | None, state: str | None
) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id\n1\n")
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "sub").mkdir()
    options = LoadOptions(
        dead_letter=None if dead_letter is None else tmp_path / dead_letter,
        state=None if state is None else tmp_path / state,
    )
    with pytest.raises(ConfigError, match="is the same file as"):
        Loader(FakeProducer(), FileSource(source), "t", options)
    assert source.read_text() == "id\n1\n"


def test_links_without_an_end_are_no_error_of_the_options(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    options = LoadOptions(dead_letter=tmp_path / "loop", state=tmp_path / "state")
    Loader(FakeProducer(), RowsSource([]), "t", options)
    with pytest.raises(ConfigError, match="is the same file as"):
        Loader(FakeProducer(), FileSource(tmp_path / "loop", format="csv"), "t", options)


# -- a topic that is missing -----------------------------------------------------------------------


class WithoutTopic(FakeProducer):
    """The topic appears after `after_s`."""

    def __init__(self, after_s: float) -> None:
        super().__init__()
        self.after_s = after_s

    async def partitions_for(self, topic: str) -> list[int]:
        await asyncio.sleep(self.after_s)
        return [0]


def failure_in_virtual_time(loader: Loader) -> MetadataTimeoutError | None:
    async def act(_: VirtualKafka) -> MetadataTimeoutError | None:
        try:
            await loader.run()
        except MetadataTimeoutError as error:
            return error
        return None

    return run_virtual(act)


async def test_a_state_file_that_cannot_be_written_is_found_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    producer, letters = FakeProducer(), tmp_path / "letters"
    options = LoadOptions(KEYED, state=tmp_path / "missing" / "state", dead_letter=letters)
    with pytest.raises(StateError, match="cannot write the state file"):
        await Loader(producer, lines_file(tmp_path, 3), "t", options).run()
    assert producer.sent == []


@pytest.mark.skipif(os.name == "nt", reason="a working directory cannot be removed there")
async def test_a_load_in_a_removed_directory_names_the_file_that_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = lines_file(tmp_path, 3), tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    producer, options = FakeProducer(), LoadOptions(KEYED, state="state", dead_letter="letters")
    with pytest.raises(DeadLetterError, match="cannot write the dead-letter file letters"):
        await Loader(producer, source, "t", options).run()
    assert producer.sent == []


def test_rows_for_a_missing_topic_are_counted_as_failed_after_a_short_wait(tmp_path: Path) -> None:
    producer = WithoutTopic(after_s=60)
    options = LoadOptions(KEYED, topic_timeout_s=10)
    loader = Loader(producer, lines_file(tmp_path, 3), "t", options)
    error = failure_in_virtual_time(loader)
    assert error is not None
    assert (error.topic, error.elapsed_ms) == ("t", 10_000)
    progress = loader.progress
    counts = (progress.read, progress.acknowledged, progress.failed, progress.outstanding)
    assert counts == (3, 0, 3, 0)
    assert loader.state.position is None
    assert producer.sent == []


def test_a_topic_that_appears_in_time_gets_all_rows(tmp_path: Path) -> None:
    producer = WithoutTopic(after_s=9)
    options = LoadOptions(KEYED, topic_timeout_s=10)
    loader = Loader(producer, lines_file(tmp_path, 3), "t", options)
    assert failure_in_virtual_time(loader) is None
    assert loader.state.complete
    assert producer.values == values(1, 2, 3)


@pytest.mark.parametrize(("unsent_fail", "failed"), [(True, 3), (False, 0)])
async def test_rows_that_were_not_accepted_fail_where_the_input_is_not_read_again(
    unsent_fail: bool, failed: int, tmp_path: Path
) -> None:
    producer = FakeProducer()
    producer.refuse[b"v3"] = KafkaTimeoutError("no room")
    options = LoadOptions(KEYED, unsent_fail=unsent_fail)
    loader = Loader(producer, lines_file(tmp_path, 5), "t", options)
    with pytest.raises(KafkaTimeoutError):
        await loader.run()
    progress = loader.progress
    assert (progress.acknowledged, progress.failed, progress.outstanding) == (2, failed, 0)
    assert progress.read == 2 + failed


@pytest.mark.parametrize("error", [RecordTooLargeError("too large"), None])
async def test_rows_after_a_bad_row_are_not_counted_as_failed(
    error: RecordTooLargeError | None, tmp_path: Path
) -> None:
    producer = FakeProducer()
    if error is not None:
        producer.refuse[b"v3"] = error
    source = lines_file(tmp_path, 5, bad=() if error else (3,))
    loader = Loader(producer, source, "t", LoadOptions(KEYED, unsent_fail=True))
    with pytest.raises((RecordTooLargeError, RejectedRowError)):
        await loader.run()
    assert (loader.progress.read, loader.progress.failed) == (3, 1 if error else 0)
