"""What a topic may be called.

Owns: Kafka's rule for names (`Topic.validate`). Must not know: which topics there are.
"""

from __future__ import annotations

import re

from aioproducer.errors import InvalidTopicError

_LONGEST_NAME = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: object) -> None:
    """Refuses what no broker takes for a topic's name (Kafka: `Topic.validate`).

    Raises:
        InvalidTopicError: it is no str, or empty, too long, `.`, `..` or has other characters.
    """
    if not isinstance(name, str):
        raise InvalidTopicError(f"a topic's name is a str, not {type(name).__name__}")
    if name in {".", ".."} or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidTopicError(
            f"{name[:_LONGEST_NAME]!r} is no topic name: 1 to {_LONGEST_NAME} of the characters "
            "a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
        )
