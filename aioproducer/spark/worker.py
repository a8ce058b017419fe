"""What is done once in each of Spark's Python worker processes, which serve many requests."""

from __future__ import annotations

import gc
import os
from typing import Final

_REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
_requests = 0


def spare_collector() -> None:
    """Take what lives as long as the process out of the garbage collector's sight.

    Call it once at the beginning of each request. PySpark's daemon collects all generations after
    each request (`pyspark/daemon.py`): with the modules of PySpark, pandas, Arrow and ours in view
    that costs more than a small task. The first request still imports modules; the second does not.
    """
    global _requests
    _requests += 1
    if _requests == 2 and os.environ.get(_REUSED_WORKER):
        gc.freeze()
