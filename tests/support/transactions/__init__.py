"""Transactions under real faults: the client, what breaks, and the judge.

    async with fault_ground(config=BROKER_CONFIG) as ground:
        result = await run(SCENARIOS["coordinator killed at EndTxn"], ground, Load())

A client commits numbered transactions, aborts some on purpose, and writes down what it was told.
Brokers break, or the client itself is killed. Afterwards a foreign read_committed consumer reads
the topic, and `judge` compares. Tests and `python -m bench transaction-faults` use the same code.
"""

from support.transactions.history import Entry, History, Verdict, entry_of, judge, value_of
from support.transactions.runner import BROKER_CONFIG, Load, Result, run
from support.transactions.scenarios import SCENARIOS, Scenario, kill_coordinator

__all__ = [
    "BROKER_CONFIG",
    "SCENARIOS",
    "Entry",
    "History",
    "Load",
    "Result",
    "Scenario",
    "Verdict",
    "entry_of",
    "judge",
    "kill_coordinator",
    "run",
    "value_of",
]
