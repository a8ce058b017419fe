"""Deterministic simulation: the unmodified producer on virtual time against a cluster that fails.

Owns: the public names of the simulation. A run is a function of one seed:

    loop        virtual time                        scenario   options and sizes, drawn
    network     names, dials, connections           world      network, cluster, clocks, faults
    pipe        bytes under way                     workload   what users do
    transport   the producer's end                  ledger     what they were told
    cluster     replication, elections              evidence   what nobody tells
    server      a broker's end                      oracles    what must be true
    faults      what goes wrong                     shrink     a failing schedule made small
    weather     what of it is in force              campaign   many seeds
    producer    production code, put into place     themes     much of one fault
    simulation  one run

In some of the runs several producers do all this in transactions; see `transactions`.
"""

from aioproducer.testing.sim.oracles import Violation
from aioproducer.testing.sim.producer import SimProducer
from aioproducer.testing.sim.simulation import Result, Setup, Simulation, run_seed

__all__ = ["Result", "Setup", "SimProducer", "Simulation", "Violation", "run_seed"]
