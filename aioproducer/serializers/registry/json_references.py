"""References between JSON Schemas of a registry.

Owns: which registered schema a `$ref` means. Not here: HTTP, validation.

A reference's name means a schema only to the schema that has the reference, and relative names are
resolved against that schema's `$id`. Two schemas may use one name for different schemas, and two
versions of a schema have the same `$id`. So every document gets a new URI here, and each
`$ref` that means another document is replaced by that URI.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

from aioproducer.serializers.registry.schema import Schema

Place = tuple[str, int]
"""Subject and version of a registered schema."""

_REFERRING: Final = frozenset({"$ref", "$dynamicRef"})
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose content is data, in which a `$ref` is no reference."""
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose content has schemas by names that users choose."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A schema and what it refers to, with references that mean one document each.

    Attributes:
        content: the schema.
        documents: it and all others, by their URIs.
        originals: the original text of each reference.
    """

    content: Any
    documents: dict[str, Any]
    originals: dict[str, str]


def linked(schema: Schema, referenced: Mapping[Place, Schema]) -> Linked:
    """Return the schema with its references resolved.

    Args:
        schema: the schema that is written by.
        referenced: all that it builds on, directly or not.

    Raises:
        ValueError: one is no JSON.
    """
    main = _Document("http://0.schema.invalid/", schema)
    known = {
        place: _Document(f"http://{number}.schema.invalid/", each)
        for number, (place, each) in enumerate(referenced.items(), 1)
    }
    main.find_ids("")
    waiting = [main]
    while waiting:
        document = waiting.pop(0)
        for reference in document.references:
            other = known[reference.subject, reference.version]
            document.named[urldefrag(reference.name)[0]] = other
            if other.base is None:
                other.find_ids(urljoin(document.base or "", reference.name))
                waiting.append(other)
    originals: dict[str, str] = {}
    others = list(known.values())
    documents = {each.uri: each.rewritten(others, originals) for each in (main, *others)}
    return Linked(documents[main.uri], documents, originals)


class _Document:
    """A registered schema."""

    def __init__(self, uri: str, schema: Schema) -> None:
        self.uri = uri
        self.content: Any = json.loads(schema.text)
        self.references = schema.references
        self.base: str | None = None
        """What its relative references are resolved against; None until that is known."""
        self.ids: dict[str, str] = {}
        """The new URI of each resource in it, by the URI it has there."""
        self.named: dict[str, _Document] = {}
        """What its references mean."""
        self._id = _keyword_of_ids(self.content)

    def find_ids(self, retrieved_from: str) -> None:
        """Note the resources in it.

        Args:
            retrieved_from: the name by which another schema refers to this one.
        """
        retrieved_from = urldefrag(retrieved_from)[0]
        self.base = self._base_of(self.content, retrieved_from)
        self.ids = {uri: self.uri for uri in (retrieved_from, self.base) if uri}
        self._find_inner(self.content, retrieved_from)

    def rewritten(self, others: list[_Document], originals: dict[str, str]) -> Any:
        """Return the content with new URIs."""
        return self._rewrite(self.content, "", self.base or "", others, originals, is_root=True)

    def _base_of(self, content: Any, base: str) -> str:
        own = content.get(self._id) if isinstance(content, dict) else None
        if not isinstance(own, str) or own.startswith("#"):
            return base
        return urldefrag(urljoin(base, own))[0]

    def _find_inner(self, content: Any, base: str) -> None:
        base = self._base_of(content, base)
        if base and base not in self.ids:
            self.ids[base] = f"{self.uri}{len(self.ids)}"
        for _, each in _schemas_in(content):
            self._find_inner(each, base)

    def _rewrite(
        self,
        content: Any,
        keyword: str,
        base: str,
        others: list[_Document],
        originals: dict[str, str],
        *,
        is_root: bool = False,
    ) -> Any:
        if isinstance(content, list):
            if keyword in _DATA:
                return content
            return [self._rewrite(each, "", base, others, originals) for each in content]
        if not isinstance(content, dict) or keyword in _DATA:
            return content
        if keyword in _NAMED:
            return {
                name: self._rewrite(each, "", base, others, originals)
                for name, each in content.items()
            }
        if not is_root:
            base = self._base_of(content, base)
        made = {}
        for name, each in content.items():
            if name in _REFERRING and isinstance(each, str):
                made[name] = self._meant(each, base, others)
                originals[made[name]] = each
            elif name == self._id and isinstance(each, str) and not each.startswith("#"):
                made[name] = self.ids.get(base, each)
            else:
                made[name] = self._rewrite(each, name, base, others, originals)
        return made

    def _meant(self, reference: str, base: str, others: list[_Document]) -> str:
        """Return the reference with the new URI of its target; unchanged if that is unknown."""
        if reference.startswith("#"):
            return reference
        raw, fragment = urldefrag(reference)
        uri = urldefrag(urljoin(base, reference))[0]
        for found in self._candidates(raw, uri, base, others):
            if found is not None:
                return f"{found}#{fragment}" if fragment else found
        return reference

    def _candidates(
        self, raw: str, uri: str, base: str, others: list[_Document]
    ) -> Iterator[str | None]:
        yield self.ids.get(uri)
        if raw in self.named:
            yield self.named[raw].uri
        for name, document in self.named.items():
            if uri in {urljoin(base, name), urljoin(self.base or "", name)}:
                yield document.uri
        for document in (*self.named.values(), *others):
            yield document.ids.get(uri)


def _schemas_in(content: Any, keyword: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the possible schemas directly within a schema."""
    if isinstance(content, list):
        for each in content:
            yield "", each
    elif isinstance(content, dict):
        for name, each in content.items():
            if keyword in _NAMED or name not in (_DATA | _NAMED):
                yield name, each
            elif name in _NAMED and isinstance(each, dict):
                yield from _schemas_in(each, name)


def _keyword_of_ids(content: Any) -> str:
    """`id` in drafts 3 and 4, `$id` since."""
    dialect = content.get("$schema") if isinstance(content, dict) else None
    is_old = isinstance(dialect, str) and ("draft-03" in dialect or "draft-04" in dialect)
    return "id" if is_old else "$id"
