"""Streaming queries under real Spark that are killed wherever it hurts, and what is left of them.

source.py   the data source, which fails and dies at given moments
batches.py  micro-batches by `batch_writer`, which pause at given moments
deaths.py   when and how a query is killed
daemon.py   where Spark forks its workers
job.py      one life of some queries: a separate program, since it is killed
query.py    a query over all its lives, and what a reader finds at the end
session.py  the queries that live and die together
record.py   what came of it, for a table
"""
