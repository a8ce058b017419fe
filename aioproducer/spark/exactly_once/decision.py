"""The record of a decision about an epoch, and how it fits into the metadata of consumer offsets.

    parts, in columns --> differences as varints --> zlib --> base 85 --> pieces of 4,096 characters

Each column changes little from one part to the next, so a part costs about five characters.

Invariants
- The prefix and the record suffice to name every transaction of the epoch.
- An incomplete record is refused: no part is ever left out silently.
- Reading takes time and memory in proportion to the record: it comes from a broker.
"""

from __future__ import annotations

import base64
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aioproducer._util.varints import read_varint, unzigzag, varint, zigzag
from aioproducer.spark.errors import DecisionRecordError
from aioproducer.types import PreparedTransaction

METADATA_LIMIT = 4096
"""Characters that brokers take: the default of `offset.metadata.max.bytes`."""
WORKER_BYTES = 8

_FORMAT = 1
_PIECE = re.compile(r"aioproducer/(\d+)/(\d+):(.*)", re.DOTALL)
_ROOM_FOR_HEADER = 32
_LONGEST = 2 * 1024 * 1024
"""Bytes of a record before it is compressed; a part has 7 to 70 of them, most often about 10."""


@dataclass(frozen=True, slots=True)
class TransactionNames:
    """The transactional ids of one prefix.

        <prefix>-driver                       decides
        <prefix>-w<worker>-<parity>-<number>  one of a worker's attempts in an even or odd epoch

    The parity keeps an epoch from using the ids of the one before it, whose ends may have to be
    repeated; the number keeps attempts of one epoch apart.
    """

    prefix: str

    @property
    def driver(self) -> str:
        """The transactional id of the driver, which writes decisions."""
        return f"{self.prefix}-driver"

    @property
    def workers(self) -> str:
        """The prefix of the ids of all attempts."""
        return f"{self.prefix}-w"

    def attempt(self, worker: str, epoch: int, number: int) -> str:
        """Return the id of one attempt; `worker` is 16 hexadecimal digits."""
        return f"{self.workers}{worker}-{epoch % 2}-{number}"

    def read(self, name: str) -> tuple[str, int] | None:
        """Return the worker and the number of an attempt's id; None for any other id."""
        digits = WORKER_BYTES * 2
        pattern = rf"{re.escape(self.workers)}([0-9a-f]{{{digits}}})-[01]-([0-9]{{1,19}})"
        found = re.fullmatch(pattern, name)
        return None if found is None else (found[1], int(found[2]))


@dataclass(frozen=True, slots=True)
class Part:
    """The contribution of one task to an epoch."""

    partition: int
    rows: int
    transaction: PreparedTransaction


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision that all transactions of an epoch are committed.

    Attributes:
        epoch: a micro-batch's id; 0 for a batch job.
        owner: the id of the query or job: a new one may use the same prefix.
        parts: its transactions, none of them empty.
    """

    epoch: int
    owner: str
    parts: tuple[Part, ...]


def encode(decision: Decision, names: TransactionNames) -> list[str]:
    """Return the record, in as many pieces as needed."""
    parts = sorted(decision.parts, key=lambda part: part.partition)
    workers: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    for part in parts:
        transaction = part.transaction
        known = names.read(transaction.transactional_id)
        if known is None:
            raise DecisionRecordError(
                f"{transaction.transactional_id!r} is not the id of an attempt"
            )
        worker, number = known
        rows.append(
            (
                part.partition,
                part.rows,
                workers.setdefault(worker, len(workers)),
                number,
                transaction.producer_id,
                transaction.epoch,
                transaction.transaction_version,
            )
        )
    owner = decision.owner.encode()
    content = bytearray([_FORMAT])
    for number in (len(owner), len(workers), len(parts)):
        content += varint(number)
    content += owner + b"".join(bytes.fromhex(worker) for worker in workers)
    for column in zip(*rows, strict=True):
        for last, value in itertools.pairwise((0, *column)):
            content += varint(zigzag(value - last))
    if len(content) > _LONGEST:
        raise DecisionRecordError(
            f"the {len(parts)} transactions of epoch {decision.epoch} take too much room to record",
            advice="Write with fewer tasks (coalesce).",
        )
    text = base64.b85encode(zlib.compress(bytes(content), 9)).decode()
    size = METADATA_LIMIT - _ROOM_FOR_HEADER
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return [f"aioproducer/{at}/{len(pieces)}:{piece}" for at, piece in enumerate(pieces)]


def decode(epoch: int, pieces: Mapping[int, str | None], names: TransactionNames) -> Decision:
    """Return the decision in these numbered pieces; others may be present beside them."""
    try:
        return _decode(epoch, pieces, names)
    except (ValueError, LookupError, zlib.error) as error:
        raise DecisionRecordError(
            f"the record of epoch {epoch} of {names.prefix!r} cannot be read: {error}",
            advice="No other program may commit offsets of that group; to begin anew, choose "
            "another transactional.id.prefix.",
            epoch=epoch,
        ) from error


def _decode(epoch: int, pieces: Mapping[int, str | None], names: TransactionNames) -> Decision:
    found = [_piece(pieces[0])]
    found += [_piece(pieces[number]) for number in range(1, found[0][1])]
    if any(piece[:2] != (number, len(found)) for number, piece in enumerate(found)):
        raise ValueError("its pieces do not belong together")
    content = _unpacked("".join(piece[2] for piece in found))
    if content[0] != _FORMAT:
        raise ValueError(f"it has format {content[0]}; a newer version wrote it")
    (size, _), (worker_count, _), (count, start) = itertools.islice(_numbers(content, 1), 3)
    first = start + size
    owner, end = content[start:first].decode(), first + worker_count * WORKER_BYTES
    if end > len(content):
        raise ValueError("it is cut off")
    workers = [content[at : at + WORKER_BYTES].hex() for at in range(first, end, WORKER_BYTES)]
    values = [value for value, _ in _numbers(content, end)]
    if len(values) != 7 * count:
        raise ValueError("it is cut off")
    columns = [
        itertools.accumulate(map(unzigzag, values[count * i : count * (i + 1)])) for i in range(7)
    ]
    parts = tuple(
        Part(
            partition,
            rows,
            PreparedTransaction(names.attempt(workers[worker], epoch, number), *identity),
        )
        for partition, rows, worker, number, *identity in zip(*columns, strict=True)
    )
    return Decision(epoch, owner, parts)


def _unpacked(text: str) -> bytes:
    if len(text) > 2 * _LONGEST:
        raise ValueError("it is too long")
    stream = zlib.decompressobj()
    content = stream.decompress(base64.b85decode(text), _LONGEST + 1)
    if len(content) > _LONGEST:
        raise ValueError("it is too long")
    if not stream.eof:
        raise ValueError("it is cut off")
    return content


def _piece(text: str | None) -> tuple[int, int, str]:
    found = _PIECE.fullmatch(text or "")
    if found is None:
        raise ValueError("a piece of it is something else")
    return int(found[1]), int(found[2]), found[3]


def _numbers(content: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers from an offset on, each with the offset after it."""
    while at < len(content):
        try:
            number, at = read_varint(content, at)
        except IndexError:
            raise ValueError("it is cut off") from None
        yield number, at
