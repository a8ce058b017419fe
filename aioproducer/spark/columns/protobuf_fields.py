"""Rows as Protobuf messages: columns become the fields of the same name.

`RowWriter` compares the types of columns and fields once, before any row; docs/spark.md has the
table of types. What types cannot rule out fails row by row: a number out of range, an enum's
unknown name, null in an array, two columns of one `oneof`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.spark.columns.protobuf_files import DECIMAL, OWN_FILES

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

Convert = Callable[[Any], Any]
"""Takes the value of a column and returns that of a field."""

_GOOGLE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_INTEGERS: Final = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
_MOST_NAMED: Final = 50
_MOST_COMPARED: Final = 1_000
"""Names that an error lists, and those that are compared with a wrong one."""
_NAMES: Final = {
    **_INTEGERS,
    "bool": "boolean",
    "double": "double",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date",
    "null": "void",
}
"""Spark's names of Arrow's types, where they differ."""


class FieldError(Exception):
    """A row does not fit; `path` is the column, as `customer.age`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path: str = path
        self.reason: str = reason


class RowWriter:
    """Makes messages of one type from rows; `path` names a struct column in errors."""

    def __init__(self, message: type[Message], columns: pa.StructType, path: str = "") -> None:
        self._message = message
        self._path = path
        self._fields: dict[str, Convert] = {}
        descriptor = message.DESCRIPTOR
        for column in columns:
            field = descriptor.fields_by_name.get(column.name)
            if field is None:
                raise _no_field(descriptor, column.name, path)
            self._fields[column.name] = _converter(field, column.type, _joined(path, column.name))
        self._required = [field.name for field in descriptor.fields if _is_required(field)]
        missing = [name for name in self._required if name not in self._fields]
        if missing:
            raise ConfigError(
                f"there is no column {_joined(path, missing[0])!r} for a required field of "
                f"{descriptor.full_name}"
            )
        self._choices = [
            names
            for oneof in descriptor.oneofs
            if len(names := [each.name for each in oneof.fields if each.name in self._fields]) > 1
        ]

    def message(self, row: Mapping[str, Any]) -> Message:
        """Return a row as a message; null leaves a field out."""
        made = {
            name: convert(value)
            for name, convert in self._fields.items()
            if (value := row[name]) is not None
        }
        for name in self._required:
            if name not in made:
                raise FieldError(_joined(self._path, name), "is required and null")
        for names in self._choices:
            if len(chosen := [name for name in names if name in made]) > 1:
                raise FieldError(
                    _joined(self._path, chosen[1]),
                    f"only one column of a oneof may have a value, and {chosen[0]!r} has one",
                )
        try:
            return self._message(**made)
        except (TypeError, ValueError):
            raise self._field_error(made) from None

    def _field_error(self, made: Mapping[str, Any]) -> FieldError:
        """Return which field cannot hold its value."""
        for name, value in made.items():
            try:
                self._message(**{name: value})
            except (TypeError, ValueError):
                kind = _wanted(self._message.DESCRIPTOR.fields_by_name[name])
                return FieldError(_joined(self._path, name), f"is out of range of {kind}")
        return FieldError(self._path or "row", "does not fit")


def struct_writer(message: type[Message], kind: pa.DataType, column: str) -> RowWriter:
    """Return the writer of a column that is a whole message."""
    import pyarrow as pa

    if not pa.types.is_struct(kind):
        raise ConfigError(
            f"column {column!r} is {spark_name(kind)}; it has to be a struct with the fields of "
            f"{message.DESCRIPTOR.full_name}"
        )
    return RowWriter(message, kind, column)


def spark_name(kind: pa.DataType) -> str:
    """Return Spark's name of an Arrow type."""
    import pyarrow as pa

    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{spark_name(each.type)}' for each in kind)}>"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_duration(kind):
        return "interval day to second"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(str(kind), str(kind))


# -- types -----------------------------------------------------------------------------------------


def _converter(field: FieldDescriptor, kind: pa.DataType, path: str) -> Convert:
    """Return the function that converts a column's values to a field's."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return _same
    refused = _mismatch(field, kind, path)
    entry = _map_entry(field)
    if entry is not None:
        if not pa.types.is_map(kind):
            raise refused
        keys, values = entry
        key = _single(keys, kind.key_type, f"{path}[]", refused)
        return _map_of(key, _single(values, kind.item_type, f"{path}[]", refused), path)
    if _is_repeated(field):
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise refused
        return _array_of(_single(field, kind.value_type, f"{path}[]", refused), path)
    return _single(field, kind, path, refused)


def _single(field: FieldDescriptor, kind: pa.DataType, path: str, refused: ConfigError) -> Convert:
    """Return the converter of one value, or of one item of an array or map; else raise."""
    if field.message_type is not None:
        found = _message(field.message_type, kind, path)
    elif field.enum_type is not None:
        found = _enum(field.enum_type, kind, path)
    else:
        found = _scalar(field, kind)
    if found is None:
        raise refused
    return found


def _message(descriptor: Descriptor, kind: pa.DataType, path: str) -> Convert | None:
    import pyarrow as pa
    from google.protobuf.message_factory import GetMessageClass

    name, message = _special_name(descriptor), GetMessageClass(descriptor)
    if pa.types.is_struct(kind):
        return RowWriter(message, kind, path).message
    if name == f"{_GOOGLE}Timestamp":
        return _timestamp(message, path) if pa.types.is_timestamp(kind) and kind.tz else None
    if name == f"{_GOOGLE}Duration":
        return _duration(message) if pa.types.is_duration(kind) else None
    if name == DECIMAL and pa.types.is_decimal(kind):
        return _decimal(message, kind.precision, kind.scale)
    if name in _WRAPPERS:
        inner = _scalar(descriptor.fields_by_name["value"], kind)
        return None if inner is None else _wrapped(message, inner, path)
    return None


def _special_name(descriptor: Descriptor) -> str:
    """Return the name of a type that Google or Confluent defines; of a schema's own type, none."""
    return str(descriptor.full_name) if descriptor.file.name in OWN_FILES else ""


def _enum(enum: EnumDescriptor, kind: pa.DataType, path: str) -> Convert | None:
    if str(kind) in _INTEGERS:
        return _same
    if spark_name(kind) != "string":
        return None
    numbers = {value.name: value.number for value in enum.values}
    names = _listed(numbers)

    def convert(value: str) -> int:
        number: int | None = numbers.get(value)
        if number is None:
            raise FieldError(path, f"is no value of {enum.full_name}: {names}")
        return number

    return convert


def _scalar(field: FieldDescriptor, kind: pa.DataType) -> Convert | None:
    name, wanted = spark_name(kind), _scalar_name(field)
    if "int" in wanted or "fixed" in wanted:
        return _same if str(kind) in _INTEGERS else None
    allowed = {"bool": ("boolean",), "bytes": ("binary",), "double": ("float", "double")}
    return _same if name in allowed.get(wanted, (wanted,)) else None


def _scalar_name(field: FieldDescriptor) -> str:
    names: dict[int, str] = {
        number: name.removeprefix("TYPE_").lower()
        for name, number in vars(type(field)).items()
        if name.startswith("TYPE_")
    }
    return names[field.type]


def _map_entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return the key and the value of a map field; None for others."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def _is_repeated(field: FieldDescriptor) -> bool:
    # protobuf 7 has no `label`, protobuf 5 no `is_repeated`.
    flag = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if flag is None else flag)


def _is_required(field: FieldDescriptor) -> bool:
    flag = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if flag is None else flag)


# -- values ----------------------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _array_of(convert: Convert, path: str) -> Convert:
    def array(values: list[Any]) -> list[Any]:
        if None in values:
            raise FieldError(path, "has a null, which a repeated field cannot hold")
        return values if convert is _same else [convert(each) for each in values]

    return array


def _map_of(key: Convert, value: Convert, path: str) -> Convert:
    def entries(values: Mapping[Any, Any]) -> dict[Any, Any]:
        if None in values.values():
            raise FieldError(path, "has a null, which a map field cannot hold")
        return {key(name): value(each) for name, each in values.items()}

    return entries


def _timestamp(message: type[Any], path: str) -> Convert:
    def stamp(value: datetime) -> Any:
        made = message()
        try:
            made.FromDatetime(value)
        except ValueError:
            raise FieldError(path, f"is out of range of {_GOOGLE}Timestamp") from None
        return made

    return stamp


def _duration(message: type[Any]) -> Convert:
    def duration(value: timedelta) -> Any:
        made = message()
        made.FromTimedelta(value)
        return made

    return duration


def _decimal(message: type[Any], precision: int, scale: int) -> Convert:
    def decimal(value: Decimal) -> Any:
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
        number = -number if sign else number
        size = (number + (number < 0)).bit_length() // 8 + 1
        return message(
            value=number.to_bytes(size, "big", signed=True), precision=precision, scale=scale
        )

    return decimal


def _wrapped(message: type[Any], convert: Convert, path: str) -> Convert:
    def wrap(value: Any) -> Any:
        try:
            return message(value=convert(value))
        except (TypeError, ValueError):
            raise FieldError(path, f"is out of range of {message.DESCRIPTOR.full_name}") from None

    return wrap


# -- errors ----------------------------------------------------------------------------------------


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _no_field(descriptor: Descriptor, name: str, path: str) -> ConfigError:
    names = [field.name for field in islice(descriptor.fields, _MOST_COMPARED)]
    nearest = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return ConfigError(
        f"column {_joined(path, name)!r} has no field in {descriptor.full_name}{hint}",
        advice=f"drop or rename the column; the fields are {_listed(names)}",
    )


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(islice(names, _MOST_NAMED)) or "none"
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def _mismatch(field: FieldDescriptor, kind: pa.DataType, path: str) -> ConfigError:
    return ConfigError(
        f"column {path!r} is {spark_name(kind)}, which field {field.full_name} of type "
        f"{_wanted(field)} cannot hold",
        advice=f"cast the column first: {_castable(field)}",
    )


def _wanted(field: FieldDescriptor) -> str:
    entry = _map_entry(field)
    if entry is not None:
        return f"map<{', '.join(map(_element, entry))}>"
    return f"repeated {_element(field)}" if _is_repeated(field) else _element(field)


def _element(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return f"enum {field.enum_type.full_name}"
    return _scalar_name(field)


def _castable(field: FieldDescriptor) -> str:
    """Return the columns that a field can hold."""
    entry = _map_entry(field)
    if entry is not None:
        return f"map<{','.join(map(_castable_element, entry))}>"
    element = _castable_element(field)
    return f"array<{element}>" if _is_repeated(field) else element


def _castable_element(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return "string"
    if field.message_type is not None:
        name = _special_name(field.message_type)
        special = {
            f"{_GOOGLE}Timestamp": "timestamp",
            f"{_GOOGLE}Duration": "interval day to second",
            DECIMAL: "decimal",
        }
        if name in _WRAPPERS:
            return _castable_element(field.message_type.fields_by_name["value"])
        return special.get(name, "struct")
    wanted = _scalar_name(field)
    if "int" in wanted or "fixed" in wanted:
        return "int or bigint"
    return {"bool": "boolean", "bytes": "binary"}.get(wanted, wanted)
