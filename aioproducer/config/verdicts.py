"""The meaning of another client's option here: the three verdicts.

`names` has the table of all names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Alias(NamedTuple):
    """The name sets an option of ours.

    Attributes:
        option: The option; `*` is the compression type in force.
        convert: Converts a value, text or not, to the option's: a `ValueError` or `TypeError` says
            that it is none. Without it values are the same in both clients.
        expects: What `convert` takes, for messages.
        rank: Of two names of one option the one of higher rank counts; of equal rank only one may
            be given, unless both say the same. Our own names have rank 0.
    """

    option: str
    convert: Callable[[Any], object] | None = None
    expects: str = ""
    rank: int = 0


class WithoutEffect(NamedTuple):
    """The name is accepted and changes nothing; `reason` goes to the log."""

    reason: str


class Refused(NamedTuple):
    """The name raises `ConfigError`: ignoring it would change what the program relies on.

    Attributes:
        reason: Why there is no such option here.
        instead: What to do.
        harmless: Values, in lower case, that ask for what this client does anyway.
    """

    reason: str
    instead: str
    harmless: tuple[str, ...] = ()


Verdict = Alias | WithoutEffect | Refused
