"""Errors of test clusters."""


class ClusterError(RuntimeError):
    """A test cluster could not be started or controlled."""


class JavaError(ClusterError):
    """No Java that the wanted Kafka runs on; the message names every version found."""


class ClusterTimeoutError(ClusterError, TimeoutError):
    """A cluster did not get ready in time; the message carries the end of its logs."""


class NotSupportedByBackendError(ClusterError):
    """This kind of cluster cannot do that: brokers of an existing cluster are not killed."""
