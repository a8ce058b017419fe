"""Helpers without a subject of the producer: nothing here imports another package of ours."""
