"""Serializers with schemas in a registry with Confluent's API.

`aioproducer.serializers` offers the public names.

    schema, subjects, wire_format < answers < http < client < base < avro, json_schema, protobuf

This package waits for HTTP, so it has tasks; each has a bound, and ends with its client.
"""
