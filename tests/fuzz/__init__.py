"""Fuzzing of everything that is read from a peer; see `__main__` for how to run it."""
