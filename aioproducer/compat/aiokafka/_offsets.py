"""Checks of the arguments of `send_offsets_to_transaction`, with aiokafka's types and texts."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from aioproducer.client.transactions import group_metadata_of
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


def checked_group(group_id: Any) -> ConsumerGroupMetadata:
    """Return the metadata of a group, given by its id, its metadata or a consumer."""
    try:
        return group_metadata_of(group_id or None)
    except TypeError:
        raise ValueError(group_id) from None


def checked_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return positions from ints, pairs of offset and metadata, or `OffsetAndMetadata`."""
    if not offsets or not isinstance(offsets, Mapping):
        raise ValueError(offsets)
    return {_place(place): _position(position, offsets) for place, position in offsets.items()}


def _place(place: Any) -> TopicPartition:
    if not hasattr(place, "topic") or not hasattr(place, "partition"):
        raise TypeError("Key should be TopicPartition instance")
    return TopicPartition(place.topic, place.partition)


def _position(position: Any, offsets: Mapping[Any, Any]) -> OffsetAndMetadata:
    if isinstance(position, OffsetAndMetadata):
        return position
    if isinstance(position, int):
        return OffsetAndMetadata(int(position), "")
    try:
        offset, metadata = position
    except (TypeError, ValueError):
        raise ValueError(offsets) from None
    if not isinstance(metadata, str):
        raise TypeError("Metadata should be a string")
    return OffsetAndMetadata(index(offset), metadata)
