"""Files, variables, code and token endpoints that properties may use.

None by default.

Properties come from files, forms and queries, the permission from the application: the author of
properties also names the broker that gets the values (Java: CVE-2024-31141, CVE-2025-27817). Start
with `Permissions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from aioproducer._util.printable import printable
from aioproducer._util.secrets import without_login
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

# Modules that take their time are imported where they are needed: most properties name no file.

VARIABLE: Final = "AIOPRODUCER_ALLOW"
"""The environment variable with permissions from the user that starts the process."""

EVERYTHING: Final = ("env", "file", "url", "aws", "class")

FILES: Final = (
    "sasl_oauthbearer_assertion_file",
    "sasl_oauthbearer_assertion_private_key_file",
    "sasl_oauthbearer_assertion_template_file",
)
"""Options that name files whose content a token endpoint gets."""

ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
REPORTERS: Final = "metric_reporters"
_SCHEMES: Final = ("http", "https")


class Permissions:
    """Permissions of an application for its properties.

    Args:
        given: Any of `env` or `env:PATTERN` (variables by name, as `env:KAFKA_*`), `file` or
            `file:PATH` (a file, or what is below a directory), `url` or the URL of a token
            endpoint, as `https://issuer.example/token`; one without a path allows all of its paths;
            `aws`, the credentials that `AWS_MSK_IAM` finds as AWS tools do; `class` or
            `class:PATTERN`, code to be imported by name, as `class:metrics_of_ours.*`.

    Raises:
        ConfigError: One of them is something else.
    """

    def __init__(self, given: Iterable[str]) -> None:
        self._patterns: dict[str, list[str]] = {"env": [], "class": []}
        self._paths: list[Path] = []
        self._urls: list[tuple[str, str, int | None, str]] = []
        self._without_limit: set[str] = set()
        entries = given.split(",") if isinstance(given, str) else given
        for entry in (*entries, *_of_environment()):
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        kind, colon, rest = entry.partition(":")
        kind = kind.lower()
        if colon and not rest:
            kind = ""
        if kind in self._patterns:
            self._patterns[kind].append(rest if colon else "*")
        elif kind in ("file", "url", "aws") and not colon:
            self._without_limit.add(kind)
        elif kind == "file":
            self._paths.append(_resolved(_path_of(entry)))
        elif kind in _SCHEMES:
            self._urls.append(_place_of(entry))
        else:
            raise ConfigError(
                f"{printable(entry, 100)!r} is nothing that can be allowed",
                advice="allow env, env:PATTERN, file, file:PATH, url, aws, class, class:PATTERN, "
                "or the URL of a token endpoint",
            )

    def has_variable(self, name: str) -> bool:
        """Return whether a variable may be read."""
        return _fits(name, self._patterns["env"])

    def check_variable(self, name: str) -> None:
        """Raise `ConfigError` unless a variable may be read."""
        if not self.has_variable(name):
            raise refused(f"the environment variable {printable(name, 100)}", f"env:{name}")

    def check_file(self, path: str | Path) -> None:
        """Raise `ConfigError` unless a file may be read."""
        resolved = _resolved(path)
        is_in_path = any(resolved.is_relative_to(each) for each in self._paths)
        if not is_in_path and "file" not in self._without_limit:
            raise refused(f"the file {printable(str(path), 200)}", f"file:{path}")

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise `ConfigError` if options read from properties name what is not allowed."""
        for name in FILES:
            value = options.get(name)
            if isinstance(value, str):
                self.check_file(value)
        url = options.get(ENDPOINT)
        if isinstance(url, str):
            self._check_url(url)
        for name in class_names(options.get(REPORTERS)):
            if not _fits(name, self._patterns["class"]):
                raise refused(f"the code {printable(name, 200)} to be run", f"class:{name}")
        uses_aws = str(options.get("sasl_mechanism", "")).upper() == "AWS_MSK_IAM"
        finds_login = uses_aws and options.get("sasl_credentials") is None
        if finds_login and "aws" not in self._without_limit:
            raise refused("this machine's AWS credentials (AWS_MSK_IAM)", "aws")

    def _check_url(self, url: str) -> None:
        from aioproducer._util.paths import path_in_url

        if url[:5].lower() == "file:":
            self.check_file(path_in_url(url))
        elif "url" not in self._without_limit:
            *server, path = _place_of(url)
            if not any(
                list(each[:3]) == server and each[3] in ("", "/", path) for each in self._urls
            ):
                shown = printable(without_login(url), 200)
                raise refused(f"the token endpoint {shown}", shown)


def pass_on(allowed: Iterable[str]) -> None:
    """Allow the same to processes that this one starts, such as Spark's on this machine."""
    entries = [*_of_environment(), *allowed]
    if entries:
        os.environ[VARIABLE] = ",".join(entries)


def refused(what: str, entry: str) -> ConfigError:
    """Return the error for something in properties that is not allowed."""
    return ConfigError(
        f"properties name {what}, which the application does not allow them",
        advice=f"if they may, pass allow=[{printable(entry, 200)!r}] to "
        f"ProducerConfig.from_properties or from_file, or set {VARIABLE} in the "
        "environment; the command line has --allow",
    )


def class_names(reporters: object) -> list[str]:
    """Return the names in a value of `metric_reporters` that are imported."""
    if not reporters:
        return []
    from aioproducer.config.reporters import OF_JAVA

    given = reporters.split(",") if isinstance(reporters, str) else reporters
    names = given if isinstance(given, Iterable) else ()
    stripped = (each.strip() for each in names if isinstance(each, str))
    return [each for each in stripped if each and each not in OF_JAVA]


def _fits(name: str, patterns: Iterable[str]) -> bool:
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _of_environment() -> list[str]:
    return [each for each in os.environ.get(VARIABLE, "").split(",") if each.strip()]


def _path_of(entry: str) -> str:
    """Return the path of `file:/a`, `file:///a` or `file:a`."""
    from aioproducer._util.paths import path_in_url

    path = entry.partition(":")[2]
    return path_in_url(entry) if path.startswith("//") else path


def _resolved(path: str | Path) -> Path:
    from pathlib import Path

    return Path(path).resolve()


def _place_of(url: str) -> tuple[str, str, int | None, str]:
    """Return what has to be the same in the URL that is allowed and the one that is used."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        port = parts.port or {"http": 80, "https": 443}.get(scheme)
        return scheme, (parts.hostname or "").rstrip("."), port, parts.path
    except ValueError:
        return "", "", None, url
