"""Processes in separate network namespaces, with a cable between two of them.

Owns: the namespaces' processes, addresses and hosts files, and talking to the agent in each. Not
here: what an agent does.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.namespaces.cable import TUN_DEVICE, Cable, Direction

BROKERS, MOVED_BROKERS, CLIENT = "10.199.1.1", "10.199.1.3", "10.199.1.2"
"""The brokers' host has two addresses, so that a cluster can move."""

BROKERS_IPV6, _CLIENT_IPV6 = "fd00:199::1", "fd00:199::2"
_TIMEOUT_S = 120.0
_LINE_BYTES = 64 << 20
_SOON_S = 10.0
_IN_NAMESPACE = 'mount --bind "$0" /etc/hosts && ip link set lo up && exec "$@"'


def what_is_missing() -> str | None:
    """The reason why namespaces cannot be used here; None where they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        return f"there is no {TUN_DEVICE}"
    for program in ("ip", "unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    attempt = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"],
        capture_output=True,
        check=False,
        timeout=_SOON_S,
    )
    if attempt.returncode:
        return f"they are not permitted here ({attempt.stderr.decode().strip()})"
    return None


class Host:
    """One process in its own network and mount namespace, which takes orders as lines of JSON."""

    def __init__(self, name: str, hosts_file: Path) -> None:
        self.name = name
        self._hosts_file = hosts_file
        self._process: asyncio.subprocess.Process | None = None

    def resolve_to(self, **names: Sequence[str]) -> None:
        """The addresses of names on this host, from now on (a dot is written as `_`)."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for name, addresses in names.items():
            lines += [f"{address} {name.replace('_', '.')}" for address in addresses]
        # In place: the file is mounted.
        self._hosts_file.write_text("\n".join(lines) + "\n")

    async def start(self, agent: str) -> None:
        """Start the agent in new namespaces."""
        self.resolve_to()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "--mount", "sh", "-c", _IN_NAMESPACE, str(self._hosts_file)),
            *(sys.executable, "-m", "support.namespaces.agents", agent),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env=environment,
        )
        await self._wait_for_namespace()

    async def plug_in(self, device: str, *addresses: str) -> None:
        """Give the host the end of a cable."""
        await _run("ip", "link", "set", "dev", device, "netns", str(self.pid))
        for address in addresses:
            # Duplicates are impossible, and detecting them would take a second.
            words = (f"{address}/64", "nodad") if ":" in address else (f"{address}/24",)
            await self._ip("addr", "add", *words, "dev", device)
        await self._ip("link", "set", "dev", device, "up")

    @property
    def pid(self) -> int:
        """Of the process that keeps the namespaces alive."""
        if self._process is None:
            raise RuntimeError("the host is not started")
        return self._process.pid

    async def order(self, what: str, **details: Any) -> Any:
        """Have the agent do something; gives its answer.

        Raises:
            RuntimeError: It failed.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the host is not started")
        process.stdin.write(json.dumps([what, details]).encode() + b"\n")
        async with asyncio.timeout(_TIMEOUT_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent of {self.name} is gone at {what}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {what}: {answer['error']}")
        return answer["result"]

    async def close(self) -> None:
        """End the agent, and with it everything on the host."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # the agent ends in good order, and what it started with it
        try:
            async with asyncio.timeout(_SOON_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _ip(self, *words: str) -> None:
        await _run("nsenter", "-t", str(self.pid), "-n", "ip", *words)

    async def _wait_for_namespace(self) -> None:
        def moved() -> bool:
            own, its = (Path(f"/proc/{who}/ns/net").readlink() for who in ("self", self.pid))
            return own != its

        await _until(moved)


@dataclass
class Network:
    """Two hosts and the cable between them."""

    brokers: Host
    client: Host
    cable: Cable


@asynccontextmanager
async def two_hosts(directory: Path, brokers: str = "brokers") -> AsyncIterator[Network]:
    """A host with brokers and one with a producer; `brokers` names the agent of the first."""
    cable = Cable()
    network = Network(
        Host("brokers", directory / "brokers.hosts"),
        Host("client", directory / "client.hosts"),
        cable,
    )
    try:
        await asyncio.gather(network.brokers.start(brokers), network.client.start("producer"))
        device = cable.plug(Direction.FROM_BROKERS)
        await network.brokers.plug_in(device, BROKERS, MOVED_BROKERS, BROKERS_IPV6)
        device = cable.plug(Direction.TO_BROKERS)
        await network.client.plug_in(device, CLIENT, _CLIENT_IPV6)
        cable.start()
        yield network
    finally:
        cable.close()
        await asyncio.gather(network.brokers.close(), network.client.close())


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, complaint = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {complaint.decode().strip()}")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SOON_S):
        while not condition():  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.01)
