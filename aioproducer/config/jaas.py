"""Java's JAAS line: the login module and its options out of `sasl.jaas.config`, as `JaasConfig`.

Invariant: no error repeats a value of the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproducer._util.secrets import Unpicklable, hides_arguments
from aioproducer.errors import ConfigError

_TOKEN: Final = re.compile(
    r"""\s*(?://[^\n]*|/\*.*?(?:\*/|\Z)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{2}|[0-7]{1,2})|(.))", re.DOTALL)
"""As Java's `StreamTokenizer`: an octal number, or a character."""
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_NAME: Final = "sasl_jaas_config"


class _Module(NamedTuple):
    mechanisms: tuple[str, ...]
    options: frozenset[str]
    prefixes: tuple[str, ...] = ()


_MODULES: Final = {
    "PlainLoginModule": _Module(("PLAIN",), frozenset({"username", "password"})),
    "ScramLoginModule": _Module(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"), frozenset({"username", "password", "tokenauth"})
    ),
    "OAuthBearerLoginModule": _Module(
        ("OAUTHBEARER",),
        frozenset({"clientId", "clientSecret", "scope"}),
        ("unsecuredLogin", "extension_"),
    ),
    "Krb5LoginModule": _Module(
        ("GSSAPI",),
        frozenset(
            {"useKeyTab", "keyTab", "principal", "serviceName", "useTicketCache", "ticketCache"}
            # These have no meaning outside Java.
            | {"storeKey", "doNotPrompt", "refreshKrb5Config", "isInitiator", "debug", "renewTGT"}
        ),
    ),
    "IAMLoginModule": _Module(("AWS_MSK_IAM",), frozenset({"awsProfileName", "awsDebugCreds"})),
}

_OPTIONS: Final = frozenset(name for each in _MODULES.values() for name in each.options)


@dataclass(frozen=True, slots=True)
class JaasLogin(Unpicklable):
    """A login module's short class name and its options."""

    module: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@hides_arguments
def parse_jaas(line: str | None, mechanism: str) -> JaasLogin:
    """Read one line such as `...PlainLoginModule required username="me" password="...";`.

    Without a line the login is empty.
    """
    if line is None:
        return JaasLogin()
    tokens = _tokens(line)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise ConfigError(
            f"{_NAME} must be of the form: module required name=value ... ;",
            advice="give the line itself, not the path of a file that has it, with ; at its end",
        )
    module = tokens[0].rpartition(".")[2]
    known = _MODULES.get(module)
    if known is None:
        raise ConfigError(f"{_NAME} names a login module that is not one of {', '.join(_MODULES)}")
    if mechanism not in known.mechanisms:
        raise ConfigError(
            f"{_NAME} names {module}, which is for {' and '.join(known.mechanisms)}, but "
            f"sasl_mechanism is {mechanism}",
            advice=f"set sasl_mechanism to {' or '.join(known.mechanisms)}, or name the module of "
            f"{mechanism}",
        )
    given = tokens[2:-1]
    if len(given) % 3 or any(sign != "=" for sign in given[1::3]):
        raise ConfigError(f"{_NAME}: after the module come options of the form name=value, then ;")
    options = dict(zip(given[::3], given[2::3], strict=True))
    for name in options:
        if name not in known.options and not name.startswith(known.prefixes or ("\0",)):
            # A name that no module has may be a piece of a password with a quote in it.
            shown = f"no option {name}" if name in _OPTIONS else "an option that it does not have"
            raise ConfigError(
                f"{_NAME}: {module} has {shown}; it has {', '.join(sorted(known.options))}",
                advice="put values in quotes, and a backslash before each quote inside",
            )
    return JaasLogin(module, options)


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8)) if escape[1] else _ESCAPES.get(escape[2], escape[2])


def _tokens(line: str) -> list[str]:
    tokens, at = [], 0
    line = line.strip()
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None:
            raise ConfigError(f"{_NAME} has a quote that is not closed")
        at = found.end()
        quoted = found[1] if found[1] is not None else found[2]
        if quoted is not None:
            tokens.append(_ESCAPE.sub(_character, quoted))
        elif plain := found[3] or found[4]:
            tokens.append(plain)
    return tokens
