"""Find known vulnerabilities in the locked versions and in the floors of the extras.

    python .ci/audit.py [--offline]

pip-audit asks the advisory service about the lock file. Where the service is out of reach that is
said, and `advisories.toml` alone decides. Ends with 1 if anything is vulnerable.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

HERE = Path(__file__).parent
LOCK = HERE / "requirements.lock"
ADVISORIES = HERE / "advisories.toml"
PROJECT = HERE.parent / "pyproject.toml"
OWN_WORK = frozenset({"test", "bench", "docs", "dev", "fuzz"})
"""Extras that no user installs: their locked versions count, their floors do not."""
TIMEOUT_S = 180


def is_fixed(version: Version, fixed: list[Version]) -> bool:
    """Return whether a version has the fix of its release line, or of a later one."""
    return version >= max(fixed) or any(
        version.major == each.major and version >= each for each in fixed
    )


def locked() -> Iterator[tuple[str, Version, str]]:
    """Yield package, version and place of each line of the lock file."""
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        requirement = Requirement(line)
        (pin,) = requirement.specifier
        yield canonicalize_name(requirement.name), Version(pin.version), LOCK.name


def floors() -> Iterator[tuple[str, Version, str]]:
    """Package, lowest version and extra, of each dependency that users install."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    groups = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    for group, lines in groups.items():
        for requirement in map(Requirement, [] if group in OWN_WORK else lines):
            for bound in requirement.specifier:
                if bound.operator in {">=", "==", "~="}:
                    yield canonicalize_name(requirement.name), Version(bound.version), f"[{group}]"


def vulnerable() -> list[str]:
    """Return the advisories of `advisories.toml` for the versions in use, one line each."""
    listed = tomllib.loads(ADVISORIES.read_text(encoding="utf-8"))["advisory"]
    used = [*locked(), *floors()]
    return [
        f"{place}: {name} {version}: {advisory['id']}, fixed in {', '.join(advisory['fixed'])}"
        for advisory in listed
        for name, version, place in used
        if name == canonicalize_name(advisory["package"])
        and not is_fixed(version, [Version(each) for each in advisory["fixed"]])
    ]


def ask_service() -> list[str] | None:
    """Return what pip-audit finds, one line each; None if its service cannot be reached."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = f"{directory}/bin/python"
        install = [python, "-m", "pip", "install", "--quiet", "pip-audit>=2.9"]
        audit = [python, "-m", "pip_audit", "-r", str(LOCK), "--no-deps", "--disable-pip"]
        audit += ["--format", "json", "--progress-spinner", "off"]
        try:
            subprocess.run(install, check=True, timeout=TIMEOUT_S, capture_output=True)
            done = subprocess.run(
                audit, check=False, timeout=TIMEOUT_S, capture_output=True, text=True
            )
            found = json.loads(done.stdout)["dependencies"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError):
            return None
    asked = [each for each in found if "skip_reason" not in each]
    if not asked:
        return None
    return [
        f"{LOCK.name}: {each['name']} {each['version']}: {problem['id']}"
        for each in asked
        for problem in each["vulns"]
    ]


def main(arguments: list[str]) -> int:
    """Print what is vulnerable; 1 if anything is."""
    found = vulnerable()
    if "--offline" not in arguments:
        answered = ask_service()
        if answered is None:
            print("The advisory service is out of reach: checked against advisories.toml alone.")
        else:
            found += answered
    for line in found:
        print(line)
    print(f"{len(found)} known vulnerabilities" if found else "No known vulnerability.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
