"""Writes `confluent.json`: what confluent-kafka's serializers make of the data beside it.

Run it where confluent-kafka[avro,json,protobuf] is installed:

    PYTHONPATH=tests/unit/serializers python tests/unit/serializers/golden/write_confluent.py
"""

from __future__ import annotations

import json
from pathlib import Path

import confluent_kafka
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from messages import Money, Order, Second

HERE = Path(__file__).parent
CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))


def main() -> None:
    """Write the file anew."""
    made = {}
    for name, case in CASES.items():
        client = SchemaRegistryClient.new_client({"url": "mock://"})
        context = SerializationContext("orders", MessageField.VALUE)
        data = case["data"]
        if case["format"] == "avro":
            serializer = AvroSerializer(client, json.dumps(case["schema"]))
        elif case["format"] == "json":
            serializer = JSONSerializer(json.dumps(case["schema"]), client)
        else:
            kind = {"Money": Money, "Order": Order, "Second": Second}[case["message"]]
            serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
            data = kind(**data)
        made[name] = serializer(data, context).hex()
    content = {"confluent-kafka": confluent_kafka.__version__, "made": made}
    (HERE / "confluent.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
