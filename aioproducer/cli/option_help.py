"""`aioproducer options`: the producer's options, and what other clients' names mean here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from aioproducer.cli import options
from aioproducer.cli.console import print_json, print_text
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.config import OPTIONS
from aioproducer.config.names import VERDICTS, verdict_on
from aioproducer.config.option import Kind, Option
from aioproducer.config.reading import all_names, unknown
from aioproducer.config.table_security import ROWS
from aioproducer.config.verdicts import Alias, Refused, WithoutEffect

EXAMPLES = options.examples(
    "aioproducer options",
    "aioproducer options linger.ms",
    "aioproducer options queue.buffering.max.ms",
    "aioproducer options --format json | jq -r '.options[].name'",
)
_INDENT = 4


def _known_names(incomplete: str) -> list[str]:
    """Complete names of all clients, for shells."""
    return [name for name in all_names(dotted=True) if name.startswith(incomplete)]


def show_options(
    name: Annotated[
        options.Text,
        typer.Argument(
            metavar="[NAME]",
            help="An option, by Kafka's name or another client's. Default: all options.",
            autocompletion=_known_names,
        ),
    ] = None,
    format_: options.OutputFormat = "text",
    as_json: options.AsJson = False,
) -> int:
    """Show the producer's options: name, type, default, meaning, other clients' names.

    Names of other clients (Java's, librdkafka, confluent-kafka, aiokafka, kafka-python) are
    looked up, too: which option one sets, or why it has no effect or is refused. A name that no
    client has ends the command with exit code 2 and the nearest name.
    """
    wants_json = options.wants_json(format_, as_json=as_json)
    if name is not None:
        found = _meaning_of(name)
        if wants_json:
            print_json(found)
        else:
            _print_meaning(found)
        return ExitCode.OK
    rows = [_described(row) for row in OPTIONS.values()]
    if wants_json:
        print_json({"options": rows})
        return ExitCode.OK
    for row in rows:
        _print_row(row)
    return ExitCode.OK


def _meaning_of(name: str) -> dict[str, Any]:
    """Return the meaning of a name of any client."""
    row = ROWS.get(name.replace(".", "_"))
    if row is not None:
        return {"given": name, "verdict": "option", "options": [_described(row)]}
    verdict = verdict_on(name)
    if isinstance(verdict, Alias):
        return {
            "given": name,
            "verdict": "alias",
            "takes": verdict.expects or None,
            "options": [_described(each) for each in _set_by(verdict)],
        }
    if isinstance(verdict, WithoutEffect):
        return {"given": name, "verdict": "without effect", "reason": verdict.reason}
    if isinstance(verdict, Refused):
        return {
            "given": name,
            "verdict": "refused",
            "reason": verdict.reason,
            "instead": verdict.instead,
            "accepted_values": list(verdict.harmless),
        }
    raise unknown(name, dotted="_" not in name)


def _set_by(alias: Alias) -> list[Option]:
    return [row for row in OPTIONS.values() if fnmatchcase(row.name, alias.option)]


def _described(row: Option) -> dict[str, Any]:
    default = row.default
    return {
        "name": row.kafka_name,
        "python_name": row.name,
        "type": row.kind.value,
        "default": list(default) if isinstance(default, tuple) else default,
        "required": row.required,
        "values": row.constraint.text or None,
        "secret": row.secret,
        "meaning": row.doc,
        "defined_by": row.source,
        "aliases": sorted(
            name
            for name, verdict in VERDICTS.items()
            if isinstance(verdict, Alias) and row in _set_by(verdict)
        ),
    }


def _print_meaning(found: Mapping[str, Any]) -> None:
    name, verdict = found["given"], found["verdict"]
    if verdict == "without effect":
        print_text(Text(f"{name} is accepted and has no effect: {found['reason']}"))
    elif verdict == "refused":
        print_text(Text(f"{name} does not apply to this client: {found['reason']}"))
        print_text(Text(f"-> {found['instead']}", "cyan"), indent=_INDENT)
        if found["accepted_values"]:
            accepted = ", ".join(found["accepted_values"])
            print_text(Text(f"accepted without effect: {accepted}"), indent=_INDENT)
    else:
        rows = cast("list[dict[str, Any]]", found["options"])
        if verdict == "alias":
            takes = f", and takes {found['takes']}" if found["takes"] else ""
            names = " or ".join(row["name"] for row in rows)
            print_text(Text(f"{name} sets {names}{takes}"))
        for row in rows:
            _print_row(row)


def _print_row(row: Mapping[str, Any]) -> None:
    print_text(Text.assemble((row["name"], "bold"), f" ({', '.join(_facts(row))})"))
    print_text(Text(row["meaning"]), indent=_INDENT)
    if row["aliases"]:
        print_text(Text(f"also: {', '.join(row['aliases'])}", "dim"), indent=_INDENT)


def _facts(row: Mapping[str, Any]) -> Iterator[str]:
    yield row["type"]
    if row["values"]:
        yield row["values"]
    yield "required" if row["required"] else f"default {_shown(row)}"


def _shown(row: Mapping[str, Any]) -> str:
    """Return a default as properties files have it."""
    default = row["default"]
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list):
        return ",".join(default) or "empty"
    if row["type"] == Kind.OBJECT.value and not isinstance(default, str | int):
        return type(default).__name__
    return str(default) or "empty"
