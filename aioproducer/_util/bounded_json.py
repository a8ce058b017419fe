"""JSON of peers whose values are counted before they are made.

Two bytes of JSON make an empty list of 56 bytes: a megabyte takes a second of the event loop, and
that for nothing, since answers of registries, token endpoints and brokers have few values.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


class JsonLimitError(ValueError):
    """The document is beyond a limit; the text quotes none of it."""


def decoded_json(data: bytes | str, longest: int, most_values: int = 50_000) -> Any:
    """Return the value of a JSON document in UTF-8.

    Raise `JsonLimitError` or `ValueError`; `RecursionError` if it is nested too deeply.
    """
    if len(data) > longest:
        raise JsonLimitError(f"the JSON is longer than {longest}")
    text = data if isinstance(data, str) else str(data, "utf-8")
    # Escaped quotes are in strings, such as the text of a schema.
    quotes = text.count('"') - text.count('\\"')
    if quotes > 4 * most_values:
        raise JsonLimitError("the JSON has too many values")
    if sum(map(_STRING.sub("", text).count, ",[{")) > most_values:
        raise JsonLimitError("the JSON has too many values")
    return json.loads(text)


def decoded_object(data: bytes | str, longest: int) -> dict[str, Any]:
    """Return the object of a JSON document as `decoded_json` does; empty for anything else."""
    try:
        answer = decoded_json(data, longest)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
