"""A connection that one side did not close is seen."""

from __future__ import annotations

import socket

from support.sockets import in_close_wait, ports_of


def test_an_abandoned_connection_is_seen_until_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()
            assert client.recv(1) == b""
            assert len(in_close_wait({port})) == 1
            assert in_close_wait({1}) == []
        assert in_close_wait({port}) == []


def test_ports_are_found_in_every_form_of_a_server() -> None:
    assert ports_of("127.0.0.1:9092,[::1]:9093,kafka:9094") == {9092, 9093, 9094}
