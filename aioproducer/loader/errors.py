"""Errors of a load, besides Kafka's.

They join the package's one hierarchy under `KafkaError`, which catches these too.
"""

from typing import Final

from aioproducer.errors import KafkaError

NEW_ID: Final = "choose another transactional_id (command line: `-X transactional.id=NAME`)"
"""How an exactly-once load starts over."""
START_OVER: Final = (
    "restore the file that was loaded, or start over: leave out resume, or, exactly once, " + NEW_ID
)
"""What to do about an input that is not the one of the load to resume."""


class LoaderError(KafkaError):
    """Base of the loader's own errors."""


class SourceError(LoaderError):
    """The input is missing, unreadable, damaged, or of another shape than asked for."""


class MappingError(LoaderError, ValueError):
    """The wished key, value, header, timestamp or partition cannot be made from this input."""


class StateError(LoaderError):
    """The state file is unreadable or belongs to another load."""


class DeadLetterError(LoaderError):
    """The dead-letter file cannot be written."""


class RejectedRowError(LoaderError):
    """A bad row ended a load that has no dead-letter file to put it in."""
