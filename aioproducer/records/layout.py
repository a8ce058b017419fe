"""The positions of the fields in a RecordBatch v2 header (KIP-98; Java: DefaultRecordBatch).

    base_offset i64 | length i32 | leader_epoch i32 | magic i8 | crc u32 |
    attributes i16 | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 |
    producer_id i64 | producer_epoch i16 | base_sequence i32 | count i32 | records

`length` counts what follows it. The CRC-32C covers what follows it, so brokers may set base_offset
and leader_epoch without touching it.
"""

from __future__ import annotations

from struct import Struct

HEADER_SIZE = 61
LENGTH_END = 12
"""What `length` does not count: base_offset and itself."""
CRC_END = 21
"""Where the checksummed part begins."""
MAGIC = 2

FRONT = Struct(">qiibI")
"""base_offset, length, leader_epoch, magic, crc"""
TAIL = Struct(">hiqqqhii")
"""attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch,
base_sequence, count"""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
