"""The result of a check: good, questionable or bad, as text for people and a code for scripts.

Invariants: a failure says what to do; a code means the same thing in every release (they are listed
in `CODES`); nothing here holds a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from aioproducer._util.printable import printable
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.config import OPTIONS
from aioproducer.errors.advice import CHECKS

_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")

_LONGEST_TEXT = 2000


class Status(StrEnum):
    """The verdict of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check; `code` is a key of `CODES`, or `ok` and `skipped`."""

    check: str
    about: str
    status: Status
    code: str
    found: str
    advice: str | None = None
    details: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.OK

    def __post_init__(self) -> None:
        """Escape unprintable characters in names and in text from brokers."""
        for name in ("about", "found", "advice"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, printable(text, _LONGEST_TEXT))
        details = tuple(printable(each, _LONGEST_TEXT) for each in self.details)
        object.__setattr__(self, "details", details)

    @classmethod
    def good(cls, check: str, about: str, found: str, *details: str) -> Finding:
        """Return the finding of a check that passed."""
        return cls(check, about, Status.OK, "ok", found, details=details)

    @classmethod
    def skipped(cls, check: str, about: str, why: str, advice: str | None = None) -> Finding:
        """Return the finding of a check that was skipped."""
        return cls(check, about, Status.SKIP, "skipped", why, advice)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types, for scripts."""
        return {name: each for name, each in asdict(self).items() if name != "exit_code"}


class CheckFailedError(Exception):
    """A check failed; `code` names the cause, a key of `CODES`."""

    def __init__(
        self,
        code: str,
        found: str,
        advice: str | None = None,
        *details: str,
        status: Status = Status.FAIL,
        exit_code: ExitCode = ExitCode.REFUSED,
    ) -> None:
        super().__init__(found)
        self.code: str = code
        self.found: str = found
        self.advice: str = CODES[code] if advice is None else as_typed(advice)
        self.details: tuple[str, ...] = details
        self.status: Status = status
        self.exit_code: ExitCode = exit_code

    def finding(self, check: str, about: str) -> Finding:
        """Return the failure as a finding."""
        return Finding(
            check,
            about,
            self.status,
            self.code,
            self.found,
            self.advice,
            self.details,
            self.exit_code if self.status is Status.FAIL else ExitCode.OK,
        )


def verdict(findings: Iterable[Finding]) -> tuple[Status, ExitCode]:
    """Return the worst severity, and the exit code of the first failure."""
    found = list(findings)
    failed = [each for each in found if each.status is Status.FAIL]
    if failed:
        return Status.FAIL, failed[0].exit_code
    warned = any(each.status is Status.WARN for each in found)
    return (Status.WARN if warned else Status.OK), ExitCode.OK


def as_typed(advice: str) -> str:
    """Return the advice with the options' names as they are in files and on the command line."""
    return _NAME.sub(
        lambda found: OPTIONS[found[0]].kafka_name if found[0] in OPTIONS else found[0], advice
    )


CODES: Mapping[str, str] = {code: as_typed(advice) for code, advice in CHECKS.items()}
"""The advice for each cause, unless the failure has advice about its own case."""
