"""Figures as PNG files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def figure(path: Path, *, rows: int, height: float, width: float = 9.0) -> Iterator[list[Any]]:
    """Axes, one above the other, that are drawn to a file when the block ends well."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(width, height * rows), layout="constrained"))
    yield list(canvas.figure.subplots(rows, 1, squeeze=False)[:, 0])
    canvas.figure.savefig(path, dpi=110)
