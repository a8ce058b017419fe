"""Planted defects: each must be found by the small configurations, or is listed as out of reach."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from exploration.configs import SMALL

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "aioproducer"


class Defect(NamedTuple):
    """In `file`, `old` (which is there once) becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    transactional: bool = False

    @property
    def configs(self) -> list[str]:
        """The names of the small configurations that may find it."""
        return [each.name for each in SMALL if bool(each.script) == self.transactional]


OWN = (
    Defect(
        "past a waiting batch",
        "core/batching/accumulator.py",
        "        if self.has_queued or queue.muted",
        "        if queue.muted",
    ),
    Defect(
        "no turn after a direct send",
        "core/sending/sender.py",
        " <= now or self.accumulator.has_queued\n",
        " <= now\n",
    ),
    Defect(
        "send a batch again that a later one has overtaken",
        "core/sending/idempotence.py",
        "        partition.newest = max(partition.newest, batch.ordinal)\n",
        "",
    ),
    Defect(
        "count the attempt of an outdated batch that was not sent",
        "core/sending/sender.py",
        "        for batch in outdated:\n            batch.attempts -= 1\n",
        "        for batch in outdated:\n",
    ),
    Defect(
        "send more than a log recognises again",
        "core/sending/idempotence.py",
        "            and partition.in_flight[0].ordinal > partition.newest\n",
        "",
    ),
    Defect(
        "against the sequence",
        "core/batching/accumulator.py",
        " or not self.sequencer.may_drain(batch, now, leader_epoch):\n            return False\n",
        ":\n            return False\n",
    ),
    Defect(
        "skip a sequence after each batch",
        "core/batching/batch.py",
        "(self.base_sequence + self.count)",
        "(self.base_sequence + self.count + 1)",
    ),
    Defect(
        "give the parts of a batch the same sequence",
        "core/sending/idempotence.py",
        "            sequence = part.next_sequence\n",
        "",
    ),
    Defect(
        "sleep until the next expiry",
        "core/sending/sender.py",
        "        deadline = min(self._readiness.next_at, self.accumulator.next_expiry_at)\n",
        "        deadline = self.accumulator.next_expiry_at\n",
    ),
    Defect(
        "sleep over a response",
        "core/sending/sender.py",
        "        return min(self._readiness.next_at, accumulator.next_expiry_at)\n",
        "        return accumulator.next_expiry_at\n",
    ),
    Defect(
        "sleep although metadata is wanted",
        "core/metadata/requests.py",
        "        return self._metadata.next_update_at(now)\n\n    def next_deadline",
        "        return now + 60\n\n    def next_deadline",
    ),
    Defect(
        "set the timer of a retry too late",
        "core/batching/readiness.py",
        "        heappush(self._heap, (ready_at, self._order, queue))\n",
        "        queue.ready_at = ready_at = ready_at + 60 * bool(queue.batches[0].attempts)\n"
        "        heappush(self._heap, (ready_at, self._order, queue))\n",
    ),
    Defect(
        "do not ask for metadata after a refusal",
        "core/sending/sender.py",
        "        if error.refreshes_metadata:\n",
        "        if batch.done:\n",
    ),
    Defect(
        "keep leaders that have moved",
        "core/batching/accumulator.py",
        "        self.readiness.on_leaders_changed(queues)\n",
        "",
    ),
    Defect(
        "number anew what is out of order in any case",
        "core/sending/idempotence.py",
        "        return not (is_first and batch.possibly_persisted"
        " and partition.unknown_gap is not None)\n",
        "        return True\n",
    ),
    Defect(
        "keep the node of a request that was not made",
        "core/sending/sender.py",
        '"""Retry or fail batches whose request never reached a transport: none was written."""\n'
        "        self._preparing.discard(node_id)\n",
        '"""Retry or fail batches whose request never reached a transport: none was written."""\n',
    ),
    Defect(
        "keep the node when every batch of a request has ended",
        "core/sending/sender.py",
        "        if not live:\n            self._preparing.discard(node_id)\n",
        "",
    ),
    Defect(
        "keep a metadata request that has failed",
        "core/metadata/metadata.py",
        "        self._fetch = None\n        self._last_failure = error\n",
        "        self._last_failure = error\n",
    ),
    Defect(
        "keep the first of a topic's logs",
        "core/sending/idempotence.py",
        "            if topic_partition.topic != topic:\n",
        "            if topic_partition.topic != topic or not partition.log_is_new:\n",
    ),
    Defect(
        "do not wake up for a producer id",
        "core/sending/sender.py",
        "        if self.producer_id.on_identity(identity):\n",
        "        if not self.producer_id.on_identity(identity):\n",
    ),
    Defect(
        "serve only the first of those that wait for memory",
        "core/batching/buffer_pool.py",
        "        self._available += request.granted\n",
        "        self._available += 0 * request.granted\n",
    ),
    Defect(
        "leave an expired batch in its queue",
        "core/batching/accumulator.py",
        "                queue.batches.remove(batch)\n",
        "                pass\n",
    ),
    Defect(
        "ask for the next epoch although an addition may be late",
        "core/transactions/manager.py",
        "            self._renewal = EpochRenewal.NEEDED_AFTER_ABORT\n            self._unanswered",
        "            self._renewal = EpochRenewal.NEEDED\n            self._unanswered",
        transactional=True,
    ),
    Defect(
        "say that a record on the wire was not written when the producer is closed",
        "core/sending/sender.py",
        "            if batch.on_wire:\n                batch.possibly_persisted = True\n"
        "            records += batch.count\n",
        "            records += batch.count\n",
    ),
    Defect(
        "leave a batch that a bulk call has kept open",
        "core/batching/accumulator.py",
        "            if queue is not None and queue.batches and queue.batches[0] is batch:\n"
        "                self.readiness.replan(queue)\n",
        "",
    ),
    Defect(
        "keep a batch in its queue when it is purged",
        "core/batching/accumulator.py",
        "        self.withdraw(batches)\n        return batches\n",
        "        return batches\n",
    ),
    Defect(
        "leave a transaction open when the producer is closed",
        "core/transactions/manager.py",
        "            self.aborted_by_close = self.number\n"
        '            error = ProducerClosedError("the producer was closed meanwhile")\n'
        "            return self._abort(error, closing=True)\n",
        "            return None\n",
        transactional=True,
    ),
    Defect(
        "say that a commit on its way did not happen when the producer is closed",
        "core/transactions/manager.py",
        "            self._commit_at_the_end = self._end_of_commit(error)\n",
        "            self._commit_at_the_end = None\n",
        transactional=True,
    ),
    Defect(
        "give memory back while parts of the batch are sent",
        "core/batching/accumulator.py",
        "            if not left:\n                batch.complete(BatchOutcome())\n",
        "            if left:\n                batch.complete(BatchOutcome())\n",
    ),
    Defect(
        "begin sequences anew one too early",
        "core/batching/batch.py",
        "        return (self.base_sequence + self.count) % _SEQUENCES\n",
        "        return (self.base_sequence + self.count) % (_SEQUENCES - 1)\n",
    ),
    Defect(
        "go on after the last epoch",
        "core/sending/idempotence.py",
        "self.identity.epoch >= MAX_EPOCH",
        "self.identity.epoch > MAX_EPOCH",
    ),
    Defect(
        "say that a partition was not written which the answer leaves out",
        "core/sending/sender.py",
        "                batch.possibly_persisted = True\n"
        "                self._retry_or_fail(batch, error, node_id, now)\n"
        "                self._let_go",
        "                self._retry_or_fail(batch, error, node_id, now)\n"
        "                self._let_go",
    ),
    Defect(
        "drop the queue of a topic that left while a batch is in flight",
        "core/batching/accumulator.py",
        "            if not any(queue.batches or queue.muted for queue in queues):\n",
        "            if not any(queue.batches for queue in queues):\n",
    ),
    Defect(
        "ask for no metadata while a leader cannot be reached",
        "core/sending/sender.py",
        "                    self._metadata.request_update()\n                continue\n",
        "                    pass\n                continue\n",
    ),
    Defect(
        "compare leader epochs with those of a deleted topic",
        "core/metadata/live_topic.py",
        "            previous = None\n        try:\n",
        "            pass\n        try:\n",
    ),
    Defect(
        "keep a coordinator that has moved",
        "core/transactions/coordinators.py",
        "        elif reaction is Reaction.FIND_COORDINATOR:\n"
        "            self._coordinators.pop(request.coordinator, None)\n",
        "        elif reaction is Reaction.FIND_COORDINATOR:\n",
        transactional=True,
    ),
    Defect(
        "say that a request was not sent which got no answer",
        "core/transactions/coordinators.py",
        "            self._manager.on_unanswered(request.rpc)\n",
        "            self._manager.on_answered(request.rpc)\n",
        transactional=True,
    ),
    Defect(
        "take every refusal of a coordinator for a request without effect",
        "core/transactions/rules.py",
        "    return code not in _BEFORE_ANY_CHANGE\n",
        "    return code < -1\n",
        transactional=True,
    ),
    Defect(
        "give up when a coordinator does not have the producer id",
        "core/transactions/rules.py",
        "_UNKNOWN_PRODUCER: Final = {59: Reaction.BUMP}\n",
        "_UNKNOWN_PRODUCER: Final = {59: Reaction.FATAL}\n",
        transactional=True,
    ),
    Defect(
        "call a commit refused that may have worked before",
        "core/transactions/coordinators.py",
        "            ending=aborting or may_have_ended or elsewhere,\n",
        "            ending=aborting or elsewhere,\n",
        transactional=True,
    ),
    Defect(
        "count an attempt that was not made",
        "core/sending/sender.py",
        "            batch.attempts -= 1\n            batch.on_wire = False\n",
        "            batch.on_wire = False\n",
    ),
    Defect(
        "close a gap in doubt when an earlier batch is acknowledged",
        "core/sending/idempotence.py",
        "partition.unknown_gap is not None and batch.ordinal > partition.unknown_gap",
        "partition.unknown_gap is not None",
    ),
    Defect(
        "split a batch that may be written without noting the gap",
        "core/sending/idempotence.py",
        "        if batch.possibly_persisted:\n            partition.doubt(batch)\n"
        "        sequence",
        "        sequence",
    ),
    Defect(
        "say that the parts of a batch that may be written are not",
        "core/batching/batch.py",
        "            part.possibly_persisted = self.possibly_persisted\n",
        "",
    ),
    Defect(
        "report a commit without an answer as not persisted",
        "core/transactions/manager.py",
        "        if is_ending or contents.handed_out:\n",
        "        if contents.handed_out:\n",
        transactional=True,
    ),
    Defect(
        "leave a transaction open that may have begun",
        "core/transactions/manager.py",
        "        elif rpc in _ADDITIONS:\n            self.contents.begun = True\n",
        "",
        transactional=True,
    ),
    Defect(
        "abort under an epoch that an unanswered request may have ended",
        "core/transactions/manager.py",
        "            self._renewal = EpochRenewal.POSSIBLY_DONE\n",
        "            pass\n",
        transactional=True,
    ),
    Defect(
        "call a refused commit unknown",
        "core/transactions/manager.py",
        "        if rpc is Rpc.END:\n            self.contents.end_is_out = False\n",
        "        if rpc is Rpc.END:\n            pass\n",
        transactional=True,
    ),
    Defect(
        "keep the epoch of V1 for the first transaction of V2",
        "core/transactions/manager.py",
        "        if has_changed or self._needs_new_epoch:",
        "        if self._needs_new_epoch:",
        transactional=True,
    ),
    Defect(
        "renew no epoch by the first version that can",
        "core/transactions/manager.py",
        "self._can_renew = version >= requests",
        "self._can_renew = version > requests",
        transactional=True,
    ),
    Defect(
        "keep the epoch after an unanswered addition",
        "core/transactions/manager.py",
        "            self._renewal = EpochRenewal.NEEDED_AFTER_ABORT\n            self._unanswered",
        "            self._unanswered",
        transactional=True,
    ),
    Defect(
        "take an addition of a group that may be carried out for none",
        "core/transactions/manager.py",
        "        elif rpc in _ADDITIONS:\n            self.contents.begun = True\n",
        "        elif rpc is Rpc.ADD_PARTITIONS:\n            self.contents.begun = True\n",
        transactional=True,
    ),
    Defect(
        "restart the sequences of a batch that may be in a topic created anew",
        "core/sending/idempotence.py",
        "not batch.topic_id.int and (batch.on_wire or batch.possibly_persisted)",
        "not batch.topic_id.int and batch.on_wire",
    ),
    Defect(
        "renumber what a topic created anew refuses before the metadata",
        "core/sending/idempotence.py",
        "        return metadata.is_awaited\n",
        "        return False\n",
    ),
    Defect(
        "say that an overtaken batch is not written which may be",
        "core/sending/idempotence.py",
        "        return batch.ordinal < self.newest and not batch.possibly_persisted\n",
        "        return batch.ordinal < self.newest\n",
    ),
    Defect(
        "renumber a batch that may be written after one that may be",
        "core/sending/idempotence.py",
        "not (is_first and batch.possibly_persisted and partition.unknown_gap is not None)\n",
        "True\n",
    ),
    Defect(
        "say that a batch may be written which expires while it is prepared",
        "core/sending/sender.py",
        "            batch.possibly_persisted |= batch.on_wire\n            error = expiry_of",
        "            batch.possibly_persisted |= batch.pins > 0\n            error = expiry_of",
    ),
    Defect(
        "count only the last batch of a request",
        "core/batching/accumulator.py",
        "            size += head_size\n",
        "            size = head_size\n",
    ),
)


def _of_the_simulation() -> tuple[Defect, ...]:
    """Those defects of `tests/simulation/mutants.py` that are in the core."""
    spec = importlib.util.spec_from_file_location("mutants", TESTS / "simulation" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    mutants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutants)
    return tuple(
        Defect(*mutant[:4], mutant.transactional)
        for mutant in mutants.MUTANTS + mutants.TRANSACTIONAL_MUTANTS
        if mutant.file.startswith("core/")
    )


DEFECTS = OWN + _of_the_simulation()


def hunt(defect: Defect, timeout: float = 1800) -> str | None:
    """Return what the small configurations find with the defect; None if they find nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "aioproducer"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        source = copy / defect.file
        text = source.read_text(encoding="utf-8")
        if text.count(defect.old) != 1:
            raise LookupError(f"{defect.name}: the place in {defect.file} is not there once")
        source.write_text(text.replace(defect.old, defect.new), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "exploration", "--small", "--quiet", *defect.configs],
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{TESTS}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=folder,
        )
    if done.returncode:
        raise RuntimeError(f"{defect.name}: {done.stderr[-2000:]}")
    return done.stdout.strip() or None
