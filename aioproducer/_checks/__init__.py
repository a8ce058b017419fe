"""Checks of what the application brings along: optional packages, callables, the event loop."""
