"""Stands for kafka-python's `test/__init__.py`, which its source distribution lacks."""
