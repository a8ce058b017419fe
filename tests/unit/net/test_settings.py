"""The defaults of the network layer."""

from __future__ import annotations

from dataclasses import asdict

from aioproducer import ProducerConfig
from aioproducer.net.settings import NetSettings
from aioproducer.runtime.settings import net_settings

OF_ONE_PRODUCER = {"client_id", "principal", "software_version", "old_broker_versions"}


def test_the_defaults_are_those_of_the_options_of_a_producer() -> None:
    of_options = asdict(net_settings(ProducerConfig(bootstrap_servers="kafka:9092")))
    defaults = asdict(NetSettings())
    for name in defaults.keys() - OF_ONE_PRODUCER:
        assert defaults[name] == of_options[name], name
