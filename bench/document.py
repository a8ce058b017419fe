"""bench/RELIABILITY.md: parts that are each rewritten by their own measurement.

Owns: which part ends where, and their order. Not here: the texts of the parts.
"""

from __future__ import annotations

import re
from pathlib import Path

RELIABILITY = Path(__file__).with_name("RELIABILITY.md")
_FAULTS, _TRANSACTIONS, _SPARK, _SOAK = "reliability", "transaction-faults", "spark-faults", "soak"
_ORDER = (_FAULTS, _TRANSACTIONS, _SPARK, _SOAK)
_MARK = "\n<!-- From here on written by `python -m bench {}`. -->\n"
_MARKS = re.compile(re.escape(_MARK).replace(re.escape("{}"), f"({'|'.join(_ORDER[1:])})"))


def write_faults(text: str, path: Path = RELIABILITY) -> None:
    """Replace what the document begins with."""
    _write(_FAULTS, text, path)


def write_transactions(text: str, path: Path = RELIABILITY) -> None:
    """Replace the part about transactions, or add it."""
    _write(_TRANSACTIONS, f"\n{text}", path)


def write_spark(text: str, path: Path = RELIABILITY) -> None:
    """Replace the part about Spark, or add it."""
    _write(_SPARK, f"\n{text}", path)


def write_soak(text: str, path: Path = RELIABILITY) -> None:
    """Replace the soak, or add it."""
    _write(_SOAK, f"\n{text}", path)


def _write(name: str, text: str, path: Path) -> None:
    parts = {**_parts(path), name: text}
    marked = (_MARK.format(part) + parts[part] for part in _ORDER[1:] if part in parts)
    path.write_text(parts[_FAULTS] + "".join(marked), encoding="utf-8")


def _parts(path: Path) -> dict[str, str]:
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    faults, *others = _MARKS.split(found)
    return {_FAULTS: faults, **dict(zip(others[::2], others[1::2], strict=True))}
