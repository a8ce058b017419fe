"""Deterministic simulation: the unmodified producer on virtual time against a cluster that fails.

Owns: the public names of the simulation. A run is a function of one seed:

    scenario    options and sizes, drawn        oracles    what must be true
    faults      what goes wrong, drawn          shrink     a failing schedule made small
    workload    what users do                   campaign   many seeds
    ledger      what was reported for each      themes     much of one fault
    evidence    logs, leftovers, calm times     simulation one run

It happens in a world as `aioproducer.testing.world` builds them. In some of the runs several
producers do all this in transactions; see `transactions`.
"""

from aioproducer.testing.world.producer import SimProducer
from simulation.oracles import Violation
from simulation.simulation import Result, Setup, Simulation, run_seed

__all__ = ["Result", "Setup", "SimProducer", "Simulation", "Violation", "run_seed"]
