"""Transactions in the simulation: several transactional producers, some of them zombies.

Owns: everything that only transactional runs have.

    plan        ids, protocol version, timeouts, drawn     view       what a committed reader sees
    book        transactions and reported outcomes         consumer   reads and remembers positions
    line        one process's way to the network           caller     repeats and cancels calls
    protocol_checks   rules for a client's requests        contents   what goes into transactions
    oracles     what must be true                          actor      one incarnation at work
    cast        incarnations come and go                   play       one run
    outsider    decides about what is prepared          context    what they share
    waiting     what is true of a producer that waits   calm       rare ones at the end
"""
