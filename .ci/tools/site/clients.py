"""Each client's options in this one, made from the tables: for the page for users of other clients.

python -m tools.site.clients    # writes the tables into the page
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import aioproducer
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.kafka import KafkaProducer
from aioproducer.config.names import verdict_on
from aioproducer.config.table_security import ROWS
from aioproducer.config.verdicts import Alias, Refused

PAGE = Path(aioproducer.__file__).parent / "docs" / "migration.md"
_LISTS = Path(__file__).parents[3] / "tests" / "unit" / "config" / "option_names"
_MARKED = re.compile(r"<!-- options of ([\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def names_of_aiokafka() -> Iterable[str]:
    """The parameters of its producer."""
    return [name for name in inspect.signature(AIOKafkaProducer).parameters if name != "loop"]


def names_of_kafka_python() -> Iterable[str]:
    """The options of its producer."""
    return KafkaProducer.DEFAULT_CONFIG


def names_of_librdkafka() -> Iterable[str]:
    """Its documented properties, of consumers as well, and the callbacks of confluent-kafka."""
    for name in ("librdkafka", "confluent_kafka"):
        lines = (_LISTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        yield from (line for line in lines if not line.startswith("#"))


CLIENTS: dict[str, Callable[[], Iterable[str]]] = {
    "aiokafka": names_of_aiokafka,
    "kafka-python": names_of_kafka_python,
    "librdkafka": names_of_librdkafka,
}


def table(client: str) -> str:
    """The table of one client in Markdown."""
    meanings: dict[str, list[str]] = {}
    for name in sorted(dict.fromkeys(CLIENTS[client]())):
        meanings.setdefault(meaning(name), []).append(f"`{name}`")
    lines = [f"| options of {client} | here |", "|---|---|"]
    lines += (f"| {', '.join(names)} | {text} |" for text, names in meanings.items())
    return "\n".join(lines) + "\n"


def meaning(name: str) -> str:
    """Return the meaning of a name for `Producer`."""
    own = name.replace(".", "_")
    if own in ROWS:
        return "the same" if own == name else "the same, with underscores as a keyword"
    verdict = verdict_on(name)
    if verdict is None:
        return "unknown"
    if isinstance(verdict, Alias):
        option = verdict.option.replace("*", "<codec>")
        return f"`{option}`{', converted' if verdict.convert else ''}"
    reason = verdict.reason.replace("|", "\\|")
    if isinstance(verdict, Refused):
        return f"refused: {reason}; {verdict.instead}".replace("|", "\\|")
    return f"no effect: {reason}"


def with_tables(text: str) -> str:
    """The page with its tables made anew."""
    return _MARKED.sub(
        lambda found: f"<!-- options of {found[1]} -->\n\n{table(found[1])}\n<!-- end -->\n", text
    )


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
