"""`aioproducer topics`: list, create, describe, delete; `topic_reading` has read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from aioproducer._util.printable import printable
from aioproducer.cli import options
from aioproducer.cli.commands import Command, Group
from aioproducer.cli.connecting import wait_for_listener
from aioproducer.cli.console import print_json, say, write_line
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.groups import grouped, parameter
from aioproducer.cli.interrupts import Interrupts
from aioproducer.cli.pointers import run_connected
from aioproducer.cli.sessions import link_opener
from aioproducer.errors import UnknownTopicOrPartitionError
from aioproducer.errors.base import raise_for_code
from aioproducer.testing.admin import create_topic, delete_topic
from aioproducer.testing.wire_client import OpenLink, WireClient, first_of
from aioproducer.wire.messages.metadata import MetadataResponseTopic

app: typer.Typer = typer.Typer(
    cls=Group, help="List, create, read, describe and delete topics.", no_args_is_help=True
)

_TIMEOUT_S = 30.0
_WIDEST = 40
"""Characters of a column; longer cells move those after them."""

EXAMPLES = options.examples(
    "aioproducer topics list",
    "aioproducer topics create orders -p 12 -r 3 --topic-config retention.ms=86400000",
    "aioproducer topics describe orders --json",
    "aioproducer topics read orders --max 10",
    "aioproducer topics delete orders --missing-ok",
)


def _count(name: str, short: str, *, most: int) -> Any:
    """Return an option for a number that -1 leaves to the cluster."""
    help_ = "-1: the brokers' default."
    return typer.Option(name, short, metavar="COUNT", min=-1, max=most, help=help_)


Name = Annotated[
    str, typer.Argument(metavar="TOPIC", callback=options.kafka_text, help="The topic's name.")
]


@app.command("list", epilog=EXAMPLES, cls=Command)
@grouped
def list_topics(
    *,
    internal: Annotated[bool, parameter("--internal", "Include Kafka's internal topics.")] = False,
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Print the names of all topics, one per line."""

    async def act(cluster: Cluster) -> None:
        topics = await cluster.topics(None)
        names = sorted(topic.name or "" for topic in topics if internal or not topic.is_internal)
        if as_json:
            print_json({"topics": names})
        else:
            for name in names:
                write_line(printable(name))

    return run_on(connection, act)


@app.command(epilog=EXAMPLES, cls=Command)
@grouped
def create(
    *,
    name: Name,
    partitions: Annotated[int, _count("--partitions", "-p", most=2**31 - 1)] = -1,
    replication: Annotated[int, _count("--replication-factor", "-r", most=2**15 - 1)] = -1,
    settings: Annotated[
        options.Texts,
        parameter(
            "--topic-config KEY=VALUE",
            "An option of the topic, such as retention.ms=1000; may be repeated.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Create a topic and wait until every broker has it."""
    texts = filter(options.kafka_text, settings or ())
    configs = dict(options.pair(text, "--topic-config") for text in texts)

    async def act(cluster: Cluster) -> None:
        await create_topic(
            cluster.servers,
            name,
            partitions,
            replication,
            configs,
            timeout_s=_TIMEOUT_S,
            open_link=cluster.open_link,
        )
        if as_json:
            print_json(_described(await cluster.topic(name)))
        else:
            say(f"created {name}")

    return run_on(connection, act)


@app.command(epilog=EXAMPLES, cls=Command)
@grouped
def describe(*, name: Name, as_json: options.AsJson = False, connection: options.Connection) -> int:
    """Print a topic's partitions, leaders and replicas."""

    async def act(cluster: Cluster) -> None:
        topic = await cluster.topic(name)
        raise_for_code(topic.error_code, topic=name)
        if as_json:
            print_json(_described(topic))
        else:
            _print_partitions(topic)

    return run_on(connection, act)


@app.command(epilog=EXAMPLES, cls=Command)
@grouped
def delete(
    *,
    name: Name,
    missing_ok: Annotated[
        bool, parameter("--missing-ok", "End with exit code 0 if the topic does not exist.")
    ] = False,
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Delete a topic and wait until no broker has it."""

    async def act(cluster: Cluster) -> None:
        deleted = True
        try:
            await delete_topic(
                cluster.servers, name, timeout_s=_TIMEOUT_S, open_link=cluster.open_link
            )
        except UnknownTopicOrPartitionError:
            if not missing_ok:
                raise
            deleted = False
        if as_json:
            print_json({"topic": name, "deleted": deleted})
        else:
            say(f"deleted {name}" if deleted else f"{name} does not exist")

    return run_on(connection, act)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, and how to connect to it."""

    servers: str
    open_link: OpenLink

    async def topics(self, names: Iterable[str] | None) -> list[MetadataResponseTopic]:
        """Return the cluster's description of topics, or of all of them."""
        async with WireClient(
            self.servers, timeout_s=_TIMEOUT_S, open_link=self.open_link
        ) as client:
            return (await client.metadata(names)).topics

    async def topic(self, name: str) -> MetadataResponseTopic:
        """Return the cluster's description of one topic."""
        return first_of(await self.topics([name]), "topic")


def run_on(connection: options.Connection, act: Callable[[Cluster], Awaitable[None]]) -> int:
    """Run a command that asks a cluster; return its exit code."""
    config = connection.config()

    async def command(_: Interrupts) -> int:
        await wait_for_listener(config)
        await act(Cluster(",".join(config.bootstrap_servers), link_opener(config)))
        return ExitCode.OK

    return run_connected(command, connection)


def _described(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "replicas": partition.replica_nodes,
                "in_sync": partition.isr_nodes,
            }
            for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
        ],
    }


def _print_partitions(topic: MetadataResponseTopic) -> None:
    """Print a table; not by rich, which takes 0.6 ms for each of up to a million partitions."""
    columns = ("partition", "leader", "replicas", "in_sync")
    rows = [[_shown(row[column]) for column in columns] for row in _described(topic)["partitions"]]
    rows.insert(0, list(columns))
    widths = [min(_WIDEST, max(map(len, cells))) for cells in zip(*rows, strict=True)]
    lines = (
        "    ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    write_line("\n".join([printable(topic.name or ""), *(f"  {line}" for line in lines)]))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
