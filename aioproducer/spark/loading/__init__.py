"""Folders, datasets and large files into a topic by Spark, with the records of the loader.

    files.py     list --> steps of whole files, of bounded size
    frames.py    a step --> DataFrame, by Spark's own readers
    records.py   DataFrame --> records, by the loader's `RowMapper`, in Spark's tasks
    load.py      step by step: write, count, record progress
    record.py    where progress is recorded

Invariant: a step is one write of the data source, so with `exactly-once` it is visible as a whole
or not at all, and once.
"""
