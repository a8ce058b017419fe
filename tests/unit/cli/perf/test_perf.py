from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from aioproducer.cli import main
from aioproducer.cli.console import FileError, Output
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.perf import display as perf_display
from aioproducer.cli.perf.display import (
    TABLE_COLUMNS,
    PerfDisplay,
    PerfLines,
    PerfTable,
    check_picture,
    draw_picture,
    perf_display_for,
)
from aioproducer.cli.perf.run import Interval, Measurement, PerfPlan, PerfRun, percentiles_ms
from aioproducer.errors import ConfigError
from aioproducer.testing import VirtualKafka, run_virtual

PLAN = PerfPlan("t", 1000, 100, 0.0)
SECOND = Interval(3.0, 2000.0, 1, {"p50": 1.25, "p95": 2.0, "p99": 4.0, "p99.9": 5.0, "max": 9.0})


def test_percentiles_are_taken_of_the_sorted_latencies() -> None:
    latencies = [n / 1000 for n in reversed(range(1000))]
    assert dict(percentiles_ms(latencies)) == {
        "p50": 500.0,
        "p95": 950.0,
        "p99": 990.0,
        "p99.9": 999.0,
        "max": 999.0,
    }


def test_nothing_measured_has_no_percentiles_and_no_rate() -> None:
    assert dict(percentiles_ms([])) == {}
    assert Measurement().rate == 0.0
    assert Measurement(acknowledged=10, elapsed_s=2.0).rate == 5.0


# -- the run --------------------------------------------------------------------------------------


def sent_at(plan: PerfPlan, *, stop_at: float | None = None) -> tuple[list[float], float]:
    """Return the seconds at which records were sent, and how long the run took."""

    async def act(kafka: VirtualKafka) -> tuple[list[float], float]:
        loop, times = asyncio.get_running_loop(), list[float]()

        class Watching:
            def on_send(self, record: Any) -> Any:
                times.append(loop.time())
                return record

        async with kafka.producer(interceptor_classes=[Watching()]) as producer:
            await producer.warm_up(["t"])
            seen = Measurement()
            run = PerfRun(producer, plan, seen, every_s=1.0, on_interval=lambda interval: None)
            began = loop.time()
            if stop_at is not None:
                loop.call_later(stop_at, run.stop)
            await run.run()
            assert seen.acknowledged == len(times)
            return [time - began for time in times], loop.time() - began

    return run_virtual(act, topics={"t": 1})


@pytest.mark.parametrize(("throughput", "records"), [(0.5, 4), (10.0, 40), (2000.0, 1000)])
def test_a_limited_rate_is_spread_evenly(throughput: float, records: int) -> None:
    times, _ = sent_at(PerfPlan("t", records, 10, throughput))
    assert len(times) == records
    late = [time - number / throughput for number, time in enumerate(times)]
    assert max(map(abs, late)) <= 0.02


def test_a_rate_without_a_limit_sends_as_fast_as_it_goes() -> None:
    for throughput in (-1.0, 0.0, 1e9, float("inf"), float("nan")):
        times, took = sent_at(PerfPlan("t", 300, 10, throughput))
        assert (len(times), took < 1) == (300, True)


def test_a_stopped_run_does_not_wait_for_its_next_record() -> None:
    times, took = sent_at(PerfPlan("t", 10, 10, 0.1), stop_at=15.0)
    assert (len(times), took < 16) == (2, True)


# -- while it runs --------------------------------------------------------------------------------


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=150)
    monkeypatch.setattr(perf_display, "err", lambda: console)
    return screen


def test_the_table_shows_the_percentiles_of_the_last_seconds(screen: io.StringIO) -> None:
    with PerfTable(PLAN) as display:
        for _ in range(20):
            display.show(SECOND)
        assert display.table().row_count == 10
    shown = screen.getvalue()
    assert "100 byte records -> t" in shown
    for text in ("p99.9", "2,000", "0.2 MB/s", "1.2", "9.0"):
        assert text in shown


@pytest.mark.parametrize(
    ("width", "hidden"),
    [(80, []), (60, ["data/s", "p99.9"]), (40, ["data/s", "p99.9", "p95", "failed", "p50"])],
)
def test_a_narrow_terminal_has_fewer_columns_with_whole_figures(
    width: int, hidden: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, record=True)
    monkeypatch.setattr(perf_display, "err", lambda: console)
    percentiles = {"p50": 6.7, "p95": 17.5, "p99": 123.4, "p99.9": 1234.5, "max": 1300.0}
    with PerfTable(PerfPlan("t", 1, 1000, 0.0)) as display:
        display.show(Interval(10.0, 101_234.0, 0, percentiles))
    shown = console.export_text()
    assert "…" not in shown
    assert [name for name in TABLE_COLUMNS if name not in shown.split()] == sorted(
        hidden, key=TABLE_COLUMNS.index
    )


def test_a_line_has_all_of_it_for_logs(capsys: pytest.CaptureFixture[str]) -> None:
    PerfLines(PLAN).show(SECOND)
    PerfLines(PLAN).show(Interval(8.0, 0.0, 0, {}))
    full, empty = capsys.readouterr().err.splitlines()
    assert full == (
        "aioproducer: 3 s: 2,000 records/s (0.2 MB/s), 1 failed, "
        "p50 1.2 ms, p95 2.0 ms, p99 4.0 ms, p99.9 5.0 ms, max 9.0 ms"
    )
    assert empty.endswith("nothing acknowledged")


def test_a_table_whose_reader_has_gone_goes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(perf_display, "err", lambda: Output(file=Gone(), force_terminal=True))
    with PerfTable(PLAN) as display:
        display.show(SECOND)
        display.show(SECOND)


def test_the_display_fits_where_it_goes(
    screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(perf_display_for(PLAN, quiet=True)) is PerfDisplay
    assert isinstance(perf_display_for(PLAN, quiet=False), PerfTable)
    monkeypatch.setattr(perf_display, "err", lambda: Console(file=screen, force_terminal=False))
    assert isinstance(perf_display_for(PLAN, quiet=False), PerfLines)


# -- the picture ----------------------------------------------------------------------------------


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(perf_display, "find_spec", lambda name: None)
    yield


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_the_remedy_is_shown_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(["perf", "-t", "t", "--histogram", str(tmp_path / "x.png"), "-b", "127.0.0.1:1"])
    assert code == ExitCode.USAGE
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x.svg", "missing/x.png"])
def test_a_picture_that_cannot_be_is_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--histogram"):
        check_picture(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_named_pipe_in_place_of_the_picture_is_refused_at_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="exists and is not a picture"):
        check_picture(path)


def test_a_picture_is_drawn_of_any_latencies(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.png"
    for latencies in ([], [n / 10_000 for n in range(500)]):
        path.unlink(missing_ok=True)
        check_picture(path)
        draw_picture(path, PLAN, latencies, dict(percentiles_ms(latencies)))
        assert path.read_bytes().startswith(b"\x89PNG")
    for place in (tmp_path, path / "below", tmp_path / ("x" * 250)):
        with pytest.raises(FileError, match="cannot write the histogram"):
            draw_picture(place, PLAN, [0.001], {})
