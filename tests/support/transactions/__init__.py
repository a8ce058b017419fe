"""Transactions under real faults: the client, what breaks, and the judge.

    async with fault_ground(config=BROKER_CONFIG) as ground:
        result = await run(SCENARIOS["leader killed"], ground, Load())

A client commits numbered transactions, aborts some on purpose, and writes down each outcome.
Brokers break, or the client itself is killed. Afterwards a foreign read_committed consumer reads
the topic, and `judge` compares. Tests and `python -m bench transaction-faults` use the same code.

Nothing is imported here: `client` and `copier` are programs as well, and start often.
"""
