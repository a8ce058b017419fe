from __future__ import annotations

import io

import pytest
from rich.console import Console

from aioproducer.cli import display
from aioproducer.cli.console import Output
from aioproducer.cli.display import BarDisplay, Display, LineDisplay, display_for, eta
from aioproducer.loader import Progress

HALF = Progress(
    read=510,
    rejected=10,
    sent=500,
    acknowledged=400,
    failed=3,
    input_bytes=50,
    input_total=100,
    elapsed_s=61.0,
)


def test_eta_is_the_time_the_rest_takes_at_the_same_rate() -> None:
    assert eta(HALF) == "1:01"
    assert eta(Progress(input_bytes=100, input_total=100, elapsed_s=5)) == "0:00"


def test_eta_is_unknown_without_a_size_or_a_start() -> None:
    assert eta(Progress(elapsed_s=5)) == "-"
    assert eta(Progress(input_total=100, elapsed_s=5)) == "-"


def test_lines_come_once_a_second_with_all_counts(capsys: pytest.CaptureFixture[str]) -> None:
    shown = LineDisplay("t.csv")
    with shown:
        for tenths in range(25):
            shown.show(Progress(acknowledged=tenths * 100, elapsed_s=tenths / 10))
        shown.show(HALF)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0] == ("aioproducer: t.csv: 1,000 acknowledged, 0 failed, 1,000 rows/s, ETA -")
    assert "50% read" in lines[2]
    assert "400 acknowledged, 3 failed, 10 rejected, 7 rows/s, ETA 1:01" in lines[2]


@pytest.mark.parametrize("width", [80, 150])
def test_bar_shows_counts_rate_and_eta(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        display, "err", lambda: Console(file=screen, force_terminal=True, width=width)
    )
    with BarDisplay("people-2026-11.csv") as bar:
        bar.show(HALF)
    assert "50%" in screen.getvalue()
    assert "400 acknowledged, 3 failed, 10 rejected, 7 rows/s" in screen.getvalue()
    assert "ETA 1:01" in screen.getvalue()


def test_bar_whose_reader_has_gone_goes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(display, "err", lambda: Output(file=Gone(), force_terminal=True))
    with BarDisplay("t.csv") as bar:
        bar.show(HALF)
        bar.show(HALF)


def test_display_fits_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(display_for("t", quiet=True)) is Display
    monkeypatch.setattr(display, "err", lambda: Console(file=io.StringIO(), force_terminal=False))
    assert isinstance(display_for("t", quiet=False), LineDisplay)
    monkeypatch.setattr(display, "err", lambda: Console(file=io.StringIO(), force_terminal=True))
    assert isinstance(display_for("t", quiet=False), BarDisplay)
