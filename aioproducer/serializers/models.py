"""Pydantic: values that are checked against a type before they become JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer._checks.extras import needed
from aioproducer.errors import SerializationError
from aioproducer.serializers.protocol import SerializationContext, serialization_error

if TYPE_CHECKING:
    from pydantic import ValidationError


class PydanticSerializer:
    """JSON of whatever Pydantic can check: models, dataclasses, `TypedDict`s, unions of them.

    What is not yet of the type is validated first, such as a dict for a model; instances of a model
    are trusted, as Pydantic does.

    Args:
        type_: what values are.
        by_alias: whether fields are written by their aliases.
        exclude_none: whether fields that are None are left out.

    Raises:
        ConfigError: Pydantic is not installed.
    """

    def __init__(self, type_: Any, *, by_alias: bool = True, exclude_none: bool = False) -> None:
        with needed("pydantic", "for PydanticSerializer", install="pydantic>=2"):
            import pydantic
        self._adapter = pydantic.TypeAdapter(type_)
        self._invalid = pydantic.ValidationError
        self._by_alias = by_alias
        self._exclude_none = exclude_none

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        if data is None:
            return None
        try:
            checked = self._adapter.validate_python(data)
            return self._adapter.dump_json(
                checked, by_alias=self._by_alias, exclude_none=self._exclude_none
            )
        except self._invalid as error:
            raise _validation_error(error, context) from None


def _validation_error(error: ValidationError, context: SerializationContext) -> SerializationError:
    """Return the first validation error and the number of others, without the content."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    path = ".".join(str(step) for step in found[0]["loc"])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return serialization_error(context, found[0]["msg"] + more, path=path or None)
