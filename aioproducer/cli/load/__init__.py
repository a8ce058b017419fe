"""`aioproducer load`: start with `command`."""
