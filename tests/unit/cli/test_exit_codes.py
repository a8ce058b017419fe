from __future__ import annotations

import re

import pytest

from aioproducer import errors
from aioproducer.cli import exit_codes
from aioproducer.cli.exit_codes import ExitCode, exit_code_for
from aioproducer.loader import MappingError, RejectedRowError, SourceError, StateError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RejectedRowError(), ExitCode.SOME_FAILED),
        (SourceError(), ExitCode.INPUT),
        (MappingError(), ExitCode.USAGE),
        (StateError(), ExitCode.FILES),
        (errors.ConfigError(), ExitCode.USAGE),
        (errors.BootstrapError(), ExitCode.UNREACHABLE),
        (errors.MetadataTimeoutError(), ExitCode.UNREACHABLE),
        (errors.DeliveryTimeoutError(), ExitCode.UNREACHABLE),
        (errors.TopicAuthorizationFailedError(), ExitCode.REFUSED),
        (errors.InvalidTopicError(), ExitCode.REFUSED),
        (errors.RecordTooLargeError(), ExitCode.SOME_FAILED),
        (ZeroDivisionError(), ExitCode.BUG),
    ],
)
def test_error_has_its_exit_code(error: Exception, code: ExitCode) -> None:
    assert exit_code_for(error) is code


def test_table_in_the_documentation_names_every_code() -> None:
    documented = re.findall(r"^\| (\d+) \|", exit_codes.__doc__ or "", re.MULTILINE)
    assert [int(code) for code in documented] == sorted(ExitCode)
