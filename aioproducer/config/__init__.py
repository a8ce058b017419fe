"""The producer's options, read from code, properties, files and the environment.

Start with `ProducerConfig`. `table` and `table_security` have a row for each option, `option` the
logic of one row, `rules` what rows must agree on, `reading` turns names and values into options,
`names` has other clients' names of them.

Invariants: a `ProducerConfig` that exists is valid and never changes; no option is ignored
silently: an unknown name raises, a name of another client sets an option, raises or logs a
warning; secrets are never printed or pickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, Unpack

from aioproducer._util import log
from aioproducer._util.secrets import hides_arguments
from aioproducer.config.option import Kind, Option
from aioproducer.config.option_types import ProducerOptions
from aioproducer.config.permissions import EVERYTHING, VARIABLE, Permissions
from aioproducer.config.properties import parse_properties, parse_servers
from aioproducer.config.rules import acks_number, apply_rules, idempotence_requested
from aioproducer.config.table import Acks, DeliveryErrorCallback
from aioproducer.config.table_security import OPTIONS, SecurityOptions
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
]

_log = log.get("producer")

_RESERVED_VARIABLES: Final = ("IMPL", "DEBUG", "TEST_", "SCHEMA_REGISTRY_")
"""What follows the prefix in environment variables of this package that are not options."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(SecurityOptions):
    """The options of a `Producer`, checked and complete.

    Options are keyword arguments named as Kafka's properties with underscores for dots; `OPTIONS`
    documents each. Names of other clients' options are understood, too.

    Attributes:
        explicitly_set: The names of the options that were given, as against defaults.

    Raises:
        ConfigError: An option is unknown, has a wrong value or contradicts another one.
    """

    explicitly_set: frozenset[str] = field(default=frozenset(), compare=False)

    if not TYPE_CHECKING:  # type checkers see the typed signature the fields make

        @hides_arguments
        def __init__(self, **options: Any) -> None:
            values = {name: row.default for name, row in OPTIONS.items()}
            before = options.pop("explicitly_set", None)
            options = _by_our_names(options)
            if before is not None:  # of `dataclasses.replace` or `asdict`: defaults are among them
                options = {n: v for n, v in options.items() if n in before or v != values[n]}
            for name, given in options.items():
                values[name] = OPTIONS[name].checked(given)
            # None asks for Kafka's default where None is the default: it is not a choice.
            chosen = frozenset(name for name in options if values[name] is not None)
            missing = [n for n, row in OPTIONS.items() if row.required and n not in chosen]
            if missing:
                raise ConfigError(f"{' and '.join(missing)} must be given")
            apply_rules(values, chosen)
            for name, resolved in values.items():
                object.__setattr__(self, name, resolved)
            object.__setattr__(self, "explicitly_set", chosen)

    @classmethod
    @hides_arguments
    def from_properties(
        cls, properties: Mapping[str, object], *, allow: Iterable[str] = ()
    ) -> Self:
        """Read properties by Kafka's names or other clients'; values may be text.

        Names of other clients (Java's, librdkafka, aiokafka, kafka-python) set an option, or have
        no effect (one warning in the log names these), or are refused with what to do instead.

        Properties written for the 0.8 producer get its defaults for what they leave out; they are
        recognized by a name that only it has (`producer.type`, `queue.enqueue.timeout.ms`,
        `serializer.class`, `key.serializer.class`, `compressed.topics`), or by
        `metadata.broker.list` with nothing but names that it had.

        Placeholders such as `${env:NAME}` are looked up by the providers that `config.providers`
        names, as Java's client does (KIP-297), as far as `allow` goes.

        Args:
            properties: The properties.
            allow: What the properties may read, and where they may ask for tokens; nothing by
                default, since the author of properties also names the broker that gets the values.
                `aws` allows the credentials that `AWS_MSK_IAM` finds, `class:ours.reporters.*`
                code that `metric.reporters` names.
                Any of `env`, `env:KAFKA_*` (variables of these names), `file`, `file:/etc/kafka`
                (files there), `url` and `https://issuer.example/token` (that token endpoint). The
                environment variable `AIOPRODUCER_ALLOW` adds to it, separated by commas.

        Raises:
            ConfigError: as for the constructor, or one option is given under two names, a
                placeholder cannot be looked up, or properties name what is not allowed.
        """
        if not isinstance(properties, Mapping):
            raise TypeError(
                f"properties must be a mapping, not {type(properties).__name__}; "
                "ProducerConfig.from_file reads files"
            )
        return cls._read(properties, {}, allow=allow)

    @classmethod
    def _read(
        cls,
        properties: Mapping[str, object],
        overriding: Mapping[str, Any],
        left_out: MoreOptions | None = None,
        *,
        allow: Iterable[str] = (),
    ) -> Self:
        """Read properties, overridden by options given by keyword."""
        permissions = Permissions(allow)
        if OPTIONS["config_providers"].kafka_name in properties or "config_providers" in properties:
            from aioproducer.config.providers import with_values

            properties = with_values(properties, permissions)
        from aioproducer.config.legacy_aliases import are_of_0_8
        from aioproducer.config.reading import options_of

        codec = _codec_of(overriding) or _codec_of(properties)
        options = options_of(properties, as_text=True, codec=codec)
        permissions.check_options(options)
        options |= _by_our_names({**overriding}, codec)
        options = options if left_out is None else left_out(options) | options
        return cls._of_0_8(properties, options) if are_of_0_8(properties) else cls(**options)

    @classmethod
    def _of_0_8(cls, properties: Mapping[str, object], options: dict[str, Any]) -> Self:
        """Return what properties written for the 0.8 producer mean, whose options are `options`."""
        from aioproducer.config.legacy_aliases import left_out, longest_delivery_ms
        from aioproducer.config.reading import options_of

        if "acks" not in options:
            _log.warning(
                "the properties are those of Kafka 0.8 and leave out request.required.acks, whose "
                "default was 0: no broker will confirm that a record was written"
            )
        options |= options_of(left_out(properties, options), as_text=True)
        config = cls(**options)
        if "delivery_timeout_ms" in options:
            return config
        return config.replace(delivery_timeout_ms=longest_delivery_ms(config))

    @classmethod
    @hides_arguments
    def from_env(
        cls,
        prefix: str = "AIOPRODUCER_",
        environ: Mapping[str, str] | None = None,
        *,
        allow: Iterable[str] | None = None,
    ) -> Self:
        """Read variables such as `AIOPRODUCER_LINGER_MS`.

        Args:
            prefix: What the variables' names start with.
            environ: The environment; the process's own by default.
            allow: As for `from_properties`. None: everything where the variables are the process's
                own, whose environment is trusted as the application is; else nothing.

        Raises:
            ConfigError: as for the constructor; a variable with the prefix that names no option is
                an unknown option.
        """
        variables = os.environ if environ is None else environ
        if allow is None:
            allow = EVERYTHING if environ is None else ()
        names = {
            name.removeprefix(prefix).lower(): name
            for name in variables
            if name.startswith(prefix)
            and not name.removeprefix(prefix).startswith(_RESERVED_VARIABLES)
            and name != VARIABLE
        }
        _refuse_unknown_variables(names)
        options = {option: variables[name] for option, name in names.items()}
        return cls.from_properties(options, allow=allow)

    @classmethod
    @hides_arguments
    def from_file(cls, path: str | os.PathLike[str], *, allow: Iterable[str] = ()) -> Self:
        """Read a properties file in Kafka's syntax, encoded in UTF-8.

        Args:
            path: The file.
            allow: As for `from_properties`.

        Raises:
            OSError: The file cannot be read.
            ConfigError: as for `from_properties`.
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{os.fspath(path)} is not UTF-8: {error}") from None
        try:
            properties = parse_properties(text)
        except ConfigError as error:
            raise ConfigError(f"{os.fspath(path)}: {error.message}", advice=error.advice) from None
        return cls.from_properties(properties, allow=allow)

    @hides_arguments
    def replace(self, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration with the same explicit options, `options` overriding them."""
        codec = _codec_of(options) or self.compression_type
        # The constructor of a subclass may have other arguments; its attributes are kept.
        made = type(self).__new__(type(self))
        for name, value in getattr(self, "__dict__", {}).items():
            object.__setattr__(made, name, value)
        ProducerConfig.__init__(made, **(self._chosen() | _by_our_names({**options}, codec)))
        return made

    __replace__ = replace  # `copy.replace`, from Python 3.13 on

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
        values = {name: getattr(self, name) for name in OPTIONS}
        return idempotence_requested(values, self.explicitly_set)

    @property
    def call_timeout_ms(self) -> int:
        """The time limit of calls that always ask the cluster, such as `start` or a commit.

        That is `max_block_ms`, or `request_timeout_ms` where 0 says that `send` never waits.
        """
        return self.max_block_ms or self.request_timeout_ms

    @property
    def call_bound(self) -> str:
        """The option that sets `call_timeout_ms` and its value, for messages."""
        name = "max_block_ms" if self.max_block_ms else "request_timeout_ms"
        return f"{name}={self.call_timeout_ms}"

    def _chosen(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in OPTIONS if name in self.explicitly_set}

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle all but secrets, which belong into no file and on no wire by accident."""
        secrets = sorted(name for name in self.explicitly_set if OPTIONS[name].secret)
        if secrets:
            raise TypeError(f"a ProducerConfig with {secrets[0]} is not pickled: it is a secret")
        return super(SecurityOptions, self).__reduce_ex__(protocol)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        # As a dataclass, pydantic would build it from its fields, past the checks above.
        from pydantic_core.core_schema import is_instance_schema

        return is_instance_schema(cls)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # it never changes, and a copy within the process shows no secret

    def __repr__(self) -> str:
        if not hasattr(self, "explicitly_set"):
            return "ProducerConfig(<not complete>)"  # in frames of the constructor
        shown = (f"{name}={OPTIONS[name].shown(value)}" for name, value in self._chosen().items())
        return f"ProducerConfig({', '.join(shown)})"


ConfigInput = ProducerConfig | Mapping[str, object] | None
"""What constructors take besides options: a configuration, or properties by any client's names."""

MoreOptions = Callable[[dict[str, Any]], dict[str, Any]]
"""Given the options that were chosen, by our names, returns options for some of the others."""


@hides_arguments
def configured(
    config: ConfigInput, options: Mapping[str, Any], left_out: MoreOptions | None = None
) -> ProducerConfig:
    """Return the configuration for a constructor's positional and keyword arguments.

    Args:
        config: The positional argument; a mapping is read as by `ProducerConfig.from_properties`.
        options: The keyword arguments, which override it.
        left_out: Defaults of options that neither gives, in place of Kafka's; without effect where
            `config` is a `ProducerConfig`.

    Raises:
        ConfigError: An option is unknown, out of range or contradicts another.
        TypeError: `config` is something else.
    """
    if isinstance(config, Mapping):
        return ProducerConfig._read(config, options, left_out)
    if config is None:
        chosen = _by_our_names({**options})
        return ProducerConfig(**(chosen if left_out is None else left_out(chosen) | chosen))
    if isinstance(config, ProducerConfig):
        return config.replace(**options) if options else config
    hint = ""
    if isinstance(config, str | list | tuple):
        servers = repr(config)
        shown = "..." if "@" in servers else servers
        hint = f"; name the brokers by keyword: bootstrap_servers={shown}"
    raise TypeError(
        "the positional argument must be a ProducerConfig or a mapping of properties, not "
        f"{type(config).__name__}{hint}"
    )


def _by_our_names(options: dict[str, Any], codec: object = None) -> dict[str, Any]:
    """Return options given by keyword under our names."""
    if options.keys() <= OPTIONS.keys():
        return options
    # Imported only for another client's names.
    from aioproducer.config.reading import options_of

    return options_of(options, as_text=False, codec=codec)


def _refuse_unknown_variables(names: Mapping[str, str]) -> None:
    """Raise for an environment variable that names no option; names of variables by option."""
    from aioproducer.config.reading import is_known, unknown

    for option, name in names.items():
        if not is_known(option):
            error = unknown(option, dotted=False)
            if option in error.message:  # it is shown
                advice = f"rename or unset the environment variable {name}, or use another prefix"
                error = error.with_context(advice=advice)
            raise error


def _codec_of(options: Mapping[str, Any]) -> object:
    """Return the compression type that options set under any name; None if they do not."""
    if options.keys() <= OPTIONS.keys():
        return options.get("compression_type")
    from aioproducer.config.reading import codec_of

    return codec_of(options)
