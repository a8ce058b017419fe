"""The page of all options, made of the option table.

Owns: the page. Must not know: any single option.
"""

from __future__ import annotations

import re
from pathlib import Path

import aioproducer
from aioproducer.config import OPTIONS, Kind, Option, Status

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

Every option of a producer, made from the table in the code. As keyword arguments they are written with underscores;
properties files, `ProducerConfig.from_properties` and the command line's `-X` take the Java names with dots, and those
of librdkafka and of the 0.8 producer as well. A default of `None` means what the text says, or that there is none.

"""


def page() -> str:
    """The page in Markdown."""
    tables = (
        _table(title, [OPTIONS[name] for name in names if name in OPTIONS])
        for title, names in _sections()
    )
    return "".join((INTRODUCTION, *tables, _refused()))


def _sections() -> list[tuple[str, list[str]]]:
    """The headings between the fields of the table, and the fields under each."""
    sections: list[tuple[str, list[str]]] = []
    for name in ("_option_table.py", "_option_table_security.py"):
        source = (Path(aioproducer.__file__).parent / name).read_text(encoding="utf-8")
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


def _refused() -> str:
    lines = [
        "## Refused\n\n",
        "Names that mean nothing to this client; setting one is an error.\n\n",
    ]
    lines += ["| name | because |\n", "|---|---|\n"]
    refused = (row for row in OPTIONS.values() if row.status is Status.INERT)
    lines += [f"| `{row.kafka_name}` | {row.doc} |\n" for row in refused]
    return "".join(lines)
