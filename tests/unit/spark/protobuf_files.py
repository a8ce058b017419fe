"""The files of a Protobuf schema for tests, described in Protobuf's text format."""

from __future__ import annotations

import base64

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

COMMON = """
name: "shop/common.proto" package: "shop" syntax: "proto3"
message_type {
  name: "Address"
  field { name: "city" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
}
"""

ORDERS = """
name: "shop/orders.proto" package: "shop" syntax: "proto3"
dependency: "shop/common.proto"
dependency: "confluent/meta.proto"
dependency: "confluent/type/decimal.proto"
dependency: "google/protobuf/duration.proto"
dependency: "google/protobuf/timestamp.proto"
dependency: "google/protobuf/wrappers.proto"
enum_type {
  name: "State"
  value { name: "UNKNOWN" number: 0 }
  value { name: "PAID" number: 7 }
}
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "small" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "raw" number: 4 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "paid" number: 5 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "weight" number: 6 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "share" number: 7 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "state" number: 8 type: TYPE_ENUM type_name: ".shop.State" label: LABEL_OPTIONAL }
  field { name: "address" number: 9 type: TYPE_MESSAGE type_name: ".shop.Address"
          label: LABEL_OPTIONAL }
  field { name: "tags" number: 10 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "stops" number: 11 type: TYPE_MESSAGE type_name: ".shop.Address"
          label: LABEL_REPEATED }
  field { name: "counts" number: 12 type: TYPE_MESSAGE type_name: ".shop.Order.CountsEntry"
          label: LABEL_REPEATED }
  field { name: "at" number: 13 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"
          label: LABEL_OPTIONAL }
  field { name: "took" number: 14 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration"
          label: LABEL_OPTIONAL }
  field { name: "comment" number: 15 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue"
          label: LABEL_OPTIONAL }
  field { name: "rank" number: 16 type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value"
          label: LABEL_OPTIONAL }
  field { name: "price" number: 17 type: TYPE_MESSAGE type_name: ".confluent.type.Decimal"
          label: LABEL_OPTIONAL }
  field { name: "card" number: 18 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "cash" number: 19 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "places" number: 20 type: TYPE_MESSAGE type_name: ".shop.Order.PlacesEntry"
          label: LABEL_REPEATED }
  oneof_decl { name: "payment" }
  nested_type {
    name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "PlacesEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".shop.Address"
            label: LABEL_OPTIONAL }
  }
}
message_type {
  name: "Refund"
  nested_type {
    name: "Item"
    field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  }
}
"""

OLD = """
name: "shop/old.proto" package: "shop" syntax: "proto2"
message_type {
  name: "Old"
  field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "note" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
}
"""


def file(text: str) -> FileDescriptorProto:
    """A file of a schema."""
    return text_format.Parse(text, FileDescriptorProto())


def serialized(text: str) -> str:
    """A file as a registry gives it with `format=serialized`."""
    return base64.b64encode(file(text).SerializeToString()).decode()


def descriptor_set(*texts: str) -> str:
    """The output of `protoc --descriptor_set_out`, in base64."""
    files = FileDescriptorSet(file=[file(each) for each in texts])
    return base64.b64encode(files.SerializeToString()).decode()
