"""Serializers with schemas in a registry with Confluent's API.

Owns: the client of the registry, the bytes in front of a payload, and the formats Avro, JSON Schema
and Protobuf. Not here: the producer. `aioproducer.serializers` offers the public names.

    schema, subjects, wire_format < answers < http < client < base < avro, json_schema, protobuf

This package waits for HTTP, so it has tasks; each has a bound, and ends with its client.
"""
