"""A multi-broker Kafka as a pure state machine.

`aioproducer.testing.embedded` serves it on TCP.

    settings, refusal < log, producers, markers, telemetry < topics, placement, validation
        < transactions/* < shared_state < api/* < dispatch < cluster
"""

from aioproducer.testing.broker.cluster import ClusterState
from aioproducer.testing.broker.dispatch import Reply, RequestWait
from aioproducer.testing.broker.faults import ConnectionFault, ErrorAnswer, Fault, Faults
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import (
    BrokerSpec,
    ClusterSettings,
    TopicSpec,
    UnknownProducers,
)
from aioproducer.testing.broker.telemetry import ReceivedMetrics, TelemetrySubscription

__all__ = [
    "BrokerSpec",
    "ClusterSettings",
    "ClusterState",
    "ConnectionFault",
    "ErrorAnswer",
    "Fault",
    "Faults",
    "ReceivedMetrics",
    "RefusedError",
    "Reply",
    "RequestWait",
    "TelemetrySubscription",
    "TopicSpec",
    "UnknownProducers",
]
