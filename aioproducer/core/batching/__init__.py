"""Batches of records: memory, partitions, queues, readiness."""
