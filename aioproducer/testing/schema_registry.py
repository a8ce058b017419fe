"""A schema registry in this process, for tests of serializers.

Invariant: statuses, codes and fields of answers are those that the API's documentation gives;
schemas of other formats than Avro are always compatible.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote
from uuid import NAMESPACE_OID, uuid5

from aioproducer._checks.extras import SCHEMA_REGISTRY, needed

if TYPE_CHECKING:
    import httpx

Answer = tuple[int, Any]
"""An HTTP status and what becomes its JSON."""


@dataclass
class _Version:
    id: int
    body: dict[str, Any]


@dataclass
class StubSchemaRegistry:
    """Confluent's Schema Registry, as far as producers use it.

        stub = StubSchemaRegistry()
        registry = SchemaRegistry("http://registry", transport=stub.transport)

    Attributes:
        requests: what was asked: method and path of every request.
        headers: the headers of the last request.
        failures: statuses to answer next, in place of the truth.
    """

    requests: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    _subjects: dict[str, list[_Version]] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        """Takes requests in place of the network.

        Raises:
            ConfigError: httpx is not installed.
        """
        with needed("httpx", "to talk to a schema registry", install=SCHEMA_REGISTRY):
            import httpx
        return httpx.MockTransport(self._respond)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        import httpx

        target = request.url.raw_path.decode("ascii")
        self.headers = dict(request.headers)
        body = json.loads(request.content) if request.content else {}
        status, answer = self.answer(request.method, target, body)
        return httpx.Response(status, json=answer)

    def register(self, subject: str, schema: Mapping[str, Any] | str, **more: Any) -> int:
        """Add a version to a subject, compatible or not; its schema's id.

        Args:
            subject: where it is registered.
            schema: the schema, as text or as Python has its JSON.
            more: other fields of the registry, by the API's names: `schemaType`, `references`,
                `ruleSet`, `guid`.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._add(subject, {"schema": text, **more})

    def subjects(self) -> list[str]:
        """Return the registered schemas."""
        return list(self._subjects)

    def answer(self, method: str, target: str, body: Mapping[str, Any]) -> Answer:
        """Return the registry's response to a request."""
        self.requests.append(f"{method} {target}")
        if self.failures:
            status = self.failures.pop(0)
            return _error(status, status * 100 + 1, "a scripted failure of the stub")
        path, _, query = target.partition("?")
        steps = [unquote(step) for step in path.strip("/").split("/")]
        verbose = parse_qs(query).get("verbose") == ["true"]
        match method, steps:
            case "GET", ["subjects"]:
                return 200, self.subjects()
            case "POST", ["subjects", subject]:
                return self._look_up(subject, body)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "GET", ["schemas", "ids", schema_id]:
                return self._schema(schema_id)
            case "POST", ["compatibility", "subjects", subject, "versions", "latest"]:
                return self._compare(subject, body, verbose)
        return _error(404, 404, "HTTP 404 Not Found")

    def _look_up(self, subject: str, body: Mapping[str, Any]) -> Answer:
        if subject not in self._subjects:
            return _no_subject(subject)
        for number, version in enumerate(self._subjects[subject], 1):
            if _identity(version.body) == _identity(body):
                return 200, _described(subject, number, version)
        return _error(404, 40403, "Schema not found")

    def _register(self, subject: str, body: Mapping[str, Any]) -> Answer:
        if body.get("schemaType", "AVRO") == "AVRO" and _avro(body) is None:
            return _error(422, 42201, "Invalid schema: it is no JSON")
        found = self._look_up(subject, body)
        if found[0] == 200:
            return 200, {"id": found[1]["id"]}
        differences = self._differences(subject, body)
        if differences:
            details = ", ".join([*differences, "{compatibility: 'BACKWARD'}"])
            return _error(
                409,
                409,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{details}]',
            )
        return 200, {"id": self._add(subject, dict(body))}

    def _version(self, subject: str, version: str) -> Answer:
        if subject not in self._subjects:
            return _no_subject(subject)
        versions = self._subjects[subject]
        if version != "latest" and not version.isdecimal():
            return _error(422, 42202, f"The specified version '{version}' is not a valid version")
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            return _error(404, 40402, f"Version {version} not found.")
        return 200, _described(subject, number, versions[number - 1])

    def _schema(self, schema_id: str) -> Answer:
        for versions in self._subjects.values():
            for version in versions:
                if str(version.id) == schema_id:
                    return 200, dict(version.body)
        return _error(404, 40403, f"Schema {schema_id} not found")

    def _compare(self, subject: str, body: Mapping[str, Any], verbose: bool) -> Answer:
        if subject not in self._subjects:
            return _no_subject(subject)
        differences = self._differences(subject, body)
        answer: dict[str, Any] = {"is_compatible": not differences}
        if verbose:
            answer["messages"] = differences
        return 200, answer

    def _differences(self, subject: str, body: Mapping[str, Any]) -> list[str]:
        versions = self._subjects.get(subject)
        if not versions or body.get("schemaType", "AVRO") != "AVRO":
            return []
        return list(_unreadable(_avro(body), _avro(versions[-1].body)))

    def _add(self, subject: str, body: dict[str, Any]) -> int:
        schema_id = self._ids.setdefault(_identity(body), len(self._ids) + 1)
        self._subjects.setdefault(subject, []).append(_Version(schema_id, body))
        return schema_id


def _unreadable(new: Any, old: Any) -> list[str]:
    """Return why data written by the old schema could not be read by the new one."""
    if not (_is_record(new) and _is_record(old)):
        is_readable = _is_readable(new, old)
        return [] if is_readable else [_difference("TYPE_MISMATCH", "/", "the type", "differs")]
    before = {each["name"]: each for each in old["fields"]}
    found = []
    for index, each in enumerate(new["fields"]):
        name, path = each["name"], f"/fields/{index}"
        if name not in before:
            if "default" not in each:
                found.append(
                    _difference(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        path,
                        name,
                        "in the new schema has no default value and is missing in the old schema",
                    )
                )
        elif not _is_readable(each["type"], before[name]["type"]):
            found.append(
                _difference("TYPE_MISMATCH", f"{path}/type", name, "has a type that cannot be read")
            )
    return found


def _is_readable(new: Any, old: Any) -> bool:
    """Return whether data of the old type can be read as the new one (Avro: schema resolution)."""
    if isinstance(old, list):
        return all(_is_readable(new, each) for each in old)
    if isinstance(new, list):
        return any(_is_readable(each, old) for each in new)
    kind, before = (each.get("type", "") if isinstance(each, dict) else each for each in (new, old))
    if isinstance(kind, dict | list) or isinstance(before, dict | list):
        return _is_readable(kind, before)
    if kind != before:
        return before in _PROMOTIONS.get(kind, ())
    if kind in ("array", "map"):
        inside = "items" if kind == "array" else "values"
        return _is_readable(new[inside], old[inside])
    if kind in ("record", "enum", "fixed") and new["name"] != old["name"]:
        return False
    if kind == "record":
        return not _unreadable(new, old)
    if kind == "enum":
        return "default" in new or {*old["symbols"]} <= {*new["symbols"]}
    return bool(kind != "fixed" or new["size"] == old["size"])


_PROMOTIONS: Final[Mapping[str, Collection[str]]] = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}


def _difference(kind: str, path: str, name: str, what: str) -> str:
    description = f"The field '{name}' at path '{path}' {what}"
    return f"{{errorType:'{kind}', description:'{description}', additionalInfo:'{name}'}}"


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record"


def _avro(body: Mapping[str, Any]) -> Any:
    try:
        return json.loads(body["schema"])
    except (KeyError, ValueError):
        return None


def _identity(body: Mapping[str, Any]) -> str:
    """Return the identity of a schema: its content, without its spaces."""
    content = _avro(body) or body.get("schema")
    kind, references = body.get("schemaType", "AVRO"), body.get("references") or []
    return json.dumps([content, kind, references])


def _described(subject: str, number: int, version: _Version) -> dict[str, Any]:
    place = {"subject": subject, "id": version.id, "version": number}
    return {**place, "guid": _guid(version.body), **version.body}


def _guid(body: Mapping[str, Any]) -> str:
    """Return the GUID, which is equal in every registry for equal content."""
    return str(uuid5(NAMESPACE_OID, _identity(body)))


def _no_subject(subject: str) -> Answer:
    return _error(404, 40401, f"Subject '{subject}' not found.")


def _error(status: int, code: int, message: str) -> Answer:
    return status, {"error_code": code, "message": message}
