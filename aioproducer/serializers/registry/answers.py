"""The interpretation of a registry's responses."""

from __future__ import annotations

import re
from typing import Any, Final

from aioproducer._util.bounded_json import decoded_object
from aioproducer._util.printable import printable
from aioproducer._util.secrets import without_login
from aioproducer.errors import IncompatibleSchemaError, SchemaNotFoundError, SchemaRegistryError
from aioproducer.errors.advice import ADVICE
from aioproducer.serializers.registry.schema import SchemaRule

_LONGEST_TEXT: Final = 2000
_LONGEST_ANSWER: Final = 2 << 20
_DETAIL = re.compile(r"description:'(.*?)', additionalInfo", re.DOTALL)

RETRIABLE_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Another try may help: overload, timeouts, a leader that moves (Confluent's 500xx)."""

_WRITE_MODES: Final = frozenset({"WRITE", "WRITEREAD"})
_CLIENT_PLACES: Final = frozenset({"ALL", "CLIENT"})
"""Values of a rule set's `enableAt` for which clients execute it."""

_ADVICE: Final = {401: ADVICE["registry-credentials-refused"], 403: ADVICE["registry-permission"]}


def registry_error(status: int, body: bytes, what: str, leads_to: str = "") -> SchemaRegistryError:
    """Return the error for a response without success; a redirect leads to `leads_to`."""
    answer = decoded_object(body, _LONGEST_ANSWER)
    code, text = answer.get("error_code"), answer.get("message")
    reason = text[:_LONGEST_TEXT] if isinstance(text, str) else f"HTTP {status}"
    error: SchemaRegistryError
    advice = _ADVICE.get(status)
    if 300 <= status < 400:
        target = f" to {printable(without_login(leads_to))}" if leads_to else ""
        error = SchemaRegistryError(f"{what}: the URL redirects{target} (HTTP {status})")
        code, advice = None, ADVICE["registry-redirects"]
    elif status == 404 and (
        not isinstance(code, int) or (code == 404 and reason.startswith("HTTP 404"))
    ):
        # A registry's code says whether subject, version or schema lacks. Confluent's answers with
        # 404 and "HTTP 404 Not Found" at paths that it does not serve.
        error = SchemaRegistryError(f"{what}: no schema registry answers at this URL: {reason}")
        advice = ADVICE["registry-elsewhere"]
    elif status == 404:
        error = SchemaNotFoundError(f"{what}: {reason}")
    elif status == 409:
        error = IncompatibleSchemaError(f"{what}: {reason}")
        error.details = details_in(reason)
    else:
        error = SchemaRegistryError(f"{what}: {reason}")
        error.retriable = status in RETRIABLE_STATUSES
    error.status, error.advice = status, advice
    error.error_code = code if isinstance(code, int) else None
    return error


def details_in(text: str) -> tuple[str, ...]:
    """Return the single differences in a compatibility message."""
    found = _DETAIL.findall(text[:_LONGEST_TEXT]) or [text]
    return tuple(printable(detail) for detail in found)


def write_rules_in(answer: Any, what: str) -> tuple[SchemaRule, ...]:
    """Return the active rules of a schema that a writer has to execute.

    Domain rules transform or check the data, encoding rules the encoded payload. Migration rules
    are for readers.
    """
    rule_set = answer.get("ruleSet") or {}
    try:
        if str(rule_set.get("enableAt") or "ALL").upper() not in _CLIENT_PLACES:
            return ()
        rules = [*(rule_set.get("domainRules") or ()), *(rule_set.get("encodingRules") or ())]
        return tuple(
            SchemaRule(str(rule.get("name")), str(rule.get("type")))
            for rule in rules
            if str(rule.get("mode")).upper() in _WRITE_MODES and rule.get("disabled") is not True
        )
    except (AttributeError, TypeError) as error:
        raise SchemaRegistryError(f"{what}: the rules of the schema are not understood") from error
