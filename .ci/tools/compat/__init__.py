"""Runs other projects' own tests with their client and with the drop-in for it: `make compat`."""
