"""Batches become Produce requests: sequences, responses, retries, failures."""
