"""A Kafka cluster, a network and a clock that exist only here: virtual time, nothing is opened.

Modules:

    loop        virtual time                       spec       what a world is made of; chance
    network     names, dials, connections          faults     what can go wrong, and is repaired
    pipe        bytes under way                    weather    what of it is in force
    transport   the producer's end                 trace      what happened, line by line
    cluster     replication, elections             producer   production code, put into place
    server      a broker's end                     world      all of it
"""
