"""The table of every name that options have in other clients, with what it means here.

The names are Java's (producer, consumer, admin, Streams, Connect, its serializers and Confluent's),
librdkafka's and confluent-kafka's, aiokafka's, kafka-python's and those of Kafka 0.8.

This module is imported when a name is none of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer.config.aliases import ALIASES
from aioproducer.config.other_clients import ELSEWHERE, FOR_PRODUCERS, PREFIXES
from aioproducer.config.verdicts import Refused, Verdict, WithoutEffect

VERDICTS: Final[Mapping[str, Verdict]] = MappingProxyType({**ALIASES, **ELSEWHERE})
"""By the name that the other client documents."""


_BY_KEY: Final = {name.replace(".", "_"): verdict for name, verdict in VERDICTS.items()}


def verdict_on(name: str) -> Verdict | None:
    """Return what another client's name means here; None for a name that is in no table."""
    verdict = _BY_KEY.get(name.replace(".", "_"))
    if verdict is not None:
        return verdict
    for prefix in FOR_PRODUCERS:
        if name.startswith(prefix):
            return Refused(
                "it is for producers inside Kafka Streams or Connect",
                f"give {name.removeprefix(prefix)} itself",
            )
    reasons = (reason for prefix, reason in PREFIXES.items() if name.startswith(prefix))
    reason = next(reasons, None)
    return None if reason is None else WithoutEffect(reason)
