"""The TCP dialer: options, addresses, and no socket left behind."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from support import hostile
from support.hostile import HostileServer

from aioproducer.config.proxy_url import ProxyUrl
from aioproducer.errors import KafkaError
from aioproducer.net.dial.dialer import Address, TcpDialer
from aioproducer.net.dial.proxies import ProxyFailedError
from aioproducer.net.dial.user_dialer import OpenerDialer


async def open_socket(dialer: TcpDialer, server: HostileServer) -> asyncio.StreamWriter:
    (address,) = await dialer.resolve(server.host, server.port, canonical=False)
    _, writer = await dialer.connect(address, server_hostname=server.host, limit=65536)
    return writer


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


async def test_socket_options_are_set() -> None:
    async with HostileServer(hostile.silent) as server:
        dialer = TcpDialer(40_000, 30_000)
        writer = await open_socket(dialer, server)
        sock = writer.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Linux doubles what it is given, other systems keep it.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in {40_000, 80_000}
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in {30_000, 60_000}
        await close(writer)


@pytest.mark.parametrize("size", [-1, 0, None])
async def test_without_buffer_sizes_the_system_decides(size: int | None) -> None:
    async with HostileServer(hostile.silent) as server:
        with socket.socket() as untouched:
            default = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        dialer = TcpDialer() if size is None else TcpDialer(size, size)
        writer = await open_socket(dialer, server)
        sock = writer.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= default
        assert bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        await close(writer)


async def test_the_smallest_buffer_is_one_byte_which_the_system_raises_to_its_minimum() -> None:
    async with HostileServer(hostile.silent) as server:
        with socket.socket() as untouched:
            default = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        writer = await open_socket(TcpDialer(1, 1), server)
        sock = writer.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < default
        await close(writer)


async def test_a_socket_that_does_not_support_the_options_is_closed() -> None:
    address = Address("/nowhere", 9092, socket.AF_UNIX)
    with pytest.raises(OSError, match=r"\w"):
        await TcpDialer().connect(address, server_hostname="", limit=100)


@pytest.mark.parametrize("port", [1, 65535])
async def test_the_first_and_the_last_port_are_valid(port: int) -> None:
    (address,) = await TcpDialer().resolve("10.1.2.3", port, canonical=False)
    assert address == Address("10.1.2.3", port)


async def test_numeric_hosts_need_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise AssertionError("resolver asked")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    dialer = TcpDialer()
    assert await dialer.resolve("10.1.2.3", 9092, canonical=False) == [
        Address("10.1.2.3", 9092, socket.AF_INET)
    ]
    assert await dialer.resolve("::1", 9092, canonical=False) == [
        Address("::1", 9092, socket.AF_INET6)
    ]


async def test_a_name_resolves_to_all_its_addresses_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(host: str, port: int, **_options: Any) -> list[Any]:
        assert host == "kafka.example"
        v4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))
        v6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", port, 0, 3))
        return [v6, v4, v4]

    def reverse(where: tuple[Any, ...], _flags: int) -> tuple[str, str]:
        if where == ("10.0.0.1", 9092):
            return "one.example", "9092"
        assert where == ("fe80::1", 9092, 0, 3)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(socket, "getnameinfo", reverse)
    plain = await TcpDialer().resolve("kafka.example", 9092, canonical=False)
    assert plain == [
        Address("fe80::1", 9092, socket.AF_INET6, 3),
        Address("10.0.0.1", 9092, socket.AF_INET),
    ]
    assert [str(address) for address in plain] == ["[fe80::1]:9092", "10.0.0.1:9092"]
    canonical = await TcpDialer().resolve("kafka.example", 9092, canonical=True)
    assert [address.canonical_name for address in canonical] == ["fe80::1", "one.example"]


@pytest.mark.parametrize("name", ["a..example", ".example", "a b", "x" * 64])
async def test_a_name_of_a_reverse_lookup_that_is_none_of_a_host_is_not_used(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def reverse(_where: tuple[Any, ...], _flags: int) -> tuple[str, str]:
        return name, "9092"

    monkeypatch.setattr(socket, "getnameinfo", reverse)
    (address,) = await TcpDialer().resolve("127.0.0.1", 9092, canonical=True)
    assert address.canonical_name == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("127.0.0.1", 0), ("127.0.0.1", 70_000), ("h\0st", 9092), ("x" * 300, 9092)],
)
async def test_a_place_that_cannot_exist_is_an_os_error(host: str, port: int) -> None:
    with pytest.raises(OSError, match=r"\w"):
        await TcpDialer().resolve(host, port, canonical=False)


async def test_a_refused_connect_leaves_no_socket() -> None:
    async with HostileServer(hostile.silent) as server:
        address = Address(server.host, server.port)
    with pytest.raises(ConnectionRefusedError):
        await TcpDialer().connect(address, server_hostname="", limit=100)


async def test_a_cancelled_connect_leaves_no_socket() -> None:
    # A full backlog makes the connect hang, as packets swallowed by a firewall would.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = Address(*listener.getsockname())
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await TcpDialer().connect(address, server_hostname="", limit=100)
        finally:
            for filler in fillers:
                filler.close()


async def test_a_socket_that_met_itself_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with HostileServer(hostile.silent) as server:
        monkeypatch.setattr(
            socket.socket, "getsockname", lambda self: self.getpeername(), raising=False
        )
        with pytest.raises(ConnectionRefusedError, match="itself"):
            await open_socket(TcpDialer(), server)
        monkeypatch.undo()
        await server.until_idle()


@pytest.mark.parametrize("canonical", [False, True])
async def test_name_is_resolved_when_no_thread_can_be_made(
    canonical: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    dialer = TcpDialer()
    assert await dialer.resolve("localhost", 9092, canonical=canonical)
    with pytest.raises(OSError, match="is not a host name"):
        await dialer._resolve("a" * 64 + ".b", 9092, canonical)


async def test_a_resolver_that_hangs_leaves_the_pool_of_the_loop_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = threading.Event()

    def answer(_host: str, _port: int, **_options: Any) -> list[Any]:
        hangs.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    resolving = asyncio.create_task(TcpDialer().resolve("kafka.example", 9092, canonical=False))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(hangs.is_set) is False
    hangs.set()
    assert await resolving == []
    executor.shutdown()


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("", 9092),
        ("a\r\nX-Injected: y", 9092),
        ("a/../b", 9092),
        ("a b", 9092),
        ("user@a", 9092),
        ("h" * 30_000, 9092),
        ("a", 0),
        ("a", 65536),
    ],
)
@pytest.mark.parametrize("kind", ["tcp", "opener"])
async def test_what_is_no_host_reaches_neither_resolver_nor_the_users_function(
    kind: str, host: str, port: int
) -> None:
    opened: list[str] = []

    async def opener(host: str, port: int) -> Any:
        opened.append(host)
        raise OSError("not reached")

    dialer = TcpDialer() if kind == "tcp" else OpenerDialer(opener)
    with pytest.raises(OSError, match="not a host and port to connect to") as raised:
        await dialer.resolve(host, port, canonical=False)
    assert not opened
    assert len(str(raised.value)) < 300


# -- through a proxy -------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["sock_sendall", "sock_recv"])
async def test_a_proxy_that_breaks_off_is_named_as_the_cause(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reset(*_arguments: Any) -> Any:
        raise ConnectionResetError("reset by peer")

    async with HostileServer(hostile.silent) as server:
        dialer = TcpDialer(proxy=ProxyUrl("http", server.host, server.port))
        (address,) = await dialer.resolve("kafka.example", 9092, canonical=False)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), call, reset, raising=False)
            with pytest.raises(ProxyFailedError, match="connection to the proxy broke: reset by"):
                await dialer.connect(address, server_hostname="kafka.example", limit=100)
        await server.until_idle()


async def test_a_proxy_that_refuses_the_connection_is_named_as_the_cause() -> None:
    async with HostileServer(hostile.silent) as server:
        proxy = ProxyUrl("http", server.host, server.port)
    dialer = TcpDialer(proxy=proxy)
    (address,) = await dialer.resolve("kafka.example", 9092, canonical=False)
    with pytest.raises(ProxyFailedError, match="the proxy cannot be reached: connection refused"):
        await dialer.connect(address, server_hostname="kafka.example", limit=100)


async def test_a_proxy_whose_name_cannot_be_a_host_is_named_as_the_cause() -> None:
    dialer = TcpDialer(proxy=ProxyUrl("http", "x" * 70, 3128))
    with pytest.raises(ProxyFailedError, match=r"the proxy's name x+: 'x+' is not a host name"):
        await dialer.resolve("kafka.example", 9092, canonical=False)


async def test_the_name_of_a_proxy_is_not_looked_up_in_reverse() -> None:
    dialer = TcpDialer(proxy=ProxyUrl("http", "127.0.0.1", 3128))
    (address,) = await dialer.resolve("kafka.example", 9092, canonical=True)
    assert address.via == Address("127.0.0.1", 3128)


# -- by a function of the user ---------------------------------------------------------------------


async def test_the_streams_of_the_users_function_are_used() -> None:
    opened: list[tuple[str, int]] = []
    streams: Any = (SimpleNamespace(readexactly=None), SimpleNamespace(transport=None))

    async def opener(host: str, port: int) -> Any:
        opened.append((host, port))
        return streams

    dialer = OpenerDialer(opener)
    (address,) = await dialer.resolve("kafka.example", 9092, canonical=True)
    assert address == Address("kafka.example", 9092, socket.AF_UNSPEC)
    assert await dialer.connect(address, server_hostname="", limit=100) == streams
    assert opened == [("kafka.example", 9092)]


@pytest.mark.parametrize("error", [OSError("no"), ConnectionResetError("no"), KafkaError("no")])
async def test_a_failure_of_the_users_function_is_raised_as_it_is(error: Exception) -> None:
    async def opener(host: str, port: int) -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        await OpenerDialer(opener).connect(Address("a", 1), server_hostname="", limit=100)
    assert caught.value is error


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), asyncio.CancelledError()])
async def test_an_error_of_a_library_in_the_users_function_is_an_os_error(
    error: BaseException,
) -> None:
    async def opener(host: str, port: int) -> Any:
        raise error

    with pytest.raises(OSError, match=f"the dialer failed: {re.escape(repr(error))}") as caught:
        await OpenerDialer(opener).connect(Address("a", 1), server_hostname="", limit=100)
    assert caught.value.__cause__ is error


async def test_a_dial_that_is_cancelled_in_the_users_function_is_cancelled() -> None:
    async def opener(host: str, port: int) -> Any:
        await asyncio.sleep(1)

    connecting = OpenerDialer(opener).connect(Address("a", 1), server_hostname="", limit=100)
    dial = asyncio.create_task(connecting)
    await asyncio.sleep(0)
    dial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dial


@pytest.mark.parametrize("closing", [None, OSError("no"), "missing"])
async def test_streams_of_another_kind_are_closed_and_refused(closing: Any) -> None:
    """Those of an SSH library, for example, have no transport."""
    closed: list[bool] = []

    class SshStream:
        if closing != "missing":

            def close(self) -> None:
                closed.append(True)
                if closing is not None:
                    raise closing

    async def opener(host: str, port: int) -> Any:
        return asyncio.StreamReader(), SshStream()

    with pytest.raises(OSError, match="StreamWriter, not StreamReader and SshS"):
        await OpenerDialer(opener).connect(Address("a", 1), server_hostname="", limit=100)
    assert closed == ([] if closing == "missing" else [True])
