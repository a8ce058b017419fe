"""The simulated network: order, pieces, windows, disturbances, ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from aioproducer.net.dial.dialer import Address
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.network import SimConnection, SimNetwork
from aioproducer.testing.world.trace import Trace
from aioproducer.testing.world.weather import Condition, Direction, Effect

_ADDRESS = Address("10.0.0.1", 9092)
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Broker:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.is_off = False
        self.is_listening = True
        self.received = bytearray()
        self.pieces = 0
        self.gone = False
        self.connection: SimConnection | None = None

    def accept(self, connection: SimConnection) -> _Broker | None:
        self.connection = connection
        return self if self.is_listening else None

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces += 1

    def peer_gone(self) -> None:
        self.gone = True


class _Net:
    def __init__(self, seed: int = 1, window: int = 1 << 20) -> None:
        self.loop = VirtualLoop(random.Random(seed))
        self.network = SimNetwork(
            self.loop,
            random.Random(seed),
            Trace(self.loop.time),
            window=window,
            base_latency_s=0.01,
        )
        self.broker = _Broker()
        self.network.listen(1, "b", self.broker)

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        async def play() -> None:
            await work()

        try:
            self.loop.run_until_complete(play())
            assert self.loop.failures == []
        finally:
            self.loop.close()

    async def dial(self) -> _Streams:
        return await self.network.connect(_ADDRESS, server_hostname="b", limit=65536)

    @property
    def connection(self) -> SimConnection:
        assert self.broker.connection is not None
        return self.broker.connection


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_in_pieces_of_any_size(seed: int) -> None:
    net = _Net(seed, window=100)
    sent = [random.Random(seed).randbytes(i * 7) for i in range(40)]

    async def work() -> None:
        reader, writer = await net.dial()
        for data in sent:
            writer.write(data)
            await writer.drain()
        await asyncio.sleep(60)
        net.connection.write(b"".join(sent))
        assert await reader.readexactly(len(b"".join(sent))) == b"".join(sent)
        writer.close()
        await writer.wait_closed()

    net.run(work)
    assert bytes(net.broker.received) == b"".join(sent)
    assert net.broker.pieces > 1


def test_a_name_may_have_a_first_address_that_closes_connections() -> None:
    net = _Net()
    net.network.first_address_closes = True

    async def work() -> None:
        first, second = await net.network.resolve("b", 9092, canonical=False)
        reader, writer = await net.network.connect(first, server_hostname="b", limit=65536)
        writer.write(b"a")
        assert await reader.read() == b""
        writer.close()
        assert second == _ADDRESS

    net.run(work)
    assert net.broker.connection is None


def test_memory_changed_before_it_left_shows_at_the_broker() -> None:
    net = _Net(window=10)

    async def work() -> None:
        _, writer = await net.dial()
        memory = bytearray(b"a" * 100)
        writer.writelines([memoryview(memory)])
        memory[:] = b"b" * 100
        await asyncio.sleep(60)
        writer.close()

        assert net.connection.transport is not None
        assert net.connection.transport.memory_changed

    net.run(work)
    assert net.broker.received == b"a" * 10 + b"b" * 90


def test_memory_changed_before_the_connection_ended_is_noticed_though_it_never_left() -> None:
    net = _Net(window=10)

    async def work() -> None:
        _, writer = await net.dial()
        memory = bytearray(100)
        writer.writelines([memoryview(memory)])
        memory[50] = 1
        writer.transport.abort()
        assert net.connection.transport is not None
        assert net.connection.transport.memory_changed

    net.run(work)


@pytest.mark.parametrize(("pause", "too_early"), [(0.5, True), (1.5, False)])
def test_a_client_that_writes_while_it_is_throttled_is_noticed(
    pause: float, too_early: bool
) -> None:
    net = _Net()

    async def work() -> None:
        reader, writer = await net.dial()
        net.connection.write(b"quiet!", quiet_s=1.0)
        await reader.readexactly(6)
        await asyncio.sleep(pause)
        writer.write(b"x")
        assert net.connection.transport is not None
        assert net.connection.transport.spoke_too_early == too_early
        writer.close()

    net.run(work)


def test_a_broker_that_does_not_read_fills_the_window() -> None:
    net = _Net(window=10)

    async def work() -> None:
        _, writer = await net.dial()
        net.connection.stop_reading()
        writer.write(bytes(100))
        await asyncio.sleep(60)
        assert writer.transport.get_write_buffer_size() == 90
        net.connection.start_reading()
        await asyncio.sleep(60)
        assert len(net.broker.received) == 100
        writer.close()

    net.run(work)


def test_through_a_narrow_link_bytes_go_slowly() -> None:
    net = _Net()
    net.network.weather.add(Condition(Effect.NARROW, 1, until=100.0, bytes_per_s=1000.0))

    async def work() -> None:
        _, writer = await net.dial()
        writer.write(bytes(2000))
        await asyncio.sleep(0.5)
        assert 0 < len(net.broker.received) < 2000
        await asyncio.sleep(20)
        assert len(net.broker.received) == 2000
        writer.close()

    net.run(work)


def test_a_black_hole_delays_bytes_and_loses_none() -> None:
    net = _Net()

    async def work() -> None:
        _, writer = await net.dial()
        condition = net.network.weather.add(
            Condition(Effect.HELD, 1, until=10.0, direction=Direction.TO_BROKER)
        )
        writer.write(b"late")
        await asyncio.sleep(5)
        assert not net.broker.received
        await asyncio.sleep(6)
        assert net.broker.received == b"late"
        assert condition.hits > 0
        writer.close()

    net.run(work)


def test_a_reset_reaches_the_reader_as_an_error_and_a_close_as_an_end() -> None:
    net = _Net()

    async def work() -> None:
        reader, writer = await net.dial()
        net.connection.reset()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()
        reader, writer = await net.dial()
        net.connection.write(b"last")
        net.connection.close()
        assert await reader.read() == b"last"
        writer.close()

    net.run(work)


def test_after_a_half_close_the_broker_still_receives() -> None:
    net = _Net()

    async def work() -> None:
        reader, writer = await net.dial()
        net.connection.finish()
        assert await reader.read() == b""
        writer.write(b"more")
        await asyncio.sleep(1)
        assert net.broker.received == b"more"
        writer.close()

    net.run(work)


def test_a_machine_that_went_off_says_nothing_and_resets_once_it_is_back() -> None:
    net = _Net()

    async def work() -> None:
        reader, writer = await net.dial()
        net.connection.vanish()
        net.broker.is_off = True
        writer.write(b"hello?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 30)
        net.broker.is_off = False
        writer.write(b"hello?")
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()

    net.run(work)


@pytest.mark.parametrize("effect", [Effect.REFUSING, Effect.NO_NAME])
def test_dials_fail_with_an_oserror(effect: Effect) -> None:
    net = _Net()
    condition = net.network.weather.add(Condition(effect, 1, until=10.0))

    async def work() -> None:
        with pytest.raises(OSError):
            for address in await net.network.resolve("b", 9092, canonical=False):
                await net.network.connect(address, server_hostname="b", limit=65536)
        await asyncio.sleep(10)
        await net.network.resolve("b", 9092, canonical=False)
        _, writer = await net.dial()
        writer.close()

    net.run(work)
    assert condition.hits == 1


def test_a_slow_accept_takes_its_time() -> None:
    net = _Net()
    net.network.weather.add(Condition(Effect.SLOW_ACCEPT, None, until=10.0, seconds=3.0))

    async def work() -> None:
        _, writer = await net.dial()
        assert net.loop.time() > 3
        writer.close()

    net.run(work)


def test_a_broker_that_has_moved_to_another_port_refuses_dials_to_the_former_one() -> None:
    net = _Net()
    net.network.name(1, "b", 9093)

    async def work() -> None:
        for port, is_refused in ((9092, True), (9093, False)):
            (address,) = await net.network.resolve("b", port, canonical=False)
            dial = net.network.connect(address, server_hostname="b", limit=65536)
            if is_refused:
                with pytest.raises(ConnectionRefusedError):
                    await dial
            else:
                _, writer = await dial
                writer.close()

    net.run(work)
