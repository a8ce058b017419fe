"""Exactly once by two phases: start with `writes.ExactlyOnce`."""
