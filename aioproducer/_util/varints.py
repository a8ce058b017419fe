"""Varints of any size, seven bits a byte, low ones first: Protobuf's, and Avro's with `zigzag`."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def zigzag(number: int) -> int:
    """Map a number to one that is not negative, and small if the number is near 0."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """Return the number that `zigzag` mapped to this one."""
    return number >> 1 if number % 2 == 0 else -((number + 1) >> 1)
