"""Messages: declared structs that can be encoded and decoded, version by version.

Invariants: decoding raises nothing but `ProtocolError` for bad bytes and `UnsupportedVersionError`
for a version the message never had; what `encode` returned, `decode` reads back equal.
"""

from __future__ import annotations

from typing import ClassVar, Self

from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.compiler import Codec, compile_struct
from aioproducer.wire.fields import Struct, array, f, struct
from aioproducer.wire.primitives import MALFORMED, UNENCODABLE, Buffer, ElementBudget

__all__ = ["ApiKey", "Message", "Struct", "array", "f", "struct"]


class Message(Struct):
    """A request or a response; every field of a subclass has a default."""

    __slots__ = ()

    API_KEY: ClassVar[ApiKey | None] = None
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    """The first version with compact lengths and tagged fields (KIP-482); None: no version."""
    RESPONSE: ClassVar[type[Message]]
    """Requests only: the message that answers it."""

    def __init_subclass__(
        cls,
        *,
        api_key: ApiKey | None = None,
        versions: tuple[int, int] | None = None,
        flexible_from: int | None = None,
        response: type[Message] | None = None,
    ) -> None:
        """Take the facts in the head of a message's class statement.

        A request has the API key and the versions of its response, as in Kafka.
        """
        super().__init_subclass__()
        # `struct` makes the class anew, with its attributes but without these arguments.
        if response is not None:
            cls.RESPONSE, api_key = response, response.API_KEY
            versions, flexible_from = response.VALID_VERSIONS, response.FLEXIBLE_FROM
        if versions is not None:
            cls.API_KEY, cls.VALID_VERSIONS, cls.FLEXIBLE_FROM = api_key, versions, flexible_from

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether the version has compact lengths and tagged fields (KIP-482)."""
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM

    def encode(self, version: int) -> bytes:
        """Return the message as bytes, without header and frame."""
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)

    def encode_into(self, out: bytearray, version: int) -> None:
        """Append the message to `out`; see `encode`."""
        codec = _codec(type(self), version)
        try:
            codec.encode(out, self)
        except UNENCODABLE as error:
            name = type(self).__name__
            raise ValueError(f"a value does not fit {name} v{version}: {error}") from error

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Return the message that `data` is, from its first byte to its last."""
        return cls.decode_from(data, 0, version)

    @classmethod
    def decode_from(cls, data: Buffer, pos: int, version: int) -> Self:
        """Return the message that `data` holds from offset `pos` to its end; see `decode`."""
        codec = _codec(cls, version)
        try:
            message, stop = codec.decode(data, pos, ElementBudget())
        except MALFORMED as error:
            raise ProtocolError(f"malformed {cls.__name__} v{version}: {error}") from error
        except ProtocolError as error:
            raise ProtocolError(f"malformed {cls.__name__} v{version}: {error}") from None
        if stop != len(data):
            raise ProtocolError(
                f"malformed {cls.__name__} v{version}: {len(data) - stop} bytes left over"
            )
        return message  # type: ignore[no-any-return]


def _codec(cls: type[Message], version: int) -> Codec:
    lowest, highest = cls.VALID_VERSIONS
    if not lowest <= version <= highest:
        raise UnsupportedVersionError(
            f"{cls.__name__} has versions {lowest} to {highest}, not {version}"
        )
    return compile_struct(cls, version, cls.is_flexible(version))
