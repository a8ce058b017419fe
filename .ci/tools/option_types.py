"""Writes `aioproducer/config/option_types.py`, the options as a type checker and an IDE see them.

    PYTHONPATH=.ci python -m tools.option_types

The option table is the only source; a test fails when the file is not what this makes of it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import aioproducer
from aioproducer.config import OPTIONS, ProducerConfig

TARGET = Path(aioproducer.__file__).parent / "config" / "option_types.py"
WIDTH = 100
HEAD = '''"""The options of a producer for type checkers, made by `.ci/tools/option_types.py`.

`ProducerOptions` types the keyword arguments of `Producer`, so that an IDE completes and explains
them. Names of other clients' options are understood at run time, but are not listed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext
from typing import TypedDict

from aioproducer.config.table import Acks, DeliveryErrorCallback
from aioproducer.serializers.calling import SerializerFunction
from aioproducer.serializers.protocol import Serializer
from aioproducer.types import (
    OAuthToken,
    Partitioner,
    PartitionFunction,
    SaslCredentials,
    StreamOpener,
    TopicPartition,
)


class ProducerOptions(TypedDict, total=False):
    """The options of `Producer`; `aioproducer.config.OPTIONS` has their defaults and limits."""

'''


def source() -> str:
    """The module's text."""
    parts = [HEAD]
    for each in fields(ProducerConfig):
        option = OPTIONS.get(each.name)
        if option is None:
            continue
        wrapped = textwrap.wrap(option.doc.replace("\\", "\\\\"), WIDTH - 10)
        doc = "\n    ".join(wrapped)
        parts.append(f'    {each.name}: {each.type}\n    """{doc}"""\n')
    formatting = [sys.executable, "-m", "ruff", "format", "-"]
    done = subprocess.run(
        formatting, input="".join(parts), capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
