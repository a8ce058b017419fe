"""Varints of any size, seven bits a byte, low ones first: Protobuf's, and Avro's with `zigzag`."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Return a number from 0 on."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def zigzag(number: int) -> int:
    """Any number as one from 0 on, small where it is near 0."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """Return the number that `zigzag` took."""
    return number >> 1 if number % 2 == 0 else -((number + 1) >> 1)
