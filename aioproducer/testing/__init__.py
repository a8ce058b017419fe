"""Kafka for tests: embedded and virtual clusters, a mock, real brokers on the JVM, and readers.

Nothing that produces imports this package.
"""

from typing import TYPE_CHECKING

from aioproducer._util.lazy import lazy_names

if TYPE_CHECKING:
    from aioproducer.testing.admin import create_topic as create_topic
    from aioproducer.testing.admin import delete_topic as delete_topic
    from aioproducer.testing.admin import list_topics as list_topics
    from aioproducer.testing.broker import BrokerSpec as BrokerSpec
    from aioproducer.testing.broker import ClusterSettings as ClusterSettings
    from aioproducer.testing.broker import ClusterState as ClusterState
    from aioproducer.testing.broker import Faults as Faults
    from aioproducer.testing.broker import TopicSpec as TopicSpec
    from aioproducer.testing.embedded import EmbeddedCluster as EmbeddedCluster
    from aioproducer.testing.embedded import serve as serve
    from aioproducer.testing.faults import FaultScript as FaultScript
    from aioproducer.testing.mock_producer import MockProducer as MockProducer
    from aioproducer.testing.mock_records import MockRecord as MockRecord
    from aioproducer.testing.reader import end_offsets as end_offsets
    from aioproducer.testing.reader import read_topic as read_topic
    from aioproducer.testing.reader import stream_batches as stream_batches
    from aioproducer.testing.reader import stream_topic as stream_topic
    from aioproducer.testing.schema_registry import StubSchemaRegistry as StubSchemaRegistry
    from aioproducer.testing.threaded import ThreadedCluster as ThreadedCluster
    from aioproducer.testing.virtual import VirtualKafka as VirtualKafka
    from aioproducer.testing.virtual import run_virtual as run_virtual

_NAMES = {
    "admin": "create_topic delete_topic list_topics",
    "broker": "BrokerSpec ClusterSettings ClusterState Faults TopicSpec",
    "embedded": "EmbeddedCluster serve",
    "faults": "FaultScript",
    "mock_producer": "MockProducer",
    "mock_records": "MockRecord",
    "reader": "end_offsets read_topic stream_batches stream_topic",
    "schema_registry": "StubSchemaRegistry",
    "threaded": "ThreadedCluster",
    "virtual": "VirtualKafka run_virtual",
}

__all__ = [name for names in _NAMES.values() for name in names.split()]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = lazy_names(__name__, _NAMES)
