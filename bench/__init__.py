"""Measurements that anyone can rerun: `make bench`, or `python -m bench NAME`."""
