"""`aioproducer cluster`: a Kafka cluster to try things on, until Ctrl-C.

The first line on standard output, printed once every broker serves, is
`bootstrap servers: HOST:PORT,...`, or with `--json`
`{"event": "ready", "bootstrap_servers": "HOST:PORT,...", ...}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol

from aioproducer._util.hosts import is_this_machine
from aioproducer._util.printable import printable
from aioproducer.cli import options
from aioproducer.cli.console import print_json, say, write_line
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.groups import grouped, option, parameter
from aioproducer.cli.interrupts import Interrupts, run_command
from aioproducer.errors import ConfigError, error_from_code
from aioproducer.testing.admin import create_topic
from aioproducer.testing.broker import RefusedError, TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster

_ENGINES = ("embedded", "kafka")
_DEFAULT_PORT = 9092
_LAST_PORT = 65_535
_MOST_PARTITIONS = 2**31 - 1
_MOST_REPLICAS = 2**15 - 1


class _Running(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


_Engine = Callable[[], AbstractAsyncContextManager[_Running]]

EXAMPLES = options.examples(
    "aioproducer cluster",
    "aioproducer cluster --brokers 1 --port 19092 --topic orders:6 --topic logs:3:1",
    "aioproducer cluster --engine kafka --kafka-version 4.3.1",
)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The options of the cluster."""

    brokers: int = option(3, "--brokers COUNT", "How many brokers.", min=1, max=100)
    port: int | None = option(
        None,
        "--port PORT",
        "The first broker's port, the others' follow; 0 takes any free ones.",
        min=0,
        max=_LAST_PORT,
        show_default=str(_DEFAULT_PORT),
    )
    host: str = option(
        "127.0.0.1", "--host HOST", "The address that the brokers listen on and advertise."
    )
    engine: str = option(
        "embedded",
        "--engine ENGINE",
        "embedded: brokers in this process, which start at once. kafka: Apache Kafka's "
        "brokers, which need Java, and Maven the first time.",
        autocompletion=options.choices(*_ENGINES),
    )
    kafka_version: options.Text = option(
        None,
        "--kafka-version VERSION",
        "The release for --engine kafka. Default: the one that this package is tested on.",
    )

    def maker(self, topics: Mapping[str, TopicSpec]) -> tuple[_Engine, str]:
        """Return the function that makes the cluster with topics, and the cluster's description."""
        if self.engine not in _ENGINES:
            raise ConfigError(f"--engine is {' or '.join(_ENGINES)}, not {self.engine!r}")
        if self.engine == "kafka":
            if self.port:
                raise ConfigError("--port is for the embedded engine; real brokers take free ports")
            return partial(_real_brokers, self.brokers, self.kafka_version, topics), "Kafka"
        first = _DEFAULT_PORT if self.port is None else self.port
        if first and first + self.brokers - 1 > _LAST_PORT:
            raise ConfigError(
                f"--port {first} leaves no room for {self.brokers} brokers: ports end at "
                f"{_LAST_PORT}"
            )
        ports = [first + index if first else 0 for index in range(self.brokers)]
        where = f"brokers at {self.host}, ports {ports[0]}-{ports[-1]}"
        return partial(_embedded, self.brokers, self.host, ports, topics), where


@grouped
def cluster(
    *,
    given: EngineOptions,
    topic: Annotated[
        options.Texts,
        parameter("--topic NAME[:PARTITIONS[:REPLICAS]]", "A topic to create; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, parameter("--json", "Print the first line as JSON, for scripts.")
    ] = False,
) -> int:
    """Run a Kafka cluster for development until Ctrl-C, which deletes its data.

    The first line of output has the bootstrap servers. It is printed when all brokers are ready.
    """
    topics = dict(_topic(text) for text in topic or ())
    make, where = given.maker(topics)
    if not is_this_machine(given.host.strip("[]")):
        say(
            f"warning: brokers at {printable(given.host)} serve every client that reaches this "
            "machine, and show it all records: there is neither TLS nor authentication",
            style="yellow",
        )
    return run_command(partial(_serve, make, where, list(topics), as_json=as_json))


async def _serve(
    make: _Engine, where: str, topics: Sequence[str], interrupts: Interrupts, *, as_json: bool
) -> int:
    ended = asyncio.Event()
    async with AsyncExitStack() as stack:
        try:
            running = await stack.enter_async_context(make())
        except (OSError, RuntimeError) as error:
            say(f"cannot start {where}: {getattr(error, 'strerror', None) or error}")
            return ExitCode.UNREACHABLE
        interrupts.on_stop(ended.set, message="the cluster; its data goes with it")
        servers = running.bootstrap_servers
        if as_json:
            print_json({"event": "ready", "bootstrap_servers": servers, "topics": topics})
        else:
            write_line(f"bootstrap servers: {servers}")
        say("ready; Ctrl-C ends it")
        await ended.wait()
    # Being interrupted is how this command is meant to end.
    return ExitCode.OK


def _embedded(
    brokers: int, host: str, ports: Sequence[int], topics: Mapping[str, TopicSpec]
) -> EmbeddedCluster:
    """Make the cluster with its topics: a client that waits for its ports would create them."""
    cluster = EmbeddedCluster(brokers, host, ports)
    for name, spec in topics.items():
        try:
            cluster.create_topic(name, spec)
        except RefusedError as refusal:
            raise error_from_code(refusal.code, refusal.message, topic=name) from refusal
    return cluster


@asynccontextmanager
async def _real_brokers(
    brokers: int, version: str | None, topics: Mapping[str, TopicSpec]
) -> AsyncIterator[_Running]:
    from aioproducer.testing.kafka import KafkaCluster
    from aioproducer.testing.kafka.release import DEFAULT_VERSION

    say("starting Kafka; the first time its jars are fetched")
    async with KafkaCluster(version or DEFAULT_VERSION, brokers) as cluster:
        for name, spec in topics.items():
            await create_topic(
                cluster.bootstrap_servers, name, spec.partitions, spec.replication_factor
            )
        yield cluster


def _topic(text: str) -> tuple[str, TopicSpec]:
    name, *numbers = (options.kafka_text(text) or "").split(":")
    if not name or len(numbers) > 2 or not all(map(str.isdecimal, numbers)):
        raise ConfigError(f"--topic takes NAME[:PARTITIONS[:REPLICAS]], not {text!r}")
    partitions, replicas = (*map(int, numbers), -1, -1)[:2]
    if partitions > _MOST_PARTITIONS or replicas > _MOST_REPLICAS:
        raise ConfigError(
            f"--topic takes at most {_MOST_PARTITIONS} partitions and {_MOST_REPLICAS} replicas, "
            f"not {text!r}"
        )
    return name, TopicSpec(partitions, replicas)
