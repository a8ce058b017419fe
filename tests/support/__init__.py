"""Helpers shared by the tests: clusters, readers that are other people's code, random records."""
