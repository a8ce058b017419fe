"""`aioproducer perf`: start with `command`."""
