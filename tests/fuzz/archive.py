"""Inputs kept in the tree: a text file per target, an input per line.

A line is the input in base64, and after it, after two blanks, why it is there; lines that begin
with `#` are remarks.

    corpus/       inputs that reach code the generated seeds do not; `python -m fuzz keep` writes it
    regressions/  inputs that once found a bug, with what they found; never removed
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
REGRESSIONS = HERE / "regressions"


def line(data: bytes, why: str = "") -> str:
    """The stored form of one input; the empty one is `=`, since an empty line is none."""
    text = b64encode(data).decode() or "="
    return f"{text}  {why}" if why else text


def parse(text: str) -> list[bytes]:
    """The inputs of a file."""
    lines = [each for each in text.splitlines() if each and not each.startswith("#")]
    return [b64decode(each.partition("  ")[0].replace("=", "") + "===") for each in lines]


def read(folder: Path, target: str) -> list[bytes]:
    """The inputs kept for a target."""
    path = folder / f"{target}.txt"
    return parse(path.read_text("ascii")) if path.exists() else []


def write(folder: Path, target: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs kept for a target."""
    lines = sorted(map(line, inputs))
    (folder / f"{target}.txt").write_text("".join(f"{each}\n" for each in lines), "ascii")
