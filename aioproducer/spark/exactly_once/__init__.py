"""Exactly once by two phases, whatever calls it: start with `writes.ExactlyOnce`."""
