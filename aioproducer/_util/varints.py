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


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it.

    Raise IndexError if the data ends in it, ValueError if it has more bytes than any of 64 bits.
    """
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number is too long")


def zigzag(number: int) -> int:
    """Map a number to one that is not negative, and small if the number is near 0."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """Return the number that `zigzag` mapped to this one."""
    return number >> 1 if number % 2 == 0 else -((number + 1) >> 1)
