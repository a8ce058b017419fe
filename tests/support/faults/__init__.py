"""Real faults on real Kafka: scenarios, the clients that live through them, and the judge.

    async with fault_ground() as ground:
        verdicts = await run(SCENARIOS["kill -9"], ground, [OurClient], records=50_000)

A scenario breaks brokers or the network while clients send numbered records, each client to a
separate topic. Afterwards a foreign consumer reads the topics, and `judge` compares the records
there with what each client reported. Tests and `python -m bench reliability` use the same code.
"""

from support.faults.clients import (
    CLIENTS,
    AiokafkaClient,
    ClientSettings,
    ConfluentClient,
    LoadClient,
    OurClient,
)
from support.faults.ground import FaultGround, fault_ground
from support.faults.ledger import Ledger, LogEntry, Verdict, judge
from support.faults.runner import Load, run
from support.faults.scenarios import SCENARIOS, Scenario, freeze_leaders, kill_leaders

__all__ = [
    "CLIENTS",
    "SCENARIOS",
    "AiokafkaClient",
    "ClientSettings",
    "ConfluentClient",
    "FaultGround",
    "Ledger",
    "Load",
    "LoadClient",
    "LogEntry",
    "OurClient",
    "Scenario",
    "Verdict",
    "fault_ground",
    "freeze_leaders",
    "judge",
    "kill_leaders",
    "run",
]
