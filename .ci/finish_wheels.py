"""The last step of each wheel that `cibuildwheel` makes: pack it tightly, refuse what is wrong.

    python .ci/finish_wheels.py FOLDER [WHEEL]...

Wheels named are copied into the folder; then all that are in it are packed and checked.
"""

import shutil
import sys
from pathlib import Path

from tools.package.contents import wheel_problems
from tools.package.tight import pack_tightly


def main(folder: Path, *wheels: Path) -> int:
    """Finish every wheel; 1 if one must not be published."""
    for wheel in wheels:
        shutil.copy(wheel, folder)
    found = sorted(folder.glob("*.whl"))
    for wheel in found:
        pack_tightly(wheel)
        print(f"{wheel.stat().st_size:>10,}  {wheel.name}")
    problems = [f"{wheel.name}: {each}" for wheel in found for each in wheel_problems(wheel)]
    if not found:
        problems.append("there is no wheel")
    print(*problems or ["all may be published"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
