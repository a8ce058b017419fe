"""Planted defects: each must be found by the simulation within so many seeds.

    python tests/simulation/mutants.py [--seeds N] [NAME ...]

A defect is a replacement in one source file, applied to a copy of the package. What is not found
means that a guarantee is not watched (or that the code it spoils is not needed).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "aioproducer"
SEEDS = 400

SYMPTOMS = frozenset({"nothing_surprising_is_raised", "the_run_goes_on"})
"""What alone does not count as found: an exception or a deadlock says that something is wrong, not
that a guarantee is watched."""

_HUNT = """
import gc
import sys
from aioproducer.testing.world.spec import Chance
from simulation.simulation import Setup, run_seed
from simulation.transactions.plan import draw_plan
symptoms = set(sys.argv[3:])
setup = Setup(unclean_elections=sys.argv[2] == "unclean")
for seed in range(1, int(sys.argv[1]) + 1):
    if seed % 10 == 0:
        gc.collect()
    if sys.argv[2] == "transactional" and draw_plan(Chance(seed).of("transactions")) is None:
        continue
    oracles = {violation.oracle for violation in run_seed(seed, setup).violations} - symptoms
    if oracles:
        print(seed, *sorted(oracles))
        break
"""


class Mutant(NamedTuple):
    """One defect: in `file`, `old` (which must occur there once) becomes `new`.

    One of transactions cannot be found by a run without any, so none is tried; one of losses only
    by runs with unclean elections; one of `pure` Python only without native code.
    """

    name: str
    file: str
    old: str
    new: str
    transactional: bool = False
    unclean: bool = False
    pure: bool = False

    @property
    def kind(self) -> str:
        """The kind of runs that are tried."""
        return "transactional" if self.transactional else "unclean" if self.unclean else "any"


MUTANTS = (
    Mutant(
        "reuse a sequence after a failure",
        "core/sending/idempotence.py",
        "            partition.doubt(batch)\n        else:\n",
        "            partition.next_sequence = batch.base_sequence\n        else:\n",
    ),
    Mutant(
        "start over under the same epoch",
        "core/sending/idempotence.py",
        "            self._bump()\n"
        "        if self.identity is None or partition.identity == self.identity:",
        "            pass\n        if self.identity is None:",
    ),
    Mutant(
        "several in flight before the first acknowledgement",
        "core/sending/idempotence.py",
        "            and partition.is_remembered(now)\n",
        "",
    ),
    Mutant(
        "several in flight after an idle time",
        "core/sending/idempotence.py",
        "        return now - self.acknowledged_at <= REMEMBERED_S\n",
        "        return self.was_acknowledged\n",
    ),
    Mutant(
        "report a loss because a broker has no state of the producer",
        "core/sending/idempotence.py",
        "        self._on_producer_expired(ExpiredProducer(place, acknowledged, known_start))\n",
        "        self._on_data_loss(LostRecords(place, acknowledged or 0, log_start))\n",
    ),
    Mutant(
        "report no loss",
        "core/sending/idempotence.py",
        "            if base_offset <= last.offset and batch.topic_id == last.topic_id:\n",
        "            if base_offset < 0:\n",
        unclean=True,
    ),
    Mutant(
        "take the offset of an elder batch that is answered late for a loss",
        "core/sending/idempotence.py",
        "            if batch.ordinal < last.ordinal:\n",
        "            if batch.ordinal < ():\n",
    ),
    Mutant(
        "retry after younger batches",
        "core/batching/accumulator.py",
        "            if other.ordinal > batch.ordinal:\n                break\n",
        "",
    ),
    Mutant(
        "never check leaderless partitions again",
        "core/batching/readiness.py",
        "            if queue.placed is not _NOWHERE\n",
        "            if queue.placed not in (_NOWHERE, _LEADERLESS)\n",
    ),
    Mutant(
        "say of no topic that it changed",
        "core/metadata/cluster.py",
        "            changed[name] = None  # before the change:",
        "            #",
    ),
    Mutant(
        "drop the partitions of a topic that left, with their batches",
        "core/batching/accumulator.py",
        "            if not any(queue.batches or queue.muted for queue in queues):\n",
        "            if queues:\n",
    ),
    Mutant(
        "believe the first older answer without topic ids",
        "core/metadata/live_topic.py",
        "        return self.older_answers >= _OLDER_ANSWERS_TO_BE_SURE\n",
        "        return self.older_answers >= 1\n",
    ),
    Mutant(
        "set no timer for the request for a producer id",
        "core/sending/producer_id.py",
        "return self._retry_at if self._retry_at > now else recheck_at(nodes, now)",
        "return self._retry_at if self._retry_at > now else float('inf')",
    ),
    Mutant(
        "do not wake the sender when a connection comes or goes",
        "core/sending/sender.py",
        "            or self._awaits_connection\n",
        "",
    ),
    Mutant(
        "sleep through a turn that is due at once",
        "runtime/tasks/turns.py",
        "        if at <= now:\n            self.wake()\n        elif at < self.until:\n",
        "        if now < at < self.until:\n",
    ),
    Mutant(
        "drop a waiter's wake-up",
        "core/batching/buffer_pool.py",
        "                self._complete(head, buffer)\n                return\n",
        "                head.buffer = buffer\n                return\n",
    ),
    Mutant(
        "give back a place too many when a batch was split",
        "core/batching/accumulator.py",
        "            if batch.size:  # else",
        "            if batch:  # else",
    ),
    Mutant(
        "give every record of a refused batch the error of the bad one",
        "core/sending/failures.py",
        "        error = refused_because_of_others(error, are_named=bool(record_errors))\n",
        "        pass\n",
    ),
    Mutant(
        "fail what a broker does not blame",
        "core/sending/sender.py",
        "        if batch.possibly_persisted or self._transactions is not None:\n",
        "        if record_errors:\n",
    ),
    Mutant(
        "send the rest of a refused batch although the whole may be written",
        "core/sending/sender.py",
        "        if batch.possibly_persisted or self._transactions is not None:\n",
        "        if self._transactions is not None:\n",
    ),
    Mutant(
        "blame the neighbour of the bad record",
        "core/batching/batch.py",
        "            found = part.outcome_of(place)\n",
        "            found = self._places[index - 1][0].outcome_of(place)\n",
    ),
    Mutant(
        "drop the waiter for a record's place",
        "core/batching/buffer_pool.py",
        "                self.on_ceiling(self.ceiling)\n            self._serve()",
        "                self.on_ceiling(self.ceiling)",
    ),
    Mutant(
        "keep the memory of a cancelled waiter",
        "core/batching/buffer_pool.py",
        "            self.deallocate(buffer, request.size)\n",
        "            del buffer\n",
    ),
    Mutant(
        "take a timeout on the broker for success",
        "core/sending/produce_rules.py",
        "    0: ProduceAction.SUCCEED,\n",
        "    0: ProduceAction.SUCCEED,\n    7: ProduceAction.SUCCEED,\n",
    ),
    Mutant(
        "call a batch refused that may be written",
        "core/sending/produce_rules.py",
        "    {2, 10, 17,",
        "    {-1, 3, 6, 7, 20, 56, 2, 10, 17,",
    ),
    Mutant(
        "retry once too often",
        "core/sending/sender.py",
        "batch.attempts <= self._settings.retries",
        "batch.attempts <= self._settings.retries + 1",
    ),
    Mutant(
        "give up one retry too early",
        "core/sending/sender.py",
        "batch.attempts <= self._settings.retries",
        "batch.attempts < self._settings.retries",
    ),
    Mutant(
        "count a lost answer as not written",
        "core/sending/sender.py",
        "        for batch in batches:\n            batch.possibly_persisted = True\n",
        "        for batch in batches:\n",
    ),
    Mutant(
        "call an expired batch on the wire not persisted",
        "core/sending/sender.py",
        "            batch.possibly_persisted |= batch.on_wire\n",
        "",
    ),
    Mutant(
        "start the delivery timeout anew with every attempt",
        "core/batching/accumulator.py",
        "        return batch.created_at + self._timeout\n",
        "        return batch.last_attempt_at + self._timeout\n",
    ),
    Mutant(
        "ignore throttling",
        "net/link.py",
        "        self.throttle(now + seconds)\n",
        "",
    ),
    Mutant(
        "let requests time out while the broker throttles",
        "net/connection.py",
        "            request.deadline += seconds\n",
        "            pass\n",
    ),
    Mutant(
        "close without failing what is left",
        "runtime/engine.py",
        "            self.sender.abort(\n"
        '                ProducerClosedError("the producer was closed before the record was '
        'acknowledged")\n'
        "            )\n",
        "",
    ),
    Mutant(
        "do not renumber after a bump",
        "core/sending/idempotence.py",
        "        for batch in partition.in_flight:\n            self._stamp(partition, batch)\n",
        "",
    ),
    Mutant(
        "renumber what may have been written",
        "core/sending/idempotence.py",
        "batch.ordinal >= first and not batch.pins",
        "not batch.pins",
    ),
    Mutant(
        "send on while an answer is out, with one request in flight",
        "core/batching/accumulator.py",
        "            queue.muted = self.settings.guarantee_order\n            drained",
        "            drained",
    ),
    Mutant(
        "return a buffer while the transport has it",
        "core/batching/accumulator.py",
        "        first = batch.complete(outcome)\n        if not batch.pins:\n",
        "        first = batch.complete(outcome)\n        if batch.done:\n",
    ),
    Mutant(
        "take a partition the answer leaves out for a success",
        "core/sending/sender.py",
        "                batch.possibly_persisted = True\n"
        "                self._retry_or_fail(batch, error, node_id, now)\n"
        "                self._let_go((batch,))\n",
        "                self._acknowledge(batch, None, now)\n",
    ),
    Mutant(
        "drop the waiter for an answer",
        "core/batching/accumulator.py",
        "            queue.muted = False\n"
        "            if queue.batches:\n"
        "                self.readiness.replan(queue)\n",
        "            queue.muted = False\n",
    ),
    Mutant(
        "lose state when a topic vanishes",
        "core/batching/accumulator.py",
        "                del self._queues[topic]\n",
        "                del self._queues[topic]\n"
        "                for queue in queues:\n"
        "                    getattr(self.sequencer, '_partitions', {}).pop("
        "queue.topic_partition, None)\n",
    ),
    Mutant(
        "leave the sender asleep after every event",
        "core/driver.py",
        "            self.sender.due_at(now),\n",
        "            inf,\n",
    ),
    Mutant(
        "leave the tasks asleep after every event",
        "runtime/tasks/turns.py",
        "        self._wakeup.turn_at(at, now)\n",
        "",
    ),
    Mutant(
        "set no timer for metadata that are due while no broker is ready",
        "core/metadata/requests.py",
        "return due_at if due_at > now else recheck_at(nodes, now)",
        "return due_at if due_at > now else float('inf')",
    ),
    Mutant(
        "drop the deadline of a directly sent record",
        "runtime/tasks/sender.py",
        "            expires_at = now + accumulator.settings.delivery_timeout\n",
        "            expires_at = now + 2 * accumulator.settings.delivery_timeout\n",
    ),
    Mutant(
        "use the memory of the spare batch twice",
        "core/batching/buffer_pool.py",
        "            self._free.popleft()\n",
        "            pass\n",
    ),
    Mutant(
        "append to a spare batch whose memory was taken back",
        "runtime/send/batch_appender.py",
        "            spare.take_buffer()\n",
        "            pass\n",
    ),
    Mutant(
        "let the sender sleep when a batch is opened",
        "runtime/tasks/turns.py",
        "        return self._wakeup.until\n",
        "        return 0.0\n",
    ),
    Mutant(
        "keep the queues of expired topics",
        "core/batching/accumulator.py",
        "            if not any(queue.batches or queue.muted for queue in queues):\n",
        "            if not queues:\n",
    ),
    Mutant(
        "keep the sticky partitioners of expired topics",
        "core/batching/partitioners.py",
        "            del self._partitioners[topic]\n",
        "            pass\n",
    ),
    Mutant(
        "never expire topics",
        "core/metadata/metadata.py",
        "            if now - live.used_at > self._max_idle:\n",
        "            if now < live.used_at:\n",
    ),
    Mutant(
        "keep routes although the metadata has changed",
        "runtime/tasks/sender.py",
        "            self._routes_version = self._metadata.version\n"
        "            self._routes.clear()\n",
        "            self._routes_version = self._metadata.version\n",
    ),
    Mutant(
        "go on with the partitions that a topic had",
        "runtime/send/_fast_path_py.py",
        "        if self._metadata.topic(topic) is not state.meta:\n",
        "        if self._metadata.topic(topic) is None:\n",
        pure=True,
    ),
    Mutant(
        "leave a delivery cancelled for ever",
        "runtime/delivery/_delivery_py.py",
        "        self._cancelled = CANCELLED\n        self._batch.remove_listener(self)\n",
        "        self._batch.remove_listener(self)\n",
    ),
    Mutant(
        "never refresh metadata that are too old",
        "core/metadata/metadata.py",
        "        due_at = now if wanted else self.refreshed_at + self._max_age\n",
        "        due_at = now if wanted or self.refreshed_at < 0 else inf\n",
    ),
    Mutant(
        "ask once for a topic that calls wait for",
        "runtime/tasks/metadata_waiters.py",
        "                self._metadata.request_topic(topic, now)\n\n    def keep_alive",
        "                pass\n\n    def keep_alive",
    ),
    Mutant(
        "let a flush wait for the end of the linger",
        "core/batching/accumulator.py",
        "        self._flushes += 1\n        self.readiness.expedite()\n",
        "        self._flushes += 1\n",
    ),
    Mutant(
        "time out with the youngest request",
        "net/connection.py",
        "            oldest = min(requests, key=lambda request: request.deadline)\n",
        "            oldest = max(requests, key=lambda request: request.deadline)\n",
    ),
    Mutant(
        "dial a dead broker without a growing pause",
        "net/link.py",
        "        delay = self._reconnect_backoff.delay(self._failures, around.rng)\n"
        "        self._failures += 1\n",
        "        delay = self._reconnect_backoff.delay(0, around.rng)\n"
        "        self._failures += 1\n",
    ),
    Mutant(
        "count the time without metadata from the first request",
        "core/metadata/requests.py",
        "        self._trying_since, self._brokers_known = None, True\n",
        "        self._brokers_known = True\n",
    ),
    Mutant(
        "keep the receipt of one part for all records of a batch",
        "runtime/delivery/_delivery_py.py",
        "        if outcome is None or outcome.error is not None or batch.parts:\n",
        "        if outcome is None or outcome.error is not None:\n",
        pure=True,
    ),
    Mutant(
        "do not wake the sender when a request is prepared",
        "runtime/tasks/sender.py",
        "        task.add_done_callback(lambda done: self.wake())\n",
        "",
    ),
    Mutant(
        "set no timer for the end of a throttle time",
        "net/link.py",
        "            if now < self.throttled_until:\n"
        "                return self.throttled_until\n"
        "            return now if",
        "            return now if",
    ),
    Mutant(
        "keep the address of a broker that has moved",
        "net/client.py",
        "            if node is None or node[:3] != link.node[:3]:\n",
        "            if node is None:\n",
    ),
    Mutant(
        "ask for a topic again and again",
        "core/metadata/metadata.py",
        "            self._pending.pop(name, None)\n        if not partial",
        "            pass\n        if not partial",
    ),
    Mutant(
        "make no pause between requests for metadata",
        "core/metadata/metadata.py",
        "        self._allowed_at = now + self._backoff.delay("
        "self._unchanged_answers - 1, self._rng)\n",
        "        self._allowed_at = now\n",
    ),
    Mutant(
        "keep the links of brokers that are gone",
        "net/client.py",
        "        self._retired = {link: None for link in self._retired if not link.is_over}\n",
        "",
    ),
    Mutant(
        "keep a timer that has fired between two steps of a turn",
        "runtime/tasks/turns.py",
        "            self._timer, self._timer_at = None, inf\n"
        "            if self._future is None:\n"
        "                return  #",
        "            if self._future is None:\n                return  #",
    ),
    Mutant(
        "do not linger any more after a flush that ran out of time",
        "runtime/tasks/flush.py",
        "                await done\n"
        "        except TimeoutError:\n"
        "            left = list(waiting.values())\n"
        "        finally:\n"
        "            self._accumulator.end_flush()\n",
        "                await done\n"
        "            self._accumulator.end_flush()\n"
        "        except TimeoutError:\n"
        "            left = list(waiting.values())\n"
        "        finally:\n",
    ),
    Mutant(
        "do not ask again for a leader after an answer without one",
        "core/sending/sender.py",
        "            or self._readiness.leaderless\n",
        "",
    ),
    Mutant(
        "let a call wait for memory until lingers end",
        "runtime/engine.py",
        "        self.accumulator.readiness.expedite()\n        self.sender_task.wake()\n",
        "        self.sender_task.wake()\n",
    ),
    Mutant(
        "give back more memory than a batch had that has grown",
        "core/batching/accumulator.py",
        "                self.pool.deallocate(buffer, before)\n",
        "                self.pool.deallocate(buffer, size)\n",
    ),
    Mutant(
        "use the producer id of a cluster that was replaced while it was asked for",
        "core/sending/producer_id.py",
        "        self._outdated = self.in_flight\n",
        "        self._outdated = False\n",
    ),
    Mutant(
        "ask for no successor of a leader that cannot be reached",
        "core/sending/sender.py",
        "                if nodes.connection_failures(node_id) is not None:\n"
        "                    # The leader may have moved away from the unreachable node.\n"
        "                    self._metadata.request_update()\n",
        "",
    ),
    Mutant(
        "number on in the log of a topic that was created anew",
        "core/sending/sender.py",
        "        self._sequencer.on_recreated(topic)\n        self._offsets",
        "        self._offsets",
    ),
    Mutant(
        "send a batch that was prepared for a deleted topic to the new one",
        "runtime/tasks/sender.py",
        "                live = self._sender.without_outdated(node_id, batches, now)\n",
        "                live = batches\n",
    ),
    Mutant(
        "take the leaders of a new topic for older than those of the deleted one",
        "core/metadata/live_topic.py",
        "            previous = None\n        try:",
        "            pass\n        try:",
    ),
    Mutant(
        "use one epoch more than there are",
        "core/sending/idempotence.py",
        "self.identity.epoch >= MAX_EPOCH",
        "self.identity.epoch > MAX_EPOCH",
    ),
    Mutant(
        "start over and wait for the request for metadata that was in flight",
        "core/metadata/metadata.py",
        "        self._fetch = None\n        self._wanted = True\n        self._notify()",
        "        self._wanted = True\n        self._notify()",
    ),
    Mutant(
        "leave the parts of a batch out of the next expiry",
        "core/batching/accumulator.py",
        "        earliest = self._by_age[0][0] if self._by_age else inf\n",
        "        earliest = inf\n",
    ),
    Mutant(
        "start the delivery timeout anew for the parts of a batch",
        "core/batching/accumulator.py",
        "            self._incomplete.add_part(part)\n            part.add_observer",
        "            part.created_at = now\n"
        "            self._incomplete.add_part(part)\n"
        "            part.add_observer",
    ),
    Mutant(
        "ask for no metadata after a request without a response",
        "core/sending/sender.py",
        "        self._metadata.request_update()\n        error = as_lost_connection(error)",
        "        error = as_lost_connection(error)",
    ),
    Mutant(
        "repeat a refused batch without a pause",
        "core/sending/sender.py",
        "            delay = backoff.delay(batch.attempts - 1, self._rng)\n"
        "            self.accumulator",
        "            delay = 0.0\n            self.accumulator",
    ),
    Mutant(
        "make no pause after a failed request for metadata",
        "core/metadata/metadata.py",
        "        self._allowed_at = now + self._backoff.delay(self._failures, self._rng)\n",
        "        self._allowed_at = now\n",
    ),
    Mutant(
        "do not ask again about partitions with errors",
        "core/metadata/metadata.py",
        "            if live.unsettled:\n                self._pending[live.name] = None\n",
        "",
    ),
    Mutant(
        "take the older leaders of a lagging broker",
        "core/metadata/cluster.py",
        "        merged[index] = known[index] if stale else fresh\n",
        "        merged[index] = fresh\n",
    ),
    Mutant(
        "start over from the bootstrap servers again and again",
        "net/client.py",
        "        self._check.cluster_id = self._check.rebootstrap_error = None\n",
        "        self._check.cluster_id = None\n",
    ),
    Mutant(
        "report a failure as unhandled that was read",
        "runtime/delivery/_delivery_py.py",
        "            self._batch.mark_retrieved(self._index)\n",
        "            pass\n",
        pure=True,
    ),
    Mutant(
        "let a bulk call wait although it has caught up",
        "runtime/bulk/run.py",
        "            waiter.set_result(None)\n",
        "            pass\n",
    ),
    Mutant(
        "let calls wait for memory when the producer is closed",
        "runtime/engine.py",
        "        self.appender.close(error)\n        self.pool.close(error)\n"
        "        self.metadata_task.waits.fail(error)\n",
        "        self.appender.close(error)\n        self.metadata_task.waits.fail(error)\n",
    ),
    Mutant(
        "count a call that gave up as waiting for ever",
        "runtime/send/appender.py",
        "        finally:\n            self.fast_path.waiting -= 1\n",
        "        else:\n            self.fast_path.waiting -= 1\n",
    ),
    Mutant(
        "overlook the loss of one record",
        "core/sending/idempotence.py",
        "            if base_offset <= last.offset and",
        "            if base_offset < last.offset and",
        unclean=True,
    ),
    Mutant(
        "do not ask for the address of a coordinator that metadata lack",
        "core/transactions/coordinators.py",
        "            self._metadata.request_update()\n            gone",
        "            gone",
        transactional=True,
    ),
    Mutant(
        "sleep although a turn has woken the task",
        "runtime/tasks/turns.py",
        "        if self._woken:\n            return\n        self._future",
        "        self._future",
    ),
    Mutant(
        "stick to a partition that a topic created anew does not have",
        "core/batching/partitioners.py",
        "        if current is None or current >= len(topic.partitions):\n",
        "        if current is None:\n",
        pure=True,
    ),
    Mutant(
        "choose by weights of partitions that a topic created anew does not have",
        "core/batching/partitioners.py",
        "            if topic.available[at : at + 1] == (chosen,):\n"
        "                return chosen\n",
        "            return chosen\n",
        pure=True,
    ),
    Mutant(
        "renumber a batch that is on the wire",
        "core/sending/idempotence.py",
        "batch.ordinal >= first and not batch.pins",
        "batch.ordinal >= first",
    ),
    Mutant(
        "keep the time of an acknowledgement for the next epoch",
        "core/sending/idempotence.py",
        "        if not self._is_known(partition, self.identity):\n"
        "            partition.acknowledged_at = -inf\n",
        "",
    ),
    Mutant(
        "leave partitions at a broker that has gone",
        "core/metadata/cluster.py",
        "                    changed[name] = None\n                    table[name]",
        "                    table[name]",
    ),
    Mutant(
        "renew a session after its end",
        "net/link.py",
        "_EARLIEST_RENEWAL, _RENEWAL_SPREAD = 0.85, 0.10",
        "_EARLIEST_RENEWAL, _RENEWAL_SPREAD = 1.0, 0.10",
    ),
    Mutant(
        "keep the backoff of a batch whose leader has changed",
        "core/batching/accumulator.py",
        "        return min(planned, now + pause)\n",
        "        return max(planned, now + pause)\n",
    ),
    Mutant(
        "wait for the last of all backoffs",
        "net/client.py",
        "        return min((at for at in moments if at > now), default=inf)\n",
        "        return max((at for at in moments if at > now), default=inf)\n",
    ),
    Mutant(
        "count a partition that is left out of a response as not written",
        "core/sending/sender.py",
        "                batch.possibly_persisted = True\n"
        "                self._retry_or_fail(batch, error, node_id, now)\n"
        "                self._let_go",
        "                self._retry_or_fail(batch, error, node_id, now)\n"
        "                self._let_go",
    ),
    Mutant(
        "renumber what may be written after its producer id was refused",
        "core/sending/sender.py",
        "            elif not batch.possibly_persisted:  # the refusal",
        "            else:  # the refusal",
    ),
    Mutant(
        "take an acknowledgement of a deleted log for one of the new",
        "core/sending/idempotence.py",
        "        if partition.log_is_new:  # it is in the old log\n"
        "            self._maybe_restart(partition)\n"
        "            return ()\n",
        "",
    ),
    Mutant(
        "ask for no metadata after a refusal",
        "core/sending/sender.py",
        "        if error.refreshes_metadata:\n",
        "        if error.refreshes_metadata and not batch.attempts:\n",
    ),
    Mutant(
        "keep a gap when nothing is in flight",
        "core/sending/idempotence.py",
        "        if partition.identity != self.identity or not partition.is_whole:\n",
        "        if partition.identity != self.identity:\n",
    ),
    Mutant(
        "fail a batch that a broker has already",
        "core/sending/produce_rules.py",
        "    DUPLICATE_SEQUENCE_NUMBER: ProduceAction.SUCCEED,",
        "    DUPLICATE_SEQUENCE_NUMBER: ProduceAction.FAIL,",
    ),
    Mutant(
        "keep partitions at a leader that a hint has replaced",
        "core/sending/sender.py",
        "            self.accumulator.on_metadata_update(now)\n",
        "            pass\n",
    ),
    Mutant(
        "set no timer for a node with ready partitions",
        "core/sending/sender.py",
        "now if ready else nodes.ready_at(node_id, now))",
        "now if ready else inf)",
    ),
    Mutant(
        "send by a route of older metadata",
        "runtime/tasks/sender.py",
        "            or self._routes_version != self._metadata.version\n            or route.link",
        "            or route.link",
    ),
    Mutant(
        "count a single record without a response as not sent",
        "runtime/tasks/sender.py",
        "            partial(self._on_answer, route.node_id, [batch]),\n",
        "            lambda answer, failure: (\n"
        "                self._on_answer(route.node_id, [batch], answer, None)\n"
        "                if failure is None\n"
        "                else self._not_dispatched(route.node_id, [batch], failure)\n"
        "            ),\n",
    ),
    Mutant(
        "number a large single record one too high",
        "runtime/tasks/sender.py",
        "            batch.encoded = encoded = self._encoder.encode_one(batch)\n",
        "            batch.base_sequence += 1\n"
        "            batch.encoded = encoded = self._encoder.encode_one(batch)\n"
        "            batch.base_sequence -= 1\n",
    ),
    Mutant(
        "refresh only the topic whose leader has moved",
        "core/metadata/metadata.py",
        "            self._wanted = True  # other leaders may have moved as well",
        "            pass  # other leaders may have moved as well",
    ),
    Mutant(
        "let pauses grow although metadata change",
        "core/metadata/metadata.py",
        "        self._unchanged_answers = 0 if changed else self._unchanged_answers + 1\n",
        "        self._unchanged_answers += 1\n",
    ),
    Mutant(
        "drop the leader epochs of a topic that is unknown for a while",
        "core/metadata/live_topic.py",
        "        if isinstance(error, UnknownTopicOrPartitionError) and without_id:\n",
        "        if isinstance(error, UnknownTopicOrPartitionError):\n",
    ),
    Mutant(
        "wait for the response to a single record as long as for its delivery",
        "runtime/tasks/sender.py",
        "            now + self._request_timeout,\n            partial",
        "            now + self._sender.accumulator.settings.delivery_timeout,\n"
        "            partial",
    ),
    Mutant(
        "let a new topic wait for the backoff of the others",
        "core/metadata/metadata.py",
        "        if self._new and not self._failures:\n            return now\n",
        "",
    ),
    Mutant(
        "drop a request for all topics that has failed",
        "core/metadata/metadata.py",
        "            self._wanted |= not self._fetch.partial\n",
        "",
    ),
    Mutant(
        "split a batch without sequences although the whole may be written",
        "core/sending/sender.py",
        "            if batch.possibly_persisted and not batch.has_sequence:\n",
        "            if batch.done:\n",
    ),
    Mutant(
        "refuse a record of send_nowait after it was appended",
        "runtime/send/appender.py",
        "                return self.batch_appender.delivery(record, batch)\n"
        "        raise self._full(topic)\n",
        "                self.batch_appender.delivery(record, batch)\n"
        "        raise self._full(topic)\n",
    ),
    Mutant(
        "wake no task at the end of a handshake",
        "net/link.py",
        '            now, self._place, f"{_called(self.node)} is reachable again"\n'
        "        )\n"
        "        self._around.on_event()\n",
        '            now, self._place, f"{_called(self.node)} is reachable again"\n        )\n',
    ),
    Mutant(
        "take a broker for old after its connection was lost",
        "net/link.py",
        "            self._age.generation = BrokerGeneration.SUSPECTED\n        if around",
        "            pass\n        if around",
    ),
    Mutant(
        "send a batch as it was made for an older broker",
        "runtime/tasks/encoder.py",
        "return batch.encoded is None or batch.encoded.magic != magic",
        "return batch.encoded is None",
    ),
    Mutant(
        "leave what waits for a producer id that brokers do not give",
        "core/sending/sender.py",
        "            case IdentityFailure.NOT_NEEDED:\n"
        "                self.accumulator.replan_all()",
        "            case IdentityFailure.NOT_NEEDED:\n                pass",
    ),
    Mutant(
        "ask for one of several topics without a leader",
        "core/sending/sender.py",
        "            self._metadata.request_topic(queue.topic_partition.topic, now)\n",
        "            self._metadata.request_topic(queue.topic_partition.topic, now)\n"
        "            break\n",
    ),
    Mutant(
        "give up the records of a producer that is dropped",
        "runtime/engine.py",
        'start_later(self.loop, self.close(), name="aioproducer-close")',
        'start_later(self.loop, self.close(0), name="aioproducer-close")',
    ),
    Mutant(
        "use V2 although a broker lacks it",
        "net/client.py",
        "return level if all(each.has_transactions_v2 for each in known) else min(level, 1)",
        "return level",
    ),
)


TRANSACTIONAL_MUTANTS = tuple(
    Mutant(*defect, transactional=True)
    for defect in (
        (
            "commit although a record failed",
            "core/transactions/manager.py",
            "            self._require_new_epoch(error)\n        self._fail_transaction(error)\n\n"
            "    def on_sequences_lost",
            "            self._require_new_epoch(error)\n\n    def on_sequences_lost",
        ),
        (
            "commit although a record was refused",
            "core/transactions/manager.py",
            "        if number == self.number and self._can_fail:\n",
            "        if number < 0:\n",
        ),
        (
            "write to partitions before they are added",
            "core/transactions/contents.py",
            "        return self.v2 or partition in self._added\n",
            "        return self.v2 or partition in self._added or partition in self._to_add\n",
        ),
        (
            "keep the additions of an aborted transaction",
            "core/transactions/contents.py",
            "        self._to_add.clear()\n",
            "",
        ),
        (
            "take a transaction whose additions are not answered for none",
            "core/transactions/coordinators.py",
            "        if len(asked) < len(request.partitions):\n"
            "            self._manager.on_doubt(request.rpc)\n",
            "",
        ),
        (
            "take partitions that a response leaves out for added",
            "core/transactions/coordinators.py",
            "        return [partition for partition in asked if not answers[partition].code]\n",
            "        return [p for p in request.partitions if p not in answers or "
            "not answers[p].code]\n",
        ),
        (
            "call all positions committed when some are",
            "core/transactions/contents.py",
            "            operation.left.pop(partition, None)\n",
            "            operation.left.clear()\n",
        ),
        (
            "keep a coordinator that cannot be reached",
            "core/transactions/coordinators.py",
            "        self._coordinators.pop(request.coordinator, None)\n"
            "        self._back_off(now, error)\n\n",
            "        self._back_off(now, error)\n\n",
        ),
        (
            "take partitions of the last transaction for added",
            "core/transactions/contents.py",
            "        self._added.clear()\n",
            "",
        ),
        (
            "end a transaction while batches are out",
            "core/transactions/manager.py",
            "        if missing is not None or not (self.awaits_batches and is_idle):\n",
            "        if missing is not None or not self.awaits_batches:\n",
        ),
        (
            "take an unknown error at the end for success",
            "core/transactions/coordinators.py",
            "        if answer.code:\n            self._react(request, answer, now)\n",
            "        if answer.code not in (0, -1):\n"
            "            self._react(request, answer, now)\n",
        ),
        (
            "take a concurrent transaction at the end for success",
            "core/transactions/coordinators.py",
            "        if self._taken(request, Answered(response.error_code), now):\n"
            "            identity = ProducerIdentity(response.producer_id, "
            "response.producer_epoch)\n",
            "        if response.error_code == 51 or self._taken("
            "request, Answered(response.error_code), now):\n"
            "            identity = ProducerIdentity(response.producer_id, "
            "response.producer_epoch)\n",
        ),
        (
            "go on under the old epoch after the end",
            "core/transactions/manager.py",
            "        if identity is not None:\n            self.identity = identity\n",
            "",
        ),
        (
            "begin under the same epoch after an end without an answer",
            "core/transactions/manager.py",
            "        if rpc in _MAY_APPLY_LATE:\n            self._renew_in_v1()\n",
            "        if rpc in _MAY_APPLY_LATE:\n            pass\n",
        ),
        (
            "begin under the same epoch after positions without an answer",
            "core/transactions/manager.py",
            "frozenset({Rpc.COMMIT_OFFSETS, Rpc.END})",
            "frozenset({Rpc.END})",
        ),
        (
            "go on with the next transaction after being fenced",
            "core/transactions/rules.py",
            "{**_COORDINATOR_MOVED, **_FENCED, **_FATAL_STATES, **_UNKNOWN_PRODUCER}",
            "{**_COORDINATOR_MOVED, **_FATAL_STATES, **_UNKNOWN_PRODUCER}",
        ),
        (
            "leave a failed transaction open when the producer is closed",
            "core/transactions/manager.py",
            "        if self.state in CALLABLE_IN[OperationKind.ABORT]:\n"
            "            self.aborted_by_close",
            "        if self.state is _S.IN_TRANSACTION:\n            self.aborted_by_close",
        ),
        (
            "keep the epoch in which a batch failed",
            "core/transactions/manager.py",
            "        if batch.has_sequence and not self.uses_v2:\n"
            "            self._require_new_epoch(error)\n",
            "",
        ),
        (
            "commit positions without a member id",
            "core/transactions/requests.py",
            "            generation_id_or_member_epoch=group.generation_id,\n"
            "            member_id=group.member_id,\n",
            "",
        ),
        (
            "end a transaction before its positions are committed",
            "core/transactions/manager.py",
            "        missing = self.contents.wanted(identity, self._topic_ids)\n",
            "        missing = self.contents.wanted(identity, self._topic_ids)\n"
            "        if self.awaits_batches and is_idle and self.contents.begun:\n"
            "            missing = None\n",
        ),
        (
            "ask for the next epoch as a new producer would",
            "core/transactions/manager.py",
            "name, self._timeout_ms, identity, two_phase",
            "name, self._timeout_ms, None, two_phase",
        ),
        (
            "let a send that waited slip into the next transaction",
            "runtime/send/appender.py",
            "        if self._transaction_number() != transaction_number:\n",
            "        if self._transaction_number() < transaction_number:\n",
        ),
        (
            "commit a block that was left by an exception",
            "client/transactions.py",
            "        if exc is None:\n            await self._commit()\n",
            "        if exc is None or not isinstance(exc, KafkaError):\n"
            "            await self._commit()\n",
        ),
        (
            "drop the state of a transaction that has begun",
            "core/transactions/manager.py",
            "        self.contents.begun |= self.uses_v2\n",
            "        pass\n",
        ),
        (
            "abort at close what is prepared",
            "core/transactions/manager.py",
            "        if self.is_prepared:\n            return None\n        if self.state in",
            "        if self.state in",
        ),
        (
            "call a transaction prepared while batches are out",
            "core/transactions/manager.py",
            "        missing = self.contents.wanted(identity, self._topic_ids)\n",
            "        missing = self.contents.wanted(identity, self._topic_ids)\n"
            "        if self.state is _S.PREPARED and missing is None:\n"
            "            is_idle = True\n",
        ),
        (
            "take a later transaction's end for the prepared one's",
            "core/transactions/prepared.py",
            "    if now.epoch == prepared.epoch + bumps:\n",
            "    if now.epoch >= prepared.epoch + bumps:\n",
        ),
        (
            "take an end that cannot be determined for the one asked for",
            "transaction_admin.py",
            "            if outcome is not "
            "(PreparedOutcome.COMMITTED if commit else PreparedOutcome.ABORTED):\n",
            "            if outcome is "
            "(PreparedOutcome.ABORTED if commit else PreparedOutcome.COMMITTED):\n",
        ),
        (
            "commit after the loss of acknowledged records",
            "core/sending/sender.py",
            "            self._transactions.on_sequences_lost(str(lost))\n",
            "            pass\n",
        ),
        (
            "commit although a topic was created anew",
            "core/transactions/sequencer.py",
            "            self._transactions.on_sequences_lost(",
            "            str(",
        ),
        (
            "go on under the epoch of a deleted topic",
            "core/transactions/manager.py",
            "        self._renew_in_v1()\n        if self._can_fail",
            "        if self._can_fail",
        ),
        (
            "take the state of a deleted topic for that of the new one",
            "core/transactions/sequencer.py",
            "            and not partition.log_is_new\n",
            "",
        ),
        (
            "repeat a request whose response left partitions out without a pause",
            "core/transactions/coordinators.py",
            "            self._back_off(now, KafkaError(left_out, node_id=request.node_id))\n",
            "            self._manager.coordinator_error = KafkaError(left_out)\n",
        ),
        (
            "repeat a refused request to a coordinator without a pause",
            "core/transactions/coordinators.py",
            "        self._retry_at = now + backoff.delay(self.failures, self._rng)\n",
            "        self._retry_at = now\n",
        ),
        (
            "begin V2 under the epoch of V1",
            "core/transactions/manager.py",
            "        if has_changed or self._needs_new_epoch:\n",
            "        if self._needs_new_epoch:\n",
        ),
        (
            "keep a coordinator that has moved",
            "core/transactions/coordinators.py",
            "        elif reaction is Reaction.FIND_COORDINATOR:\n"
            "            self._coordinators.pop(request.coordinator, None)\n",
            "        elif reaction is Reaction.FIND_COORDINATOR:\n",
        ),
        (
            "look up no coordinator when one that has moved refuses positions",
            "core/transactions/rules.py",
            "            **_COORDINATOR_MOVED,\n            7: Reaction",
            "            7: Reaction",
        ),
        (
            "look up no coordinator when one that has moved refuses the end",
            "core/transactions/rules.py",
            "    Rpc.END: _Rules(\n        {\n            **_COORDINATOR_MOVED,\n",
            "    Rpc.END: _Rules(\n        {\n",
        ),
        (
            "take an abort that a coordinator that has moved refuses for done",
            "core/transactions/coordinators.py",
            "answer.code == INVALID_TXN_STATE and manager.may_abort_nothing:\n",
            "answer.code in {16, INVALID_TXN_STATE} and aborting:\n",
        ),
        (
            "begin under the epoch in which a transaction was prepared",
            "core/transactions/manager.py",
            "            self._renew_in_v1()\n            self._move(_S.PREPARED)\n",
            "            self._move(_S.PREPARED)\n",
        ),
        (
            "note no doubt after an end without a response",
            "core/transactions/manager.py",
            "            self.contents.end_in_doubt = True\n",
            "            pass\n",
        ),
        (
            "take groups of the last transaction for added",
            "core/transactions/contents.py",
            "        self._added.clear()\n        self._groups.clear()\n",
            "        self._added.clear()\n",
        ),
        (
            "ask for no metadata after a refusal by a coordinator",
            "core/transactions/coordinators.py",
            "                self._metadata.request_update()\n            self._back_off",
            "                pass\n            self._back_off",
        ),
        (
            "let a lost topic fail a commit that was sent",
            "core/transactions/manager.py",
            "        decided = self.is_prepared or self.contents.may_have_ended\n",
            "        decided = self.is_prepared\n",
        ),
        (
            "say that a commit without an outcome is not persisted",
            "runtime/tasks/transactions.py",
            "            persistence = Persistence.POSSIBLY_PERSISTED\n",
            "            persistence = Persistence.NOT_PERSISTED\n",
        ),
        (
            "let no call repeat a commit without an outcome",
            "runtime/tasks/transactions.py",
            "                raise self._timeout_of",
            "                self.manager.on_seen(operation)\n"
            "                raise self._timeout_of",
        ),
    )
)


# Kinds that mechanical changes of single expressions have shown to be missed.
MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "keep a batch that a later one has overtaken",
            "core/sending/idempotence.py",
            "        if partition.in_flight and partition.in_flight[0].ordinal < batch.ordinal:\n",
            "        if not partition.in_flight:\n",
        ),
        (
            "renumber a batch that a later one has overtaken",
            "core/sending/idempotence.py",
            "        if batch.ordinal < partition.newest or partition.may_have_later(batch):\n"
            "            return False\n        is_first",
            "        is_first",
        ),
        (
            "give a request for metadata the delivery timeout",
            "runtime/tasks/metadata.py",
            "self._client.send(node_id, request, now=now)",
            "self._client.send(node_id, request, timeout_s=120.0, now=now)",
        ),
        (
            "queue the records before the metadata in reverse",
            "runtime/send/early.py",
            "        for part, batch in made.items():\n            if part.error",
            "        for part, batch in reversed(made.items()):\n            if part.error",
        ),
    )
)
TRANSACTIONAL_MUTANTS += tuple(
    Mutant(*each, transactional=True)
    for each in (
        (
            "go on under an epoch after a lost response to an addition",
            "core/transactions/manager.py",
            "            self._renewal = EpochRenewal.NEEDED_AFTER_ABORT\n"
            "            self._unanswered",
            "            self._unanswered",
        ),
        (
            "abort for a new epoch although the transaction may be committed",
            "core/transactions/rules.py",
            "    if may_be_committed and reaction is Reaction.BUMP:\n",
            "    if False:\n",
        ),
        (
            "take an end that is refused by NOT_COORDINATOR for one without effect",
            "core/transactions/rules.py",
            "frozenset({3, 29,",
            "frozenset({3, 16, 29,",
        ),
    )
)


# Kinds that a seventh blind round has shown to be missed.
MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "ask for no metadata after a refusal that names the leader",
            "core/sending/sender.py",
            "        if error.refreshes_metadata:\n",
            "        if error.refreshes_metadata and answer.current_leader.leader_id < 0:\n",
        ),
        (
            "ask for no metadata after errors of partitions",
            "core/metadata/live_topic.py",
            "any(error_for_code(code).refreshes_metadata for code in codes.values())",
            "False",
        ),
        (
            "ask for no metadata after the last connection is lost",
            "runtime/engine.py",
            "        if self.client.has_no_live_connections():  # Java's client asks",
            "        if False:  # Java's client asks",
        ),
        (
            "ask for no metadata after the last connected broker has left",
            "runtime/engine.py",
            "        self._request_update_if_disconnected()  # the last connected broker",
            "        pass  # the last connected broker",
        ),
        (
            "make the pauses before producer ids longer after a success",
            "core/sending/producer_id.py",
            "        self.failures, self.last_error, self.refused = 0, None, False\n",
            "        self.last_error, self.refused = None, False\n",
        ),
        (
            "wait for an event although a producer id may be requested",
            "core/sending/sender.py",
            "            deadline = min(deadline, self.producer_id.due_at(now, nodes))\n",
            "            deadline = max(deadline, self.producer_id.due_at(now, nodes))\n",
        ),
        (
            "plan a partition for the end of a backoff that a new leader has ended",
            "core/batching/accumulator.py",
            "batch.retry_at = self._retry_at(batch, now, batch.retry_at)\n"
            "                    self.readiness.replan(queue)\n",
            "batch.retry_at = self._retry_at(batch, now, batch.retry_at)\n",
        ),
        (
            "take the age of metadata about some topics for that of all",
            "core/metadata/metadata.py",
            "        if self.last_answer_is_full:\n            self.refreshed_at = now\n",
            "        self.refreshed_at = now\n",
        ),
        (
            "drop a refresh of all topics for one of some",
            "core/metadata/metadata.py",
            "        if not partial:\n            self._wanted = False\n",
            "        if True:\n            self._wanted = False\n",
        ),
    )
)
TRANSACTIONAL_MUTANTS += tuple(
    Mutant(*each, transactional=True)
    for each in (
        (
            "make the pauses of coordinators longer after a success",
            "core/transactions/coordinators.py",
            "        self.failures, self._manager.coordinator_error = 0, None\n",
            "        self._manager.coordinator_error = None\n",
        ),
        (
            "wait as long for a transaction that is ending as after other errors",
            "core/transactions/rules.py",
            "initial_s=min(_CONCURRENT_BACKOFF, backoff.initial_s)",
            "initial_s=max(_CONCURRENT_BACKOFF, backoff.initial_s)",
        ),
        (
            "report an unknown commit only once",
            "core/transactions/manager.py",
            "        if operation is self._commit_at_the_end and operation.error is None:\n",
            "        if operation is self._commit_at_the_end:\n",
        ),
        (
            "take a transaction for known because the last one was",
            "core/transactions/contents.py",
            "        self.begun = self.known = False\n        self.may",
            "        self.begun = False\n        self.may",
        ),
    )
)


# Calls that most runs do not make.
MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "split a whole batch",
            "core/sending/sender.py",
            "        if batch.indivisible or len(record_errors)",
            "        if len(record_errors)",
        ),
        (
            "wait for memory as long as for metadata",
            "runtime/send/appender.py",
            "None if allowed < 0 else now + allowed / 1000",
            "None if allowed < 0 else now + self._max_block",
        ),
        (
            "wait for memory although no call must wait",
            "runtime/send/appender.py",
            "        if allowed == 0:\n",
            "        if False:\n",
        ),
        (
            "number the rows of each chunk from 0",
            "runtime/bulk/send_arrow.py",
            "                number += length\n",
            "",
        ),
        (
            "leave calls waiting after every broker has refused the login",
            "runtime/tasks/metadata.py",
            "            )\n        self.waits.resume_decided(now)\n",
            "            )\n",
        ),
        (
            "wait for bootstrap servers while every known broker refuses the login",
            "runtime/tasks/metadata.py",
            " if node >= 0} or failures\n",
            "}\n",
        ),
        (
            "do not store that a topic was refused",
            "core/metadata/live_topic.py",
            "            self._fail(described.error_code)\n",
            "",
        ),
        (
            "ask for a producer id again without a pause",
            "core/sending/producer_id.py",
            "        if now < self._retry_at:\n            return None\n",
            "",
        ),
        (
            "do not see which refreshes are answered",
            "runtime/tasks/metadata.py",
            "        self.waits.requests_sent += 1\n",
            "",
        ),
        (
            "keep the calls of refresh() that have ended",
            "runtime/tasks/metadata_waiters.py",
            "            del self._refreshes[future]\n",
            "",
        ),
        (
            "leave the last partition out of partitions_for",
            "client/producer.py",
            "        return engine.metadata.cluster.partition_infos(topic)\n",
            "        return engine.metadata.cluster.partition_infos(topic)[:-1]\n",
        ),
    )
)


# Limits, due times and ends of use: kinds that a ninth blind round has shown to be missed.
MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "keep a producer id that a broker has refused",
            "core/sending/idempotence.py",
            "self.identity.producer_id == batch.producer_id:\n            self.identity = None\n",
            "self.identity.producer_id == batch.producer_id:\n            pass\n",
        ),
        (
            "one request more in flight than allowed",
            "net/connection.py",
            "if len(self._awaiting) + len(self._unflushed) >= max_in_flight:",
            "if len(self._awaiting) + len(self._unflushed) > max_in_flight:",
        ),
        (
            "one record more than buffer_max_records after a wait",
            "runtime/send/memory.py",
            "        if appended >= self.pool.ceiling:",
            "        if appended > self.pool.ceiling:",
        ),
        (
            "count requests without a response as written before they are",
            "net/connection.py",
            "        while self._unflushed and self._is_flushed(self._unflushed[0]):\n",
            "        while self._unflushed:\n",
        ),
        (
            "do not keep a topic in the metadata that has batches",
            "core/batching/accumulator.py",
            "        self._metadata.add_topic(batch.topic_partition.topic, now)\n",
            "",
        ),
        (
            "keep an idle connection to a broker that has left",
            "net/link.py",
            "        if self.versions is None or self.in_flight == 0:\n",
            "        if self.versions is None:\n",
        ),
        (
            "send on although the session is to be renewed",
            "net/link.py",
            "            and self.throttled_until <= now < self._renew_at\n",
            "            and self.throttled_until <= now\n",
        ),
        (
            "throttle for longer than a broker asks",
            "net/link.py",
            "        self.throttled_until = max(self.throttled_until, until)\n",
            "        self.throttled_until = max(self.throttled_until, until) + 1\n",
        ),
        (
            "one batch too many in a request",
            "core/batching/accumulator.py",
            "            if drained and size + head_size > self.settings.max_request_size:",
            "            if drained and size > self.settings.max_request_size:",
        ),
        (
            "ask for a producer id again without a pause",
            "core/sending/producer_id.py",
            "        self._retry_at = now + self._backoff.delay(self.failures, self._rng)\n",
            "        self._retry_at = now\n",
        ),
        (
            "let a full batch linger",
            "core/batching/readiness.py",
            "            head.full or not (self._linger",
            "            not (self._linger",
        ),
        (
            "close idle connections late",
            "net/connection.py",
            " else self._last_used) + self._max_idle_s\n",
            " else self._last_used) + 2 * self._max_idle_s\n",
        ),
        (
            "let pauses between dials grow although connections were useful",
            "net/link.py",
            "        if self._proved_useful or lasted:\n            self._failures = 0\n",
            "        pass\n",
        ),
        (
            "stick to one partition",
            "core/batching/partitioners.py",
            "        if self._produced_bytes >= threshold:\n            self.move_on(topic)\n",
            "        if self._produced_bytes < 0:\n            self.move_on(topic)\n",
        ),
    )
)


# Kinds that an eighth blind round has shown to be missed, and situations that no run reached.
MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "ask for no topic of send_nowait",
            "runtime/send/appender.py",
            "        self._metadata.request_topic(topic, self._loop.time())\n        if failure",
            "        if failure",
        ),
        (
            "keep the last offsets of a deleted topic",
            "core/sending/sender.py",
            "        self._offsets.on_recreated(topic)\n",
            "",
        ),
        (
            "ask for no other topics of a cluster that has replaced another",
            "core/metadata/metadata.py",
            "asked = self._topics if elsewhere or fetch is None else fetch.topics",
            "asked = () if fetch is None else fetch.topics",
        ),
        (
            "keep the time of an acknowledgement by a deleted log",
            "core/sending/idempotence.py",
            "partition.acknowledged_at, partition.log_may_be_new = -inf, True",
            "partition.log_may_be_new = True",
        ),
        (
            "let records expire late that no queue has yet",
            "runtime/send/early.py",
            "        self._sender_task.turn_at(now "
            "+ self._accumulator.settings.delivery_timeout, now)\n        delivery",
            "        delivery",
        ),
        (
            "take a response without a producer id for one with an id",
            "runtime/tasks/sender.py",
            "            if answer.producer_id >= 0 <= answer.producer_epoch:\n",
            "            if answer:\n",
        ),
        (
            "go back to the bootstrap servers and request nothing",
            "core/metadata/metadata.py",
            "        self._fetch = None\n        self._wanted = True\n        self._notify()\n",
            "        self._notify()\n",
        ),
    )
)
TRANSACTIONAL_MUTANTS += tuple(
    Mutant(*each, transactional=True)
    for each in (
        (
            "look up a coordinator again when another is found",
            "core/transactions/coordinators.py",
            "            if len(self._coordinators) >= _MOST_REMEMBERED:\n"
            "                self._coordinators.clear()\n",
            "            self._coordinators.clear()\n",
        ),
        (
            "let a commit wait for the end of the linger",
            "runtime/tasks/transactions.py",
            "        self._accumulator.begin_flush()\n"
            "        operation.add_listener(self._accumulator.end_flush)\n",
            "        pass\n",
        ),
        (
            "be sure of what another process may have committed",
            "core/transactions/manager.py",
            "            self.contents.handed_out = self.is_prepared\n            operation",
            "            operation",
        ),
        (
            "go on with a transaction in a cluster that has replaced another",
            "core/transactions/sequencer.py",
            "        self._transactions.fail(FatalTransactionError("
            '"the cluster was replaced by another one"))\n',
            "        pass\n",
        ),
        (
            "take what was added to a prepared transaction into one of another id",
            "core/transactions/manager.py",
            "        v2, self.contents = self.contents.v2, TransactionContents(transactional_id)\n"
            "        self.contents.v2 = v2\n",
            "        self.contents._name = transactional_id\n",
        ),
        (
            "take partitions that were not attempted for the cause of a refusal",
            "core/transactions/coordinators.py",
            "causes = [answer for answer in refused if answer.code != OPERATION_NOT_ATTEMPTED]",
            "causes = refused",
        ),
        (
            "take a response without a producer id for one with an id, in transactions",
            "core/transactions/coordinators.py",
            "        if not code and not response.producer_id >= 0 <= response.producer_epoch:\n",
            "        if False:\n",
        ),
        (
            "keep memory whose record has lost its transaction meanwhile",
            "runtime/send/appender.py",
            "                    if buffer is not None:\n"
            "                        pool.deallocate(buffer, size)\n"
            "                    raise\n",
            "                    raise\n",
        ),
    )
)


MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "keep the replicas of a partition whose leader stays",
            "core/metadata/cluster.py",
            "0 <= fresh.leader_epoch < known[index].leader_epoch",
            "0 <= fresh.leader_epoch <= known[index].leader_epoch",
        ),
        (
            "refresh the metadata when they are twice as old",
            "core/metadata/metadata.py",
            "        due_at = now if wanted else self.refreshed_at + self._max_age\n",
            "        due_at = now if wanted else self.refreshed_at + 2 * self._max_age\n",
        ),
        (
            "make the pauses before requests for metadata longer after a success",
            "core/metadata/metadata.py",
            "        self._failures, self._last_failure, self.fatal_error = 0, None, None\n",
            "        self._last_failure, self.fatal_error = None, None\n",
        ),
        (
            "let calls wait for metadata when the producer is closed",
            "runtime/engine.py",
            "        self.pool.close(error)\n        self.metadata_task.waits.fail(error)\n"
            "        if not self._drain_is_cut",
            "        self.pool.close(error)\n        if not self._drain_is_cut",
        ),
        (
            "drop a request for some topics that has failed",
            "core/metadata/metadata.py",
            "            self._pending.update(dict.fromkeys(self._fetch.topics))\n",
            "",
        ),
        (
            "resume only the first call that waits for a topic",
            "runtime/tasks/metadata_waiters.py",
            "            for waiter in list(self._waiting.get(topic, ())):\n",
            "            for waiter in list(self._waiting.get(topic, ()))[:1]:\n",
        ),
    )
)
TRANSACTIONAL_MUTANTS += tuple(
    Mutant(*each, transactional=True)
    for each in (
        (
            "leave the batches of a transaction queued whose record was refused",
            "runtime/tasks/transactions.py",
            "        self.manager.on_send_refused(number, error)\n        self._on_event()\n",
            "        self.manager.on_send_refused(number, error)\n",
        ),
        (
            "call a transaction not committed that another process may have ended",
            "core/transactions/manager.py",
            "            self.contents.handed_out |= handed_out\n",
            "",
        ),
        (
            "fail a transaction for a record of the one before",
            "core/transactions/manager.py",
            "        if number == self.number and self._can_fail:\n",
            "        if self._can_fail:\n",
        ),
        (
            "close although a commit is under way",
            "core/transactions/manager.py",
            "        return self._operations.end_of_transaction()\n",
            "        return None\n",
        ),
        (
            "ask a coordinator again that has moved, outside of a producer",
            "runtime/tasks/coordinator_client.py",
            "        except _MAY_BE_ELSEWHERE:\n            self._coordinators.pop(key, None)\n"
            "            raise\n\n    async def _find",
            "        except _MAY_BE_ELSEWHERE:\n            raise\n\n    async def _find",
        ),
        (
            "leave a block whose commit is refused without an abort",
            "client/transactions.py",
            "        except (TransactionAbortableError, IllegalStateError) as error:\n",
            "        except IllegalStateError as error:\n",
        ),
        (
            "let a prepare go on whose transaction is aborted",
            "core/transactions/manager.py",
            "            self._operations.finish_all(OperationKind.PREPARE, error=reason)\n",
            "",
        ),
        (
            "take an answer about positions for the last of several calls",
            "core/transactions/contents.py",
            "            return\n        operation = self._offsets[0]\n",
            "            return\n        operation = self._offsets[-1]\n",
        ),
        (
            "keep the refusal of a start in the background after the producer is initialized",
            "runtime/engine.py",
            "        await transactions.init()\n        self._start_error = None\n",
            "        await transactions.init()\n",
        ),
    )
)
MUTANTS += (
    Mutant(
        "let a close without a bound delay one with a bound",
        "runtime/engine.py",
        "        cut = None if timeout is None else self.loop.call_later(timeout, self._cut",
        "        alone = timeout is not None and self._closer is None\n"
        "        cut = None if not alone else self.loop.call_later(timeout, self._cut",
    ),
)


MUTANTS += (
    Mutant(
        "append a serialized record before earlier ones whose turn has come",
        "runtime/send/serialization_queue.py",
        "            if not queue.resumed and queue.waiting[0] is place:\n",
        "            if queue.waiting[0] is place:\n",
    ),
    Mutant(
        "let send_nowait overtake calls that wait for memory",
        "runtime/send/appender.py",
        "        record.on_opened = on_opened\n        if self._may_append:\n"
        "            batch = self.batch_appender.try_append(record)\n            if batch is None:",
        "        record.on_opened = on_opened\n        if self.fast_path.open:\n"
        "            batch = self.batch_appender.try_append(record)\n            if batch is None:",
    ),
    Mutant(
        "count a failure that is read twice for two records",
        "runtime/delivery/_delivery_py.py",
        "        if not self._retrieved:\n            self._retrieved = True\n",
        "        if error:\n",
        pure=True,
    ),
    Mutant(
        "call back before the outcome after a cancellation",
        "runtime/delivery/_delivery_py.py",
        "        if batch.outcome is not None or self._cancelled == CANCELLING:\n"
        "            loop = _loop_of(batch)",
        "        if batch.outcome is not None or self._cancelled:\n"
        "            loop = _loop_of(batch)",
        pure=True,
    ),
    Mutant(
        "append a single record to the spare batch of another topic",
        "runtime/send/batch_appender.py",
        "            if spare.topic_partition == place and not spare.count:\n",
        "            if not spare.count:\n",
    ),
    Mutant(
        "send the first row of a bulk call alone in the spare batch",
        "runtime/send/batch_appender.py",
        "            self.drop_spare()  # which is sent at once\n",
        "            pass\n",
    ),
    Mutant(
        "return the offset of a batch as the lowest of a bulk call",
        "runtime/bulk/run.py",
        "        begin, end = base_offset + first, base_offset + last\n",
        "        begin, end = base_offset, base_offset + last\n",
    ),
)

MUTANTS += (
    Mutant(
        "let no call wait for a topic that is created later",
        "core/metadata/live_topic.py",
        "(InvalidTopicError, TopicAuthorizationFailedError)",
        "(InvalidTopicError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError)",
    ),
    Mutant(
        "shorten a throttle time by a later one",
        "net/link.py",
        "        self.throttled_until = max(self.throttled_until, until)\n",
        "        self.throttled_until = until\n",
    ),
    Mutant(
        "never choose brokers that had no metadata",
        "net/client.py",
        "for avoided in (self.avoided, ()):",
        "for avoided in (self.avoided,):",
    ),
    Mutant(
        "keep the rack of a broker that is in another one now",
        "core/batching/partitioners.py",
        "seen[0] is not topic or seen[1] is not nodes:",
        "seen[0] is not topic:",
    ),
    Mutant(
        "send rows of a bulk call in the next transaction",
        "runtime/bulk/run.py",
        "            if self._open_transaction() != self._transaction:\n",
        "            if self._open_transaction() < self._transaction:\n",
        transactional=True,
    ),
    Mutant(
        "let calls of a transaction wait for a task that has ended",
        "runtime/engine.py",
        "            self._transactions.fail(cause)\n",
        "            pass\n",
        transactional=True,
    ),
    Mutant(
        "wait for a throttled broker although another can be asked",
        "net/client.py",
        "        if avoided:\n            return None  # one of these",
        "        if False:\n            return None  # one of these",
    ),
    Mutant(
        "leave a block before the commit that was begun inside has an outcome",
        "runtime/tasks/transactions.py",
        "self.is_open(number) or (number == manager.number and manager.has_unreported_commit)",
        "self.is_open(number)",
        transactional=True,
    ),
    Mutant(
        "leave a block without the outcome of a commit that has succeeded",
        "client/transactions.py",
        "        if task.has_to_commit(self._number):\n",
        "        if False:\n",
        transactional=True,
    ),
    Mutant(
        "leave a block open whose commit is not possible after a cut call",
        "client/transactions.py",
        "        except (TransactionAbortableError, IllegalStateError) as error:\n",
        "        except TransactionAbortableError as error:\n",
        transactional=True,
    ),
)

# -- the eleventh round ----------------------------------------------------------------------------

MUTANTS += (
    Mutant(
        "let records of any age share the delivery timeout of the first",
        "runtime/send/early.py",
        "            or created_at - part.created_at > _LONGEST_SPAN_S\n        ):",
        "        ):",
    ),
    Mutant(
        "report no cancelled send to interceptors",
        "client/producer.py",
        "        except BaseException as error:\n            chain.refused(parts, error)",
        "        except Exception as error:\n            chain.refused(parts, error)",
    ),
    Mutant(
        "keep the batches of a bulk call open in its second pause",
        "runtime/bulk/run.py",
        "        self._is_watched = False\n        if not self._goes_on:",
        "        if not self._goes_on:",
    ),
    Mutant(
        "keep the number of partitions for a whole bulk call",
        "runtime/bulk/target.py",
        "        if meta is not self._meta:",
        "        if self._meta is None and meta is not None:",
    ),
    Mutant(
        "read the failures of a cancelled bulk call",
        "runtime/bulk/run.py",
        "            batch.remove_listener(tracked)\n        self._outstanding.clear()\n",
        "            pass\n",
    ),
    Mutant(
        "wait for memory anew after a wait for metadata",
        "runtime/send/appender.py",
        "now + block if deadline is None else deadline",
        "now + block",
    ),
    Mutant(
        "raise failures in one of two flushes",
        "runtime/engine.py",
        "            self._raise_failures(raised)",
        "            self._raise_failures(self._failures_raised)",
    ),
    Mutant(
        "flush without the records handed over after those in hand",
        "blocking/submission_queue.py",
        "bool(self._in_hand) + bool(self._pending)",
        "bool(self._in_hand) or bool(self._pending)",
    ),
    Mutant(
        "give the buffer of the spare batch to another one",
        "core/batching/buffer_pool.py",
        "self._reclaim_exposed is not None and len(self._free) == 1:",
        "self._reclaim_exposed is not None and len(self._free) == 0:",
    ),
    Mutant(
        "weight partitions without a leader",
        "core/batching/partitioners.py",
        "usable = partition in available and not slow",
        "usable = not slow",
    ),
)

MUTANTS += (
    Mutant(
        "send a single record without its topic id",
        "runtime/tasks/sender.py",
        "        batch.topic_id = route.topic_id\n",
        "",
    ),
    Mutant(
        "several in flight before a new leader has acknowledged one",
        "core/sending/idempotence.py",
        "            and partition.acknowledged_epoch == leader_epoch\n",
        "",
    ),
    Mutant(
        "leave the sequences as they are when a split leaves out records",
        "core/sending/idempotence.py",
        "        if sequence != batch.next_sequence:\n"
        "            partition.unwritten_from = min(partition.unwritten_from or batch.ordinal, "
        "batch.ordinal)\n",
        "",
    ),
    Mutant(
        "take the known leader for a new one when a batch is sent again",
        "core/batching/accumulator.py",
        "leader_epoch(*batch.topic_partition) <= batch.leader_epoch:",
        "leader_epoch(*batch.topic_partition) < batch.leader_epoch:",
    ),
    Mutant(
        "let a batch expire early",
        "core/batching/accumulator.py",
        "        return batch.created_at + self._timeout\n",
        "        return batch.created_at + self._timeout * 0.7\n",
    ),
    Mutant(
        "wait for a response for half of its time",
        "net/client.py",
        "                now + timeout_s,\n",
        "                now + timeout_s * 0.5,\n",
    ),
    Mutant(
        "end each linger by the clock",
        "core/batching/readiness.py",
        "        if len(incomplete) > _MOST_BATCHES:\n            return False\n        records",
        "        if not lingered:\n            return False\n        records",
    ),
)


MUTANTS += (
    Mutant(
        "let a lagging broker take partitions from a topic",
        "core/metadata/cluster.py",
        "        count = max(count, len(known))\n",
        "",
    ),
    Mutant(
        "let Produce requests take every place of a connection",
        "net/link.py",
        "        return self.ready_connection(now, RESERVE) is not None\n",
        "        return self.ready_connection(now) is not None\n",
    ),
    Mutant(
        "choose a busy node for metadata, and send it nothing",
        "net/client.py",
        "now=now, future=future, reserve=RESERVE)",
        "now=now, future=future)",
    ),
    Mutant(
        "give up the requests to a broker that has left",
        "net/link.py",
        "        if self.versions is None or self.in_flight == 0:\n            self._close_now(",
        "        if self._retiring:\n            self._close_now(",
    ),
    Mutant(
        "keep the port of a broker that has moved",
        "net/client.py",
        "node[:3] != link.node[:3]",
        "node[:2] != link.node[:2]",
    ),
    Mutant(
        "keep the brokers although one asks for a rebootstrap",
        "runtime/tasks/metadata.py",
        "        if response.error_code == RebootstrapRequiredError.code and self._rebootstraps:\n",
        "        if response.error_code < 0 and self._rebootstraps:\n",
    ),
)
MUTANTS += (
    Mutant(
        "dial no bootstrap server while brokers are known",
        "net/client.py",
        "groups[:1] if self._brokers and not self._around.settings.rebootstrap else groups",
        "groups[:1] if self._brokers else groups",
    ),
    Mutant(
        "renew a session by the deadline of the first login",
        "net/link.py",
        "        session.deadline = self._handshake_deadline()\n",
        "",
    ),
    Mutant(
        "drop the failures of a broker when a handshake ends",
        "net/link.py",
        "        self.last_error = None\n        self._around.warnings.recovered(",
        "        self.last_error = None\n        self._failures = 0\n"
        "        self._around.warnings.recovered(",
    ),
    Mutant(
        "dial a broker for ten times as long",
        "net/link.py",
        "                timeout_s=allowed,\n",
        "                timeout_s=allowed * 10,\n",
    ),
    Mutant(
        "begin with the address that has just failed",
        "net/dial/attempt.py",
        "        first = addresses.index(unproven) + 1\n",
        "        first = addresses.index(unproven)\n",
    ),
    Mutant(
        "keep the connection to a broker that has left and then answers",
        "net/link.py",
        "        if self._retiring and self.in_flight == 0:\n",
        "        if self._retiring and self.versions is None:\n",
    ),
    Mutant(
        "close no idle connection",
        "net/link.py",
        "        connection.in_handshake = False\n",
        "",
    ),
    Mutant(
        "end a refresh by a response about some topics",
        "runtime/tasks/metadata.py",
        "            if self._metadata.last_answer_is_full:\n"
        "                self.waits.resume_refreshes()\n",
        "            self.waits.resume_refreshes()\n",
    ),
    Mutant(
        "refuse calls for an error of brokers that has passed",
        "core/metadata/metadata.py",
        "        self._failures, self._last_failure, self.fatal_error = 0, None, None\n",
        "        self._failures, self._last_failure = 0, None\n",
    ),
    Mutant(
        "never go back to the bootstrap servers for a lack of metadata",
        "core/metadata/requests.py",
        "        return self._brokers_known and limit_s is not None and now - since >= limit_s\n",
        "        return False\n",
    ),
)
TRANSACTIONAL_MUTANTS += tuple(
    Mutant(*change, transactional=True)
    for change in (
        (
            "end a block as after a commit that a close has aborted",
            "client/transactions.py",
            "            if exc is None:\n                self._end_in_order()\n"
            "            return\n",
            "            return\n",
        ),
        (
            "let an abort that no caller awaits forbid the next transaction",
            "runtime/tasks/transactions.py",
            "            await self._outcome(operation)\n"
            "        finally:\n            self.manager.on_seen(operation)\n",
            "            await self._outcome(operation)\n        finally:\n            pass\n",
        ),
        (
            "keep linger off after a commit",
            "runtime/tasks/transactions.py",
            "        operation.add_listener(self._accumulator.end_flush)\n",
            "",
        ),
        (
            "abandon batches with sequences where no new epoch is given",
            "core/transactions/manager.py",
            "        return self._can_renew or not batch.has_sequence\n",
            "        return True\n",
        ),
        (
            "ask only the brokers that are known for open transactions",
            "runtime/tasks/coordinator_client.py",
            "            self._learn(await self._ask(coordinator_queries.brokers()))\n"
            "            return await",
            "            if not self._nodes:\n"
            "                self._learn(await self._ask(coordinator_queries.brokers()))\n"
            "            return await",
        ),
        (
            "abort transactions whose end is decided",
            "transaction_admin.py",
            "        wanted = [each for each in found if each.transactional_id not in kept]\n",
            "        wanted = found\n",
        ),
        (
            "abort again and again before a renewal",
            "core/transactions/manager.py",
            "            self._renewal = EpochRenewal.ABORTED\n",
            "            pass\n",
        ),
        (
            "do not abort at a close what no caller has seen begin",
            "core/transactions/manager.py",
            "closing=True",
            "closing=False",
        ),
    )
)

MUTANTS += tuple(
    Mutant(*change)
    for change in (
        (
            "wait for the partition of each row of a bulk call",
            "runtime/bulk/run.py",
            "                self._may_wait = False\n",
            "                self._may_wait = True\n",
        ),
        (
            "wait for an absent partition again after each batch of a bulk call",
            "runtime/bulk/run.py",
            "self._may_wait and not self._is_absent(name, partition)",
            "self._may_wait",
        ),
        (
            "count the first attempts as retries",
            "core/sending/sender.py",
            "is_retry=batch.attempts > 1",
            "is_retry=batch.attempts >= 1",
        ),
        (
            "give the longest queue no weight",
            "core/batching/partitioners.py",
            "accumulate(longest + 1 - size for size",
            "accumulate(longest - size for size",
        ),
        (
            "count batches as the rest of a flush",
            "runtime/tasks/flush.py",
            "counts[batch.topic_partition] += batch.count",
            "counts[batch.topic_partition] += 1",
        ),
        (
            "do not call what is added to a handle after the hand-over",
            "blocking/handle.py",
            "        if self._delivery is not None and not self._thread.post(self._attach):\n"
            "            self._attach(has_loop=False)\n",
            "",
        ),
        (
            "call the first callback of a handle with each later one",
            "blocking/handle.py",
            "            watchers, self._watchers = self._watchers or (), None\n",
            "            watchers = self._watchers or ()\n",
        ),
        (
            "call on_delivery_error only with a line in the log",
            "runtime/delivery/unhandled.py",
            "        if self._on_delivery_error is not None:\n",
            "        if self._on_delivery_error is not None and not self._unwritten:\n",
        ),
        (
            "keep the last header of a name",
            "serializers/calling.py",
            "return tuple((name, content) for name, content in pairs)",
            "return tuple({name: content for name, content in pairs}.items())",
        ),
        (
            "go on with deliveries after a close is cancelled",
            "runtime/engine.py",
            "        except asyncio.CancelledError:\n            self._cut_drain()\n",
            "        except asyncio.CancelledError:\n",
        ),
        (
            "refuse what was handed over after one wait for memory",
            "blocking/submission_queue.py",
            "                await asyncio.sleep(_PAUSE_S)\n",
            "                raise\n",
        ),
        (
            "number the items of each block from 0",
            "runtime/bulk/send_many.py",
            "        number += len(rows.items)\n    if broken",
            "    if broken",
        ),
        (
            "remove all callbacks with one",
            "runtime/delivery/_delivery_py.py",
            "        if not left and self._cancelled != CANCELLING:\n",
            "        if self._cancelled != CANCELLING:\n",
            False,
            False,
            True,
        ),
    )
)


# Kinds that mechanical changes of sending, batching, `runtime` and `net` have shown to be missed.
MUTANTS += tuple(
    Mutant(*each)
    for each in (
        (
            "count no partition as acknowledged",
            "core/sending/idempotence.py",
            "partition.acknowledged_epoch = now, batch.leader_epoch",
            "partition.acknowledged_epoch = -inf, batch.leader_epoch",
        ),
        (
            "send new batches after a gap",
            "core/sending/idempotence.py",
            "            partition.is_whole\n            and partition.is_remembered(now)\n",
            "            partition.is_remembered(now)\n",
        ),
        (
            "leave a lingering partition without a plan",
            "core/batching/readiness.py",
            "                queue.ready_at = inf\n                self._place(queue)\n"
            "        return len(ready)\n",
            "                queue.ready_at = inf\n        return len(ready)\n",
        ),
        (
            "withdraw a batch that was overtaken, without an outcome",
            "core/sending/sender.py",
            "            self.fail(elder, overtaken(elder), now=now)\n",
            "",
        ),
        (
            "do not store that a producer id is refused",
            "core/sending/producer_id.py",
            "        self.refused = isinstance(error, AuthorizationError)\n"
            "        if self.refused:\n",
            "        if isinstance(error, AuthorizationError):\n",
        ),
        (
            "keep an offset before that of the last acknowledgement",
            "core/sending/idempotence.py",
            "base_offset + records - 1",
            "base_offset - records - 1",
        ),
        (
            "never measure when a node took data",
            "core/batching/partitioners.py",
            "(now if can_drain else drained_at, now)",
            "(drained_at, now)",
        ),
        (
            "exclude partitions for a latency without a limit",
            "core/batching/partitioners.py",
            "        if self._timeout <= 0:\n            return\n",
            "",
        ),
        (
            "let a batch grow beyond its size",
            "core/batching/accumulator.py",
            "size = min(largest, max(2 * batch.size, needed))",
            "size = max(2 * batch.size, needed)",
        ),
        (
            "prefer the partitions outside of the client's rack",
            "core/batching/partitioners.py",
            "topic.partitions[index].leader in near",
            "topic.partitions[index].leader not in near",
        ),
        (
            "count no closed connection",
            "net/link.py",
            "        self._around.io_stats.on_closed(self._around.loop_time())\n",
            "",
        ),
        (
            "count no response",
            "net/connection.py",
            "        self._io_stats.on_response(size, now - request.sent_at, now)\n",
            "",
        ),
        (
            "keep the last error of a broker that is ready",
            "net/link.py",
            "        self.last_error = None\n        self._around.warnings.recovered(",
            "        self._around.warnings.recovered(",
        ),
        (
            "set a broker that has left to disconnected when its connection is lost",
            "net/link.py",
            "        return NodeState.CLOSED if self._retiring else NodeState.DISCONNECTED\n",
            "        return NodeState.DISCONNECTED\n",
        ),
        (
            "keep the timer of a refresh",
            "runtime/tasks/metadata_waiters.py",
            "            timer.cancel()\n            del self._refreshes",
            "            del self._refreshes",
        ),
        (
            "log no sums of failures at the end",
            "runtime/delivery/unhandled.py",
            "            self._timer.cancel()\n        self._write_sums()\n",
            "            self._timer.cancel()\n",
        ),
        (
            "keep the bytes that were opened in a turn",
            "runtime/send/batch_appender.py",
            "        self._turn_is_counted = False\n        self._opened_this_turn = 0\n",
            "        self._turn_is_counted = False\n",
        ),
        (
            "fail no early record of a refused topic",
            "runtime/send/early.py",
            "            self._sender_task.fail(early.batch, error)\n",
            "            pass\n",
        ),
        (
            "place an early record in the first absent partition",
            "runtime/send/early.py",
            "given >= len(self._meta.partitions)",
            "given > len(self._meta.partitions)",
        ),
        (
            "let a bulk call wait although it has caught up",
            "runtime/bulk/run.py",
            "            waiter.set_result(None)\n        if not self._outstanding",
            "            pass\n        if not self._outstanding",
        ),
        (
            "show records of a bulk call without their topic",
            "runtime/bulk/send_many.py",
            "        topic = self._topic if record.topic is None else record.topic\n",
            "        topic = record.topic\n",
        ),
        (
            "let calls go on that are serialized when the producer is closed",
            "runtime/send/appender.py",
            "        self.fast_path.close()\n        self.serializing.close(error)\n",
            "        self.fast_path.close()\n",
        ),
        (
            "let a loop of sends go on without a pause",
            "runtime/send/appender.py",
            "                await asyncio.sleep(0)\n"
            "                self._check_open(transaction_number)\n"
            "                if not self._may_append",
            "                self._check_open(transaction_number)\n"
            "                if not self._may_append",
        ),
        (
            "call back in the context of the loop",
            "runtime/delivery/_delivery_py.py",
            "loop.call_soon(callback, delivery, context=context)",
            "loop.call_soon(callback, delivery)",
            False,
            False,
            True,
        ),
        (
            "say that a pending delivery is cancelled",
            "runtime/delivery/_delivery_py.py",
            "return self._cancelled != 0 and self._batch.outcome is None",
            "return self._batch.outcome is None",
            False,
            False,
            True,
        ),
    )
)


TRANSACTIONAL_MUTANTS += (
    Mutant(
        "raise the error of a failed abort in place of the first one",
        "client/transactions.py",
        "    if isinstance(error, ProducerFencedError) and isinstance(first, _OLD_EPOCH):\n",
        "    if not isinstance(error, ProducerFencedError):\n",
        transactional=True,
    ),
)


# Kinds that a twelfth blind round has shown to be missed.
TRANSACTIONAL_MUTANTS += tuple(
    Mutant(*each, transactional=True)
    for each in (
        (
            "end a producer whose group has a newer generation",
            "core/transactions/rules.py",
            "            22: Reaction.ABORTABLE,  # ILLEGAL_GENERATION\n",
            "",
        ),
        (
            "take an epoch that a group coordinator calls old for any other fatal error",
            "core/transactions/rules.py",
            "dict.fromkeys((47, 90), Reaction.FENCED)",
            "dict.fromkeys((90,), Reaction.FENCED)",
        ),
        (
            "drop positions of an aborted transaction without an outcome",
            "core/transactions/contents.py",
            "        while self._offsets:\n            self._offsets[0].finish(error)\n"
            "            del self._offsets[0]\n",
            "        self._offsets.clear()\n",
        ),
        (
            "take records while a transaction is committed",
            "runtime/tasks/transactions.py",
            "self.manager.state is TransactionState.IN_TRANSACTION)",
            "self.manager.state.name in {'IN_TRANSACTION', 'COMMITTING'})",
        ),
        (
            "say that a transaction was aborted which its producer has committed",
            "transaction_admin.py",
            '            return now is not None and now.state == "CompleteAbort"\n',
            "            return now is not None\n",
        ),
        (
            "leave the metadata of a position out",
            "core/transactions/requests.py",
            'committed_metadata=committed.metadata or ""',
            'committed_metadata=""',
        ),
        (
            "let a begin wait for an epoch that was refused",
            "core/transactions/manager.py",
            "finish_all(OperationKind.INIT, OperationKind.BEGIN, error=error)",
            "finish_all(OperationKind.INIT, error=error)",
        ),
        (
            "keep the unsent records of a transaction that is aborted by a call",
            "core/transactions/manager.py",
            "        if self.state not in {_S.ABORTING, _S.ABORTABLE_ERROR}:\n",
            "        if self.state is not _S.ABORTABLE_ERROR:\n",
        ),
        (
            "do not end a V2 transaction that has positions only",
            "core/transactions/manager.py",
            "        elif rpc is Rpc.COMMIT_OFFSETS and self.uses_v2:\n"
            "            self.contents.begun = True\n",
            "",
        ),
    )
)


# Kinds that a thirteenth blind round has shown to be missed.
MUTANTS += (
    Mutant(
        "request metadata for a call that was cancelled",
        "runtime/tasks/metadata_waiters.py",
        "                timer.cancel()\n            self._discard(waiter)\n",
        "                timer.cancel()\n",
    ),
    Mutant(
        "let calls wait for serializers when the producer is closed",
        "runtime/send/serialization_queue.py",
        "                place.timeout.reschedule(now)\n",
        "                pass\n",
    ),
    Mutant(
        "compare leader epochs with those of a replaced cluster",
        "core/metadata/metadata.py",
        "            live.last_seen = None\n",
        "            pass\n",
    ),
    Mutant(
        "give a record out of time the error of its connection",
        "core/sending/sender.py",
        "        self._expire(now)\n        for batch in batches:\n",
        "        for batch in batches:\n",
    ),
)


# Kinds that a fourteenth blind round has shown to be missed.
MUTANTS += (
    Mutant(
        "say that a bulk call ends with the first record of its last batch",
        "runtime/bulk/run.py",
        "(min(low, begin), max(high, end))",
        "(min(low, begin), max(high, begin))",
    ),
    Mutant(
        "keep the epoch of a leader that a hint has replaced",
        "core/metadata/metadata.py",
        "known._replace(leader=leader, leader_epoch=epoch)",
        "known._replace(leader=leader)",
    ),
    Mutant(
        "count the failures twice that two flushes have raised",
        "runtime/engine.py",
        "        self._failures_raised = stats.records_failed\n",
        "        self._failures_raised += failed\n",
    ),
    Mutant(
        "let the response to an earlier request end a refresh",
        "runtime/tasks/metadata_waiters.py",
        "            if before < self.requests_sent:\n",
        "            if before <= self.requests_sent:\n",
    ),
    Mutant(
        "refuse a topic that was forbidden before",
        "runtime/tasks/metadata_waiters.py",
        "            if failure is not None and not (\n"
        "                before_asking and not isinstance(failure, InvalidTopicError)\n"
        "            ):\n",
        "            if failure is not None:\n",
    ),
    Mutant(
        "let each row of a bulk call wait for memory",
        "runtime/bulk/run.py",
        "            if isinstance(error, KafkaTimeoutError):\n",
        "            if isinstance(error, MetadataTimeoutError):\n",
    ),
    Mutant(
        "let no row wait any more after one that has waited too long",
        "runtime/bulk/run.py",
        "            self._may_wait = True  # there was memory for a batch\n",
        "",
    ),
)
TRANSACTIONAL_MUTANTS += (
    Mutant(
        "renumber only the first batch of an epoch that cannot be renewed",
        "core/transactions/sequencer.py",
        "return partition.in_flight[:1] != [batch] and",
        "return partition.in_flight[:1] == [batch] and",
        transactional=True,
    ),
    Mutant(
        "commit without a row that was refused before it could be lost",
        "runtime/bulk/run.py",
        "and not isinstance(error, self._spares):",
        "and isinstance(error, self._losses):",
        transactional=True,
    ),
)
# The same, and brokers without producer ids.
MUTANTS += (
    Mutant(
        "keep the oldest of the batches in doubt as the gap",
        "core/sending/idempotence.py",
        "max(self.unknown_gap or batch.ordinal, batch.ordinal)",
        "min(self.unknown_gap or batch.ordinal, batch.ordinal)",
    ),
    Mutant(
        "drop the doubt of a batch that expires",
        "core/sending/sender.py",
        "            batch.possibly_persisted |= batch.on_wire\n            error = expiry_of",
        "            batch.possibly_persisted = batch.on_wire\n            error = expiry_of",
    ),
    Mutant(
        "wait for a producer id that no broker gives",
        "core/sending/idempotence.py",
        "        self.is_idempotent = False\n",
        "",
    ),
)
# What a fifteenth round missed: two calls one after the other, and failures that a result has.
MUTANTS += (
    Mutant(
        "let a single record overtake one that backs off",
        "core/batching/accumulator.py",
        "return any(not batch.pins for batch in self._incomplete)",
        "return any(not (batch.pins or batch.attempts) for batch in self._incomplete)",
    ),
    Mutant(
        "let a whole batch wait for one place only",
        "runtime/send/appender.py",
        "await self._memory.wait_for_place(self.fast_path.appended + count - 1)",
        "await self._memory.wait_for_place(self.fast_path.appended)",
    ),
    Mutant(
        "report the failures of a bulk call as not awaited",
        "runtime/bulk/run.py",
        "            batch.mark_retrieved(index)\n",
        "            batch.mark_retrieved(index) if batch.parts else None\n",
    ),
    Mutant(
        "leave batches waiting for a producer id that is refused",
        "core/sending/sender.py",
        "self.abort(error, in_flight=False)",
        "self.abort(error, queued=False)",
    ),
    Mutant(
        "let a batch linger that a whole batch has closed",
        "core/batching/accumulator.py",
        "            is_planned = last.full\n            last.close()",
        "            last.close()\n            is_planned = last.full",
    ),
    Mutant(
        "end a linger although some records are not awaited",
        "core/batching/readiness.py",
        "            if batch.watchers < batch.count:\n",
        "            if not batch.watchers:\n",
    ),
    Mutant(
        "keep an early record that has waited for memory out of every queue",
        "runtime/send/appender.py",
        "            if early.takes(topic):\n",
        "            if self.early is not None or early.takes(topic):\n",
    ),
    Mutant(
        "queue no early record of a topic that gets its metadata later",
        "runtime/engine.py",
        "            if not self.appender.early.topics:\n",
        "            if self.metadata.version:\n",
    ),
    Mutant(
        "refuse memory that fits exactly",
        "core/batching/buffer_pool.py",
        "        if self.available < size:\n            return None",
        "        if self.available <= size:\n            return None",
    ),
)

TRANSACTIONAL_MUTANTS += (
    Mutant(
        "end a producer by a commit that is refused for the first time",
        "core/transactions/coordinators.py",
        "may_have_ended = contents.end_in_doubt if is_end else contents.may_have_ended",
        "may_have_ended = contents.may_have_ended if is_end else contents.end_in_doubt",
        transactional=True,
    ),
    Mutant(
        "leave a transaction open at a close that no caller has seen prepared",
        "core/transactions/manager.py",
        "        if self.is_prepared:\n            return None\n",
        "        if self.state is _S.PREPARED:\n            return None\n",
        transactional=True,
    ),
    Mutant(
        "commit a part of a bulk call",
        "runtime/bulk/run.py",
        "            if self._engine.transactions is not None:\n                # A commit",
        "            if self._engine.transactions is None:\n                # A commit",
        transactional=True,
    ),
    Mutant(
        "wait for a coordinator that is no broker any more",
        "core/transactions/coordinators.py",
        "            return [CoordinatorUnreachable(request, gone)]\n",
        "            return []\n",
        transactional=True,
    ),
    Mutant(
        "follow the oldest features of all connections",
        "net/client.py",
        "latest = max(known, key",
        "latest = min(known, key",
        transactional=True,
    ),
    Mutant(
        "begin V1 under the epoch of V2",
        "core/transactions/manager.py",
        "self._wants_v2 is not self.uses_v2\n",
        "self._wants_v2 > self.uses_v2\n",
        transactional=True,
    ),
    Mutant(
        "keep V2 in a cluster without it",
        "core/transactions/manager.py",
        "            if version is not None:\n                self._wants_v2",
        "            if version:\n                self._wants_v2",
        transactional=True,
    ),
)
# What the sender's half of a sixteenth round missed: a final refusal, and state that no rule
# checked.
MUTANTS += (
    Mutant(
        "mute a partition only if more is queued",
        "core/batching/accumulator.py",
        "            queue.muted = self.settings.guarantee_order\n            drained",
        "            queue.muted = self.settings.guarantee_order and bool(queue.batches)\n"
        "            drained",
    ),
    Mutant(
        "leave the listeners of a cancelled flush",
        "runtime/tasks/flush.py",
        "        finally:\n            self._accumulator.end_flush()\n"
        "            _unlisten(waiting)\n",
        "            _unlisten(waiting)\n"
        "        finally:\n            self._accumulator.end_flush()\n",
    ),
    Mutant(
        "go on after a final refusal until the next event",
        "core/sending/sender.py",
        "            or self.fatal_error is not None\n",
        "",
    ),
    Mutant(
        "take the first offset for none",
        "core/sending/produce_answers.py",
        "or answer.base_offset < 0:",
        "or answer.base_offset <= 0:",
    ),
)


# What the transactional half of a seventeenth round missed: questions of another process, sources
# that raise, early records of a topic that comes later.
MUTANTS += (
    Mutant(
        "end a bulk call whose source has raised as if it had no more",
        "runtime/bulk/send_many.py",
        "    if broken is not None:\n        raise broken\n",
        "",
    ),
    Mutant(
        "let a record wait for metadata after an early one",
        "runtime/send/early.py",
        "        return topic in self._topics or not self._metadata.version\n",
        "        return not self._metadata.version\n",
    ),
)
TRANSACTIONAL_MUTANTS += (
    Mutant(
        "read a position that an open transaction may change",
        "core/transactions/coordinator_queries.py",
        "topics=topics)], require_stable=True\n",
        "topics=topics)], require_stable=False\n",
        transactional=True,
    ),
    Mutant(
        "take a transaction that is open for one that has ended",
        "transaction_admin.py",
        "            if outcome is PreparedOutcome.OPEN:\n                raise\n",
        "            if outcome is PreparedOutcome.OPEN:\n                return\n",
        transactional=True,
    ),
    Mutant(
        "wait for a broker that has left, outside of a producer",
        "runtime/tasks/coordinator_client.py",
        "            if node_id >= 0 and node_id not in self._nodes:\n",
        "            if node_id < -1000:\n",
        transactional=True,
    ),
    Mutant(
        "find open transactions whose ids begin otherwise",
        "core/transactions/coordinator_queries.py",
        "        return [name for name in found if name.startswith(prefix)]\n",
        "        return list(found)\n",
        transactional=True,
    ),
    Mutant(
        "end a prepared transaction twice whose producer is closed",
        "core/transactions/manager.py",
        "            if self.is_prepared:\n                self.over = self.number\n",
        "",
        transactional=True,
    ),
)


# Kinds that more mechanical changes, and the list of what was not found, have shown to be missed.
MUTANTS += (
    Mutant(
        "take no place after others have run",
        "runtime/send/appender.py",
        "                if not self._may_append:\n                    return await",
        "                if not self.fast_path.open:\n                    return await",
    ),
    Mutant(
        "write a row of a bulk call without a place",
        "runtime/bulk/run.py",
        "        if fast_path.waiting or fast_path.appended >= fast_path.ceiling:\n"
        "            return False\n",
        "",
    ),
    Mutant(
        "let early records wait on after refused credentials",
        "runtime/engine.py",
        "        self.metadata_task.on_fatal_error = early.fail\n",
        "",
    ),
    Mutant(
        "report only the first cluster to interceptors",
        "runtime/observability/interceptors.py",
        "        if self._reported_cluster and cluster.cluster_id == self._cluster_id:\n",
        "        if self._reported_cluster:\n",
    ),
    Mutant(
        "leave out partitions without data whose node was slow",
        "core/batching/partitioners.py",
        "        slow = size > 0 and not latencies.is_available(leader)\n",
        "        slow = not latencies.is_available(leader)\n",
    ),
    Mutant(
        "note a leader hint and do not use it",
        "core/metadata/metadata.py",
        "        self._update(topics, all_nodes, self.cluster.cluster_id, self.cluster.controller",
        "        (topics, all_nodes, self.cluster.cluster_id, self.cluster.controller",
    ),
    Mutant(
        "send a batch again in parts after a final refusal",
        "core/sending/produce_answers.py",
        "    is_about_all = action is ProduceAction.FAIL or count == 1\n",
        "    is_about_all = count == 1\n",
    ),
    Mutant(
        "take any items for rows",
        "runtime/bulk/send_many.py",
        "    check_items(items)\n    run",
        "    run",
    ),
    Mutant(
        "have no broker 0",
        "core/metadata/cluster.py",
        "        if b.node_id >= 0 and is_usable(b.host, b.port)\n",
        "        if b.node_id > 0 and is_usable(b.host, b.port)\n",
    ),
    Mutant(
        "show no leader epochs",
        "core/metadata/cluster.py",
        "                leader_epoch=p.leader_epoch if p.leader_epoch >= 0 else None,\n",
        "                leader_epoch=None,\n",
    ),
    Mutant(
        "count only the first record of a batch for its partition",
        "runtime/send/_fast_path_py.py",
        "        if is_sticky:\n            state.used += size\n",
        "",
        pure=True,
    ),
    Mutant(
        "set no timer for the expiry of an early record",
        "runtime/send/early.py",
        "        self._sender_task.turn_at(now + self._accumulator",
        "        0 and self._sender_task.turn_at(now + self._accumulator",
    ),
    Mutant(
        "append an early record to one of any age",
        "runtime/send/early.py",
        "            last.batch.close()\n",
        "            pass\n",
    ),
    Mutant(
        "fill a part of early records beyond the size of a batch",
        "runtime/send/early.py",
        "            or part.size + size > self._batch_size\n",
        "            or part.size > self._batch_size\n",
    ),
    Mutant(
        "append rows before a record that is serialized",
        "runtime/bulk/run.py",
        "            if parts is not made or self._appender.serializing.is_queued(name):\n",
        "            if parts is not made:\n",
    ),
    Mutant(
        "take no connection for the last one that is lost",
        "net/client.py",
        "        return lost_at > ready_at\n",
        "        return False\n",
    ),
    Mutant(
        "let calls wait for metadata while the producer is closed",
        "runtime/engine.py",
        "        self.metadata_task.waits.fail(error)\n        if not self._drain_is_cut",
        "        if not self._drain_is_cut",
    ),
    Mutant(
        "linger at the end of a bulk call",
        "runtime/bulk/run.py",
        "        self._engine.accumulator.begin_flush()\n"
        "        self._engine.sender_task.wake()\n"
        "        self._all_done = self._engine.loop.create_future()\n"
        "        try:\n"
        "            await self._all_done\n"
        "        finally:\n"
        "            self._engine.accumulator.end_flush()\n",
        "        self._all_done = self._engine.loop.create_future()\n"
        "        await self._all_done\n",
    ),
)
TRANSACTIONAL_MUTANTS += (
    Mutant(
        "end a producer whose id a coordinator has dropped",
        "core/transactions/rules.py",
        "    if may_be_committed and reaction is Reaction.BUMP:\n",
        "    if reaction is Reaction.BUMP:\n",
        transactional=True,
    ),
    Mutant(
        "take any call after one that was cut off",
        "core/transactions/operations.py",
        "        if self.unreceived is not None and self.unreceived.kind is not kind:\n",
        "        if kind is None:\n",
        transactional=True,
    ),
    Mutant(
        "take a later transaction that is open for the prepared one",
        "core/transactions/prepared.py",
        '    if now.state == "Ongoing" and now.epoch == prepared.epoch:\n',
        '    if now.state == "Ongoing":\n',
        transactional=True,
    ),
    Mutant(
        "ask coordinators again for open transactions that have moved",
        "runtime/tasks/coordinator_client.py",
        "                    self._coordinators.pop(CoordinatorKey(kind, name), None)\n",
        "                    pass\n",
        transactional=True,
    ),
)
# What the sender's half of a nineteenth round missed: reports that no run had read.
MUTANTS += (
    Mutant(
        "keep a partitioner's choice for the next record",
        "runtime/send/validation.py",
        "            self._kept = None\n",
        "",
    ),
    Mutant(
        "call a producer ready that gets no producer id",
        "runtime/observability/health.py",
        "    if producer_id.failures:\n",
        "    if producer_id.failures < 0:\n",
    ),
    Mutant(
        "leave failures out of the totals of a topic",
        "metrics/totals.py",
        "        of_topic.records_failed += failed.records\n",
        "",
    ),
    Mutant(
        "add up throttle times in another unit than their largest",
        "metrics/totals.py",
        "            self.throttle_time += throttle_ms / 1000\n",
        "            self.throttle_time += throttle_ms\n",
    ),
    Mutant(
        "call only one callback of a record",
        "runtime/delivery/_delivery_py.py",
        "        taken, self.added = self.added, []\n",
        "        taken, self.added = self.added[:1], []\n",
        pure=True,
    ),
)


def hunt(mutant: Mutant, seeds: int) -> str | None:
    """The first seed that finds the mutant, with its oracles; None when none does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "aioproducer"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        source = copy / mutant.file
        text = source.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise LookupError(f"{mutant.name}: the place in {mutant.file} is not there once")
        source.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", _HUNT, str(seeds), mutant.kind, *SYMPTOMS],
            env={
                **os.environ,
                "PYTHONPATH": f"{folder}{os.pathsep}{TESTS}",
                "AIOPRODUCER_IMPL": "pure" if mutant.pure else "native",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
            cwd=folder,
        )
    if done.returncode:
        raise RuntimeError(f"{mutant.name}: {done.stderr[-2000:]}")
    return done.stdout.strip() or None


def main() -> int:
    """Hunts all mutants or the named ones; 0 if each was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    mutants = [
        mutant
        for mutant in MUTANTS + TRANSACTIONAL_MUTANTS
        if not options.names or mutant.name in options.names
    ]
    survivors = 0
    began = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for mutant, found in zip(
            mutants, pool.map(lambda m: hunt(m, options.seeds), mutants), strict=True
        ):
            survivors += found is None
            seed, _, oracle = (found or "").partition(" ")
            print(f"{mutant.name:<60} {f'seed {seed}: {oracle}' if found else 'SURVIVED'}")
            sys.stdout.flush()
    seconds = time.monotonic() - began
    print(f"{len(mutants) - survivors} of {len(mutants)} found, {seconds:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
