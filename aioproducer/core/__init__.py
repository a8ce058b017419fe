"""Sans-I/O state machines: cluster metadata, partitioning, batching, memory, sending, retries.

Not here: asyncio, clocks, sockets, threads; callers pass `now` (seconds of the loop clock) and
`rng`. The same calls with the same arguments give the same results, so that a simulation can replay
them.
"""
