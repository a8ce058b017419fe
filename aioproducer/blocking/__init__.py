"""The producer for synchronous callers: one event loop in a separate daemon thread.

Example:

    from aioproducer.blocking import Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        handle = producer.send("orders", b"value", key=b"key")
        print(handle.result(timeout=10).offset)
"""

from aioproducer.blocking.handle import DeliveryHandle
from aioproducer.blocking.producer import Producer
from aioproducer.blocking.transactions import Transaction

__all__ = ["DeliveryHandle", "Producer", "Transaction"]
