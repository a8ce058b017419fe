"""Sans-I/O state machines: cluster metadata, partitioning, batching, memory, sending, retries.

The same calls with the same arguments give the same results, so that a simulation can replay them.
"""
