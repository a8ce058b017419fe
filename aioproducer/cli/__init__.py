"""The command line, `aioproducer` or `python -m aioproducer`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_NEEDED = ("typer", "click", "rich")
_INTERRUPTED = 130
"""`ExitCode.INTERRUPTED`, for a Ctrl-C before that is imported."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the process's exit code (see `exit_codes`)."""
    try:
        from aioproducer.cli.app import run
    except KeyboardInterrupt:
        return _INTERRUPTED
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        print(
            f"aioproducer: the command line needs the package {error.name!r}, which is not "
            "installed.\nInstall it with: pip install 'aioproducer[cli]'",
            file=sys.stderr,
        )
        return 2
    return run(sys.argv[1:] if arguments is None else arguments)
