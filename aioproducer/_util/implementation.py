"""The choice between native modules and their pure-Python fallbacks: nothing else makes it.

`AIOPRODUCER_IMPL` is `native` or `pure`; without it, native modules are used where they are
compiled. A package with both implementations imports the one that a function of this module names.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Final

ENVIRONMENT_VARIABLE: Final = "AIOPRODUCER_IMPL"


def core_implementation(core: str) -> str:
    """Return `native` or `pure`: the implementation of the native core, the module `core`."""
    wanted = os.environ.get(ENVIRONMENT_VARIABLE)
    if wanted not in {None, "", "native", "pure"}:
        raise ImportError(f"{ENVIRONMENT_VARIABLE} must be 'native' or 'pure', not {wanted!r}")
    if wanted == "pure":
        return "pure"
    try:
        import_module(core)
    except ImportError as error:
        if wanted != "native":
            return "pure"
        raise ImportError(
            f"{ENVIRONMENT_VARIABLE}=native, but aioproducer's native core cannot be imported "
            f"({error}). Install a C compiler and reinstall aioproducer, or unset the variable "
            "to use the pure-Python fallback."
        ) from error
    return "native"


def implementation_with(implementation: str, module: str) -> str:
    """Return the implementation of native `module`, which is built on others' `implementation`.

    Native modules are compiled one by one, so it may be missing.
    """
    if implementation != "native":
        return "pure"
    try:
        import_module(module)
    except ImportError:
        return "pure"
    return "native"
