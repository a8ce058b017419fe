"""What a registry's refusals mean.

Owns: the mapping of its HTTP statuses and codes to our errors, and what of its text is shown. Must
not know: connections, retries.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from aioproducer.errors import IncompatibleSchemaError, SchemaNotFoundError, SchemaRegistryError

_LONGEST_TEXT: Final = 2000
_DETAIL = re.compile(r"description:'(.*?)', additionalInfo", re.DOTALL)

RETRIABLE_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Another try may help: overload, timeouts, a leader that moves (Confluent's 500xx)."""

_ADVICE: Final = {
    401: "check the credentials given to SchemaRegistry",
    403: "grant the registry's user the missing permission",
}


def refusal_of(status: int, body: bytes, what: str) -> SchemaRegistryError:
    """The error for an answer that is none of success.

    Args:
        status: the HTTP status.
        body: the answer's body, which may be anything.
        what: what was asked for.
    """
    answer = _as_object(body)
    code, text = answer.get("error_code"), answer.get("message")
    reason = text[:_LONGEST_TEXT] if isinstance(text, str) else f"HTTP {status}"
    error: SchemaRegistryError
    if status == 404:
        error = SchemaNotFoundError(f"{what}: {reason}")
    elif status == 409:
        error = IncompatibleSchemaError(f"{what}: {reason}")
        error.details = details_in(reason)
    else:
        error = SchemaRegistryError(f"{what}: {reason}")
        error.retriable = status in RETRIABLE_STATUSES
    error.status = status
    error.error_code = code if isinstance(code, int) else None
    error.advice = _ADVICE.get(status)
    return error


def details_in(text: str) -> tuple[str, ...]:
    """The differences a compatibility message tells, one by one."""
    return tuple(_DETAIL.findall(text)) or (text,)


def _as_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
