"""Reading options under the names of any client, from Python's values or from text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from aioproducer._util import log
from aioproducer._util.secrets import shown_name
from aioproducer.config.option import Kind, Option, plain
from aioproducer.config.table_security import ROWS
from aioproducer.config.verdicts import Alias, Refused
from aioproducer.errors import ConfigError

_log = log.get("producer")

_CODEC: Final = "compression_type"


def options_of(
    given: Mapping[str, object], *, as_text: bool, codec: object = None
) -> dict[str, Any]:
    """Return the options that `given` sets, by our names; names may be those of any client.

    With `as_text` a str is parsed, as in files. `codec` is the compression type if `given` has not
    all options.
    """
    reading = _Reading(as_text=as_text)
    for name, value in given.items():
        reading.read(name, value)
    return reading.options(codec)


def codec_of(given: Mapping[Any, object]) -> object:
    """Return the compression type that options set under any name; None if they do not."""
    named = {
        name: value
        for name, value in given.items()
        if isinstance(name, str) and (row := option_set_by(name)) is not None and row.name == _CODEC
    }
    return options_of(named, as_text=True).get(_CODEC) if named else None


class _Given(NamedTuple):
    name: str
    value: object
    rank: int = 0


class _Reading:
    """One configuration while it is read."""

    def __init__(self, *, as_text: bool) -> None:
        self._as_text = as_text
        self._found: dict[str, list[_Given]] = {}
        self._for_codec: list[tuple[str, object, Alias]] = []
        self._without_effect: dict[str, list[str]] = {}

    def read(self, name: str, value: object) -> None:
        """Read one option."""
        if not isinstance(name, str):
            raise ConfigError(f"the name of an option must be a str, not {name!r}")
        name = str(plain(name))
        row = ROWS.get(name.replace(".", "_"))
        if row is not None:
            self._add(row, _Given(name, self._parsed(row, value)))
        else:
            self._read_foreign(name, value)

    def options(self, codec: object = None) -> dict[str, Any]:
        """Return what was read; warn once of all that has no effect."""
        options = {name: self._chosen(ROWS[name], given) for name, given in self._found.items()}
        codec = plain(codec or options.get(_CODEC, ROWS[_CODEC].default))
        for name, value, alias in self._for_codec:
            self._add_level(name, value, alias, options, str(codec))
        if self._without_effect:
            reasons = self._without_effect.items()
            _log.warning(
                "options without effect: %s",
                "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons),
            )
        return options

    def _read_foreign(self, name: str, value: object) -> None:
        # Imported for names that are not ours: it is large.
        from aioproducer.config.names import verdict_on

        verdict = verdict_on(name)
        if verdict is None:
            raise unknown(name, dotted="." in name or self._as_text)
        if value is None:  # nothing is asked for
            return
        if isinstance(verdict, Alias):
            if "*" in verdict.option:
                self._for_codec.append((name, value, verdict))
            else:
                row = ROWS[verdict.option]
                self._add(row, _Given(name, self._value(name, value, verdict, row), verdict.rank))
        elif isinstance(verdict, Refused):
            if str(plain(value)).strip().lower() not in verdict.harmless:
                raise ConfigError(
                    f"{name} does not apply to this client: {verdict.reason}",
                    advice=verdict.instead,
                )
        else:
            self._without_effect.setdefault(verdict.reason, []).append(name)

    def _parsed(self, row: Option, value: object, shown_as: str = "") -> object:
        """Return a value as one of the option's type."""
        if not self._as_text or not isinstance(value, str):
            return value
        if row.kind is Kind.OBJECT:
            from aioproducer.config.objects import object_from_text

            return object_from_text(row.name, value.strip())
        return row._replace(name=shown_as or row.name).parsed(value)

    def _value(self, name: str, value: object, alias: Alias, row: Option) -> object:
        """Return the value of another client's option as one of ours, checked."""
        shown_as = f"{row.name} (given as {name})"
        if alias.convert is None:
            value = self._parsed(row, value, shown_as)
        else:
            value = _converted(name, value, alias, row)
        return row._replace(name=shown_as).checked(value)

    def _add(self, row: Option, given: _Given) -> None:
        self._found.setdefault(row.name, []).append(given)

    def _chosen(self, row: Option, given: list[_Given]) -> object:
        """Return the value that counts among those under several names."""
        if len(given) == 1:
            return given[0].value
        rank = max(each.rank for each in given)
        first, *others = (each for each in given if each.rank == rank)
        for other in others:
            if row.checked(other.value) != row.checked(first.value):
                raise _twice(row.name, other.name)
        for each in given:
            if each.rank < rank:
                self._without_effect.setdefault(f"{first.name} is given", []).append(each.name)
        return first.value

    def _add_level(
        self, name: str, value: object, alias: Alias, options: dict[str, Any], codec: str
    ) -> None:
        """Give one level for whichever codec to the codec in force; -1 is the codec's default."""
        row = ROWS.get(alias.option.replace("*", codec))
        level = _converted(name, value, alias, row or ROWS[_CODEC])
        if level == -1:
            return
        if row is None:
            raise ConfigError(f"{name}={level} is given, but {codec} has no levels")
        if options.setdefault(row.name, level) != level:
            raise _twice(row.name, name)


def _converted(name: str, value: object, alias: Alias, row: Option) -> object:
    assert alias.convert is not None
    try:
        return alias.convert(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be {alias.expects}, not {row.shown(value)}") from None


_BROKERS: Final = {"bootstrap", "broker", "brokers", "host", "hosts", "server", "servers"}


def unknown(name: str, *, dotted: bool) -> ConfigError:
    """Return the error for a name that no client has, with the nearest one."""
    from difflib import get_close_matches

    shown = shown_name(name)
    nearest = None
    if shown == name:
        word = name.lower()
        if word in _BROKERS:
            word = "bootstrap.servers" if dotted else "bootstrap_servers"
        known = all_names(dotted=dotted)
        parts = word.replace("-", ".").split(".") if dotted else word.split("_")
        # Spring, Quarkus and container images put prefixes before Kafka's names.
        rests = (("." if dotted else "_").join(parts[at:]) for at in range(len(parts)))
        nearest = get_close_matches(word, known, n=1) or [rest for rest in rests if rest in known]
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"unknown option {shown}{hint}")


def all_names(*, dotted: bool) -> list[str]:
    """Return the names of all clients, with dots or with underscores."""
    from aioproducer.config.names import VERDICTS

    if dotted:
        return sorted({row.kafka_name for row in ROWS.values()} | VERDICTS.keys())
    names = {name.replace(".", "_") for name in VERDICTS}
    return sorted(names | {row.name for row in ROWS.values()})


def option_set_by(name: str) -> Option | None:
    """Return the option that a name of any client sets, if there is one alone."""
    row = ROWS.get(name.replace(".", "_"))
    if row is None:
        from aioproducer.config.names import verdict_on

        verdict = verdict_on(name)
        row = ROWS.get(verdict.option) if isinstance(verdict, Alias) else None
    return row


def is_known(name: str) -> bool:
    """Return whether the name is ours or another client's."""
    if name.replace(".", "_") in ROWS:
        return True
    from aioproducer.config.names import verdict_on

    return verdict_on(name) is not None


def _twice(option: str, name: str) -> ConfigError:
    return ConfigError(f"{option} is given twice, the second time as {name}")
