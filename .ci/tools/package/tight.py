"""Writes a wheel anew in the fewest bytes that any unzip can read: Zopfli looks for them.

Owns: the form of the archive. Must not know: what is in it. Names, times, modes and order stay;
folders, which some tools add, are left out: whatever unpacks a wheel makes them for the files.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

_VERSION = 20
_UTF8 = 0x800


def pack_tightly(wheel: Path) -> None:
    """Compress every member of a wheel again."""
    files, directory = bytearray(), bytearray()
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            name = member.filename.encode()
            content = archive.read(member)
            packed = _deflated(content)
            common = struct.pack(
                "<HHHHHIIIHH",
                _VERSION,
                _UTF8,
                zipfile.ZIP_DEFLATED,
                *_dos_time(member.date_time),
                member.CRC,
                len(packed),
                len(content),
                len(name),
                0,
            )
            directory += struct.pack("<4sBB", b"PK\x01\x02", _VERSION, member.create_system)
            directory += common + struct.pack("<HHHII", 0, 0, 0, member.external_attr, len(files))
            directory += name
            files += b"PK\x03\x04" + common + name + packed
    end = struct.pack(
        "<4sHHHHIIH",
        b"PK\x05\x06",
        0,
        0,
        len(members),
        len(members),
        len(directory),
        len(files),
        0,
    )
    wheel.write_bytes(files + directory + end)


def _deflated(content: bytes) -> bytes:
    import zopfli.zlib

    header, checksum = 2, 4
    packed: bytes = zopfli.zlib.compress(content)
    return packed[header:-checksum]


def _dos_time(moment: tuple[int, int, int, int, int, int]) -> tuple[int, int]:
    year, month, day, hour, minute, second = moment
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day
