"""The asyncio layer: tasks, futures, timers and locks around `core` and `net`.

Start with `engine.ProducerEngine`. Invariant: every wait has a bound, and every task is ended by
the object that has started it.
"""
