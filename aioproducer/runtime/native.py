"""Warning if the native core is missing although pure Python was not asked for.

A source tree without the compiled modules, if found before the installed package, makes a producer
many times slower, without any other sign.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from pathlib import Path
from typing import Final

from aioproducer._util.implementation import ENVIRONMENT_VARIABLE
from aioproducer.records import IMPLEMENTATION
from aioproducer.runtime.send.fast_path import FAST_PATH_IMPLEMENTATION

ADVICE: Final = (
    "install a wheel, or install a C compiler and then the package again; if this is a source tree "
    f"that is found before the installed package, change sys.path; {ENVIRONMENT_VARIABLE}=pure "
    "accepts it"
)

_warned: set[str] = set()


def missing_core() -> str | None:
    """Return a description of missing native modules; None if none is, or pure was asked for."""
    if os.environ.get(ENVIRONMENT_VARIABLE) == "pure":
        return None
    forms = {
        "aioproducer.records._native": IMPLEMENTATION,
        "aioproducer.runtime.send._fast_path": FAST_PATH_IMPLEMENTATION,
    }
    reasons = dict.fromkeys(_reason(name) for name, form in forms.items() if form != "native")
    if not reasons:
        return None
    home = Path(__file__).parent.parent
    return (
        f"the package in {home} has no native core ({'; '.join(reasons)}): the "
        "pure-Python implementation takes several times the CPU per record"
    )


def _reason(module: str) -> str:
    """Return why a native module is not used: the error of its import, if there is one."""
    try:
        import_module(module)
    except ImportError as error:
        return str(error)
    return f"{module} is not used"


def warn_once(log: logging.Logger, missing: str | None) -> None:
    """Log what `missing_core` returned, once per process and text."""
    if missing is not None and missing not in _warned:
        _warned.add(missing)
        log.warning("%s -> %s", missing, ADVICE)
