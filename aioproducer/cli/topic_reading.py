"""`aioproducer topics read`: print the records of a topic, for people or for a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Optional

from aioproducer._util.printable import printable
from aioproducer.cli import options
from aioproducer.cli.console import say, write_data, write_line
from aioproducer.cli.groups import grouped, option
from aioproducer.cli.topics import Cluster, Name, run_on
from aioproducer.errors import ConfigError
from aioproducer.loader.dead_letter_file import text_fields
from aioproducer.records.reader import DecodedRecord
from aioproducer.testing.reader import ReadFrom, Start, stream_part
from aioproducer.types import TopicPartition

EXAMPLES = options.examples(
    "aioproducer topics read orders --max 10",
    "aioproducer topics read orders --from -5 --partition 0 --key-separator :",
    "aioproducer topics read orders --from 2026-01-31T12:00:00Z --format json | jq .value",
    "aioproducer topics read orders --from end --follow",
)
_WORDS = {
    "beginning": Start.BEGINNING,
    "earliest": Start.BEGINNING,
    "end": Start.END,
    "latest": Start.END,
}
_PLACES = "beginning, end, an offset, -N for the last N, a time as 2026-01-31T12:00Z, or @MS"
_SILENCE_S = 30.0
_LAST_MS = 2**63 - 1

Number = Optional[int]  # noqa: UP045


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The records to read, and how keys are printed."""

    from_: str = option(
        "beginning",
        "--from PLACE",
        "Where to begin in each partition: beginning, end, an offset, -N for the last N "
        "records, a time in ISO 8601 (UTC unless it has an offset), or @MS since 1970.",
        autocompletion=options.choices(*_WORDS),
    )
    most: Number = option(
        None, "--max -n COUNT", "The largest number of records. Default: all.", min=1
    )
    partition: Number = option(
        None, "--partition -p NUMBER", "Read only this partition. Default: all.", min=0
    )
    follow: bool = option(False, "--follow", "Continue with new records until Ctrl-C.")
    committed: bool = option(
        False, "--committed", "Leave out records of aborted or open transactions (read_committed)."
    )
    key_separator: options.Text = option(
        None,
        "--key-separator -K TEXT",
        "Print the key and this text before each value, such as : or \\t. Default: values only.",
        callback=options.separator,
    )
    null: str = option("", "--null TEXT", "The text to print for null.")

    def batches(
        self, cluster: Cluster, topic: str, place: ReadFrom
    ) -> AsyncGenerator[tuple[TopicPartition, list[DecodedRecord]], None]:
        """Yield the wanted batches of a topic, from a place on."""
        return stream_part(
            cluster.servers,
            topic,
            read_from=place,
            partition=self.partition,
            follow=self.follow,
            timeout_s=_SILENCE_S,
            isolation_level="read_committed" if self.committed else "read_uncommitted",
            open_link=cluster.open_link,
        )


@grouped
def read(
    *,
    name: Name,
    wanted: ReadOptions,
    format_: options.OutputFormat = "text",
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Print the records that a topic has now, in the order of offsets per partition.

    As text, each value is a line, and null is the text of --null. A file or another program gets
    the bytes as they are, a terminal only what is printable. As JSON, each record is a line with
    topic, partition, offset, timestamp, key, value and headers; bytes that are not UTF-8 are under
    key_base64 and value_base64. No consumer group is used, and nothing is committed.
    """
    place = _place(wanted.from_)
    wants_json = options.wants_json(format_, as_json=as_json)
    line_of = _json_line if wants_json else partial(_text_line, wanted.key_separator, wanted.null)
    write = write_line if wants_json or _is_terminal() else write_data

    async def act(cluster: Cluster) -> None:
        count = 0
        async with aclosing(wanted.batches(cluster, name, place)) as batches:
            async for where, records in batches:
                shown = records if wanted.most is None else records[: wanted.most - count]
                write("\n".join(line_of(where, record) for record in shown))
                count += len(shown)
                if count == wanted.most:
                    return
        if not count:
            say(f"no record in {name} from {wanted.from_} on")

    return run_on(connection, act)


def _place(text: str) -> ReadFrom:
    word = _WORDS.get(text)
    if word is not None:
        return ReadFrom(word)
    try:
        if text.startswith("@"):
            at_ms = int(text[1:])
        elif text.removeprefix("-").isdecimal():
            number = int(text)
            return ReadFrom(Start.LAST, -number) if number < 0 else ReadFrom(Start.OFFSET, number)
        else:
            time = datetime.fromisoformat(text)
            at_ms = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"--from takes {_PLACES}, not {text!r}") from None
    # Negative ones have special meanings in Kafka.
    if at_ms < 0:
        raise ConfigError("--from takes no time before 1970")
    if at_ms > _LAST_MS:
        raise ConfigError("--from takes no time that is later than Kafka can store")
    return ReadFrom(Start.TIME, at_ms)


def _text_line(
    key_separator: str | None, null: str, _: TopicPartition, record: DecodedRecord
) -> str:
    """Return a record as a line of text, as `produce` takes it."""
    value = null if record.value is None else _text(record.value)
    if key_separator is None:
        return value
    return f"{null if record.key is None else _text(record.key)}{key_separator}{value}"


def _json_line(where: TopicPartition, record: DecodedRecord) -> str:
    content = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **text_fields("key", record.key),
        **text_fields("value", record.value),
        "headers": [
            {"name": name, **text_fields("value", value)} for name, value in record.headers
        ],
    }
    return json.dumps(content)


def _text(data: bytes) -> str:
    if not _is_terminal():
        return data.decode("utf-8", "surrogateescape")
    return printable(data.decode("utf-8", "replace"), sys.maxsize)  # a terminal would obey it


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
