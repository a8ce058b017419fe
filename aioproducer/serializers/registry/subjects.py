"""The subject of a schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from aioproducer.serializers.protocol import SerializationContext
from aioproducer.serializers.registry.schema import schema_error

_CONTEXT: Final = re.compile(r":\.[^:]*:")
"""The beginning of a subject that names its context."""

SubjectStrategy = Callable[[SerializationContext, str | None], str]
"""`(context, the schema's full name or None) -> subject`.

It is called for every record, so it may choose by topic, part and headers.
"""

ReferenceSubjectStrategy = Callable[[SerializationContext, str], str]
"""`(context, the name of an import) -> the subject of what is imported`."""


def import_name(context: SerializationContext, name: str) -> str:
    """Return the import, such as `shop/common.proto`: the default for Protobuf's imports."""
    del context
    return name


def topic_name(context: SerializationContext, name: str | None) -> str:
    """`<topic>-key` or `<topic>-value`: one schema's history per topic, the default."""
    del name
    return f"{context.topic}-{context.part}"


def record_name(context: SerializationContext, name: str | None) -> str:
    """Return the schema's full name: one history in every topic; topics may mix schemas."""
    if not name:
        raise schema_error(context, "the schema has no name to make a subject of")
    return name


def topic_record_name(context: SerializationContext, name: str | None) -> str:
    """Return `<topic>-<full name>`: topics may mix schemas, each with its own history."""
    return f"{context.topic}-{record_name(context, name)}"


def in_context_of(parent: str, subject: str) -> str:
    """Return the subject of a reference, which is in the context of its parent unless it names one.

    Java's client and the registry resolve references so.
    """
    context = _CONTEXT.match(parent)
    return subject if context is None or _CONTEXT.match(subject) else context.group() + subject
