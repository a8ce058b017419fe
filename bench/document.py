"""bench/RELIABILITY.md: two parts, each rewritten by its own measurement.

Owns: which part ends where. Must not know: what the parts say.
"""

from __future__ import annotations

from pathlib import Path

RELIABILITY = Path(__file__).with_name("RELIABILITY.md")
_SOAK_BEGINS = "<!-- From here on written by `python -m bench soak`. -->\n"


def write_faults(text: str, path: Path = RELIABILITY) -> None:
    """Replace everything but the soak."""
    _, soak = _parts(path)
    path.write_text(text + soak, encoding="utf-8")


def write_soak(text: str, path: Path = RELIABILITY) -> None:
    """Replace the soak, or add it."""
    faults, _ = _parts(path)
    path.write_text(f"{faults}\n{_SOAK_BEGINS}\n{text}", encoding="utf-8")


def _parts(path: Path) -> tuple[str, str]:
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    faults, mark, soak = found.partition(f"\n{_SOAK_BEGINS}")
    return faults, mark + soak
