"""Real Kafka for tests and demos: brokers in JVMs, in containers, or an existing cluster.

    with KafkaCluster(version="4.3.1", brokers=3) as cluster:
        produce_to(cluster.bootstrap_servers)
        cluster.kill(2)
        cluster.start(2)
        cluster.wait_ready()

`choose_backend()` gives what this machine has. Methods block; `async with` and
`asyncio.to_thread(cluster.kill, 2)` serve asyncio code.
"""

from aioproducer.testing.kafka.backends import ExternalCluster, choose_backend
from aioproducer.testing.kafka.base import KafkaBackend
from aioproducer.testing.kafka.cluster import KafkaCluster
from aioproducer.testing.kafka.containers import ContainerCluster
from aioproducer.testing.kafka.errors import (
    ClusterError,
    ClusterTimeoutError,
    JavaError,
    NotSupportedByBackendError,
)
from aioproducer.testing.kafka.legacy import LegacyKafkaCluster
from aioproducer.testing.kafka.release import DEFAULT_VERSION

__all__ = [
    "DEFAULT_VERSION",
    "ClusterError",
    "ClusterTimeoutError",
    "ContainerCluster",
    "ExternalCluster",
    "JavaError",
    "KafkaBackend",
    "KafkaCluster",
    "LegacyKafkaCluster",
    "NotSupportedByBackendError",
    "choose_backend",
]
