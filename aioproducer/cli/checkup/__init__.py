"""The examination behind `aioproducer doctor`.

Owns: nothing but the way in. `checkup` has the order of it all, `visit` the way to one broker,
`topic`, `clock` and `advertised` the rules, `findings` what comes out.
"""

from aioproducer.cli.checkup.checkup import Checkup, Wishes
from aioproducer.cli.checkup.findings import Finding, Status, verdict

__all__ = ["Checkup", "Finding", "Status", "Wishes", "verdict"]
