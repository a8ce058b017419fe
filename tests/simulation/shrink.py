"""Makes a failing schedule small: leaves out faults while the run still fails.

Owns: the search. Not here: what fails.

Faults are independent values (see `faults`), so leaving some out replays the others as they were;
what the producer does in between may differ, and so may the failure. The caller says which
failures count as the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], still_fails: Callable[[list[T]], bool], most_tries: int) -> list[T]:
    """The smallest part found that still fails, first leaving out halves, then single items.

    Args:
        items: What fails as a whole.
        still_fails: Whether a part of it fails as well.
        most_tries: How often to ask.
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    tries = 0
    while kept and tries < most_tries:
        smaller = None
        for start in range(0, len(kept), size):
            part = kept[:start] + kept[start + size :]
            tries += 1
            if still_fails(part):
                smaller = part
                break
            if tries >= most_tries:
                break
        if smaller is not None:
            kept = smaller
        elif size == 1:
            break
        else:
            size //= 2
        size = max(1, min(size, len(kept)))
    return kept
