from __future__ import annotations

import pytest

from aioproducer import errors
from aioproducer.cli import main
from aioproducer.cli.console import FileError
from aioproducer.cli.exit_codes import ExitCode, exit_code_for
from aioproducer.loader import MappingError, RejectedRowError, SourceError, StateError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RejectedRowError(), ExitCode.SOME_FAILED),
        (SourceError(), ExitCode.INPUT),
        (MappingError(), ExitCode.USAGE),
        (StateError(), ExitCode.FILES),
        (FileError(), ExitCode.FILES),
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


def test_the_help_names_every_code_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for code in ExitCode:
        assert f" {int(code)} {code.meaning}" in shown


def test_a_code_is_its_number_for_the_shell() -> None:
    assert (ExitCode.REFUSED, int(ExitCode.TERMINATED)) == (5, 143)
