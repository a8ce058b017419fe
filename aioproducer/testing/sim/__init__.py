"""Deterministic simulation: the unmodified producer on virtual time against a cluster that fails.

Owns: the public names of the simulation. A run is a function of one seed:

    loop       virtual time                        network    bytes in memory, as a `Dialer`
    cluster    replication, elections              server     a broker's side of connections
    faults     what goes wrong, drawn in advance   scenario   options and sizes, drawn too
    workload   what users do                       ledger     what they were told
    oracles    what must be true                   shrink     a failing schedule made small
    simulation one run                             __main__   many, in several processes
"""

from aioproducer.testing.sim.oracles import Violation
from aioproducer.testing.sim.simulation import Result, Setup, SimProducer, Simulation, run_seed

__all__ = ["Result", "Setup", "SimProducer", "Simulation", "Violation", "run_seed"]
