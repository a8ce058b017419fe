"""The options of the data source: Spark's strings, checked on the driver.

Invariants
- An unknown option that may have been meant for us is refused, with the nearest name that is known;
  any other is Spark's, such as `queryName`, and is ignored (`_is_ours`).
- No error quotes the value of an option: it may be a secret in the wrong place.
- What is pickled for the executors are the strings as given: a secret taken from the environment
  (`kafka.<name>.env`) is read where the producer is made and is never sent. It is read if that
  process allows it (`AIOPRODUCER_ALLOW`): the author of options also chooses the broker.
- No `repr` shows a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from aioproducer._util.secrets import hides_arguments
from aioproducer.config import ProducerConfig
from aioproducer.config.permissions import VARIABLE as PERMISSIONS
from aioproducer.config.permissions import Permissions
from aioproducer.config.reading import all_names, is_known, option_set_by
from aioproducer.errors import ConfigError
from aioproducer.spark.wording import FROM_ENVIRONMENT, KAFKA, VARIABLE, option_errors

_SERVERS: Final = "bootstrap.servers"


class Guarantee(Enum):
    """The values of `delivery.guarantee`."""

    AT_LEAST_ONCE = "at-least-once"
    """Every row is written, once unless Spark runs its task or batch again."""
    TASK_TRANSACTIONS = "task-transactions"
    """At least once, but read_committed consumers see no rows of a task that failed."""
    EXACTLY_ONCE = "exactly-once"
    """read_committed consumers see every row once, a micro-batch or batch job as a whole."""


class OwnOption(NamedTuple):
    """One row of the table of our own options.

    Attributes:
        name: as users write it; Spark and we ignore its case.
        default: the default, as text.
        doc: what it does.
        used: where it counts: `write`, `stream`, `read`, several separated by blanks.
    """

    name: str
    default: str
    doc: str
    used: str = "write stream"


OWN_OPTIONS: Final = (
    OwnOption(
        "topic",
        "the column `topic`",
        "Topic of all rows; it overrides the column `topic`.",
        used="write stream read",
    ),
    OwnOption(
        "delivery.guarantee",
        "`at-least-once`",
        "`at-least-once`, `task-transactions` or `exactly-once`.",
    ),
    OwnOption(
        "transactional.id.prefix",
        "from the checkpoint or `job.id`",
        "Prefix of the transactional ids; only one query or job may use it at a time.",
    ),
    OwnOption(
        "job.id",
        "none",
        "Name of a batch job; with `exactly-once`, a second run of the job with the same `topic` "
        "writes nothing.",
        used="write",
    ),
    OwnOption(
        "job.epoch",
        "`0`",
        "Number of this run of the job, with `job.id` and `exactly-once`: each number is written "
        "once, in ascending order.",
        used="write",
    ),
    OwnOption(
        "marker.topic",
        "`topic`",
        "An existing topic; `exactly-once` stores its decisions as offsets of it and writes no "
        "record to it.",
    ),
    OwnOption(
        "accept.lost.epoch", "none", "After an `EpochLostError`: the epoch to continue without."
    ),
    OwnOption(
        "dead.letter.topic",
        "none: a rejected row fails its task",
        "Topic for rows that do not fit a schema or that Kafka rejects.",
    ),
    OwnOption(
        "dead.letter.path",
        "none: a rejected row fails its task",
        "Absolute path of an existing directory that all executors mount: files of such rows, "
        "at least once. Instead of `dead.letter.topic`.",
    ),
    OwnOption(
        "value.format",
        "none: bytes or text",
        "`avro`, `json-schema` or `protobuf`: encodes the column `value`, or all columns that are "
        "not part of a record.",
    ),
    OwnOption("value.subject", "`<topic>-value`", "Subject of the schema."),
    OwnOption(
        "value.schema",
        "the subject's newest",
        "The schema's text; for Protobuf a `FileDescriptorSet` in base64.",
    ),
    OwnOption("value.message", "the schema's first", "Full name of the Protobuf message."),
    OwnOption("key.format", "none", "As `value.format`, for the column `key`."),
    OwnOption("key.subject", "`<topic>-key`", "Subject of the schema."),
    OwnOption("key.schema", "the subject's newest", "As `value.schema`."),
    OwnOption("key.message", "the schema's first", "As `value.message`."),
    OwnOption(
        "schema.registry.url", "none", "Address of the registry, or several, separated by commas."
    ),
    OwnOption(
        "schema.registry.user.info.env",
        "none",
        "Environment variable with the registry's `user:password`.",
    ),
    OwnOption("auto.register.schemas", "`false`", "Whether schemas are registered."),
    OwnOption(
        "topic.timeout.ms",
        "`10000`",
        "How long to wait for a topic or partition that does not exist.",
    ),
    OwnOption("checkpointLocation", "the session's", "Spark's own.", used="stream"),
    OwnOption(
        "startingOffsets",
        "`earliest`",
        '`earliest`, `latest` or `{"topic":{"0":17}}`; -2 and -1 mean the same two.',
        used="read",
    ),
    OwnOption(
        "endingOffsets", "`latest`", "The offsets to stop before, in the same form.", used="read"
    ),
    OwnOption("isolation.level", "`read_committed`", "Or `read_uncommitted`.", used="read"),
    OwnOption(
        "includeHeaders",
        "`true`",
        "Whether reads have a column `headers`, and whether writes write it.",
        used="write stream read",
    ),
)

_BY_NAME: Final = {option.name.lower(): option for option in OWN_OPTIONS}

TABLE: Final = "table"
"""The use of options for a table that is created: they may be for its reads and its writes."""

_WORDS: Final = {word for name in _BY_NAME for word in name.split(".")} - {"path"}
"""Words that only ours have: `path` is Spark's, from `save("...")`."""
_FIRST_WORDS: Final = {name.split(".")[0] for name in _BY_NAME if "." in name}

_OURS: Final = {
    "key.serializer": "the types of the columns decide: binary, or string as UTF-8",
    "value.serializer": "the types of the columns decide: binary, or string as UTF-8",
    "transactional.id": "give transactional.id.prefix: every task needs its own id",
}
"""Producer options that the data source has to set itself."""

_NAMES: Final = (
    "topic",
    "dead.letter.topic",
    "dead.letter.path",
    "transactional.id.prefix",
    "job.id",
    "marker.topic",
)
"""Options of ours that name something."""

_TOPIC_INSTEAD: Final = "give the option topic"
_OFFSETS_INSTEAD: Final = (
    "give startingOffsets and endingOffsets, or filter by the column timestamp"
)
_OF_KAFKA_SOURCE: Final = {
    "assign": _TOPIC_INSTEAD,
    "subscribe": _TOPIC_INSTEAD,
    "subscribePattern": _TOPIC_INSTEAD,
    "startingOffsetsByTimestamp": _OFFSETS_INSTEAD,
    "endingOffsetsByTimestamp": _OFFSETS_INSTEAD,
    "startingTimestamp": _OFFSETS_INSTEAD,
    "endingTimestamp": _OFFSETS_INSTEAD,
}
"""Options of Spark's own Kafka source that choose records, and what to do instead."""
_ISOLATION: Final = "isolation.level"

_EXACT: Final = {"checkpointlocation", "dead.letter.path", "job.id", "transactional.id.prefix"}
"""The data source's options whose values may begin or end with a blank."""

_FORMATS: Final = ("avro", "json-schema", "protobuf")
_TOPICS: Final = ("topic", "dead.letter.topic", "marker.topic")
_NUMBER: Final = re.compile("[0-9]{1,18}")
_NUMBERS: Final = {
    "accept.lost.epoch": "the number of an epoch",
    "job.epoch": "a number",
    "topic.timeout.ms": "a number of milliseconds",
}
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")

_ADVICE: Final = (
    "for a table: Spark hands no OPTIONS of a table with declared columns to Python data sources; "
    "create it without columns or as a TEMPORARY VIEW, write INSERT INTO t WITH (...), or "
    "register(spark, options={...})"
)

DEFAULTS: Final = {"batch.size": "262144", "linger.ms": "20", "client.id": "aioproducer-spark"}
"""Defaults that differ from Kafka's, since Spark passes rows by the ten thousand.

Batches are not larger, since an open one reserves its whole size from `buffer.memory`. If that is
less than one batch for each partition of the topic, batches are sent nearly empty.
"""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write.

    Attributes:
        own: our own options by their lower-case names.
        kafka: the producer's options by Kafka's names, as given.
    """

    own: Mapping[str, str]
    kafka: Mapping[str, str] = field(repr=False)

    @classmethod
    @hides_arguments
    def parse(cls, options: Mapping[str, str], use: str) -> Self:
        """Sort and check the options, for the use `write`, `stream`, `read` or `TABLE`."""
        own: dict[str, str] = {}
        kafka: dict[str, str] = {}
        for given, value in _texts(options).items():
            name = given.lower()
            if name == KAFKA + _ISOLATION and use == "read":
                own.setdefault(_ISOLATION, value.strip())  # as Spark's own source has it
            elif name.startswith(KAFKA):
                kafka[name.removeprefix(KAFKA)] = value
            elif _is_ours(name, use, options):
                own[name] = value if name in _EXACT else value.strip()
        for name in kafka:
            _check_kafka(name)
        if _SERVERS not in kafka:
            raise ConfigError(f"the option {KAFKA}{_SERVERS} must be given", advice=_ADVICE)
        parsed = cls(own, kafka)
        parsed._check()
        return parsed

    def refuse_secrets(self, given: Mapping[str, str]) -> None:
        """Refuse secrets that Spark would keep in its catalog."""
        for name in given:
            row = option_set_by(name.lower().removeprefix(KAFKA))
            if row is not None and row.secret:
                raise ConfigError(
                    f"{name} is a secret, and Spark keeps the options of a table in its catalog",
                    advice=f"give {name}{FROM_ENVIRONMENT}, the name of an environment variable "
                    f"that {PERMISSIONS} allows",
                )

    @property
    def topic(self) -> str | None:
        """The topic of all rows; None where a column names them."""
        return self.own.get("topic")

    @property
    def guarantee(self) -> Guarantee:
        """The delivery guarantee."""
        return Guarantee(self.own.get("delivery.guarantee", Guarantee.AT_LEAST_ONCE.value).lower())

    @property
    def topic_timeout_s(self) -> float:
        """The wait for a missing topic, in seconds."""
        return int(self.own.get("topic.timeout.ms", "10000")) / 1000

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic of refused rows."""
        return self.own.get("dead.letter.topic")

    @property
    def dead_letter_path(self) -> str | None:
        """The directory of refused rows."""
        return self.own.get("dead.letter.path")

    @property
    def keeps_refused(self) -> bool:
        """Whether refused rows go elsewhere instead of failing their task."""
        return self.dead_letter_topic is not None or self.dead_letter_path is not None

    @property
    def include_headers(self) -> bool:
        """Whether headers are read or written."""
        return _flag(self.own, "includeHeaders", "true")

    @hides_arguments
    def registry(self) -> dict[str, Any]:
        """Return the arguments of this process's `SchemaRegistry`, and `auto_register`."""
        login = None
        variable = self.own.get("schema.registry.user.info.env")
        if variable is not None:
            _check_permission("schema.registry.user.info.env", variable, Permissions(()))
            user, colon, password = os.environ.get(variable, "").partition(":")
            if not colon:
                raise ConfigError(
                    "schema.registry.user.info.env must name an environment variable that holds "
                    "user:password in this process",
                    advice="set it for the executors (spark.executorEnv.*)",
                )
            login = (user, password)
        return {
            "url": tuple(self.own["schema.registry.url"].split(",")),
            "basic_auth": login,
            "auto_register": _flag(self.own, "auto.register.schemas", "false"),
        }

    @hides_arguments
    def config(self, **options: Any) -> ProducerConfig:
        """Return the producer's options in this process; `options` overrule them."""
        return self._config(os.environ).replace(**options)

    def _config(self, environ: Mapping[str, str]) -> ProducerConfig:
        given = {
            name: value for name, value in self.kafka.items() if not name.endswith(FROM_ENVIRONMENT)
        }
        permissions = Permissions(())
        for name, variable in self.kafka.items():
            if name.endswith(FROM_ENVIRONMENT):
                _check_permission(KAFKA + name, variable, permissions)
                stem = name.removesuffix(FROM_ENVIRONMENT)
                if stem in given:
                    raise ConfigError(f"{KAFKA}{stem} is given twice, the second time as .env")
                if variable not in environ:
                    raise ConfigError(
                        f"{KAFKA}{name} names {_shown_variable(variable)} which is not set in this "
                        "process",
                        advice="set it for driver and executors (spark.executorEnv.*)",
                    )
                given[stem] = environ[variable]
        chosen = {_dotted(name) for name in given}
        defaults = {name: value for name, value in DEFAULTS.items() if name not in chosen}
        with option_errors(given):
            return ProducerConfig.from_properties(defaults | given)

    def _check_formats(self) -> None:
        """Check what goes with the formats of a schema registry."""
        for flag in ("auto.register.schemas", "includeHeaders"):
            _flag(self.own, flag, "true")
        url = "schema.registry.url"
        for part in ("key", "value"):
            kind = self.own.get(f"{part}.format")
            if kind is not None and kind.lower() not in _FORMATS:
                raise ConfigError(f"{part}.format must be one of {', '.join(_FORMATS)}")
            if kind is None and {f"{part}.subject", f"{part}.schema"} & self.own.keys():
                raise ConfigError(f"{part}.subject and {part}.schema go with {part}.format")
            if f"{part}.message" in self.own and (kind or "").lower() != "protobuf":
                raise ConfigError(f"{part}.message goes with {part}.format=protobuf")
            if kind is not None and url not in self.own:
                raise ConfigError(f"{part}.format needs {url}")
        if set("@?#") & set(self.own.get(url, "")):
            raise ConfigError(
                f"{url} must not hold a user, a password or a query",
                advice="name an environment variable by schema.registry.user.info.env",
            )
        if ":" in self.own.get("schema.registry.user.info.env", ""):
            # It is user:password itself, and would travel to the executors.
            raise ConfigError(
                "schema.registry.user.info.env must be the name of an environment variable"
            )

    def _check_dead_letters(self) -> None:
        path = self.own.get("dead.letter.path")
        if not path:  # an empty one is refused with other names
            return
        if "dead.letter.topic" in self.own:
            raise ConfigError("dead.letter.topic and dead.letter.path cannot be given together")
        if not Path(path).is_absolute():
            raise ConfigError(
                "dead.letter.path must be an absolute path, not a relative one or a URL",
                advice="mount the file system on every executor, and give the directory's path",
            )

    def _check(self) -> None:
        """Raise for every mistake that can be found before a connection is made."""
        variables = [value for name, value in self.kafka.items() if name.endswith(FROM_ENVIRONMENT)]
        # A driver may lack the executors' secrets: any text does for the check.
        config = self._config({**dict.fromkeys(variables, "unknown"), **os.environ})
        if config.acks_value == 0:
            raise ConfigError("kafka.acks=0 cannot show whether a row was written; no guarantee")
        self._check_guarantee(config)
        own, is_exact = self.own, self.guarantee is Guarantee.EXACTLY_ONCE
        for name, what in _NUMBERS.items():
            if not _NUMBER.fullmatch(own.get(name, "0")):
                raise ConfigError(f"{name} must be {what}")
        if "job.epoch" in own and not (is_exact and "job.id" in own):
            raise ConfigError("job.epoch goes with job.id and delivery.guarantee=exactly-once")
        if "job.id" in own and self.guarantee is Guarantee.AT_LEAST_ONCE:
            raise ConfigError(
                "job.id goes with delivery.guarantee=exactly-once or task-transactions"
            )
        if "accept.lost.epoch" in own and not is_exact:
            raise ConfigError("accept.lost.epoch goes with delivery.guarantee=exactly-once")
        self._check_formats()
        self._check_dead_letters()
        for name in _NAMES:
            if self.own.get(name) == "":
                raise ConfigError(f"{name} is empty")
        for name in _TOPICS:
            if name in self.own and not _TOPIC.fullmatch(self.own[name]):
                raise ConfigError(
                    f"{name} is not a name of a topic: these have up to 249 letters, digits, dots, "
                    "underscores and hyphens"
                )

    def _check_guarantee(self, config: ProducerConfig) -> None:
        try:
            guarantee = self.guarantee
        except ValueError:
            known = [each.value for each in Guarantee]
            raise ConfigError(f"delivery.guarantee must be one of {', '.join(known)}") from None
        if guarantee is not Guarantee.AT_LEAST_ONCE and not config.effective_idempotence:
            reasons = {
                "acks": config.acks_value != -1,
                "retries": config.retries == 0,
                "enable.idempotence": "enable_idempotence" in config.explicitly_set
                and not config.enable_idempotence,
            }
            names = ", ".join(KAFKA + name for name, holds in reasons.items() if holds)
            raise ConfigError(
                f"delivery.guarantee={guarantee.value} needs an idempotent producer, which "
                f"{names} excludes",
                advice="leave the option out",
            )
        if guarantee is Guarantee.AT_LEAST_ONCE and "transactional.id.prefix" in self.own:
            raise ConfigError(
                "transactional.id.prefix is given, but delivery.guarantee=at-least-once has "
                "no transactions"
            )
        if guarantee is Guarantee.EXACTLY_ONCE and not {"topic", "marker.topic"} & set(self.own):
            raise ConfigError(
                "delivery.guarantee=exactly-once needs the option topic, or marker.topic where the "
                "rows choose their topics"
            )


def only_for(use: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options that are shared by reads and writes, without those of no meaning here."""
    return {
        name: value
        for name, value in options.items()
        if (row := _BY_NAME.get(name.lower())) is None or use in row.used.split()
    }


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as PySpark passes them on: `True` is `true`, and None is not given."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


def _flag(own: Mapping[str, str], name: str, default: str) -> bool:
    text = own.get(name.lower(), default).lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name} must be true or false")
    return text == "true"


def _is_ours(name: str, use: str, options: Mapping[str, str]) -> bool:
    """Return whether an option is one of ours; if not, it is Spark's own and is ignored.

    An option that is like one of ours is refused: a misspelt guarantee must not go unnoticed. Like
    ours is what lacks the `kafka.`, begins with a word that ours begin with, is a word of ours, or
    is nearly spelt like ours.
    """
    option = _BY_NAME.get(name)
    if option is not None and use in (TABLE, *option.used.split()):
        return True
    if option is not None:
        raise ConfigError(f"the option {option.name} has no meaning here ({use})")
    for foreign, advice in _OF_KAFKA_SOURCE.items():
        if name == foreign.lower() and use in ("read", TABLE):
            raise ConfigError(f"{foreign} is an option of Spark's own Kafka source", advice=advice)
    if name == "path" and "topic" not in {given.lower() for given in options}:
        raise ConfigError('there is no path: call save() or start(), and give option("topic", ...)')
    words = re.split(r"[._-]", name)
    usable = [each.name for each in OWN_OPTIONS if use in (TABLE, *each.used.split())]
    nearest = get_close_matches(name, [each.lower() for each in _BY_NAME], n=1, cutoff=0.75)
    if (
        nearest
        or (words[0] in _FIRST_WORDS if len(words) > 1 else name in _WORDS)
        or is_known(name)
    ):
        raise _unknown(name, [*usable, *_producer_options()])
    return False


def _check_kafka(name: str) -> None:
    stem = name.removesuffix(FROM_ENVIRONMENT)
    if not is_known(stem):
        raise _unknown(KAFKA + name, _producer_options())
    if _dotted(stem) in _OURS:
        raise ConfigError(f"{KAFKA}{name} cannot be given: {_OURS[_dotted(stem)]}")


def _check_permission(option: str, variable: str, permissions: Permissions) -> None:
    """Raise `ConfigError` unless this process lets options read a variable."""
    if not permissions.has_variable(variable):
        raise ConfigError(
            f"{option} names {_shown_variable(variable)} which this process does not let options "
            "read",
            advice=f"set {PERMISSIONS}=env:NAME in the environment of driver and executors "
            f"(spark.executorEnv.{PERMISSIONS})",
        )


def _shown_variable(name: str) -> str:
    """Quote the name of a variable; text that is not like one may be the secret itself."""
    if VARIABLE.fullmatch(name):
        return f"the environment variable {name!r},"
    return "no environment variable in capital letters: its value is the name of a variable,"


def _dotted(name: str) -> str:
    """Kafka's name of an option."""
    row = option_set_by(name)
    return name if row is None else row.kafka_name


def _producer_options() -> list[str]:
    return [KAFKA + name for name in all_names(dotted=True)]


def _unknown(name: str, known: list[str]) -> ConfigError:
    nearest = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"unknown option {name}{hint}")
