"""Other clients' interfaces on this producer.

Programs derive from the other client's classes and use attributes and methods with names of their
choice. So private names of a drop-in that the other client does not have begin with `_own_`.
"""
