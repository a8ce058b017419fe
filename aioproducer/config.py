"""The producer's options: reading them from code, properties, files and the environment.

Owns: `ProducerConfig` and `OPTIONS`. The rows stand in `_option_table` and
`_option_table_security`, one row's logic in `_options`, rules between rows in `_option_rules`,
foreign names in `_option_names`. Must not know: what the options do.

Invariants: a `ProducerConfig` that exists is valid and never changes; no option is ignored: one
that is unknown or has no meaning here raises; secrets never show, and are never pickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

from aioproducer import log
from aioproducer._option_names import ALIASES, COMPRESSION_LEVEL, object_from_text
from aioproducer._option_rules import acks_number, apply_rules, idempotence_requested
from aioproducer._option_table import Acks, DeliveryErrorCallback
from aioproducer._option_table_security import INERT_OPTIONS, SecurityOptions
from aioproducer._options import METADATA_KEY, Kind, Option, Status
from aioproducer._properties import parse_properties, parse_servers
from aioproducer._words_of_0_8 import are_of_0_8, left_out, patience_ms
from aioproducer.errors import ConfigError
from aioproducer.serializers.calling import SerializerFunction
from aioproducer.serializers.protocol import Serializer

__all__ = [
    "OPTIONS",
    "Acks",
    "DeliveryErrorCallback",
    "Kind",
    "Option",
    "ProducerConfig",
    "Serializer",
    "SerializerFunction",
    "Status",
]

_log = log.get("producer")

_RESERVED_VARIABLES: Final = ("IMPL", "TEST_")
"""What follows the prefix in environment variables of this package that are not options."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(SecurityOptions):
    """The options of a `Producer`, checked and complete.

    Options are keyword arguments named as Kafka's properties with underscores for dots; `OPTIONS`
    documents each.

    Attributes:
        explicitly_set: The names of the options that were given, as against defaults.

    Raises:
        ConfigError: An option is unknown, has a wrong value or contradicts another one.
    """

    explicitly_set: frozenset[str] = field(default=frozenset(), init=False, compare=False)

    if not TYPE_CHECKING:  # type checkers see the typed signature the fields make

        def __init__(self, **options: Any) -> None:
            values = {row.name: row.default for row in _FIELD_OPTIONS}
            for name, given in options.items():
                values[name] = _option_named(name).checked(given)
            # None asks for Kafka's default where None is the default: it is not a choice.
            chosen = frozenset(name for name in options if values[name] is not None)
            missing = [
                row.name for row in _FIELD_OPTIONS if row.required and row.name not in chosen
            ]
            if missing:
                raise ConfigError(f"{' and '.join(missing)} must be given")
            apply_rules(values, chosen)
            for name, settled in values.items():
                object.__setattr__(self, name, settled)
            object.__setattr__(self, "explicitly_set", chosen)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Read Kafka's property names, librdkafka's or the 0.8 producer's; values may be text.

        Properties written for the 0.8 producer get its defaults for what they leave out; they are
        known by a word of its own (`producer.type`, `queue.enqueue.timeout.ms`, `serializer.class`,
        `key.serializer.class`, `compressed.topics`), or by `metadata.broker.list` with nothing but
        words that it had.

        Placeholders such as `${env:NAME}` are looked up by the providers that `config.providers`
        names, as Java's client does (KIP-297).

        Raises:
            ConfigError: as for the constructor, or one option is given under two names, or a
                placeholder cannot be looked up.
        """
        if OPTIONS["config_providers"].kafka_name in properties or "config_providers" in properties:
            from aioproducer._config_providers import with_values

            properties = with_values(properties)
        options = _options_of(properties)
        if not are_of_0_8(properties):
            return cls(**options)
        if "acks" not in options:
            _log.warning(
                "the properties are those of Kafka 0.8 and leave out request.required.acks, whose "
                "default was 0: nothing will tell whether a record was written"
            )
        options |= _options_of(left_out(properties, options))
        config = cls(**options)
        if "delivery_timeout_ms" in options:
            return config
        return config.replace(
            delivery_timeout_ms=patience_ms(
                retries=config.retries,
                request_timeout_ms=config.request_timeout_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                linger_ms=config.linger_ms,
            )
        )

    @classmethod
    def from_env(
        cls, prefix: str = "AIOPRODUCER_", environ: Mapping[str, str] | None = None
    ) -> Self:
        """Read variables such as `AIOPRODUCER_LINGER_MS`.

        Args:
            prefix: What the variables' names start with.
            environ: The environment; the process's own by default.

        Raises:
            ConfigError: as for the constructor; a variable with the prefix that names no option is
                an unknown option.
        """
        variables = os.environ if environ is None else environ
        return cls.from_properties(
            {
                name.removeprefix(prefix).lower(): value
                for name, value in variables.items()
                if name.startswith(prefix)
                and not name.removeprefix(prefix).startswith(_RESERVED_VARIABLES)
            }
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a properties file in Kafka's syntax, encoded in UTF-8.

        Raises:
            OSError: The file cannot be read.
            ConfigError: as for `from_properties`.
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{os.fspath(path)} is not UTF-8: {error}") from None
        return cls.from_properties(parse_properties(text))

    def replace(self, **options: Any) -> Self:
        """Return a configuration with the same explicit options, `options` overriding them."""
        return type(self)(**(self._chosen() | options))

    @property
    def bootstrap(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap servers as hosts and ports."""
        return parse_servers(self.bootstrap_servers)

    @property
    def acks_value(self) -> int:
        """Acks as it goes over the wire: -1, 0 or 1."""
        return acks_number(self.acks)

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None where it has none or its own default counts."""
        level = getattr(self, f"compression_{self.compression_type}_level", None)
        return None if self.compression_type == "gzip" and level == -1 else level

    @property
    def effective_idempotence(self) -> bool:
        """Whether the producer is idempotent with these options (KIP-679)."""
        values = {row.name: getattr(self, row.name) for row in _FIELD_OPTIONS}
        return idempotence_requested(values, self.explicitly_set)

    @property
    def call_timeout_ms(self) -> int:
        """How long calls may wait that always ask the cluster, such as `start` or a commit.

        That is `max_block_ms`, or `request_timeout_ms` where 0 says that `send` never waits.
        """
        return self.max_block_ms or self.request_timeout_ms

    @property
    def call_bound(self) -> str:
        """The option behind `call_timeout_ms` and its value, for messages."""
        name = "max_block_ms" if self.max_block_ms else "request_timeout_ms"
        return f"{name}={self.call_timeout_ms}"

    def _chosen(self) -> dict[str, Any]:
        return {
            row.name: getattr(self, row.name)
            for row in _FIELD_OPTIONS
            if row.name in self.explicitly_set
        }

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickles all but secrets, which belong into no file and on no wire by accident.

        Raises:
            TypeError: a secret is among the options.
        """
        secrets = sorted(name for name in self.explicitly_set if OPTIONS[name].secret)
        if secrets:
            raise TypeError(f"a ProducerConfig with {secrets[0]} is not pickled: it is a secret")
        return super(SecurityOptions, self).__reduce_ex__(protocol)

    def __repr__(self) -> str:
        shown = (f"{name}={OPTIONS[name].shown(value)}" for name, value in self._chosen().items())
        return f"ProducerConfig({', '.join(shown)})"


_FIELD_OPTIONS: Final[tuple[Option, ...]] = tuple(
    declared.metadata[METADATA_KEY].named(declared.name)
    for declared in fields(ProducerConfig)
    if METADATA_KEY in declared.metadata
)

OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {row.name: row for row in (*_FIELD_OPTIONS, *INERT_OPTIONS)}
)
"""Every option by its name here: the fields of `ProducerConfig`, and names that do not apply."""

_BY_KAFKA_NAME: Final = {row.kafka_name: row for row in OPTIONS.values()}


def _option_named(name: str) -> Option:
    row = OPTIONS.get(name)
    if row is None:
        raise _unknown(name, OPTIONS)
    return row


def _unknown(name: str, known: Mapping[str, object]) -> ConfigError:
    from difflib import get_close_matches

    nearest = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"unknown option {name}{hint}")


def _options_of(properties: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that properties set, under whatever name."""
    options: dict[str, Any] = {}
    for name, given in properties.items():
        if name == COMPRESSION_LEVEL:
            continue
        row, value = _translated(name, given)
        if row.name in options:
            raise ConfigError(f"{row.name} is given twice, the second time as {name}")
        options[row.name] = value
    if COMPRESSION_LEVEL in properties:
        _spread_compression_level(properties[COMPRESSION_LEVEL], options)
    return options


def _translated(name: str, value: object) -> tuple[Option, object]:
    """Return the option a property means, and the property's value in that option's type."""
    convert: Callable[[Any], object] | None = None
    row = _BY_KAFKA_NAME.get(name) or OPTIONS.get(name)
    if row is None:
        alias = ALIASES.get(name)
        if alias is None:
            raise _unknown(name, {**_BY_KAFKA_NAME, **ALIASES})
        row, convert = OPTIONS[alias.option], alias.convert
    if convert is not None:
        try:
            return row, convert(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{name} must be an int, not {row.shown(value)}") from None
    if not isinstance(value, str):
        return row, value
    if row.kind is Kind.OBJECT and row.status is Status.SUPPORTED:
        return row, object_from_text(row.name, value.strip())
    return row, row.parsed(value)


def _spread_compression_level(level: object, options: dict[str, object]) -> None:
    """Give librdkafka's `compression.level` to the codec chosen; its -1 is the codec's default."""
    codec = options.get("compression_type", "none")
    name = f"compression_{codec}_level"
    try:
        number = int(str(level))
    except ValueError:
        raise ConfigError(f"{COMPRESSION_LEVEL} must be an int, not {level!r}") from None
    if number == -1:
        return
    if name not in OPTIONS:
        raise ConfigError(f"{COMPRESSION_LEVEL}={number} is given, but {codec} has no levels")
    if name in options:
        raise ConfigError(f"{name} is given twice, the second time as {COMPRESSION_LEVEL}")
    options[name] = number
