"""What this repository's own work needs beside tests and benchmarks; no part of the package."""
