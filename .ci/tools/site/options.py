"""The page of all options and of other clients' names for them, made of the tables.

Owns: the page. Must not know: any single option.
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

INTRODUCTION = """\
# Options

Every option of a producer, made from the table in the code. As keyword arguments they are written with underscores,
in properties with dots: in a mapping given to `Producer`, in files, and after the command line's `-X`. A default of
`None` means what the text says, or that there is none.

Names of other clients are understood in the same places: [the table](#names-of-other-clients).

"""

OTHER_NAMES = """\
## Names of other clients

Every name that Java's clients (producer, consumer, admin, Streams, Connect, Kafka's and Confluent's serializers),
librdkafka, confluent-kafka, aiokafka, kafka-python and the producer of Kafka 0.8 document is known, with dots or with
underscores. It sets an option, has no effect, which one warning in the log of `aioproducer.producer` says for all of
them, or raises `ConfigError`. A name that is in no table raises `ConfigError` with the nearest name that is.

Of two names for one option only one may be given, unless both say the same. `request.timeout.ms` counts more than
`socket.timeout.ms`, and librdkafka's `topic.metadata.refresh.interval.ms` more than its `metadata.max.age.ms`.

"""


def page() -> str:
    """The page in Markdown."""
    tables = (
        _table(title, [OPTIONS[name] for name in names if name in OPTIONS])
        for title, names in _sections()
    )
    return "".join((INTRODUCTION, *tables, _other_names()))


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


def _table(title: str, rows: list[Option]) -> str:
    lines = [f"## {title}\n\n", "| option, Java's name | default | unit | meaning |\n"]
    lines.append("|---|---|---|---|\n")
    for row in rows:
        cells = (
            f'<a id="{row.name}"></a>`{row.name}`<br>{_foreign_name(row)}',
            "**required**" if row.required else f"`{_shown(row)}`",
            unit(row),
            _meaning(row),
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join((*lines, "\n"))


def _foreign_name(row: Option) -> str:
    if row.source in _NOT_JAVAS:
        return f"none; `{row.kafka_name}` in files"
    return f"`{row.kafka_name}`"


def _shown(row: Option) -> str:
    return repr(list(row.default)) if isinstance(row.default, tuple) else repr(row.default)


def unit(row: Option) -> str:
    """What a number counts; the type of everything else."""
    if row.kind in {Kind.INT, Kind.LONG, Kind.SHORT, Kind.DOUBLE}:
        endings = (word for ending, word in _UNITS.items() if row.name.endswith(ending))
        return _OTHER_UNITS.get(row.name) or next(endings, "number")
    return "secret" if row.secret else {Kind.OBJECT: "object"}.get(row.kind, row.kind.value)


def _meaning(row: Option) -> str:
    text = row.doc.replace("|", "\\|")
    if row.constraint.text:
        text += f" Limit: {row.constraint.text.replace('|', '&#124;')}."
    if row.source not in {"Kafka", "aioproducer"}:
        text += f" ({row.source})"
    return text


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
