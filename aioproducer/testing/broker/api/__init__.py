"""The APIs of the simulated broker: one function each, from a decoded request to its response.

Every handler takes a `RequestContext` and the request message, changes the cluster where the API
does, and returns the response message. None means that no response is to be sent.
"""
