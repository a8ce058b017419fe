"""Makes the pictures of the command line in `aioproducer/docs/images` from real runs.

`make screenshots`: embedded brokers on fixed ports, the commands as users run them, what they print
as SVG. Needs what the tests need (`cryptography` for a certificate that has expired).
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.security.certificates import Authority  # noqa: E402

from aioproducer import ProducerConfig  # noqa: E402
from aioproducer.cli.connecting import started_producer  # noqa: E402
from aioproducer.cli.perf.display import PerfTable  # noqa: E402
from aioproducer.cli.perf.run import Measurement, PerfPlan, PerfRun  # noqa: E402
from aioproducer.testing import EmbeddedCluster  # noqa: E402
from aioproducer.testing.broker import TopicSpec  # noqa: E402
from aioproducer.testing.security import ListenerSecurity  # noqa: E402

IMAGES = ROOT / "aioproducer" / "docs" / "images"
PORTS = (19092, 19093, 19094)
SERVER = f"localhost:{PORTS[0]}"
WIDTH = 110
ROWS = 40_000


async def main() -> None:
    """Makes all of them."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    await shoot("help", "aioproducer --help")
    topics = {"orders": TopicSpec(6, 3, {"min.insync.replicas": "2"}), "test": 3}
    async with EmbeddedCluster(3, "localhost", PORTS, topics) as cluster:
        await shoot("doctor-well", f"aioproducer doctor -b {SERVER} -t orders")
        await shoot_load()
        await shoot_perf()
        cluster.state.set_broker_address(3, "kafka-3", 29092)
        await cluster.stop_broker(2)
        await shoot("doctor-ill", f"aioproducer doctor -b {SERVER} -t orders")
    await shoot_expired()


async def shoot(name: str, command: str, *, folder: Path | None = None) -> None:
    """Runs a command and draws what it prints."""
    _, *arguments = command.split()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioproducer", *arguments),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "FORCE_COLOR": "1",
            "COLUMNS": str(WIDTH),
            "TERM": "xterm-256color",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    lines = [Text.from_ansi(printed.decode())]
    if process.returncode:
        lines.append(Text.assemble(prompt("echo $?"), f"\n{process.returncode}"))
    draw(name, [prompt(command), *lines])


async def shoot_load() -> None:
    """A load with a row that is no good."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder, "orders.csv"))
        command = "aioproducer load orders.csv -t orders --key id --dead-letter bad.ndjson --quiet"
        await shoot("load", f"{command} -b {SERVER}", folder=Path(folder))


def write_rows(file: Path) -> None:
    """Orders, one of them cut off."""
    rows = [f"{number},Customer {number % 977},{number % 100}.50" for number in range(ROWS)]
    rows[1234] = "1234,a row that is cut off"
    file.write_text("id,customer,amount\n" + "\n".join(rows) + "\n")


async def shoot_perf() -> None:
    """The table that a terminal shows while a run goes on, at the end of one."""
    plan = PerfPlan("test", 16_000, 500, 2_000.0)
    table = PerfTable(plan)
    async with started_producer(ProducerConfig(bootstrap_servers=SERVER)) as producer:
        await producer.warm_up([plan.topic])
        run = PerfRun(producer, plan, Measurement(), every_s=1.0, on_interval=table.show)
        await run.run()
    command = f"aioproducer perf -b {SERVER} -t test -s 500 --throughput 2000"
    draw("perf", [prompt(command), table.table()])


async def shoot_expired() -> None:
    """A broker whose certificate has expired."""
    authority = Authority("Example CA")
    with tempfile.TemporaryDirectory() as folder:
        identity = authority.issue("kafka.example", "localhost", expired=True)
        context = authority.server_context(identity, Path(folder))
        write_client(Path(folder), authority)
        security = ListenerSecurity(ssl_context=context)
        async with EmbeddedCluster(1, "localhost", PORTS[:1], security=security):
            command = f"aioproducer doctor -b {SERVER} --config client.properties"
            await shoot("doctor-tls", command, folder=Path(folder))


def write_client(folder: Path, authority: Authority) -> None:
    """The options of a client that trusts the authority."""
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "client.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
    )


def prompt(command: str) -> Text:
    """Return a command as it is typed after a shell's prompt."""
    return Text.assemble(("$ ", "bold green"), (command, "bold"))


def draw(name: str, parts: Sequence[RenderableType]) -> None:
    """Writes a terminal with these parts as an SVG file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for part in parts:
        console.print(part, highlight=False)
    path = IMAGES / f"{name}.svg"
    console.save_svg(str(path), title="aioproducer", unique_id=name)
    # Fonts of other sites are none of the documentation's business.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", path.read_text("utf-8"), flags=re.DOTALL)
    path.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", "utf-8")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    asyncio.run(main())
