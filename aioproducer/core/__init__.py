"""Pure decisions: cluster metadata, partitioning, batching, memory accounting, sending, retrying.

Owns: every rule of the producer that can be written as a state machine. Must not know: asyncio,
clocks, sockets, threads; callers pass `now` (seconds of the loop clock) and `rng`.
Invariant: the same calls with the same arguments give the same results, so that a simulation can
replay them.
"""
