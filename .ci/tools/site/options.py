"""The page of all options and of other clients' names for them, generated from the tables.

Each option has a heading, hence an anchor and an entry of the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from aioproducer import config
from aioproducer.config import OPTIONS, Kind, Option
from aioproducer.config.aliases import ALIASES
from aioproducer.config.names import VERDICTS
from aioproducer.config.other_clients import PREFIXES
from aioproducer.config.verdicts import Refused, WithoutEffect

V = TypeVar("V", Refused, WithoutEffect)

_HEADING = re.compile(r"^    # -- (.+?) -+$")
_FIELD = re.compile(r"^    (\w+):")
_UNITS = {
    "_ms": "ms",
    "_bytes": "bytes",
    "_seconds": "s",
    "_records": "records",
}
_OTHER_UNITS = {
    "batch_size": "bytes",
    "buffer_memory": "bytes",
    "max_request_size": "bytes",
}
_NOT_JAVAS = {"aioproducer", "Kafka 0.8", "librdkafka"}

FILES = ("aioproducer/config/table.py", "aioproducer/config/table_security.py")

INTRODUCTION = """\
# Options

All options of a producer. Write them with underscores as keyword arguments, and with dots in files, in mappings given to
`Producer`, and after `-X` on the command line. The default `None` means that the option is not set.

The same places accept [names of other clients](#names-of-other-clients).

"""

OTHER_NAMES = """\
## Names of other clients

aioproducer accepts every documented name, with dots or underscores, of Java's clients (producer, consumer, admin, Streams,
Connect, Kafka's and Confluent's serializers), librdkafka, confluent-kafka, aiokafka, kafka-python and the producer of
Kafka 0.8. Such a name does one of these:

- it sets an option;
- it has no effect: one warning of the logger `aioproducer.producer` lists all of them;
- it raises `ConfigError`, as do all other names; the error suggests the nearest valid name.

If two names set the same option, they need the same value; otherwise `ConfigError` is raised. There are two exceptions:
`request.timeout.ms` takes precedence over `socket.timeout.ms`, and librdkafka's `topic.metadata.refresh.interval.ms` over
its `metadata.max.age.ms`.

"""


def page() -> str:
    """Return the page in Markdown."""
    sections = (
        f"## {title}\n\n" + "".join(_entry(OPTIONS[name]) for name in names if name in OPTIONS)
        for title, names in _sections()
    )
    return "".join((INTRODUCTION, *sections, _other_names()))


def _sections() -> list[tuple[str, list[str]]]:
    """The headings between the fields of the table, and the fields under each."""
    sections: list[tuple[str, list[str]]] = []
    for name in ("table.py", "table_security.py"):
        source = Path(config.__file__).with_name(name).read_text(encoding="utf-8")
        sections.append(("Security", []))
        for line in source.splitlines():
            if heading := _HEADING.match(line):
                sections.append((heading[1][0].upper() + heading[1][1:], []))
            elif declared := _FIELD.match(line):
                sections[-1][1].append(declared[1])
    return [(title, names) for title, names in sections if any(map(OPTIONS.get, names))]


def _entry(row: Option) -> str:
    facts = [
        "**required**" if row.required else f"default `{_shown(row)}`",
        unit(row),
        _foreign_name(row),
    ]
    if row.constraint.text:
        facts.append(row.constraint.text.replace("|", "&#124;"))
    lines = [f"### `{row.name}` {{ #{row.name} }}", " · ".join(facts), _meaning(row)]
    if others := accepted(row):
        lines.append("Also accepted: " + ", ".join(f"`{name}`" for name in others) + ".")
    return "\n\n".join(lines) + "\n\n"


def accepted(row: Option) -> list[str]:
    """Return the names of other clients that set an option."""
    return sorted(name for name, alias in ALIASES.items() if alias.option == row.name)


def _foreign_name(row: Option) -> str:
    if row.source in _NOT_JAVAS:
        return f"`{row.kafka_name}` in files, not in Java"
    return f"`{row.kafka_name}` in files"


def _shown(row: Option) -> str:
    return repr(list(row.default)) if isinstance(row.default, tuple) else repr(row.default)


def unit(row: Option) -> str:
    """Return the unit of a number, or the type of another option."""
    if row.kind in {Kind.INT, Kind.LONG, Kind.SHORT, Kind.DOUBLE}:
        endings = (word for ending, word in _UNITS.items() if row.name.endswith(ending))
        return _OTHER_UNITS.get(row.name) or next(endings, "number")
    return "secret" if row.secret else {Kind.OBJECT: "object"}.get(row.kind, row.kind.value)


def _meaning(row: Option) -> str:
    return row.doc if row.source in {"Kafka", "aioproducer"} else f"{row.doc} ({row.source})"


def _other_names() -> str:
    return "".join((OTHER_NAMES, *_aliases(), *_refused(), *_without_effect()))


def _aliases() -> Iterator[str]:
    yield "### Names of options\n\n| name elsewhere | option here |\n|---|---|\n"
    for name, alias in sorted(ALIASES.items()):
        option = alias.option.replace("*", "&lt;codec&gt;")
        yield f"| `{name}` | `{option}`{', converted' if alias.convert else ''} |\n"


def _refused() -> Iterator[str]:
    yield "\n### Refused\n\n| name elsewhere | because | instead |\n|---|---|---|\n"
    for verdict, names in _grouped(Refused):
        because = verdict.reason
        if verdict.harmless:
            because += f" (accepted: {', '.join(f'`{value}`' for value in verdict.harmless)})"
        yield f"| {names} | {because} | {verdict.instead} |\n"


def _without_effect() -> Iterator[str]:
    yield "\n### Accepted without effect\n\n| names elsewhere | because |\n|---|---|\n"
    for verdict, names in _grouped(WithoutEffect):
        yield f"| {names} | {verdict.reason} |\n"
    for prefix, reason in PREFIXES.items():
        yield f"| `{prefix}*` | {reason} |\n"


def _grouped(kind: type[V]) -> Iterator[tuple[V, str]]:
    """The verdicts of one kind with the names that share each."""
    names: dict[V, list[str]] = {}
    for name, verdict in sorted(VERDICTS.items()):
        if isinstance(verdict, kind):
            names.setdefault(verdict, []).append(f"`{name}`")
    return ((verdict, ", ".join(those)) for verdict, those in names.items())
