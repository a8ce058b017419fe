"""Spark's daemon, which forks its workers: here it has imported everything before it forks.

They die too often for each to begin with a second of imports.
"""

from __future__ import annotations

import pyarrow  # noqa: F401
from pyspark.daemon import manager

import support.spark_faults.source  # noqa: F401

if __name__ == "__main__":
    manager()
