"""`Format`, the interface of all formats."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Protocol

from aioproducer.loader.errors import START_OVER, SourceError
from aioproducer.loader.rows import RowBatch


class Format(Protocol):
    """A way to turn one stream into rows."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[RowBatch]:
        """Return the rows after the first `skip`; `stack` closes what is opened for them.

        The source adds their `file`, `member` and `progress`.
        """
        ...


def imported(module: str, what: str, extra: str) -> Any:
    """Return a module of a package that reading `what` needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise SourceError(
            f"reading {what} needs {module.partition('.')[0]}, which cannot be imported",
            advice=f"install it: pip install 'aioproducer[{extra}]'",
        ) from error


def too_few_rows(seen: int, skip: int) -> SourceError:
    """Return the error of an input that ends before the position to resume from."""
    message = f"it has {seen:,} rows where at least {skip:,} were read before"
    return SourceError(message, advice=START_OVER)
