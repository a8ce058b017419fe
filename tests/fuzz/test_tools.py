"""The fuzzer's own parts: a bug is noticed, an input is repeated, a report is read."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import archive, campaign
from fuzz.__main__ import main
from fuzz.guard import Finding, Target, check, require
from fuzz.minimise import worth_keeping
from fuzz.mutation import mutated
from fuzz.source import Source, blob
from fuzz.streams import pieces
from fuzz.targets import NAMES, load, responses


def target(run) -> Target:
    return Target("sample", run, lambda: [b""], bytes_per_byte=10)


def test_an_error_of_the_code_under_test_comes_through():
    def run(data: bytes) -> None:
        raise KeyError(data)

    with pytest.raises(KeyError):
        check(target(run), b"x")


def test_memory_beyond_the_bound_is_a_finding():
    greedy = target(lambda data: bytearray(2_000_000) and None)
    with pytest.raises(Finding, match="cost 2000"):
        check(greedy, b"x" * 10, always=True)


def test_memory_taken_once_for_good_is_none():
    cache: list[bytearray] = []
    check(target(lambda data: cache or cache.append(bytearray(2_000_000))), b"x", always=True)


def test_a_run_that_takes_long_is_a_finding(monkeypatch):
    clock = iter((0.0, 2.5))
    monkeypatch.setattr("fuzz.guard.time.thread_time", lambda: next(clock))
    with pytest.raises(Finding, match=r"took 2\.5 s"):
        check(target(lambda data: None), b"y")


def test_a_broken_promise_says_which():
    with pytest.raises(Finding, match="3 is not 4"):
        require(False, "{} is not {}", 3, 4)
    require(True, "{", "never put into words")


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_source_gives_back_what_was_written_and_then_zeros(first: bytes, rest: bytes):
    source = Source(blob(first) + blob(first, 2) + rest)
    assert (source.blob(), source.blob(2), source.rest()) == (first, first, rest)
    assert (source.left, source.number(4), source.blob()) == (0, 0, b"")


@given(st.lists(st.binary(max_size=50)))
def test_kept_inputs_are_read_back(inputs: list[bytes]):
    written = "\n".join(["# a remark", *(archive.line(data, "why") for data in inputs)])
    assert archive.parse(written) == inputs


@given(st.binary(max_size=50), st.lists(st.binary(max_size=50), min_size=1), st.integers())
def test_the_same_random_source_gives_the_same_damage(data: bytes, others, seed: int):
    damaged = mutated(data, others, Random(seed), 30)
    assert damaged == mutated(data, others, Random(seed), 30)
    assert len(damaged) <= 30


@given(st.binary(max_size=3000), st.integers(0, 255))
def test_a_stream_in_pieces_is_the_stream(stream: bytes, seed: int):
    assert b"".join(pieces(stream, seed)) == stream


def test_inputs_that_reach_nothing_new_are_not_kept():
    seeds = list(responses.TARGET.seeds())
    few = Target("few", responses.run, lambda: seeds[:2], bytes_per_byte=0)
    assert worth_keeping(few, seeds[:2], 10_000) == []
    assert worth_keeping(few, [seeds[0], b"", seeds[-1]], 10_000) == [b"", seeds[-1]]
    assert worth_keeping(few, [seeds[-1]], 1) == []


def test_every_target_has_seeds_that_are_always_the_same():
    for each in map(load, NAMES):
        seeds = list(each.seeds())
        assert seeds
        assert seeds == list(each.seeds())


OUTPUT = """
#100\tINITED cov: 50 ft: 60 corp: 10/1Kb exec/s: 0 rss: 40Mb
#2000\tNEW    cov: 70 ft: 90 corp: 12/1Kb lim: 4096 exec/s: 3 rss: 41Mb
"""
CRASH = """
 === Uncaught Python exception: ===
KeyError: 'x'
Traceback (most recent call last):
artifact_prefix='f/'; Test unit written to {}
"""


def test_a_clean_run_reports_what_it_did():
    output = OUTPUT + "stat::number_of_executed_units: 2500\n"
    report = campaign.read_output("wire", 10, output, "")
    assert report.is_clean
    assert (report.executions, report.coverage, report.corpus) == (2500, (50, 70), (10, 12))
    assert " ".join(report.line().split()) == "wire 2,500 250 50 -> 70 10 -> 12 clean"


def test_a_finding_is_one_line_that_says_how_to_repeat_it():
    path = campaign.FINDINGS / "wire-crash-1"
    report = campaign.read_output("wire", 10, OUTPUT + CRASH.format(path), "it ended with code 77")
    assert not report.is_clean
    assert report.finding == Path(path)
    assert report.failure() == (
        "FAILED: wire: KeyError: 'x'; make fuzz REPLAY=.cache/fuzz/findings/wire-crash-1"
    )


def test_without_atheris_the_run_fails_and_says_where_it_is_to_be_had(monkeypatch, capsys):
    monkeypatch.setattr("fuzz.__main__.find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["fuzz", "run", "codecs"])
    assert main() == 2
    assert "Linux on x86-64 only" in capsys.readouterr().err


def test_an_input_is_replayed_and_remembered_by_its_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("fuzz.archive.REGRESSIONS", tmp_path)
    found = tmp_path / "codecs-crash-1"
    found.write_bytes(b"\x00\x00plain")
    monkeypatch.setattr("sys.argv", ["fuzz", "replay", str(found)])
    assert main() == 0
    assert "nothing is wrong with it" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["fuzz", "remember", str(found), "it was plain"])
    assert main() == 0
    assert archive.read(tmp_path, "codecs") == [b"\x00\x00plain"]


def test_a_fuzzer_that_does_not_start_fails_the_run_and_shows_why(capsys):
    report = campaign.read_output("wire", 10, "ImportError: no such thing", "it ended with code 1")
    assert not report.is_clean
    assert "no such thing" in capsys.readouterr().err
