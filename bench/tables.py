"""Tables of the documents.

Owns: what a Markdown table looks like. Not here: its contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PASS, FAIL = "pass", "**FAIL**"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; the first `left` columns are aligned left, figures right.

    A row may be shorter than `heads`.
    """
    lines = [heads, ("---",) * left + ("---:",) * (len(heads) - left)]
    lines += [(*row, *("",) * (len(heads) - len(row))) for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
