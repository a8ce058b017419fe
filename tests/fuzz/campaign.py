"""Runs of the fuzzer, one process per target, and what they report.

Owns: the working corpus and the findings below `.cache/fuzz`, the reading of libFuzzer's output.
Not here: what targets do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from fuzz import archive
from fuzz.guard import Target

ROOT = archive.HERE.parents[1]
WORK = ROOT / ".cache" / "fuzz"
FINDINGS = WORK / "findings"

_START_UP_S = 120
_HANGS_AFTER_S = 20
"""Wall time, for what never comes back; `guard` counts CPU time and is stricter."""
_MOST_MIB = 1024
_STATUS = re.compile(
    r"^#(\d+)\s+(?:INITED|NEW|REDUCE|RELOAD|DONE)\s+cov: (\d+) ft: \d+ corp: (\d+)/", re.MULTILINE
)
_EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)
_ARTIFACT = re.compile(r"Test unit written to (\S+)")
_PYTHON_ERROR = re.compile(r"=== Uncaught Python exception: ===\n(.*)")
_SANITIZER_ERROR = re.compile(r"^==\d+== ?(ERROR: .*)$", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """The result of one target; `finding` is the input that broke it, `problem` what went wrong."""

    target: str
    executions: int
    seconds: int
    coverage: tuple[int, int]
    corpus: tuple[int, int]
    finding: Path | None
    problem: str

    @property
    def is_clean(self) -> bool:
        return not self.problem

    def line(self) -> str:
        growth = [f"{before:>6} -> {after:<6}" for before, after in (self.coverage, self.corpus)]
        rate = self.executions // max(self.seconds, 1)
        result = "clean" if self.is_clean else "FAILED"
        return f"{self.target:<12}{self.executions:>12,}{rate:>9,}  {'  '.join(growth)}  {result}"

    def failure(self) -> str:
        """One line: what happened, and how to see it again."""
        again = (
            f"make fuzz REPLAY={self.finding.relative_to(ROOT)}" if self.finding else "see above"
        )
        return f"FAILED: {self.target}: {self.problem}; {again}"


HEADLINE = f"{'target':<12}{'executions':>12}{'per s':>9}  {'coverage':^16}  {'corpus':^16}  result"


def working_corpus(target: Target) -> Path:
    """The target's folder of inputs, with everything in it that is known to begin with."""
    folder = WORK / "corpus" / target.name
    folder.mkdir(parents=True, exist_ok=True)
    for data in (
        *target.seeds(),
        *archive.read(archive.CORPUS, target.name),
        *archive.read(archive.REGRESSIONS, target.name),
    ):
        path = folder / sha1(data, usedforsecurity=False).hexdigest()
        if not path.exists():
            path.write_bytes(data)
    return folder


def fuzz(target: Target, seconds: int) -> Report:
    """Fuzz one target for so long, or until it breaks."""
    FINDINGS.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "fuzz.worker", target.name, str(working_corpus(target))),
        f"-max_total_time={seconds}",
        f"-max_len={target.longest}",
        f"-timeout={_HANGS_AFTER_S}",
        f"-rss_limit_mb={_MOST_MIB}",
        f"-artifact_prefix={FINDINGS / target.name}-",
        "-print_final_stats=1",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{archive.HERE.parent}"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + _START_UP_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode("utf-8", "replace")
        return read_output(target.name, seconds, output, "the fuzzer did not end")
    output = done.stdout.decode("utf-8", "replace")
    problem = f"the fuzzer ended with code {done.returncode}" if done.returncode else ""
    return read_output(target.name, seconds, output, problem)


def read_output(target: str, seconds: int, output: str, problem: str) -> Report:
    """Turn what libFuzzer printed into a report; `problem` says that it did not end well."""
    steps = [tuple(map(int, each)) for each in _STATUS.findall(output)] or [(0, 0, 0)]
    counted = _EXECUTIONS.search(output)
    artifact = _ARTIFACT.search(output)
    if problem:
        cause = _PYTHON_ERROR.search(output) or _SANITIZER_ERROR.search(output)
        if cause:
            problem = cause[1][:300]
        elif not artifact:
            print(output[-1500:], file=sys.stderr)
    return Report(
        target=target,
        executions=int(counted[1]) if counted else steps[-1][0],
        seconds=seconds,
        coverage=(steps[0][1], steps[-1][1]),
        corpus=(steps[0][2], steps[-1][2]),
        finding=Path(artifact[1]) if artifact else None,
        problem=problem,
    )
