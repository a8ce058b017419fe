"""The loader's transactions with a real producer on embedded brokers, both protocols."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.confluent import read_all_confluent

from aioproducer import Producer, SourcePosition
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from aioproducer.loader import (
    BadRow,
    FileSource,
    Loader,
    LoadOptions,
    LoadResult,
    Position,
    RejectedRowError,
    RowsSource,
    SourceError,
    StateError,
)
from aioproducer.loader.mapping import RecordMapping
from aioproducer.loader.rows import RowBatch
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.wire.api_keys import ApiKey

MAPPING = RecordMapping(value="n")


@pytest.fixture(params=[1, 2])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    topic = TopicSpec(2, configs={"max.message.bytes": "10000"})
    async with EmbeddedCluster(brokers=3, topics={"t": topic}) as cluster:
        cluster.set_transaction_version(request.param)
        yield cluster


@asynccontextmanager
async def producer_of(brokers: EmbeddedCluster, **options: Any) -> AsyncIterator[Producer]:
    given: dict[str, Any] = {"bootstrap_servers": brokers.bootstrap_servers}
    async with Producer(**given | {"transactional_id": "job"} | options) as producer:
        yield producer


def options(**more: Any) -> LoadOptions:
    return LoadOptions(MAPPING, exactly_once=True, **more)


def numbers(*, until: int) -> Iterator[dict[str, str]]:
    return ({"n": f"{number:06d}"} for number in range(until))


async def load(brokers: EmbeddedCluster, rows: Any, **more: Any) -> LoadResult:
    async with producer_of(brokers) as producer:
        return await Loader(producer, RowsSource(rows), "t", options(**more)).run()


async def visible(brokers: EmbeddedCluster) -> list[int]:
    records = await read_all_confluent(brokers.bootstrap_servers, "t")
    return sorted(int(record.value or b"-1") for record in records)


async def test_rows_arrive_in_several_transactions_with_the_position(
    brokers: EmbeddedCluster,
) -> None:
    result = await load(brokers, numbers(until=3000), transaction_rows=700)
    assert result.complete
    assert result.progress.acknowledged == 3000
    assert result.state.position == Position("rows", None, 3000)
    assert await visible(brokers) == list(range(3000))


async def test_a_complete_load_is_not_loaded_again(brokers: EmbeddedCluster) -> None:
    await load(brokers, numbers(until=10))
    result = await load(brokers, numbers(until=10))
    assert result.complete
    assert result.progress.read == 0
    assert result.state.settled.acknowledged == 10
    assert await visible(brokers) == list(range(10))


def unnamed_file(folder: Path, content: str) -> str:
    """Return the name of a new file, which has bytes that are no text."""
    file = os.fsdecode(os.fsencode(folder) + b"/\xff.csv")
    try:
        Path(file).write_text(content)
    except OSError:
        pytest.skip("names of files are text here")
    return file


async def test_a_file_whose_name_is_no_text_is_loaded_once(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = unnamed_file(tmp_path, "n\n0\n1\n")
    for expected in (2, 0):
        async with producer_of(brokers) as producer:
            result = await Loader(producer, FileSource(file), "t", options()).run()
        assert (result.complete, result.progress.acknowledged) == (True, expected)
        assert result.state.position == Position(file, None, 2)
    assert await visible(brokers) == [0, 1]


async def test_another_transactional_id_is_another_load(brokers: EmbeddedCluster) -> None:
    for name in ("job", "another"):
        async with producer_of(brokers, transactional_id=name) as producer:
            await Loader(producer, RowsSource(numbers(until=3)), "t", options()).run()
    assert await visible(brokers) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("closes", [True, False])
async def test_a_load_whose_commit_has_no_known_outcome_goes_on_from_what_kafka_holds(
    brokers: EmbeddedCluster, commits: bool, closes: bool
) -> None:
    # The answer to the second commit never comes: closed by force meanwhile, or out of time.
    fault = brokers.state.faults.swallow(ApiKey.END_TXN, skip=1, apply=commits, times=None)
    producer = Producer(
        bootstrap_servers=brokers.bootstrap_servers,
        transactional_id="job",
        max_block_ms=60_000 if closes else 1_000,
    )
    await producer.start()
    loader = Loader(
        producer,
        RowsSource(numbers(until=500)),
        "t",
        options(transaction_rows=200, max_outstanding=400),
    )
    loading = asyncio.ensure_future(loader.run())
    async with asyncio.timeout(30):
        while not fault.struck and not loading.done():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
    if closes:
        await producer.close(0)
    expected = CommitOutcomeUnknownError if closes else KafkaTimeoutError
    with pytest.raises(expected, match="Run the load again") as caught:
        await loading
    assert not getattr(caught.value, "__notes__", [])
    assert loader.state.settled.rows == 200
    await producer.close(0)
    brokers.state.faults.clear()
    result = await load(brokers, numbers(until=500))
    assert result.state.complete
    assert await visible(brokers) == list(range(500))


async def test_a_stopped_load_has_committed_what_it_sent_and_goes_on_there(
    brokers: EmbeddedCluster,
) -> None:
    async with producer_of(brokers) as producer:
        loader = Loader(
            producer, RowsSource(numbers(until=100_000)), "t", options(transaction_rows=900)
        )
        running = asyncio.create_task(loader.run())
        while loader.progress.acknowledged < 1000 and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        loader.stop()
        stopped = await running
    assert not stopped.complete
    count = stopped.progress.acknowledged
    assert stopped.progress.outstanding == 0
    assert stopped.state.position == Position("rows", None, count)
    assert await visible(brokers) == list(range(count))
    result = await load(brokers, numbers(until=count + 500))
    assert result.progress.read == 500
    assert await visible(brokers) == list(range(count + 500))


async def test_a_transaction_ends_in_time_while_the_source_has_no_row(
    brokers: EmbeddedCluster,
) -> None:
    goes_on = threading.Event()

    def rows() -> Iterator[dict[str, str]]:
        yield from numbers(until=500)  # a batch
        assert goes_on.wait(30)
        yield {"n": "000500"}

    async with producer_of(brokers) as producer, asyncio.timeout(20):
        loader = Loader(producer, RowsSource(rows()), "t", options(transaction_s=0.05))
        running = asyncio.create_task(loader.run())
        try:
            while loader.state.settled.rows < 500 and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await visible(brokers) == list(range(500))
        finally:
            goes_on.set()
        result = await running
    assert (result.complete, result.progress.acknowledged) == (True, 501)
    assert await visible(brokers) == list(range(501))


async def test_a_stop_at_any_step_loses_and_repeats_nothing(brokers: EmbeddedCluster) -> None:
    for steps in itertools.chain(range(0, 60, 7), range(60, 2000, 230)):
        async with producer_of(brokers) as producer:
            source = RowsSource(numbers(until=20_000))
            loader = Loader(producer, source, "t", options(transaction_rows=300))
            running = asyncio.create_task(loader.run())
            for _ in range(steps):
                await asyncio.sleep(0)
            loader.stop()
            await running
    assert (await load(brokers, numbers(until=20_000))).complete
    assert await visible(brokers) == list(range(20_000))


async def test_a_cancelled_load_leaves_nothing_after_its_position(
    brokers: EmbeddedCluster,
) -> None:
    async with producer_of(brokers) as producer:
        loader = Loader(
            producer, RowsSource(numbers(until=100_000)), "t", options(transaction_rows=500)
        )
        running = asyncio.create_task(loader.run())
        while loader.progress.acknowledged < 1000 and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await producer.close(0)
    await load(brokers, numbers(until=5000))
    seen = await visible(brokers)
    assert seen == list(range(max(5000, len(seen))))


REFUSED = pytest.mark.parametrize(
    "size", [2_000_000, 15_000], ids=["by the client", "by the broker"]
)


def with_refused(places: set[int], size: int, *, until: int) -> list[dict[str, str]]:
    """Rows of which those at some places are too large."""
    large = "9" * size
    rows = list(numbers(until=until))
    return [{"n": large} if place in places else row for place, row in enumerate(rows)]


@REFUSED
async def test_without_a_dead_letter_file_a_refused_record_ends_the_load_and_its_transaction(
    brokers: EmbeddedCluster, size: int
) -> None:
    rows = with_refused({1500}, size, until=1501)
    with pytest.raises((RecordTooLargeError, TransactionAbortableError)):
        await load(brokers, rows, transaction_rows=500)
    seen = await visible(brokers)
    assert seen in (list(range(1000)), list(range(1500)))
    result = await load(brokers, numbers(until=1501))
    assert result.state.settled.rows == 1501
    assert await visible(brokers) == list(range(1501))


async def test_the_error_of_a_refused_record_names_it_and_not_a_row_of_its_transaction(
    brokers: EmbeddedCluster,
) -> None:
    rows = [{"n": "0"}, {"n": "1" * 2_000_000}]
    with pytest.raises(RecordTooLargeError, match="rows row 2: "):
        await load(brokers, rows)


@REFUSED
@pytest.mark.parametrize(
    "places", [{0}, {1499}, {0, 1, 2, 640, 641, 700, 1499}], ids=["first", "last", "several"]
)
async def test_refused_records_are_buried_and_the_others_loaded_once(
    brokers: EmbeddedCluster, size: int, places: set[int], tmp_path: Path
) -> None:
    dead = tmp_path / "dead.ndjson"
    rows = with_refused(places, size, until=1500)
    result = await load(brokers, rows, transaction_rows=300, dead_letter=dead)
    assert result.complete
    assert result.progress.failed == result.state.settled.failed == len(places)
    assert result.progress.acknowledged == 1500 - len(places)
    assert result.progress.read == result.progress.sent == 1500
    assert await visible(brokers) == [n for n in range(1500) if n not in places]
    buried = [json.loads(line) for line in dead.read_text().splitlines()]
    assert [(each["row"] - 1, each["stage"]) for each in buried] == [
        (place, "delivery") for place in sorted(places)
    ]


@pytest.mark.parametrize("are_named", [True, False])
async def test_of_many_rows_only_the_bad_one_is_a_dead_letter(
    brokers: EmbeddedCluster, are_named: bool, tmp_path: Path
) -> None:
    if not are_named:
        brokers.set_transaction_version(1)
        versions = {ApiKey.PRODUCE: (3, 7)}
        brokers.state.settings = replace(brokers.state.settings, api_versions=versions)
    brokers.state.create_topic("c", TopicSpec(1, 3, {"cleanup.policy": "compact"}))
    dead = tmp_path / "dead.ndjson"
    rows = [{"key": None if n == 500 else f"k{n}", "n": str(n)} for n in range(1000)]
    given = LoadOptions(RecordMapping(key=("key",), value="n"), exactly_once=True, dead_letter=dead)
    async with producer_of(brokers) as producer:
        result = await Loader(producer, RowsSource(rows), "c", given).run()
    assert (result.progress.acknowledged, result.progress.failed) == (999, 1)
    (line,) = dead.read_text().splitlines()
    assert json.loads(line)["row"] == 501
    records = await read_all_confluent(brokers.bootstrap_servers, "c")
    assert [int(each.value or b"") for each in records] == [n for n in range(1000) if n != 500]


async def test_a_load_with_refused_records_goes_on_after_them_when_it_has_failed(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    dead = tmp_path / "dead.ndjson"
    places = {10, 450, 451, 1200}
    for fail_at in (300, 1100, None):
        source = WithBadRows(fail_at, too_large={place + 1 for place in places})
        async with producer_of(brokers) as producer:
            given = options(transaction_rows=100, dead_letter=dead)
            loader = Loader(producer, source, "t", given)
            if fail_at is None:
                await loader.run()
            else:
                with pytest.raises(KafkaError, match="fire"):
                    await loader.run()
    wanted = range(1, 2001)
    refused = {place + 1 for place in places}
    assert await visible(brokers) == [n for n in wanted if n % 7 and n not in refused]
    buried = [json.loads(line)["row"] for line in dead.read_text().splitlines()]
    assert buried == [n for n in wanted if not n % 7 or n in refused]


async def test_rows_that_can_be_read_only_once_cannot_be_sent_again(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    rows = iter(with_refused({700}, 15_000, until=15_000))
    with pytest.raises(SourceError, match="cannot read rows again"):
        await load(brokers, rows, transaction_rows=300, dead_letter=tmp_path / "dead.ndjson")
    assert await visible(brokers) == list(range(len(await visible(brokers))))
    assert len(await visible(brokers)) < 701


async def test_a_refused_row_that_is_gone_when_rows_are_read_again_ends_the_load(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    lengths = iter((1500, 650))

    class Shrinking:
        def __iter__(self) -> Iterator[dict[str, str]]:
            return iter(with_refused({700}, 15_000, until=next(lengths)))

    with pytest.raises(SourceError, match="row 701 was refused"):
        await load(brokers, Shrinking(), transaction_rows=300, dead_letter=tmp_path / "dead.ndjson")


class WithBadRows:
    """Rows of which each seventh is none."""

    name = "rows"
    total_bytes = None

    def __init__(self, fail_at: int | None = None, too_large: Collection[int] = ()) -> None:
        self._fail_at = fail_at
        self._too_large = too_large

    def batches(self, after: Position | None = None) -> Iterator[RowBatch]:
        for number in range(1 if after is None else after.row + 1, 2001):
            if number == self._fail_at:
                raise KafkaError("the disk is on fire")
            value = "9" * 15_000 if number in self._too_large else str(number)
            field = BadRow("seventh", b"%d" % number) if number % 7 == 0 else {"n": value}
            yield RowBatch("rows", None, number, [field], None)

    def interrupt(self) -> None: ...


async def test_bad_rows_are_buried_once(brokers: EmbeddedCluster, tmp_path: Path) -> None:
    dead = tmp_path / "dead.ndjson"
    for fail_at in (450, 1300, None):
        async with producer_of(brokers) as producer:
            given = options(transaction_rows=100, dead_letter=dead)
            loader = Loader(producer, WithBadRows(fail_at), "t", given)
            if fail_at is None:
                await loader.run()
            else:
                with pytest.raises(KafkaError, match="fire"):
                    await loader.run()
                committed = loader.state.position
                assert committed is not None
                assert fail_at - 202 <= committed.row < fail_at
    wanted = range(1, 2001)
    assert await visible(brokers) == [number for number in wanted if number % 7]
    buried = [json.loads(line)["row"] for line in dead.read_text().splitlines()]
    assert buried == [number for number in wanted if number % 7 == 0]


async def test_without_a_dead_letter_file_a_bad_row_ends_it(brokers: EmbeddedCluster) -> None:
    async with producer_of(brokers) as producer:
        with pytest.raises(RejectedRowError):
            await Loader(producer, WithBadRows(), "t", options()).run()
        async with producer.transaction():
            pass  # The producer is as good as before.
    assert await visible(brokers) == []


async def test_a_second_one_at_the_same_time_shuts_the_first_out(
    brokers: EmbeddedCluster,
) -> None:
    async with producer_of(brokers) as producer:
        source = RowsSource(numbers(until=1_000_000))
        loader = Loader(producer, source, "t", options(transaction_rows=300))
        first = asyncio.create_task(loader.run())
        while loader.progress.acknowledged < 600 and not first.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        result = await load(brokers, numbers(until=20_000), transaction_rows=5000)
        assert result.complete
        # While the second one takes over, V2 coordinators say what they say after a timeout.
        with pytest.raises((ProducerFencedError, TransactionAbortableError)):
            await first
    assert await visible(brokers) == list(range(20_000))


async def test_a_position_is_read_once_a_start_in_the_background_has_fenced_predecessors(
    brokers: EmbeddedCluster,
) -> None:
    position = SourcePosition("job", "t")
    async with producer_of(brokers) as first:
        fault = brokers.faults.every("init_producer_id").answers("COORDINATOR_LOAD_IN_PROGRESS")
        second = Producer(bootstrap_servers=brokers.bootstrap_servers, transactional_id="job")
        await second.start(wait=False)
        reading = asyncio.create_task(position.read(second))
        done, _ = await asyncio.wait([reading], timeout=0.3)
        assert fault.struck
        assert not done, "the predecessor may change the position"
        async with first.transaction() as tx:
            await position.write(tx, 1)
        brokers.faults.clear()
        found = await reading
        assert found is not None
        assert found.offset == 1
        await second.close()


async def test_a_load_whose_own_failure_comes_before_its_fencing_raises_the_failure(
    brokers: EmbeddedCluster,
) -> None:
    is_fenced = threading.Event()

    class Failing(WithBadRows):
        def batches(self, after: Position | None = None) -> Iterator[RowBatch]:
            yield RowBatch("rows", None, 1, [{"n": "1"}], None)
            is_fenced.wait(10)
            raise KafkaError("the disk is on fire")

    async with producer_of(brokers) as producer:
        loader = Loader(producer, Failing(), "t", options())
        loading = asyncio.create_task(loader.run())
        while loader.progress.sent == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await producer.flush()
        async with producer_of(brokers):
            is_fenced.set()
            with pytest.raises(KafkaError, match="the disk is on fire") as caught:
                await loading
    assert any("could not be aborted" in note for note in caught.value.__notes__)


async def test_a_group_of_another_program_is_no_position(brokers: EmbeddedCluster) -> None:
    async with producer_of(brokers) as producer:
        async with producer.transaction() as tx:
            await tx.send_offsets({("t", 0): 17}, "job")
        with pytest.raises(StateError, match="another transactional_id"):
            await Loader(producer, RowsSource(numbers(until=3)), "t", options()).run()


async def test_the_position_of_another_input_is_refused(brokers: EmbeddedCluster) -> None:
    await load(brokers, numbers(until=3))
    async with producer_of(brokers) as producer:
        other = RowsSource(numbers(until=9), name="other rows")
        with pytest.raises(StateError, match="belongs to a load of rows"):
            await Loader(producer, other, "t", options()).run()
    assert await visible(brokers) == [0, 1, 2]


async def test_the_position_of_as_many_other_files_is_refused(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    for name in "123":
        (tmp_path / name).write_text(f"n\n{name}\n")
    first, second, third = (str(tmp_path / name) for name in "123")
    async with producer_of(brokers) as producer:
        source = FileSource([first, second], format="csv")
        await Loader(producer, source, "t", options()).run()
        replaced = FileSource([first, third], format="csv")
        assert replaced.name == source.name
        with pytest.raises(StateError, match="belongs to a load of other inputs"):
            await Loader(producer, replaced, "t", options()).run()
    assert await visible(brokers) == [1, 2]


async def test_the_records_of_an_aborted_transaction_have_failed(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("n\n1\n2\n3\nbad,row\n")
    async with producer_of(brokers) as producer:
        few = options(transaction_rows=2, max_outstanding=4)
        loader = Loader(producer, FileSource(file), "t", few)
        with pytest.raises(RejectedRowError):
            await loader.run()
    progress = loader.progress
    assert (progress.sent, progress.acknowledged) == (3, 2)
    assert (progress.failed, progress.outstanding) == (1, 0)


async def test_a_load_goes_on_in_a_corrected_file_and_not_in_another_one(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"

    async def load_file(*rows: str) -> None:
        file.write_text("\n".join(["n", *rows, ""]))
        async with producer_of(brokers) as producer:
            few = options(transaction_rows=1, max_outstanding=4)
            await Loader(producer, FileSource(file), "t", few).run()

    with pytest.raises(RejectedRowError):
        await load_file("1", "2", "bad,row")
    with pytest.raises(StateError, match="row 2: the row there is not the one that was loaded"):
        await load_file("7", "8", "9")
    await load_file("1", "2", "3")
    assert await visible(brokers) == [1, 2, 3]


async def test_a_load_does_not_go_on_after_a_file_that_has_changed(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("n\n1\n")
    second.write_text("n\n2\nbad,row\n")

    async def load_files() -> None:
        async with producer_of(brokers) as producer:
            few = options(transaction_rows=1, max_outstanding=4)
            await Loader(producer, FileSource([first, second]), "t", few).run()

    with pytest.raises(RejectedRowError):
        await load_files()
    first.write_text("n\n1\n10\n")
    with pytest.raises(StateError, match=r"2\.csv row 1: an input before it has another size"):
        await load_files()
    first.write_text("n\n1\n")
    second.write_text("n\n2\n3\n")
    await load_files()
    assert await visible(brokers) == [1, 2, 3]


async def test_it_needs_files_that_can_be_read_again(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    async with producer_of(brokers) as producer:
        with pytest.raises(ConfigError, match="exactly_once needs inputs that can be read again"):
            await Loader(producer, FileSource(pipe, format="lines"), "t", options()).run()
        with pytest.raises(SourceError, match="no such file"):
            await Loader(producer, FileSource("missing.csv"), "t", options()).run()


async def test_it_needs_a_transactional_producer(brokers: EmbeddedCluster) -> None:
    async with producer_of(brokers, transactional_id=None) as producer:
        with pytest.raises(ConfigError, match="transactional_id"):
            await Loader(producer, RowsSource(numbers(until=3)), "t", options()).run()


@pytest.mark.parametrize(
    "more",
    [{"state": "s"}, {"resume": True}, {"transaction_rows": 0}, {"transaction_s": 0.0}],
    ids=str,
)
def test_options_that_contradict_it_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        options(**more)
