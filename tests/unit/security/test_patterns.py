"""Patterns of schemas hold no event loop up, whatever they and the texts are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from typing import Any

import pytest

from aioproducer.errors import ConfigError, SchemaRegistryError, SerializationError
from aioproducer.serializers import JsonSchemaSerializer, SchemaRegistry
from aioproducer.serializers.protocol import SerializationContext
from aioproducer.serializers.registry.patterns import Pattern, PatternError
from aioproducer.serializers.registry.schema import Schema

EXPONENTIAL = [
    (r"^(a+)+$", "a" * 40 + "!"),
    (r"^(a|aa)+$", "a" * 60 + "!"),
    (r"^(a|a)*$", "a" * 60 + "!"),
    (r"(x+x+)+y", "x" * 5000),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 60),
    (r"^(\w+\s?)*$", "word " * 20 + "!"),
    (r"(.*a){20}", "b" * 2000),
    (r"(a?){40}a{40}", "a" * 40),
    (r"(a{1,10}){10}b", "a" * 101),
    (r"^(?:(?:a*)*)*$", "a" * 40 + "!"),
    (r"(?i)^(a+)+$", "A" * 40 + "!"),
    (r"(?m)^(a+)+$", "a" * 40 + "!"),
    (r"\b(a+)+\b!", "a" * 3000),
]
POLYNOMIAL = [
    (r"[a-z]+$", "a" * 100_000 + "!"),
    (r".*foo.*bar.*x", "foo" * 30_000),
    (r"^[^@]+@[^@]+\.[^@]+$", "@" + "." * 100_000),
    (r"\s+$", " " * 100_000 + "x"),
    (r"^\d+\d+\d+$", "1" * 100_000 + "x"),
]


@pytest.mark.parametrize(("text", "data"), EXPONENTIAL + POLYNOMIAL)
def test_a_pattern_takes_bounded_time(text: str, data: str) -> None:
    began = time.process_time()
    try:
        Pattern(text).is_found_in(data)
    except PatternError as error:
        assert "bounds" in str(error) or "too long" in str(error)
    assert time.process_time() - began < 5  # half a second on a machine that has nothing else to do


@pytest.mark.parametrize(
    ("text", "data", "found"),
    [
        (r"^[a-z]+$", "a" * 1_000_000, True),
        (r"^([a-z0-9-]+\.)*[a-z]+$", "an.example." * 1000 + "org", True),
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "aB1" * 10_000, True),
        (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "me@example.org", True),
        (r"^(\d+)-\1$", "12-12", True),
        (r"(?<!a)b", "ab", False),
        (r"^(a+)+$", "a" * 50_000, True),
    ],
)
def test_patterns_that_people_write_are_matched(text: str, data: str, found: bool) -> None:
    assert Pattern(text).is_found_in(data) is found


def test_a_pattern_means_what_it_means_to_re() -> None:
    chance = random.Random(4711)
    atoms = [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\d",
        r"\w",
        r"\s",
        "^",
        "$",
        r"\b",
        r"\B",
        "\n",
        r"\Z",
    ]

    def made(depth: int) -> str:
        kind = chance.random()
        if depth == 0 or kind < 0.4:
            return chance.choice(atoms)
        if kind < 0.6:
            return made(depth - 1) + made(depth - 1)
        if kind < 0.75:
            return f"(?:{made(depth - 1)}|{made(depth - 1)})"
        repeat = chance.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])
        return f"(?:{made(depth - 1)}){repeat}"

    for _ in range(5000):
        text = chance.choice(["", "", "", "(?i)", "(?m)", "(?s)"]) + made(3)
        data = "".join(chance.choice("abA1 \n") for _ in range(chance.randrange(1, 9)))
        assert Pattern(text).is_found_in(data) == bool(re.search(text, data)), (text, data)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("^/x{e}$", "/x{e}"),
        ("^(?:abc){e<=1}$", "abd"),
        ("^a{1<=e<=2}$", "b"),
        (r"^\{s}[{i}]$", "{s}i"),
        ("^a{}$", "a{}"),
        ("^a{,}b{2,}c{,3}$", "aabbb"),
        (r"^\N{DIGIT ONE}{2}$", "11"),
    ],
)
def test_a_brace_means_what_it_means_to_re(text: str, data: str) -> None:
    assert Pattern(text).is_found_in(data) == bool(re.search(text, data))


@pytest.mark.parametrize("data", ["a", ":]", "l]", "[", "]", "\\"])
@pytest.mark.parametrize(
    "text", ["^[[:alpha:]]$", "^[^[:alpha:]]$", "^[:a]$", r"^[]a[:b\]]$", r"^\[$", r"^[\\][[:]?$"]
)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_bracket_within_a_set_means_what_it_means_to_re(text: str, data: str) -> None:
    assert Pattern(text).is_found_in(data) == bool(re.search(text, data))


@pytest.mark.parametrize(
    "text", ["(", "[", "a{2,1}", "(?P<", "x" * 20_000, "(" * 5000 + ")" * 5000]
)
def test_a_malformed_pattern_is_a_separate_error(text: str) -> None:
    with pytest.raises(PatternError):
        Pattern(text)


@pytest.mark.parametrize("text", ["a{4000000000}", "(?:(?:a{999}){999}){999}", "a{60000}" * 10])
def test_a_pattern_of_repeats_that_take_much_memory_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match="too large"):
        Pattern(text)


@pytest.mark.parametrize("text", [r"((a{1,1000}){1,1000}){1,1000}$", "a{60000}" * 10, r"(a*)*\1b"])
def test_a_pattern_that_is_too_large_is_refused_or_matched(text: str) -> None:
    began = time.process_time()
    try:
        Pattern(text).is_found_in("a" * 5000)
    except PatternError as error:
        assert "bounds" in str(error) or "too long" in str(error)
    assert time.process_time() - began < 5


class Registry(SchemaRegistry):
    async def referenced(self, schema: Schema) -> Any:
        return []


async def encoder(schema: dict[str, Any]) -> Any:
    serializer = JsonSchemaSerializer(Registry("http://r"), use_latest_version=True)
    return await serializer._encoder(Schema(json.dumps(schema), "JSON"))


CONTEXT = SerializationContext("t", "value", [])


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"pattern": r"^(a+)+$"}, "a" * 40 + "!"),
        ({"propertyNames": {"pattern": r"^(a+)+$"}}, {"a" * 40 + "!": 1}),
        ({"patternProperties": {r"^(a+)+$": {"type": "string"}}}, {"a" * 40: 1}),
        (
            {"patternProperties": {r"^(a+)+$": {}}, "additionalProperties": False},
            {"a" * 40 + "!": 1},
        ),
        ({"items": {"anyOf": [{"pattern": r"^(a|aa)+$"}]}}, ["a" * 60 + "!"]),
    ],
)
async def test_a_json_schema_holds_the_loop_up_for_a_bounded_time(schema: Any, data: Any) -> None:
    encode = await encoder(schema)
    began = time.process_time()
    with pytest.raises(SerializationError):
        encode(data, CONTEXT)
    assert time.process_time() - began < 2
    await asyncio.sleep(0)


DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2020-12/schema",
]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("place", ["allOf", "$ref", "root"])
async def test_no_schema_in_a_schema_is_checked_by_other_code(draft: str, place: str) -> None:
    inner = {"$schema": draft, "pattern": r"^(a+)+$"}
    if place == "root":
        inner["items"] = {"$ref": "#"}  # type: ignore[assignment]
        schema: dict[str, Any] = inner
    elif place == "allOf":
        schema = {"items": {"allOf": [inner]}}
    else:
        schema = {"definitions": {"a": inner}, "items": {"$ref": "#/definitions/a"}}
    encode = await encoder(schema)
    began = time.process_time()
    with pytest.raises(SerializationError):
        encode(["a" * 26 + "!"], CONTEXT)
    assert time.process_time() - began < 2
    assert encode(["aaa"], CONTEXT) == b'["aaa"]'


@pytest.mark.parametrize("others", [True, {"type": "string"}])
async def test_many_patterns_of_names_hold_the_loop_up_for_a_bounded_time(others: Any) -> None:
    patterns = {f"[a-z]{{1,{9_000 + n}}}$": True for n in range(200)}
    encode = await encoder({"patternProperties": patterns, "additionalProperties": others})
    began = time.process_time()
    with pytest.raises(SerializationError, match="takes too long"):
        encode({"z" * 15_000 + "!": 1}, CONTEXT)
    assert time.process_time() - began < 4


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
async def test_references_that_multiply_are_bounded(word: str) -> None:
    levels: dict[str, Any] = {
        f"d{level}": {word: [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(18)
    }
    levels["d18"] = {"type": "integer" if word == "allOf" else "string"}
    encode = await encoder({"definitions": levels, "items": {"$ref": "#/definitions/d0"}})
    began = time.process_time()
    with pytest.raises(SerializationError, match="takes too long"):
        encode([1], CONTEXT)
    assert time.process_time() - began < 6


def nested(word: str, depth: int) -> Any:
    schema: Any = {}
    for _ in range(depth):
        schema = {word: schema if word == "if" else [schema], "unevaluatedProperties": False}
    return {"$schema": DRAFTS[2], **schema}


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf", "if"])
async def test_what_is_left_unevaluated_within_bounds(word: str) -> None:
    """Each level is checked twice by the one above."""
    encode = await encoder(nested(word, 40))
    began = time.process_time()
    with pytest.raises(SerializationError, match="cannot be checked: the schema takes too long"):
        encode({}, CONTEXT)
    assert time.process_time() - began < 4
    encode = await encoder(nested(word, 3))
    assert encode({}, CONTEXT) == b"{}"


@pytest.mark.parametrize("draft", ["2019-09", "2020-12"])
async def test_references_to_what_is_evaluated_are_followed_within_bounds(draft: str) -> None:
    levels: dict[str, Any] = {}
    for level in range(40):
        deeper = {"$ref": f"#/$defs/d{level + 1}"}
        levels[f"d{level}"] = {"dependentSchemas": {"p": deeper, "q": deeper}}
    schema = {
        "$schema": f"https://json-schema.org/draft/{draft}/schema",
        "unevaluatedProperties": False,
        "$ref": "#/$defs/d0",
        "$defs": {**levels, "d40": {}},
    }
    encode = await encoder(schema)
    began = time.process_time()
    with pytest.raises(SerializationError, match="cannot be checked: the schema takes too long"):
        encode({"p": 1, "q": 1}, CONTEXT)
    assert time.process_time() - began < 4


@pytest.mark.slow
async def test_many_errors_with_long_texts_take_bounded_time() -> None:
    encode = await encoder({"allOf": [{"type": "string"}] * 100_000})
    began = time.process_time()
    with pytest.raises(SerializationError):
        encode(["x" * 20_000], CONTEXT)
    assert time.process_time() - began < 6


async def test_unique_items_are_found_in_linear_time() -> None:
    encode = await encoder({"uniqueItems": True})
    began = time.process_time()
    encode([{"a": [number]} for number in range(30_000)], CONTEXT)
    with pytest.raises(SerializationError, match="violates uniqueItems"):
        encode([[{"a": 1, "b": True}], 1, [{"b": True, "a": 1.0}]], CONTEXT)
    assert encode([1, True, "1", [1], {"1": 1}, None, 0, False], CONTEXT)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("draft", DRAFTS)
async def test_a_schema_itself_is_checked_in_bounded_time(draft: str) -> None:
    schema = {"$schema": draft, "enum": [{"a": number} for number in range(8_000)]}
    began = time.process_time()
    encode = await encoder(schema)
    JsonSchemaSerializer(SchemaRegistry("http://r"), json.dumps(schema))
    assert time.process_time() - began < 5
    assert encode({"a": 7}, CONTEXT)
    for wrong in ({"required": ["a", "a"]}, {"type": "no"}, {"pattern": "("}, {"items": 7}):
        with pytest.raises(SchemaRegistryError, match="is no JSON Schema"):
            await encoder({"$schema": draft, **wrong})


async def test_long_data_may_follow_many_references() -> None:
    levels = {f"d{level}": {"$ref": f"#/definitions/d{level + 1}"} for level in range(4)}
    schema = {"definitions": {**levels, "d4": {"type": "integer"}}}
    encode = await encoder(schema | {"items": {"$ref": "#/definitions/d0"}})
    assert len(encode([1] * 20_000, CONTEXT)) > 20_000


@pytest.mark.parametrize("schema", [None, 1, 1e300, "x", [1]])
async def test_json_that_is_no_schema_is_an_error_of_ours(schema: Any) -> None:
    with pytest.raises(SchemaRegistryError, match="is no JSON Schema"):
        await encoder(schema)
    with pytest.raises(ConfigError, match="is no JSON Schema"):
        JsonSchemaSerializer(SchemaRegistry("http://r"), json.dumps(schema))


async def test_patterns_mean_what_they_meant() -> None:
    encode = await encoder(
        {
            "type": "object",
            "properties": {"name": {"pattern": "^[A-Z]"}},
            "patternProperties": {"^x_": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
        }
    )
    assert json.loads(encode({"name": "Jane", "x_a": 1, "other": True}, CONTEXT))
    for wrong in ({"name": "jane"}, {"x_a": "1"}, {"other": 1}):
        with pytest.raises(SerializationError):
            encode(wrong, CONTEXT)
    strict = await encoder({"properties": {"a": {}}, "additionalProperties": False})
    with pytest.raises(SerializationError, match="'b'"):
        strict({"a": 1, "b": 2}, CONTEXT)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "("},
        {"patternProperties": {"[": {}}},
        {
            "unevaluatedProperties": False,
            "allOf": [{"patternProperties": {"^(a+)+$": {}}}],
        },
    ],
)
def test_a_schema_with_a_malformed_pattern_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigError, match="JSON Schema"):
        JsonSchemaSerializer(SchemaRegistry("http://r"), schema)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"not":' * 20_000 + "{}" + "}" * 20_000])
def test_a_schema_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="JSON Schema"):
        JsonSchemaSerializer(SchemaRegistry("http://r"), text)


# -- equal hashes ----------------------------------------------------------------------------------

PRIME = 2**61 - 1
"""Python's hash of an integer is its remainder by this one."""


def colliding_pairs(count: int) -> list[list[int]]:
    """Pairs of integers whose tuples have one hash, by CPython's algorithm (xxHash)."""
    mask, p1, p2, p5 = 2**64 - 1, 11400714785074694791, 14029467366897019727, 2870177450012600261
    inverse = pow(p2, -1, 2**64)
    found: list[list[int]] = []
    first = 0
    while len(found) < count:
        first += 1
        state = (p5 + first * p2) & mask
        state = ((state << 31) | (state >> 33)) & mask
        state = state * p1 & mask
        second = (12345 - state) * inverse & mask
        if second < PRIME:
            found.append([first, second])
    return found


@pytest.mark.parametrize(
    "items",
    [
        [number * PRIME for number in range(1, 30_000)],
        [-number * PRIME for number in range(1, 30_000)],
        [[number * PRIME] for number in range(1, 8_000)],
        [{"a": number * PRIME} for number in range(1, 8_000)],
        colliding_pairs(8_000),
    ],
    ids=["integers", "negative", "arrays", "objects", "pairs"],
)
async def test_unique_items_of_equal_hashes_take_linear_time(items: list[Any]) -> None:
    encode = await encoder({"uniqueItems": True})
    began = time.process_time()
    assert encode(items, CONTEXT)
    assert time.process_time() - began < 2


# -- memory ----------------------------------------------------------------------------------------


async def test_the_patterns_of_a_schema_have_a_bound_together() -> None:
    schema = {"allOf": [{"pattern": f"{'a' * 9_000}{number}"} for number in range(10)]}
    with pytest.raises(SchemaRegistryError, match="more than 50000 characters together"):
        await encoder(schema)
    assert await encoder({"allOf": [{"pattern": "a" * 9_000}] * 10})
    repeats = {"allOf": [{"pattern": f"{number}a{{9000}}"} for number in range(10)]}
    with pytest.raises(SchemaRegistryError, match="more than 50000 characters together"):
        await encoder(repeats)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"multipleOf": float("nan")}, 1.5),
        ({"multipleOf": 1e-320}, 1e300),
        ({"type": [["int"]]}, 1),
        ({"$schema": 5}, 1),
        ({"$schema": ["x"]}, 1),
        ({"properties": {"a": {"$schema": 5, "$ref": "#"}}}, {"a": 1}),
        ({"$ref": 5}, 1),
        ({"$ref": "http://["}, 1),
        ({"$id": "http://["}, 1),
        ({"items": {"$dynamicRef": [1]}}, [1]),
        ({"required": 5}, {}),
        ({"properties": [1]}, {"a": 1}),
        ({"enum": 5}, 1),
        ({"minimum": float("nan")}, 1),
        ({"maxLength": 10**400}, "x"),
    ],
)
@pytest.mark.parametrize(
    "draft",
    [
        None,
        "http://json-schema.org/draft-03/schema#",
        "http://json-schema.org/draft-04/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
async def test_odd_schemas_raise_errors_of_ours_only(
    schema: dict[str, Any], data: Any, draft: str | None
) -> None:
    whole = schema if draft is None else {"$schema": draft} | schema
    with contextlib.suppress(ConfigError):
        JsonSchemaSerializer(SchemaRegistry("http://r"), json.dumps(whole))
    with contextlib.suppress(SchemaRegistryError, SerializationError):
        (await encoder(whole))(data, CONTEXT)
