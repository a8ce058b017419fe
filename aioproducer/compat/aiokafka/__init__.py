"""aiokafka 0.14's producer with one import changed.

    from aioproducer.compat.aiokafka import AIOKafkaProducer  # was: from aiokafka import ...

aiokafka need not be installed. Where it is, `import aioproducer.compat.aiokafka as aiokafka` serves
for the whole module: names that are not here, such as `AIOKafkaConsumer` and `admin`, are
aiokafka's own. `errors`, `structs`, `helpers`, `abc` and `partitioner` are modules here as they are
there. aiokafka's consumers work with this producer: their `TopicPartition` and `OffsetAndMetadata`,
the consumers themselves (as `group_id`) and token providers are taken as they are.

Errors have aiokafka's names, codes and attributes, and details in `__cause__`. Where aiokafka is
installed they are instances of its classes as well, so that a handler such as
`except aiokafka.errors.KafkaError` needs no change. In a program that has imported it, results are
its named tuples.

What differs on purpose (aiokafka -> here):

- a transaction can be committed although one of its records failed -> the commit raises that
  record's error, and the transaction has to be aborted
- `stop()`, a commit and an idempotent record can wait for ever -> each wait ends: calls after
  `request_timeout_ms`, records after the time of the next line
- a batch fails `request_timeout_ms` after its creation, an idempotent one never -> it fails after
  twice `request_timeout_ms` plus `linger_ms`; with idempotence after at least two minutes
- every record of a batch reports the timestamp of the first -> each reports its own
- a failed `start()` leaves connections open -> nothing is left open; `start()` may be repeated
- `start()` fails with the first refused connection -> it retries for `request_timeout_ms`
- `send()` waits for a topic with an invalid name -> InvalidTopicError at once
- a second `start()` leaks connections -> it has no effect
- `send()` before `start()` hangs -> IllegalStateError
- after an expired or refused batch of an idempotent producer every later one fails -> later ones
  are sent (KIP-360)
- a record that the broker refuses fails its whole batch -> only that record fails; the records of
  one `send_batch()` fail together
- begin, commit or abort at the wrong time is an AssertionError, and nothing under `python -O` ->
  IllegalOperation, always
- after a fatal error: AssertionError -> that error again: ProducerFenced and others
- `abort_transaction()` sends what is queued first -> records not yet sent fail with KafkaError
- negative timestamps and offsets are sent -> ValueError
- wrong addresses, negative times and sizes are noticed late or never -> the constructor raises
  ValueError
- `send_batch()` of another object ends the producer -> TypeError
- the constructor needs a running loop -> it needs none; the producer belongs to the loop of
  `start()`
- each record without a key gets a random partition -> each batch does, with equal shares of bytes
  (KIP-794)
- the buffer has one batch per partition -> it has 32 MiB for all partitions
- `producer.client` is aiokafka's client -> a view: what OpenTelemetry, ddtrace, kstreams and
  faust use of it (`_client.ClientView`)
- `sasl_kerberos_domain_name` is used -> ValueError: brokers go by their own host names
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import forwarded, version_of
from aioproducer.compat.aiokafka import (
    _abc,
    _errors,
    _structs,
    abc,
    errors,
    helpers,
    partitioner,
    structs,
)
from aioproducer.compat.aiokafka.producer import AIOKafkaProducer

if TYPE_CHECKING:
    from aioproducer.compat.aiokafka.abc import ConsumerRebalanceListener
    from aioproducer.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
    from aioproducer.compat.aiokafka.structs import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
    )

__all__ = [
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "abc",
    "errors",
    "helpers",
    "partitioner",
    "structs",
]

_INTERFACE_VERSION = "0.14.0"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version_of("aiokafka", _INTERFACE_VERSION)
    for module, own in ((structs, _structs), (abc, _abc), (errors, _errors)):
        if name in __all__ and hasattr(own, name):
            return getattr(module, name)
    return forwarded(name, __name__, "aiokafka", "aiokafka")
