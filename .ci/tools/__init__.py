"""Tools for this repository, beside tests and benchmarks; no part of the package."""
