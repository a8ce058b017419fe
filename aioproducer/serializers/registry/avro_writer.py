"""Avro's binary encoding, compiled from a schema.

Start with `AvroWriter`. One rule decides what fits and writes it, so a refusal always says where
and why; it names types, never the content.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from numbers import Integral
from typing import Any, Final, Self
from uuid import UUID

from aioproducer._util.varints import varint, zigzag
from aioproducer.serializers.registry.avro_leaves import (
    BYTES,
    SchemaMismatch,
    Write,
    base_of,
    by_fastavro,
    leaf,
    type_name,
    words,
)
from aioproducer.serializers.registry.avro_schema import AvroSchemaError
from aioproducer.serializers.registry.avro_values import (
    as_fields,
    class_of,
    dumped,
    inner,
    is_model,
    is_wrapper,
)


class AvroWriter:
    """Encodes values by a schema that `resolve` returned.

    Unless it is `strict`, fields that the schema does not have are left out, and missing ones that
    may be null are null. Unless it is to `check_defaults`, one that does not fit refuses the values
    that need it: registries have such schemas, and Java's clients write by them.
    """

    def __init__(self, schema: Any, *, strict: bool = True, check_defaults: bool = True) -> None:
        self._strict = strict
        self._check_defaults = check_defaults
        self._named: dict[str, _Record] = {}
        try:
            self._write = self._compiled(schema)
        except RecursionError:
            raise AvroSchemaError("its types are nested too deeply") from None

    def encode(self, data: Any) -> bytes:
        """Return a value's encoding."""
        out = _Output(_Attempts())
        try:
            self._write(out, dumped(data) if is_model(data) else data)
        except RecursionError:
            raise SchemaMismatch("is nested too deeply, or contains itself") from None
        return bytes(out)

    def _compiled(self, schema: Any) -> Write:
        if isinstance(schema, list):
            return _Union([(branch, self._compiled(branch)) for branch in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return _converting(schema, _array(self._compiled(schema["items"])))
        if kind == "map":
            return _converting(schema, _map(self._compiled(schema["values"])))
        return leaf(schema)

    def _record(self, schema: Mapping[str, Any]) -> Write:
        known = self._named.get(schema["name"])
        if known is not None:
            return known
        self._named[schema["name"]] = made = _Record(schema, strict=self._strict)
        for field in schema["fields"]:
            # A schema that refers to itself finds the record in `_named`.
            made.add(field, self._compiled(field["type"]), check_default=self._check_defaults)
        return made


# -- records ---------------------------------------------------------------------------------------


class _Record:
    def __init__(self, schema: Mapping[str, Any], *, strict: bool) -> None:
        self.name: str = schema["name"]
        self._strict = strict
        has_logical = "logicalType" in schema
        self._convert = by_fastavro(schema, "record", words(schema)) if has_logical else None
        self._fields: list[tuple[str, Write, bytes | None, Any]] = []
        self._names: set[str] = set()
        self._wrong_defaults: dict[str, AvroSchemaError] = {}

    def add(self, field: Mapping[str, Any], write: Write, *, check_default: bool) -> None:
        default: bytes | None = None
        if "default" in field:
            try:
                default = default_bytes(field["type"], field["default"])
            except AvroSchemaError as error:
                if check_default or isinstance(error, _EndlessDefaultError):
                    raise AvroSchemaError(
                        f"the default of field {field['name']!r} of {self.name} {error}"
                    ) from None
                self._wrong_defaults[field["name"]] = error
        elif not self._strict:
            try:
                default = default_bytes(field["type"], None)
            except AvroSchemaError:
                default = None
        self._fields.append((field["name"], write, default, field["type"]))
        self._names.add(field["name"])

    def __call__(self, out: bytearray, data: Any) -> None:
        if self._convert is not None:
            data = self._convert(data)
        fields = data if data.__class__ is dict else as_fields(data)
        if not isinstance(fields, Mapping):
            raise SchemaMismatch(f"must be record {self.name}, not {_given(data, [self.name])}")
        given = fields.get("-type")
        if given is not None and "-type" not in self._names and not is_named(self.name, given):
            raise SchemaMismatch(f"must be record {self.name}, not one whose `-type` is another")
        used = 0
        for name, write, default, kind in self._fields:
            if name in fields:
                used += 1
                try:
                    write(out, fields[name])
                except SchemaMismatch as mismatch:
                    mismatch.steps.append(f".{name}")
                    raise
            elif default is None:
                wrong = self._wrong_defaults.get(name)
                has = "no default" if wrong is None else f"a default that {wrong}"
                raise SchemaMismatch(
                    f"is missing and has {has}; it must be {words(kind)}", f".{name}"
                )
            else:
                out += default
        if self._strict and used < len(fields):
            for name in fields:
                if name not in self._names and name != "-type":
                    known = ", ".join(each for each, *_ in self._fields)
                    raise SchemaMismatch(
                        f"is no field of {self.name}, which has {known or 'none'}", f".{name}"
                    )

    def matches(self, data: Any) -> tuple[int, bool]:
        """Return how many fields are given, and whether all are."""
        fields = as_fields(data) or {}
        given = sum(name in fields for name in self._names)
        return given, given == len(self._names)


def is_named(name: str, given: Any) -> bool:
    """Return whether this is a type's full name, or its name without the namespace."""
    return bool(given == name or given == name.rpartition(".")[2])


# -- collections -----------------------------------------------------------------------------------


def _converting(schema: Mapping[str, Any], write: Write) -> Write:
    """Return `write`, after the conversion of the logical type, if there is one."""
    if "logicalType" not in schema:
        return write
    convert = by_fastavro(schema, schema["type"], words(schema))
    return lambda out, data: write(out, convert(data))


def _array(write: Write) -> Write:
    def write_array(out: bytearray, data: Any) -> None:
        if data.__class__ is not list:
            if is_wrapper(data):
                data = inner(data)
            if not isinstance(data, Collection | array) or isinstance(data, (str, Mapping, *BYTES)):
                raise SchemaMismatch(f"must be array, not {type_name(data)}")
        if len(data):
            out += varint(zigzag(len(data)))
            for index, item in enumerate(data):
                try:
                    write(out, item)
                except SchemaMismatch as mismatch:
                    mismatch.steps.append(f"[{index}]")
                    raise
        out.append(0)

    return write_array


def _map(write: Write) -> Write:
    write_key = leaf("string")

    def write_map(out: bytearray, data: Any) -> None:
        entries = data if data.__class__ is dict else as_fields(data)
        if not isinstance(entries, Mapping):
            raise SchemaMismatch(f"must be map, not {type_name(data)}")
        if entries:
            out += varint(zigzag(len(entries)))
            for key, item in entries.items():
                try:
                    write_key(out, key)
                except SchemaMismatch:
                    raise SchemaMismatch(
                        f"must have keys of type string, not {type_name(key)}"
                    ) from None
                try:
                    write(out, item)
                except SchemaMismatch as mismatch:
                    mismatch.steps.append(f"[{key!r}]")
                    raise
        out.append(0)

    return write_map


# -- unions ----------------------------------------------------------------------------------------


class _Attempts:
    """The outcomes of attempts at branches, while a value is written.

    A value may fit several branches, each of which leads to the same inner values. Without these
    outcomes the time would be exponential in the depth of the value.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, bytes | SchemaMismatch]] = {}
        self._size = 0
        self._depth = 0

    def __enter__(self) -> Self:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._known.clear()
            self._size = 0

    def made(self, branch: _Branch, data: Any) -> bytes | SchemaMismatch:
        """Return the encoding of a value by a branch, without its index, or why it does not fit."""
        key = id(branch.write), id(data)
        if key in self._known:
            return self._known[key][1]
        made: bytes | SchemaMismatch
        out = _Output(self)
        try:
            branch.write(out, data)
        except SchemaMismatch as mismatch:
            if mismatch.ambiguous:
                raise
            made = mismatch.copy()
        else:
            made = bytes(out)
            self._size += len(made)
        self._size += _SIZE_OF_ATTEMPT
        if self._size > _LARGEST_ATTEMPTS:
            raise SchemaMismatch(
                f"fits several types at too many levels; {_NAMING}", ambiguous=True
            )
        self._known[key] = data, made  # the value is kept, so that its id is not used again
        return made


class _Output(bytearray):
    """The bytes of a value, and the attempts at branches that led to them."""

    def __init__(self, attempts: _Attempts) -> None:
        super().__init__()
        self.attempts: _Attempts = attempts


_SIZE_OF_ATTEMPT: Final = 500
_LARGEST_ATTEMPTS: Final = 64 << 20
"""The bytes of the outcomes that are kept: up to those of a value for each of its levels."""
_NAMING: Final = "give (name, value), or an object whose class has the name"


class _Branch:
    def __init__(self, index: int, schema: Any, write: Write) -> None:
        self.schema, self.write = schema, write
        self.prefix = varint(zigzag(index))
        self.kind = schema["type"] if isinstance(schema, dict) else schema
        self.kind = "record" if self.kind == "error" else self.kind
        self.name = str(schema.get("name", self.kind) if isinstance(schema, dict) else schema)
        self.logical = schema.get("logicalType") if isinstance(schema, dict) else None

    def put(self, out: bytearray, data: Any) -> None:
        out += self.prefix
        self.write(out, data)


class _Union:
    """Chooses a branch: the one that is named, then by the value's type, then by what fits."""

    def __init__(self, branches: Sequence[tuple[Any, Write]]) -> None:
        self._branches = [_Branch(index, *each) for index, each in enumerate(branches)]
        self._orders: dict[type, list[_Branch]] = {}
        self._several = {
            kind
            for kind in ("record", "enum", "fixed")
            if sum(branch.kind == kind for branch in self._branches) > 1
        }
        self._is_forked = sum(branch.kind in _FIELDS_KINDS for branch in self._branches) > 1

    def __call__(self, out: bytearray, data: Any) -> None:
        kind = data.__class__
        if kind not in _PLAIN and is_model(data):
            data = dumped(data)
            kind = data.__class__
        if kind is tuple and len(data) == 2 and isinstance(data[0], str):
            named = self._named(data[0])
            if named is not None:
                named.put(out, data[1])
                return
        order = self._orders.get(kind)
        if order is None:
            if len(self._orders) > 1000:  # classes that are made anew, again and again
                self._orders.clear()
            # In the union's order, those for this Python type first.
            order = sorted(self._branches, key=lambda branch: _distance(branch, kind))
            self._orders[kind] = order
        if self._is_forked or self._several:
            with out.attempts if isinstance(out, _Output) else _Attempts() as attempts:
                self._put_by_fit(out, data, order, attempts)
            return
        failed: dict[_Branch, SchemaMismatch] = {}
        for branch in order:
            if _is_put(out, branch, data, failed):
                return
        self._refuse(data, failed)

    def _put_by_fit(
        self, out: bytearray, data: Any, order: list[_Branch], attempts: _Attempts
    ) -> None:
        failed: dict[_Branch, SchemaMismatch] = {}
        # Among several named types, the class's name chooses, or what fits alone.
        for kind in self._several:
            branches = [branch for branch in order if branch.kind == kind]
            first = order[0]
            if first.kind in _EXACT_KINDS and _distance(first, data.__class__) == 0:
                continue  # such as a str in a union of a string and enums
            chosen = self._by_class(data, branches)
            if len(chosen) == 1:
                chosen[0].put(out, data)
                return
            fitting: list[tuple[_Branch, bytes]] = []
            for branch in chosen or branches:
                made = attempts.made(branch, data)
                if isinstance(made, bytes):
                    fitting.append((branch, made))
                else:
                    failed[branch] = made
            if len(fitting) > 1 and kind == "record":
                fitting = _closest(fitting, data)
            if len(fitting) > 1:
                names = " and ".join(branch.name for branch, _ in fitting)
                raise SchemaMismatch(
                    f"fits {names} equally, so it is ambiguous; {_NAMING}", ambiguous=True
                )
            if fitting:
                out += fitting[0][0].prefix + fitting[0][1]
                return
        for branch in order:
            if branch in failed:
                continue
            if branch.kind not in _FIELDS_KINDS:
                if _is_put(out, branch, data, failed):
                    return
                continue
            made = attempts.made(branch, data)
            if isinstance(made, bytes):
                out += branch.prefix + made
                return
            failed[branch] = made
        self._refuse(data, failed)

    def _named(self, name: Any) -> _Branch | None:
        """Return the branch that is meant by a name; a name without namespace must be unique."""
        for branch in self._branches:
            if branch.name == name:
                return branch
        found = [branch for branch in self._branches if is_named(branch.name, name)]
        return found[0] if len(found) == 1 else None

    def _by_class(self, data: Any, branches: list[_Branch]) -> list[_Branch]:
        kind = class_of(data) if not isinstance(data, Enum) else type(data)
        if kind is None:
            given = data.get("-type") if isinstance(data, Mapping) else None
            return [branch for branch in branches if given and is_named(branch.name, given)]
        for base in kind.__mro__:
            full = f"{base.__module__}.{base.__qualname__}"
            found = [
                branch
                for branch in branches
                if branch.name.rpartition(".")[2] == base.__name__ and base is not object
            ]
            exact = [branch for branch in found if branch.name == full]
            if found:
                return exact or found
        return []

    def _refuse(self, data: Any, failed: Mapping[_Branch, SchemaMismatch]) -> None:
        likely = [branch for branch in self._branches if branch.kind != "null"]
        if data is not None and len(likely) == 1:
            raise failed[likely[0]].copy() from None
        fields = as_fields(data)
        details = []
        for branch in likely if fields is not None else ():
            mismatch = failed[branch]
            if mismatch.steps:
                detail = f"{branch.name}: {mismatch.path} {mismatch.reason}"
                # A reason has those of inner values, for each of the branches.
                details.append(detail[:_LONGEST_DETAIL])
        expected = ", ".join(words(branch.schema) for branch in self._branches)
        names = [branch.name for branch in self._branches if branch.kind in ("record", "enum")]
        raise SchemaMismatch(
            f"must be one of {expected}, not {_given(data, names)}"
            + (f" ({'; '.join(details)})" if details else "")
        )


def _given(data: Any, names: Sequence[str]) -> str:
    """Describe what was given in place of named types; more than its class, if one has its name."""
    kind = type_name(data)
    if isinstance(data, Enum) and any(is_named(name, kind) for name in names):
        return f"a member of {kind} that is none of its symbols"
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], str):
        return f"a {kind} whose first item names none of them" if len(names) > 1 else kind
    if as_fields(data) is None and any(is_named(name, kind) for name in names):
        return f"an object of class {kind} that has no fields"
    return kind


_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None), dict, list, tuple})
_EXACT_KINDS: Final = frozenset({"string", "bytes", "int", "long", "null", "boolean", "map"})
_FIELDS_KINDS: Final = frozenset({"record", "map"})
_LONGEST_DETAIL: Final = 500


def _is_put(
    out: bytearray, branch: _Branch, data: Any, failed: dict[_Branch, SchemaMismatch]
) -> bool:
    """Write by a branch, or note why the value does not fit it."""
    mark = len(out)
    try:
        branch.put(out, data)
    except SchemaMismatch as mismatch:
        if mismatch.ambiguous:
            raise
        del out[mark:]
        failed[branch] = mismatch.copy()
        return False
    return True


def _closest(fitting: list[tuple[_Branch, bytes]], data: Any) -> list[tuple[_Branch, bytes]]:
    """Return the branches with most of the given fields; one without defaults is closer."""
    scores = [each[0].write.matches(data) for each in fitting]  # type: ignore[attr-defined]
    most = max(given for given, _ in scores)
    best = [(each, whole) for each, (n, whole) in zip(fitting, scores, strict=True) if n == most]
    exact = [each for each, whole in best if whole]
    return exact if len(exact) == 1 else [each for each, _ in best]


def _distance(branch: _Branch, kind: type) -> int:
    """Return how well a branch fits a Python type: 0 exactly, 1 accepts it, 2 at last."""
    if branch.logical is not None:
        types = _LOGICAL_TYPES.get(branch.logical, ())
        # A datetime is a date to Python, which would lose its time.
        is_whole = branch.logical != "date" or not issubclass(kind, datetime)
        return 0 if issubclass(kind, types) and is_whole else 1
    if branch.kind == "record":
        return 0 if not issubclass(kind, _NOT_RECORDS) else 2
    if branch.kind == "enum" and issubclass(kind, Enum):
        return -1
    if branch.kind == "float":
        return 2  # it rounds what a double takes exactly
    if branch.kind in ("int", "long") and issubclass(kind, bool):
        return 1
    return 0 if issubclass(kind, _TYPES.get(branch.kind, ())) else 1


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (Integral,),  # numpy's integers, too
    "long": (Integral,),
    "double": (float,),
    "bytes": BYTES,
    "string": (str,),
    "array": (list, tuple, set, frozenset),
}
_LOGICAL_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "decimal": (Decimal,),
    "uuid": (UUID,),
    "date": (date,),
    "time-millis": (time,),
    "time-micros": (time,),
    "timestamp-millis": (datetime,),
    "timestamp-micros": (datetime,),
    "timestamp-nanos": (datetime,),
    "local-timestamp-millis": (datetime,),
    "local-timestamp-micros": (datetime,),
    "local-timestamp-nanos": (datetime,),
}
_NOT_RECORDS: Final = (str, bytes, int, float, list, tuple, type(None), Decimal, date, Enum)


# -- defaults --------------------------------------------------------------------------------------


class _EndlessDefaultError(AvroSchemaError):
    """A default that would take time or memory without end."""


def default_bytes(schema: Any, default: Any) -> bytes:
    """Return the encoding of a default as a schema's JSON has it."""
    out = bytearray()
    try:
        _put_default(out, schema, default, iter(range(_MOST_DEFAULT_PARTS)))
    except SchemaMismatch as mismatch:
        where = f" at {mismatch.path}" if mismatch.steps else ""
        raise AvroSchemaError(f"{mismatch.reason}{where}") from None
    except RecursionError:
        raise _EndlessDefaultError("is nested too deeply, or contains itself") from None
    return bytes(out)


_MOST_DEFAULT_PARTS: Final = 10_000
"""Defaults of records contain other defaults."""


def _put_default(out: bytearray, schema: Any, default: Any, budget: Iterator[int]) -> None:
    if next(budget, None) is None:
        raise _EndlessDefaultError("is without end, or has too many parts")
    if isinstance(schema, list):
        for index, branch in enumerate(schema):
            made = bytearray(varint(zigzag(index)))
            try:
                _put_default(made, branch, default, budget)
            except SchemaMismatch:
                continue
            out += made
            return
        raise SchemaMismatch(f"must be {words(schema)}, not {type_name(default)}")
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        _put_default_record(out, schema, default, budget)
    elif kind == "array":
        _array(lambda target, item: _put_default(target, schema["items"], item, budget))(
            out, default
        )
    elif kind == "map":
        _map(lambda target, item: _put_default(target, schema["values"], item, budget))(
            out, default
        )
    else:
        if kind in ("bytes", "fixed") and isinstance(default, str):
            try:
                default = default.encode("latin-1")  # Avro: code points 0 to 255 are the bytes
            except UnicodeEncodeError:
                raise SchemaMismatch(
                    f"must be {words(schema)}, not characters above U+00FF"
                ) from None
        elif kind in ("float", "double") and isinstance(default, str):
            try:
                default = float(default)
            except ValueError:
                raise SchemaMismatch(f"must be {words(schema)}, not str") from None
        # The default of a logical type is one of the type below it.
        base_of(schema, kind, words(schema))(out, default)


def _put_default_record(
    out: bytearray, schema: Mapping[str, Any], default: Any, budget: Iterator[int]
) -> None:
    if not isinstance(default, Mapping):
        raise SchemaMismatch(f"must be {words(schema)}, not {type_name(default)}")
    for field in schema["fields"]:
        name = field["name"]
        if name not in default and "default" not in field:
            raise SchemaMismatch("is missing and has no default", f".{name}")
        try:
            _put_default(out, field["type"], default.get(name, field.get("default")), budget)
        except SchemaMismatch as mismatch:
            mismatch.steps.append(f".{name}")
            raise
