"""The examination that `aioproducer doctor` makes.

`checkup` has the order of steps, `probe` the steps to one broker, `topic`, `clock` and `advertised`
the rules, `findings` the results.
"""

from aioproducer.cli.checkup.checkup import Checkup, Scope
from aioproducer.cli.checkup.findings import Finding, Status, verdict

__all__ = ["Checkup", "Finding", "Scope", "Status", "verdict"]
