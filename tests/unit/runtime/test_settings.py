"""The settings that the network layer gets from the options."""

from __future__ import annotations

import pytest

from aioproducer import ProducerConfig
from aioproducer.net.dial.dialer import TcpDialer
from aioproducer.net.dial.user_dialer import OpenerDialer
from aioproducer.net.security.tls_dialer import TlsDialer
from aioproducer.runtime.settings import make_dialer, net_settings


def config(**options: object) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="kafka:9092", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("idle_ms", "idle_s"), [(540_000, 540.0), (1, 0.001), (0, None), (-1, None)]
)
def test_the_idle_time_may_be_switched_off(idle_ms: int, idle_s: float | None) -> None:
    assert net_settings(config(connections_max_idle_ms=idle_ms)).connections_max_idle_s == idle_s


def test_canonical_names_are_asked_for_as_the_lookup_says() -> None:
    assert not net_settings(config(client_dns_lookup="use_all_dns_ips")).dns_canonical
    canonical = "resolve_canonical_bootstrap_servers_only"
    assert net_settings(config(client_dns_lookup=canonical)).dns_canonical


def test_tls_goes_on_top_of_every_way() -> None:
    async def dial(host: str, port: int) -> object:
        raise OSError

    for options, kind in (
        ({}, TcpDialer),
        ({"proxy_url": "http://proxy:3128"}, TcpDialer),
        ({"dialer": dial}, OpenerDialer),
    ):
        assert type(make_dialer(config(**options))) is kind
        secured = make_dialer(config(security_protocol="SSL", **options))
        assert type(secured) is TlsDialer
        assert type(secured._below) is kind


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://issuer.example/token?key=hunter2", True),
        ("HTTP://10.0.0.1:8080/token", True),
        ("http://localhost.example/token", True),
        ("http://localhost:8080/token", False),
        ("http://[::1]/token", False),
        ("https://issuer.example/token", False),
    ],
)
def test_a_token_endpoint_without_tls_is_warned_of(
    url: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net_settings(
        config(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_credentials_client_id="me",
            sasl_oauthbearer_client_credentials_client_secret="secret",
        )
    )
    assert ("can be read on the way to the token endpoint" in caplog.text) is warns
    assert "hunter2" not in caplog.text
