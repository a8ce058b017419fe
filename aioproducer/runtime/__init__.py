"""The async shell: tasks, futures, timers and locks around `core`'s decisions and `net`'s bytes.

Owns: everything that waits. Must not know: the layout of messages.
Invariant: every wait has a bound, and every task is ended by whoever started it.
"""
