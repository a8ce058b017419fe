"""The tasks of a producer and the objects that only they use."""
