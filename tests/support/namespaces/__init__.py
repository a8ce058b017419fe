"""Separate hosts on this machine, and a cable with faults between them.

    async with two_hosts(directory) as network:
        network.cable.weather = Weather(loss=0.1)

A host is a process in its own network namespace. The cable is a thread of the test that carries
IP packets between their TUN devices, so that it can delay, lose and swallow them in each direction
without any help of the kernel (`netem` is often missing). Nothing outside the namespaces is
touched, and they end with their processes.
"""

from support.namespaces.cable import Cable, Direction, Weather
from support.namespaces.hosts import (
    BROKERS,
    BROKERS_IPV6,
    MOVED_BROKERS,
    Host,
    Network,
    two_hosts,
    what_is_missing,
)
from support.namespaces.trial import Trial

__all__ = [
    "BROKERS",
    "BROKERS_IPV6",
    "MOVED_BROKERS",
    "Cable",
    "Direction",
    "Host",
    "Network",
    "Trial",
    "Weather",
    "two_hosts",
    "what_is_missing",
]
