"""Other clients' interfaces on this producer.

Owns: one package per client, each a translation to `Producer`. Not here: anything below it but the
public names of the package and the few protected ones `Producer` offers its subclasses.
"""
