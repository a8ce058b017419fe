"""No silent slowness: a process without the native core says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent


@pytest.fixture
def uncompiled(tmp_path: Path) -> Path:
    """A copy of the package without its compiled modules."""
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "docs", "__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "aioproducer", ignore=ignored))


def _described(package: Path) -> list[str]:
    """The descriptions that a process with this package gives, without and with `pure`."""
    program = (
        "import os; os.environ.pop('AIOPRODUCER_IMPL', None)\n"
        "from aioproducer.runtime.native import missing_core\n"
        "print(missing_core())\n"
        "os.environ['AIOPRODUCER_IMPL'] = 'pure'\n"
        "print(missing_core())"
    )
    return _run(package, program).stdout.splitlines()


def _run(package: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=package.parent,
        env={"PYTHONPATH": str(package.parent), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_a_tree_without_compiled_modules_is_named(uncompiled: Path) -> None:
    found, accepted = _described(uncompiled)
    assert found.startswith(
        f"the package in {uncompiled} has no native core "
        "(No module named 'aioproducer.records._native'; "
    )
    assert accepted == "None"


def test_the_error_of_a_core_that_cannot_be_loaded_is_named(uncompiled: Path) -> None:
    broken = uncompiled / "records" / "_native.py"
    broken.write_text("raise ImportError('undefined symbol: PyGone')")
    found, _ = _described(uncompiled)
    assert "(undefined symbol: PyGone; " in found


@pytest.mark.parametrize(
    "first",
    [
        "aioproducer",
        "aioproducer.records",
        "aioproducer.records.arrow",
        "aioproducer.runtime.delivery",
        "aioproducer.runtime.send.fast_path",
        "aioproducer.runtime.send.validation",
    ],
)
def test_every_native_module_that_is_built_is_used_whatever_is_imported_first(first: str) -> None:
    modules = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.pyx")]
    natives = {".".join(module.parts) for module in modules}
    assert len(natives) >= 5
    for native in natives:
        pytest.importorskip(native)
    program = (
        f"import os; os.environ.pop('AIOPRODUCER_IMPL', None)\nimport {first}, sys\n"
        "from aioproducer.records import arrow, bulk\n"
        "from aioproducer.runtime import delivery\n"
        "from aioproducer.runtime.send import fast_path\n"
        "used = (bulk.OpenBatches, arrow.ArrowSource, delivery.Delivery, fast_path.FastPath)\n"
        "print(*{each.__module__ for each in used}, bulk.IMPLEMENTATION)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert {*done.stdout.split()} == {*(natives - {"aioproducer.records._native"}), "native"}


def test_start_warns_once_in_a_process(uncompiled: Path) -> None:
    program = (
        "import asyncio, logging\n"
        "from aioproducer import Producer\n"
        "from aioproducer.testing import EmbeddedCluster\n"
        "logging.basicConfig(format='%(levelname)s %(message)s')\n"
        "async def main():\n"
        "    async with EmbeddedCluster(brokers=1) as cluster:\n"
        "        for _ in range(2):\n"
        "            async with Producer(bootstrap_servers=cluster.bootstrap_servers):\n"
        "                pass\n"
        "asyncio.run(main())"
    )
    lines = _run(uncompiled, program).stderr.splitlines()
    (warning,) = [line for line in lines if "native core" in line]
    assert warning.startswith("WARNING ")
    assert str(uncompiled) in warning
    assert "AIOPRODUCER_IMPL=pure" in warning
