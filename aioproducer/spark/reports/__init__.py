"""Reports of tasks and micro-batches, and their way to the driver: start with `epochs`."""
