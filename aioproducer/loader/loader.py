"""The load: reads rows, sends records and counts the outcome of each row.

    read + map (thread) --> send (awaits room in the producer) --> window --> settled
                                                                     |  in input order
                                              dead-letter file <-----+-----> state file

With `exactly_once`, only committed rows count as acknowledged. At most `max_outstanding` rows have
no outcome. The dead-letter file is on disk before the state file is written. However a load ends,
accepted records are counted and covered by the state file; only a cancellation does not flush them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast
from zlib import crc32

from aioproducer._util import log
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.client.producer import Producer
from aioproducer.errors import ConfigError, IllegalStateError, KafkaError
from aioproducer.loader.dead_letter_file import DeadLetterFile
from aioproducer.loader.errors import NEW_ID, START_OVER, LoaderError, StateError
from aioproducer.loader.exactly_once import LoadTransactions
from aioproducer.loader.mapping import MappedRecord, RecordMapping, RowMapper
from aioproducer.loader.options import LoadOptions, ProducerLike
from aioproducer.loader.progress import BatchCounts, LoadResult, Progress
from aioproducer.loader.reading import MappedBatch, SourceReader
from aioproducer.loader.refusals import Refusals
from aioproducer.loader.rows import BadRow, RowBatch, Source
from aioproducer.loader.sources import FileSource, RowsSource, size_of
from aioproducer.loader.state import LoadState
from aioproducer.loader.topic import wait_for_topic
from aioproducer.loader.window import ROW_ERRORS, DeliveryLike, Outcome, Window

_log = log.get("loader")
_ROWS_PER_TURN = 500


class Loader:
    """Loads one source into one topic; runs once.

    Delivery is at least once: a resumed load sends again what was acknowledged after a row whose
    own acknowledgement had not come. With `exactly_once`, read_committed consumers see each row
    once.
    """

    def __init__(
        self, producer: ProducerLike, source: Source, topic: str, options: LoadOptions | None = None
    ) -> None:
        self._producer = producer
        self._source = source
        self._topic = topic
        self._options = options or LoadOptions()
        self._paths: Sequence[Path] = getattr(source, "paths", ())
        self._options.check_paths(self._paths)
        self._checksums = [_checksum(path, size_of(path)) for path in self._paths]
        self._on_progress = self._options.on_progress
        # A few rows between two checks of the window and of the loop's other work.
        self._rows_per_turn = min(_ROWS_PER_TURN, max(1, self._options.max_outstanding // 4))
        self._progress = self._progress_committed = Progress(input_total=source.total_bytes)
        self._before = self._saved = LoadState(topic)
        self._is_unsaved = False
        self._window = Window(self._before, None)
        self._transactions: LoadTransactions | None = None
        self._dead_letter: DeadLetterFile | None = None
        self._refusals = Refusals()
        self._sending: asyncio.Task[None] | None = None
        self._topic_exists = self._options.topic_timeout_s is None
        self._stopped = False
        self._exhausted = False
        self._started_at: float | None = None
        self._saved_at = 0.0

    @property
    def progress(self) -> Progress:
        """The counts at this moment."""
        acknowledged, failed = self._window.acknowledged, self._window.failed
        if self._transactions is not None:
            before, begun_at = self._before.settled, self._window.begun_at.settled
            acknowledged = self.state.settled.acknowledged - before.acknowledged
            failed += begun_at.failed - before.failed
            if self._transactions.is_aborted:
                failed = self._progress.sent - acknowledged
        return replace(self._progress, acknowledged=acknowledged, failed=failed)

    @property
    def state(self) -> LoadState:
        """The position up to which all is settled, and committed, at this moment.

        Once `run()` could not write the dead-letter or the state file: the last one written.
        """
        if self._transactions is not None:
            return self._transactions.committed or self._before
        return self._current_state()

    def _current_state(self) -> LoadState:
        if self._is_unsaved:
            return self._saved
        if self._before.complete:
            return self._before
        whole = self._exhausted and len(self._window) == 0 and self._window.failure is None
        size = self._progress.input_total if whole else None
        state = self._window.state()
        state = replace(state, complete=whole, input_bytes=size)
        before = "".join(self._checksums[: self._files_before(state)])
        if self._transactions is not None:  # their size is limited, and their inputs are the same
            before = _checksum(before)
        return replace(state, files_before=before)

    def _files_before(self, state: LoadState) -> int:
        """Return how many inputs are before the position's file."""
        file = None if state.position is None else Path(state.position.file)
        return self._paths.index(file) if file in self._paths else 0

    def stop(self) -> None:
        """Stop reading at once; `run()` then flushes what was accepted and returns."""
        self._stopped = True
        if self._sending is not None:
            self._sending.cancel()

    async def run(self) -> LoadResult:
        """Load until the input ends, `stop()` is called or something fails.

        Raises:
            LoaderError: The input, the mapping, the state or the dead-letter file failed, or a row
                was rejected and there is no dead-letter file.
            KafkaError: Records could not be sent or were not acknowledged, for a reason that is not
                one record's own. As with every other error, `progress` and `state` hold what was
                settled before.
        """
        if self._started_at is not None:
            raise IllegalStateError("a Loader runs once; make another one")
        self._started_at = asyncio.get_running_loop().time()
        before = self._before = await self._state_before()
        self._window = Window(before, None)
        if before.complete:
            await self._check_unchanged(before)
            _log.info("%s is already loaded into %s", self._source.name, self._topic)
            return LoadResult(self.progress, self.state)
        self._check_nothing_added(before)
        self._dead_letter = self._open_dead_letter(before)
        if self._dead_letter is not None:
            size = self._dead_letter.size
            before = replace(before, settled=replace(before.settled, dead_letter_bytes=size))
            self._before = before
        self._window = self._new_window(before)
        try:
            self._save(before)  # to find out before anything is sent whether it can be written
        except LoaderError:
            self._close_dead_letter()
            raise
        reporting = asyncio.create_task(self._report())
        try:
            while (failure := await self._attempt()) is not None:
                if not self._begin_again():
                    raise failure
        finally:
            reporting.cancel()
            self._window.pop_finished()
            self._emit()
            self._end()
        return LoadResult(self.progress, self.state)

    async def _state_before(self) -> LoadState:
        fresh = LoadState(self._topic)
        if self._options.exactly_once:
            if isinstance(self._source, FileSource) and self._progress.input_total is None:
                self._source.check()  # a file may be missing
                raise ConfigError("exactly_once needs inputs that can be read again: regular files")
            self._transactions = LoadTransactions(
                cast("Producer", self._producer),
                self._topic,
                self._source.name,
                _checksum(*self._paths),
                rows=self._options.transaction_rows,
                seconds=self._options.transaction_s,
            )
            return await self._transactions.read() or fresh
        if self._options.state is None:
            return fresh
        state = LoadState.read(self._options.state) or fresh  # a file of something else is refused
        if not self._options.resume:
            return fresh
        position = state.position
        if state.topic != self._topic:
            load = f"into {state.topic!r}"
        elif (
            isinstance(self._source, RowsSource)
            and position is not None
            and position.file != self._source.name
        ):
            load = f"of {position.file!r}"
        else:
            return state
        raise StateError(
            f"the state file {self._options.state} belongs to a load {load}",
            advice="name another state file, or leave out resume to start over",
        )

    async def _check_unchanged(self, before: LoadState) -> None:
        """Raise if a complete load was of another input: none of the new rows would be loaded."""
        paths = self._paths
        size, size_before = self._progress.input_total, before.input_bytes
        if before.position is not None and paths and Path(before.position.file) not in paths:
            reason = f"{before.position.file} is not among the inputs"
        elif None not in (size, size_before) and size != size_before:
            reason = f"the input had {size_before} bytes when it was loaded, and has {size} now"
        else:
            if size_before is not None:  # else it is a pipe, which may have no end
                await self._check_last_row(before)
            return
        again = "leave out resume" if self._transactions is None else NEW_ID
        raise StateError(
            f"nothing is left to resume, and {reason}", advice=f"{again} to load it from its start"
        )

    async def _check_last_row(self, before: LoadState) -> None:
        """Raise if the state has a checksum of its last row, and the row is another one now."""
        if before.row_checksum is None:
            return
        reader = SourceReader(self._source, RowMapper(RecordMapping(), 0), before)
        try:
            await reader.next()
        finally:
            await reader.close()

    def _check_nothing_added(self, before: LoadState) -> None:
        """Raise if inputs before the position were added or have changed: they would be skipped."""
        if (known := before.files_before) is None:
            return
        where = f"cannot resume after {before.position}"
        count = self._files_before(before)
        if self._transactions is not None:
            if _checksum("".join(self._checksums[:count])) != known:
                raise StateError(
                    f"{where}: an input before it has another size than when it was loaded",
                    advice=START_OVER,
                )
            return
        loaded = {known[start : start + 8] for start in range(0, len(known), 8)}
        for path, checksum in zip(self._paths[:count], self._checksums[:count], strict=True):
            # States of earlier versions have checksums of the names alone.
            if not loaded & {checksum, _checksum(path)}:
                raise StateError(
                    f"{where}: {path} comes before it, and did not, or had another size, when it "
                    "was loaded; it would be left out",
                    advice="name new inputs last, or load them separately",
                )

    def _open_dead_letter(self, before: LoadState) -> DeadLetterFile | None:
        path = self._options.dead_letter
        if path is None:
            return None
        inputs = self._paths
        is_input = (lambda file: Path(file) in inputs) if inputs else None
        kept: int | None = before.settled.dead_letter_bytes
        if before.position is None and self._source.total_bytes is None:
            kept = None  # of a pipe, this load may have other rows than an earlier one
        file = DeadLetterFile(path, keep_bytes=kept, is_input=is_input)
        try:
            # Again, now that it exists: names may differ in case only, or a link may be new.
            self._options.check_paths(inputs)
        except ConfigError:
            file.close()
            raise
        return file

    def _new_window(self, state: LoadState) -> Window:
        return Window(
            state,
            self._dead_letter,
            all_or_none=self._transactions is not None,
            has_files=bool(self._paths),
        )

    def _begin_again(self) -> bool:
        """Go back to the last commit, to leave out newly refused rows; False if that cannot be."""
        transactions, dead_letter = self._transactions, self._dead_letter
        if self._stopped or transactions is None or not transactions.is_usable:
            return False
        if dead_letter is None or not dead_letter.can_go_back:
            return False
        if not self._refusals.add(self._window.refused):
            return False  # Left out already, or refused because of another row.
        state = self.state
        dead_letter.go_back(state.settled.dead_letter_bytes)
        self._window = self._new_window(state)
        self._progress, self._exhausted = self._progress_committed, False
        return True

    async def _attempt(self) -> BaseException | None:
        """Send all rows after the settled ones; return the failure, None for none."""
        self._sending = asyncio.create_task(self._send_all())
        if self._stopped:
            self._sending.cancel()
        failure: Exception | None = None
        try:
            await self._sending
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        except Exception as error:
            failure = error
        unflushed = await self._flush()
        cause = self._window.failure or failure or unflushed
        if self._transactions is not None:
            cause = await self._end_transactions(self._transactions, cause)
        return cause

    async def _end_transactions(
        self, transactions: LoadTransactions, failure: BaseException | None
    ) -> BaseException | None:
        """Commit the last transaction, or abort it after a failure; return the failure."""
        if failure is None:
            try:
                await transactions.wait_for_commit()
                await self._commit(transactions)
            except Exception as error:
                failure = error
        return None if failure is None else await transactions.abort(failure)

    async def _commit(self, transactions: LoadTransactions) -> None:
        """Make all that was sent visible, with the position after it."""
        failure = await self._flush()
        if self._window.failure is not None:
            raise self._window.failure
        if failure is not None:
            raise failure
        state = self._current_state()
        await asyncio.to_thread(self._save, state)
        await transactions.commit(state)
        self._refusals.on_commit()
        self._progress_committed = self._progress

    async def _send_all(self) -> None:
        mapper = RowMapper(self._options.mapping, await self._partition_count())
        reader = SourceReader(self._source, mapper, self.state)
        try:
            while (mapped := await self._next(reader)) is not None:
                await self._send_or_fail(*mapped)
                if self._elapsed() - self._saved_at >= self._options.state_interval_s:
                    self._saved_at = self._elapsed()
                    await reader.in_thread(partial(self._save, self.state))
            self._refusals.check_all_met()
            self._exhausted = True
        except asyncio.CancelledError:
            reader.interrupt()
            raise
        finally:
            # In transactions it may have to be read again.
            await reader.close(interrupt=self._transactions is None)

    async def _next(self, reader: SourceReader) -> MappedBatch | None:
        """Return the next batch; commit a transaction that becomes due during the wait."""
        transactions = self._transactions
        if transactions is None:
            return await reader.next()
        reading = asyncio.ensure_future(reader.next())
        try:
            while not (await asyncio.wait({reading}, timeout=transactions.due_in_s))[0]:
                await self._commit(transactions)
            return reading.result()
        finally:
            reading.cancel()

    async def _partition_count(self) -> int:
        mapping = self._options.mapping
        if not mapping.partition_by and mapping.partition is None:
            return 0
        await self._wait_for_topic()
        return len(await self._producer.partitions_for(self._topic))

    async def _wait_for_topic(self) -> None:
        timeout_s = self._options.topic_timeout_s
        if not self._topic_exists and timeout_s is not None:
            await wait_for_topic(self._producer, self._topic, timeout_s)
            self._topic_exists = True

    async def _send_or_fail(
        self, batch: RowBatch, records: Sequence[MappedRecord | BadRow]
    ) -> None:
        """Send a batch; if Kafka refuses the rest, count the rows that were not accepted as failed.

        They are counted if the topic is missing or the input cannot be read again (`unsent_fail`).
        """
        read_before = self._progress.read
        try:
            await self._wait_for_topic()
            await self._send_batch(batch, records)
        except (LoaderError, *ROW_ERRORS):
            raise  # The error concerns one row; the rows after it are not lost.
        except KafkaError as error:
            if self._topic_exists and not self._options.unsent_fail:
                raise
            first = self._progress.read - read_before
            for index in range(first, len(records)):
                self._window.add(error, batch, index)
            counts = BatchCounts(sent=len(records) - first)
            self._progress = counts.added_to(self._progress, self._elapsed())
            raise

    async def _send_batch(self, batch: RowBatch, records: Sequence[MappedRecord | BadRow]) -> None:
        for start in range(0, len(records), self._rows_per_turn):
            await self._make_room()
            counts = BatchCounts()
            turn = records[start : start + self._rows_per_turn]
            transactions = self._transactions
            if transactions is not None:
                positions = map(batch.position, range(start, start + len(turn)))
                if transactions.is_due or (self._refusals and self._refusals.touch(positions)):
                    await self._commit(transactions)
                await transactions.extend(len(turn))
            try:
                await self._send_rows(batch, start, turn, counts)
            finally:
                self._progress = counts.added_to(self._progress, self._elapsed())
        self._progress = replace(self._progress, input_bytes=batch.progress)

    async def _send_rows(
        self,
        batch: RowBatch,
        start: int,
        records: Sequence[MappedRecord | BadRow],
        counts: BatchCounts,
    ) -> None:
        send, topic, add = self._producer.send, self._topic, self._window.add
        refusals = self._refusals
        for index, record in enumerate(records, start):
            outcome: Outcome
            refused = False
            left_out = refusals.of(batch.position(index)) if refusals else None
            if isinstance(record, BadRow):
                outcome, refused = record, True
                counts.rejected += 1
            else:
                value, key, headers, partition, timestamp = record
                try:
                    outcome = left_out or await send(
                        topic,
                        value,
                        key,
                        headers=headers,
                        partition=partition,
                        timestamp_ms=timestamp,
                    )
                except ROW_ERRORS as error:
                    outcome, refused = error, True
                counts.sent += 1
                counts.bytes_sent += len(value or b"") + len(key or b"")
            add(outcome, batch, index)
            if refused and self._dead_letter is None:
                raise _RowRefusedError

    async def _make_room(self) -> None:
        """Remove finished rows from the window, wait while it is full, and yield to the loop."""
        window = self._window
        window.pop_finished()
        room = self._options.max_outstanding - self._rows_per_turn
        while len(window) > room and window.failure is None:
            await _wait_for(window.head)
            window.pop_finished()
        if window.failure is not None:
            raise window.failure
        await asyncio.sleep(0)

    async def _flush(self) -> Exception | None:
        """Wait until every accepted record has its outcome; return the failure of the flush."""
        failure: Exception | None = None
        try:
            await self._producer.flush()
        except Exception as error:
            failure = error
        self._window.pop_finished()
        while self._window.head is not None:
            await _wait_for(self._window.head)
            self._window.pop_finished()
        return failure

    def _save(self, state: LoadState) -> None:
        if self._dead_letter is not None:
            self._dead_letter.sync()
        if self._options.state is not None:
            state.write(self._options.state)
        self._saved = state

    def _end(self) -> None:
        state = self.state
        try:
            self._save(state)
        except LoaderError:
            self._is_unsaved = True
            raise
        finally:
            self._close_dead_letter()

    def _close_dead_letter(self) -> None:
        if self._dead_letter is not None:
            self._dead_letter.close()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._options.progress_interval_s)
            self._window.pop_finished()  # nothing else does while the source has no next row
            self._emit()

    def _emit(self) -> None:
        self._progress = replace(self._progress, elapsed_s=self._elapsed())
        if self._on_progress is None:
            return
        try:
            self._on_progress(self.progress)
        except HOOK_ERRORS:
            # A failed display does not end the load.
            _log.exception("on_progress failed; it is not called again")
            self._on_progress = None

    def _elapsed(self) -> float:
        if self._started_at is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._started_at


def _checksum(*what: object) -> str:
    """Return eight digits for the names of inputs, or their sizes."""
    return f"{crc32(b'/'.join(os.fsencode(str(each)) for each in what)):08x}"


class _RowRefusedError(Exception):
    """End the sending at a row that may not be left out; the window has row and reason."""


async def _wait_for(delivery: DeliveryLike | None) -> None:
    """Wait until a delivery is done, whatever its outcome."""
    if delivery is not None:
        with suppress(Exception):  # the window asks for it again
            await delivery
