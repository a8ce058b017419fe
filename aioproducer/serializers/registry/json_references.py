"""References between JSON Schemas of a registry.

A reference's name means a schema only to the schema that has the reference, and relative names are
resolved against that schema's `$id`. Two schemas may use one name for different schemas, and two
versions of a schema have the same `$id`. So every document gets a new URI here, and each
`$ref` that means another document is replaced by that URI.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

from aioproducer.serializers.registry.schema import Schema, decoded

_MOST_JOINS: Final = 100_000
"""Limit of the URIs that are resolved for a schema and its references (10 us each)."""
_LOOKUPS_PER_STEP: Final = 50
_LONGEST_URI: Final = 4_096

Place = tuple[str, int]
"""Subject and version of a registered schema."""

REFERRING: Final = frozenset({"$ref", "$dynamicRef"})
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose content is data, in which a `$ref` is not a reference."""
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
        inner: the schemas within them that have an id, by their URIs.
        originals: the original text of each reference.
    """

    content: Any
    documents: dict[str, Any]
    inner: dict[str, Any]
    originals: dict[str, str]


def linked(schema: Schema, referenced: Mapping[Place, Schema]) -> Linked:
    """Return the schema with its references resolved."""
    uris = _Uris()
    main = _Document("http://0.schema.invalid/", schema, uris)
    known = {
        place: _Document(f"http://{number}.schema.invalid/", each, uris)
        for number, (place, each) in enumerate(referenced.items(), 1)
    }
    main.find_ids("")
    waiting = deque([main])
    while waiting:
        document = waiting.popleft()
        for reference in document.references:
            other = known[reference.subject, reference.version]
            document.named[uris.without_fragment(reference.name)] = other
            if other.base is None:
                other.find_ids(uris.joined(document.base or "", reference.name))
                waiting.append(other)
    others = list(known.values())
    for each in others:
        for uri, new in each.ids.items():
            uris.places.setdefault(uri, {})[each] = new
    documents = {each.uri: each.rewritten() for each in (main, *others)}
    inner = {uri: each for document in (main, *others) for uri, each in document.inner.items()}
    return Linked(documents[main.uri], documents, inner, uris.originals)


class _Uris:
    """Resolves URIs, a bounded number of them and of bounded length."""

    def __init__(self) -> None:
        self._left = _MOST_JOINS
        self.places: dict[str, dict[_Document, str]] = {}
        """The new URI of each resource that documents have, by the URI it has there."""
        self.originals: dict[str, str] = {}
        """The text of each reference, by the one that replaces it."""

    def joined(self, base: str, reference: str) -> str:
        """Return the absolute URI of a reference, without its fragment."""
        self.take(1)
        return self.without_fragment(urljoin(base, self._checked(reference)))

    def without_fragment(self, uri: str) -> str:
        """Return a URI without its fragment."""
        return urldefrag(self._checked(uri))[0]

    def take(self, steps: int) -> None:
        """Count steps of a search."""
        self._left -= steps
        if self._left < 0:
            raise ValueError("it refers to other schemas too often")

    @staticmethod
    def _checked(uri: str) -> str:
        if len(uri) > _LONGEST_URI:
            raise ValueError(f"a URI of {len(uri)} characters is too long")
        return uri


class _Document:
    """A registered schema."""

    def __init__(self, uri: str, schema: Schema, uris: _Uris) -> None:
        self.uri = uri
        self._uris = uris
        self.content: Any = decoded(schema.text)
        self.references = schema.references
        self.base: str | None = None
        """The base URI of its relative references; None until it is known."""
        self.ids: dict[str, str] = {}
        """The new URI of each resource in it, by the URI it has there."""
        self.inner: dict[str, Any] = {}
        """The rewritten content of each resource in it, by its new URI."""
        self.named: dict[str, _Document] = {}
        """The document of each reference, by its text."""
        self._named_from: dict[str, dict[str, _Document]] = {}
        """The documents by absolute URI, for each base URI that names were resolved against."""
        self._id = _keyword_of_ids(self.content)

    def find_ids(self, retrieved_from: str) -> None:
        """Find the resources in the document, with their URIs."""
        retrieved_from = self._uris.without_fragment(retrieved_from)
        self.base = self._base_of(self.content, retrieved_from)
        self.ids = {uri: self.uri for uri in (retrieved_from, self.base) if uri}
        self._find_inner(self.content, retrieved_from)

    def rewritten(self) -> Any:
        """Return the content with new URIs, once those of all documents are known."""
        return self._rewrite(self.content, "", self.base or "", is_root=True)

    def _base_of(self, content: Any, base: str) -> str:
        own = content.get(self._id) if isinstance(content, dict) else None
        if not isinstance(own, str) or own.startswith("#"):
            return base
        return self._uris.joined(base, own)

    def _find_inner(self, content: Any, base: str) -> None:
        base = self._base_of(content, base)
        if base and base not in self.ids:
            self.ids[base] = f"{self.uri}{len(self.ids)}"
        for _, each in _schemas_in(content):
            self._find_inner(each, base)

    def _rewrite(self, content: Any, keyword: str, base: str, *, is_root: bool = False) -> Any:
        if isinstance(content, list):
            if keyword in _DATA:
                return content
            return [self._rewrite(each, "", base) for each in content]
        if not isinstance(content, dict) or keyword in _DATA:
            return content
        if keyword in _NAMED:
            return {name: self._rewrite(each, "", base) for name, each in content.items()}
        if not is_root:
            base = self._base_of(content, base)
        made = {}
        for name, each in content.items():
            if name in REFERRING and isinstance(each, str):
                made[name] = self._meant(each, base)
                self._uris.originals[made[name]] = each
            elif name == self._id and isinstance(each, str) and not each.startswith("#"):
                made[name] = self.ids.get(base, each)
                self.inner[made[name]] = made
            else:
                made[name] = self._rewrite(each, name, base)
        return made

    def _meant(self, reference: str, base: str) -> str:
        """Return the reference with the new URI of its target; unchanged if that is unknown."""
        if reference.startswith("#"):
            return reference
        raw, fragment = urldefrag(reference)
        found = self._target(raw, self._uris.joined(base, reference), base)
        if found is None:
            return reference
        return f"{found}#{fragment}" if fragment else found

    def _target(self, raw: str, uri: str, base: str) -> str | None:
        if uri in self.ids:
            return self.ids[uri]
        if raw in self.named:
            return self.named[raw].uri
        for start in (base, self.base or ""):
            document = self._names_from(start).get(uri)
            if document is not None:
                return document.uri
        having = self._uris.places.get(uri)
        if not having:
            return None
        self._uris.take(len(self.named) // _LOOKUPS_PER_STEP)
        # Schemas that are referred to directly come before others.
        direct = next((each for each in self.named.values() if each in having), None)
        return next(iter(having.values())) if direct is None else having[direct]

    def _names_from(self, base: str) -> dict[str, _Document]:
        """Return the referenced documents by the URIs of their names, resolved against a base."""
        known = self._named_from.get(base)
        if known is None:
            known = {}
            for name, document in self.named.items():
                known.setdefault(self._uris.joined(base, name), document)
            self._named_from[base] = known
        return known


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
    """Return the keyword for a schema's id: `id` in drafts 3 and 4, `$id` since."""
    dialect = content.get("$schema") if isinstance(content, dict) else None
    is_old = isinstance(dialect, str) and ("draft-03" in dialect or "draft-04" in dialect)
    return "id" if is_old else "$id"
