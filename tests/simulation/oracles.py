"""Rules that must hold after a run, whatever went wrong during it.

Owns: guarantees of the producer that only a simulation can observe. Not here: what the logs may not
contradict, which `support.checker` judges here as on real brokers; which faults struck, since a
guarantee holds under all of them.

With `acks=1` a leader may take an acknowledged record with it, and with unclean elections any: then
the record must be among what the cluster says it lost, at its offset. With `acks=0` nothing is
promised but an end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Set
from math import inf
from typing import NamedTuple

from aioproducer.errors import (
    AuthenticationError,
    AuthorizationError,
    BatchRefusedError,
    BufferExhaustedError,
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    IllegalStateError,
    InvalidPartitionError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    KafkaError,
    MetadataTimeoutError,
    OutOfOrderSequenceNumberError,
    ProducerClosedError,
    RebootstrapRequiredError,
    RecordsPurgedError,
    TransactionAbortedError,
    UnknownProducerIdError,
)
from aioproducer.records import murmur2_partition
from aioproducer.records.batch import DecodedRecord, read_batches
from aioproducer.testing.broker.producers import sequence_after
from aioproducer.types import Persistence, TimestampType, TopicPartition
from aioproducer.wire.api_keys import ApiKey
from simulation.evidence import Evidence, Log, name_of
from simulation.history import contradictions
from simulation.ledger import EARLY, CallState, Entry
from simulation.releases import serves
from simulation.scenario import CHAOS_S, LateSerializer, Observer

_RECOVERY_S = 12.0
"""A healthy cluster takes at least something within that long."""

_CONNECTIONS_PER_REFRESH = 2
"""One broker may be tried without effect."""

_MOST_REFUSALS = 24
_REFUSALS_WITHIN_S = 3.0
"""After so many refusals pauses are near their maximum; a broker may be a bootstrap server too."""

_MOST_DESCRIBED = 60
_DESCRIBED_WITHIN_S = 2.0
_MOST_WHILE_IDLE = 20
"""Requests for metadata that a pause may begin with."""

_OUT_OF_ORDER = "would be out of order"
"""What the error of a record says that a later one has overtaken."""
_TURNS_S = 0.01

_RETRIES_ENDED = re.compile(r"raise retries=(\d+), which ended after (\d+) attempt")
"""What the error of a record says that was sent as often as `retries` allows."""

_WITHOUT_STATE = frozenset(
    each.code
    for each in (
        InvalidProducerIdMappingError,
        OutOfOrderSequenceNumberError,
        UnknownProducerIdError,
    )
)
"""What brokers answer that do not have the last batch of a producer."""

_TIMEOUT_S = 0.1
"""What may come on top of a promised bound: turns of the loop, timers' granularity."""

_ROUNDING_S = 0.001
_FIRST_WITH_TIMESTAMPS = 2
"""Of Produce (KIP-32)."""


class Violation(NamedTuple):
    """A guarantee that does not hold."""

    oracle: str
    text: str


def judge(evidence: Evidence) -> list[Violation]:
    """Every violation of every guarantee, and every contradiction the checker finds."""
    observed = (Violation(each.__name__, text) for each in ORACLES for text in each(evidence))
    return [*observed, *(Violation(kind, text) for kind, text in contradictions(evidence))]


# -- the guarantees --------------------------------------------------------------------------------


def every_call_ended(e: Evidence) -> Iterator[str]:
    """A call of `send` returns or raises."""
    for entry in e.ledger.entries:
        if entry.state is CallState.ASKED or entry.settled_at is None:
            yield f"{entry.label}: send() never ended"


def the_counts_add_up(e: Evidence) -> Iterator[str]:
    """Every accepted record is counted as acknowledged or as failed."""
    stats = e.counts
    failed = stats.records_failed - e.ledger.refused_later
    if stats.records_appended != stats.records_acknowledged + failed:
        yield f"the counts do not add up: {stats}"


def contents_are_kept(e: Evidence) -> Iterator[str]:
    """A record in the log has the bytes and headers sent, and the timestamp acknowledged.

    What brokers before 0.10 have taken has no timestamp.
    """
    has_timestamps = serves(e.cluster.settings.api_versions, ApiKey.PRODUCE, _FIRST_WITH_TIMESTAMPS)
    for entry in e.ledger.entries:
        for place in e.copies.get(entry.name, ()):
            yield from _differences(entry, place.record)
        metadata, log = entry.metadata, e.log_of(entry)
        if log is None or metadata is None or metadata.offset is None:
            continue
        record = e.logs.get(log, {}).get(metadata.offset)
        if record is None or name_of(record) != entry.name:
            continue  # the checker judges places
        sizes = (-1 if each is None else len(each) for each in (entry.key, entry.value))
        reported = (metadata.serialized_key_size, metadata.serialized_value_size)
        if not entry.whole and reported != tuple(sizes):
            yield f"{entry.label}: key and value have other sizes than {reported}"
        stamps = [metadata.timestamp_ms]
        if record.timestamp_ms or has_timestamps:
            stamps.append(record.timestamp_ms)
        if entry.timestamp_ms is not None:
            stamps.append(entry.timestamp_ms)
        if metadata.timestamp_type is TimestampType.CREATE_TIME and len({*stamps}) > 1:
            yield f"{entry.label}: timestamps (acknowledged, stored, sent) {stamps}"


def _differences(entry: Entry, record: DecodedRecord) -> Iterator[str]:
    if (record.key, record.value) != (entry.key, entry.value):
        yield f"{entry.label}: other bytes than were sent"
    if tuple(record.headers) != tuple(entry.headers):
        yield f"{entry.label}: headers {record.headers} instead of {entry.headers}"


def offsets_are_reported(e: Evidence) -> Iterator[str]:
    """A record that a broker acknowledges has an offset, unless the broker left it out."""
    for entry in e.ledger.entries if e.config.acks_value and not e.leaves_out_offsets else ():
        if entry.metadata is not None and entry.metadata.offset is None:
            yield f"{entry.label} has no offset: {entry.metadata}"


def partition_is_obeyed(e: Evidence) -> Iterator[str]:
    """A record for a partition goes there, and one with a key where Java sends it.

    The latter by a number of partitions that metadata had during its call.
    """
    deleted = {topic.name for topic in e.cluster.deleted}
    for entry in e.ledger.entries:
        for place in e.copies.get(entry.name, ()):
            if place.where.topic != entry.topic:
                yield f"{entry.label}: found in {place.where.topic}"
            elif entry.partition not in {None, place.where.partition}:
                yield f"{entry.label}: found in partition {place.where.partition}"
            elif entry.partition is None and entry.key is not None and entry.topic not in deleted:
                chosen = {murmur2_partition(entry.key, count) for count in entry.partitions}
                if chosen and place.where.partition not in chosen:
                    yield f"{entry.label}: its key does not belong to {place.where.partition}"


def failures_state_persistence(e: Evidence) -> Iterator[str]:
    """The error of an accepted record says whether it may be in the log, and in which."""
    for entry in e.ledger.entries:
        error = entry.error
        if error is None or entry.state is not CallState.ACCEPTED:
            continue
        if error.persistence is None:
            yield f"{entry.label}: its failure says nothing about persistence: {error}"
        partitions = {error.partition, entry.partition} - {None}
        if error.topic != entry.topic or len(partitions) > 1:
            yield f"{entry.label}: its failure is about {error.topic}-{error.partition}: {error}"


def a_duplicate_is_written(e: Evidence) -> Iterator[str]:
    """No record fails because a broker answers that it has the batch already."""
    for entry in e.ledger.entries:
        if isinstance(entry.error, DuplicateSequenceNumberError):
            yield f"{entry.label}: is in the log, and yet {entry.error}"


def the_right_records_are_blamed(e: Evidence) -> Iterator[str]:
    """A record fails for its own reason, or was refused where it could not be sent again."""
    # A broker whose producer state expired may have written a later batch: order comes first.
    state_expires = e.cluster.settings.producer_id_expiration_ms < CHAOS_S * 1000
    for entry in e.ledger.entries:
        error = entry.error
        if isinstance(error, InvalidRecordError):
            if "without key" in error.message and entry.key is not None:
                yield f"{entry.label}: has a key, and yet {error}"
        elif isinstance(error, BatchRefusedError):
            is_divisible = entry.transaction is None and not entry.whole
            may_go_again = is_divisible and not state_expires
            if may_go_again and error.persistence is Persistence.NOT_PERSISTED:
                yield f"{entry.label}: was not to blame and not sent again: {error}"


def order_costs_no_record(e: Evidence) -> Iterator[str]:
    """No record fails because a later one of its partition was written before it.

    A topic created anew accepts a later one that was sent to the deleted topic by its name, and a
    leader that has lost the producer's state accepts any.
    """
    if e.may_lose:
        return
    deleted = set() if e.writes_by_id else {log.where.topic for log in e.deleted_logs}
    for entry in e.ledger.entries:
        if entry.topic in deleted:
            continue
        if any(where.topic == entry.topic for where in e.cluster.producers_lost_at):
            continue
        if entry.error is not None and _OUT_OF_ORDER in (entry.error.advice or ""):
            yield f"{entry.label}: was overtaken: {entry.error}"


def alarms_are_true(e: Evidence) -> Iterator[str]:
    """`on_data_loss` is called if an acknowledged offset is assigned again, and only for a loss."""
    reported = {entry.name for entry in e.ledger.entries if entry.is_acknowledged}
    may_lose = e.may_lose or not e.writes_by_id
    unreported = {entry.name for entry in e.ledger.dropped} if may_lose else set()
    for alarm in e.ledger.alarms:
        if not alarm.lost & (reported | unreported):
            yield f"at {alarm.at:.3f} a loss in {alarm.where} is reported, and there was none"
    if not e.config.effective_idempotence:
        return
    alarmed = {alarm.where for alarm in e.ledger.alarms}
    acknowledged: dict[tuple[Log, int], Entry] = {}
    for entry in e.ledger.entries:
        metadata, log = entry.metadata, e.log_of(entry)
        if log is None or metadata is None or metadata.offset is None:
            continue
        offset = metadata.offset
        first = acknowledged.setdefault((log, offset), entry)
        if first is not entry and log.where not in alarmed:
            yield f"{first.label} and {entry.label} got {log}@{offset}, and no loss is reported"


def what_brokers_have_is_known(e: Evidence) -> Iterator[str]:
    """A broker is said not to have what it acknowledged only if it may not have it any more."""
    cluster = e.cluster
    is_gone = cluster.producers_expired or cluster.producers_lost or cluster.deleted
    if not (e.may_lose or is_gone or e.scripted_codes & _WITHOUT_STATE):
        yield from e.expirations


def nothing_is_lost_silently(e: Evidence) -> Iterator[str]:
    """Records with dropped deliveries: if they are in no log, they were reported as failed."""
    if e.config.acks_value != -1 or e.may_lose:
        return
    missing = sum(entry.name not in e.copies for entry in e.ledger.dropped)
    reported = e.counts.unretrieved_failures
    if missing > reported:
        yield f"{missing} record(s) of dropped deliveries are in no log, {reported} were reported"


def no_failure_is_unhandled_that_was_read(e: Evidence) -> Iterator[str]:
    """`on_delivery_error` and the log report all failures that no task has read, and only these."""
    if e.transactions is not None:
        return
    reported = e.counts.unretrieved_failures
    if e.ledger.unread != reported:
        yield f"on_delivery_error was called for {e.ledger.unread} records, {reported} count"
    for when in ("while running", "at the end"):
        if e.logged_unread.get(when, 0) != reported:
            yield f"{e.logged_unread.get(when, 0)} failures were logged {when}, {reported} count"
    failed = e.counts.records_failed - e.ledger.refused_later
    unknown = sum(each.state is CallState.UNKNOWN for each in e.ledger.entries)
    accepted = [each for each in e.ledger.entries if each.state is CallState.ACCEPTED]
    read = sum(each.error is not None for each in accepted)
    most = min(len(e.ledger.dropped) + unknown, failed - read)
    if reported > most:
        yield f"{reported} failures are reported as unhandled, of {most}"
    if reported < failed - read - unknown:
        yield f"{reported} failures are reported as unhandled, {failed} failed, {read} were read"


def interceptors_see_every_record_once(e: Evidence) -> Iterator[str]:
    """`on_acknowledgement` is called once for each record of `on_send`, which has a topic.

    Not for the records of a process that was killed, nor for whole batches.
    """
    for observer in e.config.interceptor_classes if e.transactions is None else ():
        if not isinstance(observer, Observer):
            continue
        if observer.shown != len(observer.reported):
            yield f"{observer.shown} records were sent, {len(observer.reported)} have outcomes"
        if observer.unnamed:
            yield f"{observer.unnamed} records were shown without their topic"
        acknowledged = {None, *(metadata for metadata, error in observer.reported if error is None)}
        for entry in e.ledger.entries:
            if not entry.whole and entry.metadata not in acknowledged:
                yield f"{entry.label} is acknowledged, and no interceptor was called"


def what_the_user_gave_is_closed(e: Evidence) -> Iterator[str]:
    """A serializer is closed with its producer, once. Killed processes close nothing."""
    serializer, producers = e.config.value_serializer, len(e.stats)
    if e.transactions is not None or not isinstance(serializer, LateSerializer):
        return
    if serializer.closed != producers:
        yield f"the serializer of {producers} producers is closed {serializer.closed} times"


def sequences_are_never_reused(e: Evidence) -> Iterator[str]:
    """A sequence number that a broker was offered always has the same content."""
    for where, partition in e.partitions():
        meant: dict[tuple[int, int, int], bytes] = {}
        for data in partition.offered:
            for batch in read_batches(data):
                if batch.base_sequence < 0:
                    continue
                for number, record in enumerate(batch.records()):
                    sequence = sequence_after(batch.base_sequence, number)
                    key = (batch.producer_id, batch.producer_epoch, sequence)
                    name = name_of(record)
                    if meant.setdefault(key, name) != name:
                        yield f"{where}: {key} is {meant[key]!r} and {name!r}"


def producer_ids_are_the_clusters_own(e: Evidence) -> Iterator[str]:
    """A cluster is offered no batch under a producer id of the cluster that it has replaced.

    The id may be another producer's there, as whose batches this one's would count. A batch by the
    topic's name may come before the metadata that show the other cluster.
    """
    if not e.writes_by_id:
        return
    for where, partition in e.partitions():
        for data in partition.offered:
            for batch in read_batches(data):
                given_by = e.cluster.ids_given.get(batch.producer_id)
                if given_by not in {None, partition.cluster_number}:
                    names = [name_of(each) for each in batch.records()]
                    yield f"{where}: {names} came under producer id {batch.producer_id}"


def no_epoch_goes_on_in_a_new_topic(e: Evidence) -> Iterator[str]:
    """A topic created anew is offered no batch under an epoch that the deleted one was offered.

    It has no state of the producer and accepts any sequence, also one after a refused batch.
    """
    if not e.writes_by_id:
        return
    used: dict[TopicPartition, set[tuple[int, int]]] = defaultdict(set)
    for where, partition in e.partitions():
        epochs = {
            (batch.producer_id, batch.producer_epoch)
            for data in partition.offered
            for batch in read_batches(data)
            if batch.base_sequence >= 0
        }
        for epoch in epochs & used[where]:
            yield f"{where}: {epoch} goes on in the new topic"
        used[where] |= epochs


def retries_are_obeyed(e: Evidence) -> Iterator[str]:
    """A batch is sent again as often as `retries` allows before it fails, and not more often.

    An idempotent producer also repeats what was out of order, until the delivery timeout.
    """
    for entry in e.ledger.entries:
        advice = "" if entry.error is None else entry.error.advice or ""
        said = _RETRIES_ENDED.search(advice)
        if said is not None and int(said[2]) != int(said[1]) + 1:
            yield f"{entry.label}: wrong number of attempts: {entry.error}"
    if e.config.effective_idempotence:
        return
    most = e.config.retries + 1
    for where, partition in e.partitions():
        for data, times in partition.offered.items():
            if times > most:
                names = [name_of(each) for batch in read_batches(data) for each in batch.records()]
                yield f"{where}: {names} were sent {times} times, and retries={most - 1}"


def waits_are_bounded(e: Evidence) -> Iterator[str]:
    """`send` by `max_block_ms`, deliveries by `delivery_timeout_ms`, flush and close likewise."""
    yield from e.ledger.late_ends
    block = e.config.max_block_ms / 1000 + _TIMEOUT_S
    delivery = e.config.delivery_timeout_ms / 1000 + _TIMEOUT_S
    allowed = e.config.enqueue_timeout_ms or 0
    queue = inf if allowed < 0 else allowed / 1000
    for entry in e.ledger.entries:
        settled = entry.settled_at
        if settled is None or entry.task < 0:
            continue
        if settled - entry.asked_at > block + queue:
            yield f"{entry.label}: send() took {settled - entry.asked_at:.3f} s"
        bound = delivery + (block + queue if entry.in_one_call else 0)
        if entry.done_at is not None and entry.done_at - settled > bound:
            yield f"{entry.label}: its delivery took {entry.done_at - settled:.3f} s"


def waits_for_memory_are_bounded(e: Evidence) -> Iterator[str]:
    """A call that gets no memory is refused after `enqueue_timeout_ms`, if that is set."""
    allowed = e.config.enqueue_timeout_ms
    if allowed is None:
        return
    for entry in e.ledger.entries:
        error = entry.error
        if not isinstance(error, BufferExhaustedError) or error.elapsed_ms is None:
            continue
        if not 0 < allowed <= error.elapsed_ms <= allowed + _TIMEOUT_S * 1000:
            yield f"{entry.label}: enqueue_timeout_ms is {allowed}, and yet {error}"


def nothing_ends_before_its_time(e: Evidence) -> Iterator[str]:
    """Records time out after `delivery_timeout_ms`, waits for memory after `max_block_ms`."""
    block_s, delivery_ms = e.config.max_block_ms / 1000, e.config.delivery_timeout_ms
    if e.config.enqueue_timeout_ms is not None or e.ledger.hands_over:
        block_s = 0.0  # see `waits_for_memory_are_bounded` and `HandingWorkload.send`
    for entry in e.ledger.entries:
        error, settled = entry.error, entry.settled_at
        if settled is None:
            continue
        if isinstance(error, DeliveryTimeoutError) and (error.elapsed_ms or 0) < delivery_ms:
            yield f"{entry.label}: {error}"
        waited_s = settled - entry.asked_at
        if isinstance(error, BufferExhaustedError) and waited_s < block_s - _ROUNDING_S:
            yield f"{entry.label}: after {waited_s:.3f} s {error}"


def early_records_are_refused(e: Evidence) -> Iterator[str]:
    """Records of absent partitions and forbidden topics fail for that once metadata come.

    They fail before if no broker accepts the credentials.
    """
    appended_at = [at for _, partition in e.partitions() for at in partition.append_times]
    for entry in e.ledger.entries:
        error, settled = entry.error, entry.settled_at
        if error is None or settled is None or not entry.name.startswith(EARLY):
            continue
        if entry.state is CallState.REFUSED:
            continue
        kind = AuthorizationError if entry.partition is None else InvalidPartitionError
        until = settled + e.config.delivery_timeout_ms / 1000
        is_gone = entry.partition is not None and not e.cluster.has_had(entry.topic, settled, until)
        has_come = e.cluster.has_had(entry.topic, until, until, entry.partition)
        known_at = min(appended_at, default=inf)
        is_known = known_at < (settled + until) / 2
        # Healing ends the refusal of the forbidden topic.
        healed_at = inf if e.healed_at is None else e.healed_at
        is_allowed = entry.partition is None and known_at > healed_at
        if isinstance(error, DeliveryTimeoutError) and (
            is_gone or has_come or is_allowed or not is_known
        ):
            continue
        if e.logins_were_refused and isinstance(error, AuthenticationError):
            continue
        if not isinstance(
            error, kind | AuthorizationError | ProducerClosedError | RecordsPurgedError
        ):
            yield f"{entry.label}, which is to be refused: {error!r}"


def whole_batches_are_whole(e: Evidence) -> Iterator[str]:
    """The records of a whole batch have one outcome, and are in a log together or not at all."""
    for entry in e.ledger.entries:
        whole = entry.whole
        if not whole or whole[0] is not entry:
            continue
        if len({(each.is_acknowledged, each.is_open) for each in whole}) > 1:
            yield f"{entry.label} and {len(whole) - 1} more: several outcomes"
        logs = {place.log for each in whole for place in e.copies.get(each.name, ())}
        for log in logs:
            offsets = [
                [place.record.offset for place in e.copies.get(each.name, ()) if place.log == log]
                for each in whole
            ]
            if offsets != [[at + number for at in offsets[0]] for number in range(len(whole))]:
                yield f"{entry.label} and {len(whole) - 1} more are torn in {log}: {offsets}"


def offsets_of_bulk_calls_are_true(e: Evidence) -> Iterator[str]:
    """`send_many` and `send_arrow` return the lowest and the highest offset of their records.

    A broker may not know the offset of a record that it has written before, and several copies may
    have been acknowledged.
    """
    for draft, offsets in () if e.may_lose else e.ledger.offsets:
        places: dict[TopicPartition, set[int]] = defaultdict(set)
        sure: dict[TopicPartition, set[int]] = defaultdict(set)
        for entry in draft:
            copies = e.copies.get(entry.name, ())
            for place in copies:
                places[place.where].add(place.record.offset)
                if entry.delivered_in_bulk and len(copies) == 1 and not e.leaves_out_offsets:
                    sure[place.where].add(place.record.offset)
        for where, (low, high) in offsets.items():
            covers = all(low <= offset <= high for offset in sure[where])
            if not covers or not places[where].issuperset((low, high)):
                yield f"{draft[0].label}: {where} has {places[where]}, the call says {low, high}"


def memory_is_returned(e: Evidence) -> Iterator[str]:
    """After `close` the pool has all its memory, and every record's place."""
    if e.memory_missing:
        yield f"{e.memory_missing} bytes of buffer_memory never came back"
    if e.places_missing:
        yield f"{e.places_missing} places of buffer_max_records never came back"


def nothing_is_left(e: Evidence) -> Iterator[str]:
    """After `close` no task, timer, connection or waiter of the producer is left."""
    yield from e.leftovers


def brokers_do_not_complain(e: Evidence) -> Iterator[str]:
    """Everything the producer sends is well-formed, down to the CRC."""
    yield from e.complaints


def throttling_is_obeyed(e: Evidence) -> Iterator[str]:
    """A throttled client sends nothing on that connection for the throttle time (KIP-219)."""
    yield from e.early_speakers


def an_idle_producer_opens_no_connections(e: Evidence) -> Iterator[str]:
    """While no task sends, connections are opened only to refresh the metadata."""
    every_s = e.config.metadata_max_age_ms / 1000
    for since, until in e.idle:
        opened = sum(since <= at < until for at in e.opened)
        most = _CONNECTIONS_PER_REFRESH * ((until - since) / every_s + 1)
        if opened > most:
            yield f"{opened} connections from {since:.0f} to {until:.0f} s, when no task sent"


def a_dead_broker_is_left_alone(e: Evidence) -> Iterator[str]:
    """The pauses between dials that are refused grow (`reconnect_backoff_max_ms`)."""
    if e.transactions is not None:  # several producers dial, and those that are killed begin again
        return
    for node_id, times in e.refusals.items():
        for first, last in zip(times, times[_MOST_REFUSALS:], strict=False):
            if last - first < _REFUSALS_WITHIN_S:
                when = f"from {first:.3f} to {last:.3f}"
                yield f"node {node_id} refused {_MOST_REFUSALS} dials {when}"
                break


def metadata_are_asked_for_rarely(e: Evidence) -> Iterator[str]:
    """Requests for metadata have pauses between them, and an idle producer makes few."""
    times, age_s = e.described, e.config.metadata_max_age_ms / 1000
    if e.transactions is not None:
        return
    for first, last in zip(times, times[_MOST_DESCRIBED:], strict=False):
        if last - first < _DESCRIBED_WITHIN_S:
            yield f"{_MOST_DESCRIBED} requests for metadata from {first:.3f} to {last:.3f}"
            break
    for since, until in e.idle:
        asked = sum(since <= at < until for at in times)
        if asked > _MOST_WHILE_IDLE + 1.2 * (until - since) / age_s:
            yield f"{asked} requests for metadata from {since:.0f} to {until:.0f} s"


def nothing_starts_over_in_calm(e: Evidence) -> Iterator[str]:
    """A producer whose brokers answer does not go back to its bootstrap servers, unless asked."""
    if RebootstrapRequiredError.code in e.scripted_codes:
        return
    for since, until in e.idle:
        for at in e.restarts:
            if since <= at < until:
                yield f"at {at:.0f} s a producer started over, and nothing was wrong"
                break


def calm_brings_progress(e: Evidence) -> Iterator[str]:
    """Nothing times out although nothing was wrong for long; after the healing everything works."""
    yield from e.ledger.unrecovered
    yield from _refused_in_calm(e)
    timeout = e.config.delivery_timeout_ms / 1000
    held = _held_by_what_is_gone(e)
    for entry in e.ledger.entries:
        error, settled = entry.error, entry.settled_at
        if not isinstance(error, DeliveryTimeoutError) or settled is None or entry in held:
            continue
        progress_at = [*e.append_times(entry.topic, error.partition), *e.cluster.untimely_refused]
        for start, end in e.calm:
            since, until = max(start, settled), min(end, settled + timeout)
            if until - since < _RECOVERY_S or any(since <= at < until for at in progress_at):
                continue
            yield (
                f"{entry.label}, accepted at {settled:.3f}: nothing was wrong from {start:.3f} to "
                f"{end:.3f}, and yet {error}"
            )


def pending_work_goes_on(e: Evidence) -> Iterator[str]:
    """Whatever is pending has a request in flight, a dial in progress or a timer set."""
    yield from e.stalls


def _held_by_what_is_gone(e: Evidence) -> Set[Entry]:
    """Return the records that timed out as a topic or partition was gone, and all with them.

    A coordinator adds all partitions of a request, or none, so that the others of a transaction
    wait for one that is gone.
    """
    timeout = e.config.delivery_timeout_ms / 1000
    gone = {
        entry
        for entry in e.ledger.entries
        if isinstance(entry.error, DeliveryTimeoutError)
        and entry.settled_at is not None
        and not e.cluster.has_had(
            entry.topic, entry.settled_at, entry.settled_at + timeout, entry.error.partition
        )
    }
    held = {entry.transaction for entry in gone} - {None}
    return {each for each in e.ledger.entries if each in gone or each.transaction in held}


def healing_brings_deliveries(e: Evidence) -> Iterator[str]:
    """Once everything is healed, no call and no delivery takes longer than the recovery bound."""
    bound = e.recovery_bound
    for took, what in recoveries(e):
        if bound is not None and took > bound.seconds:
            yield f"{what} took {took:.1f} s of a healed cluster, the bound is {bound}"


def recoveries(e: Evidence) -> Iterator[tuple[float, str]]:
    """Yield the seconds that each call and delivery took after the healing, and what it was."""
    if e.healed_at is None:
        return
    freed_at = max((until for _, until in _waits_for_topics(e)), default=0.0)
    held = _held_by_what_is_gone(e)
    for what, began, ended in e.ledger.calls:
        yield ended - max(began, e.healed_at, freed_at), what
    for entry in e.ledger.entries:
        settled, done_at = entry.settled_at, entry.done_at
        if settled is None:
            continue
        if isinstance(entry.error, DeliveryTimeoutError) and not entry.call:
            done_at = settled + e.config.delivery_timeout_ms / 1000
        topics = {entry.topic, *(each.topic for each in entry.call)}
        until = done_at or settled
        if not all(e.cluster.has_had(topic, entry.asked_at, until) for topic in topics):
            continue
        at = None if entry.error is None else entry.error.partition
        if entry in held or not e.cluster.has_had(entry.topic, settled, until, at):
            continue
        yield settled - max(entry.asked_at, e.healed_at), f"{entry.label}: send()"
        if done_at is not None:
            what = f"{entry.label}: its delivery ({entry.error or 'acknowledged'})"
            yield done_at - max(settled, e.healed_at), what


def _waits_for_topics(e: Evidence) -> Iterator[tuple[float, float]]:
    """Yield when accepted records with memory waited for topics or partitions that are gone."""
    timeout = e.config.delivery_timeout_ms / 1000
    for entry in e.ledger.entries:
        if isinstance(entry.error, DeliveryTimeoutError) and entry.settled_at is not None:
            until = entry.settled_at + timeout
            at = entry.error.partition
            if not e.cluster.has_had(entry.topic, entry.settled_at, until, at):
                yield entry.asked_at, until  # `send_many` returns after all its records


def _refused_in_calm(e: Evidence) -> Iterator[str]:
    """A long wait in a line counts only if no partition took anything meanwhile.

    Nor does it count while a record of what is gone has the memory or the place.
    """
    held = list(_waits_for_topics(e))
    timeout = e.config.delivery_timeout_ms / 1000
    gone = [*_held_by_what_is_gone(e)]
    if e.cluster.deleted:  # the partition of a dropped delivery is not known
        gone += [each for each in e.ledger.dropped if each.name not in e.copies]
    held += [(at, at + timeout) for each in gone if (at := each.settled_at) is not None]
    progress_at = [at for _, partition in e.partitions() for at in partition.append_times]
    progress_at += e.cluster.untimely_refused
    for entry in e.ledger.entries:
        error, settled = entry.error, entry.settled_at
        if not isinstance(error, BufferExhaustedError | MetadataTimeoutError) or settled is None:
            continue
        if not e.cluster.has_had(entry.topic, entry.asked_at, settled, error.partition):
            continue
        if any(since < settled and entry.asked_at < until for since, until in held):
            continue
        for start, end in e.calm:
            since, until = max(start, entry.asked_at), min(end, settled)
            if until - since < _RECOVERY_S or any(since <= at < until for at in progress_at):
                continue
            yield (
                f"{entry.label}, asked at {since:.3f}: nothing was wrong from {start:.3f} to "
                f"{end:.3f}, and yet {error}"
            )


def what_calls_return_is_true(e: Evidence) -> Iterator[str]:
    """`flush` and `send_many` count right."""
    yield from e.ledger.false_reports


def calls_for_a_topic_are_served_in_order(e: Evidence) -> Iterator[str]:
    """No call overtakes one that is accepted later, or that ends without effect only later."""
    for entry, earlier in e.ledger.overtakings:
        # One whose time is over is not served; its task learns of that within some turns.
        is_refused = earlier.state in (CallState.REFUSED, CallState.CANCELLED)
        later_s = (earlier.settled_at or inf) - (entry.settled_at or 0.0)
        if not is_refused or later_s > _TURNS_S:
            yield f"{entry.label} overtakes {earlier.label}"


def no_producer_fails_by_itself(e: Evidence) -> Iterator[str]:
    """A producer ends by an answer of a broker, not by its code, its states or an abort."""
    for failure in e.failures:
        cause: BaseException | None = failure
        while cause is not None and not isinstance(cause, ProducerClosedError):
            is_own = isinstance(cause, IllegalStateError | TransactionAbortedError)
            if is_own or not isinstance(cause, KafkaError):
                yield f"a producer ended with {failure!r}, by {cause!r}"
                break
            cause = cause.__cause__


def send_raises_what_it_documents(e: Evidence) -> Iterator[str]:
    """Whatever happens to the cluster, a call of `send` raises only `KafkaError`."""
    yield from e.ledger.undocumented


def nothing_surprising_is_raised(e: Evidence) -> Iterator[str]:
    """No call raises what it does not document, nothing goes to the loop's exception handler."""
    yield from e.ledger.surprises
    yield from e.reports


ORACLES = (
    every_call_ended,
    the_counts_add_up,
    contents_are_kept,
    offsets_are_reported,
    partition_is_obeyed,
    failures_state_persistence,
    a_duplicate_is_written,
    the_right_records_are_blamed,
    order_costs_no_record,
    alarms_are_true,
    what_brokers_have_is_known,
    nothing_is_lost_silently,
    no_failure_is_unhandled_that_was_read,
    interceptors_see_every_record_once,
    what_the_user_gave_is_closed,
    sequences_are_never_reused,
    producer_ids_are_the_clusters_own,
    no_epoch_goes_on_in_a_new_topic,
    retries_are_obeyed,
    waits_are_bounded,
    waits_for_memory_are_bounded,
    nothing_ends_before_its_time,
    early_records_are_refused,
    whole_batches_are_whole,
    offsets_of_bulk_calls_are_true,
    memory_is_returned,
    nothing_is_left,
    brokers_do_not_complain,
    throttling_is_obeyed,
    an_idle_producer_opens_no_connections,
    a_dead_broker_is_left_alone,
    metadata_are_asked_for_rarely,
    nothing_starts_over_in_calm,
    calm_brings_progress,
    pending_work_goes_on,
    healing_brings_deliveries,
    what_calls_return_is_true,
    calls_for_a_topic_are_served_in_order,
    no_producer_fails_by_itself,
    send_raises_what_it_documents,
    nothing_surprising_is_raised,
)
