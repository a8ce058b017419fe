from __future__ import annotations

import csv
import gzip
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError
from aioproducer.loader import BadRow, CsvFormat, Format, LinesFormat, NdjsonFormat, SourceError
from loader.fakes import read_format

fields = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


def rows(format_: CsvFormat | NdjsonFormat | LinesFormat, content: bytes, skip: int = 0) -> list:
    return [row for chunk in read_format(format_, content, skip) for row in chunk.fields]


@given(st.lists(st.tuples(fields, fields, fields), max_size=20), st.integers(1, 50))
def test_whatever_csv_writes_is_read_back_in_any_chunks(
    table: list[tuple[str, str, str]], chunk_size: int
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b", "c"), *table])
    content = text.getvalue().encode()
    pieces = [content[at : at + chunk_size] for at in range(0, len(content), chunk_size)]
    chunks = read_format(CsvFormat(), pieces)
    assert [tuple(row) for chunk in chunks for row in chunk.fields] == table
    assert all(chunk.columns == ("a", "b", "c") for chunk in chunks)


def test_csv_row_numbers_leave_out_the_header_and_blank_lines() -> None:
    chunks = read_format(CsvFormat(), [b"a,b\n1,2\n\n3,4\n", b"\n5,6\n"])
    assert [(chunk.first_row, list(chunk.fields)) for chunk in chunks] == [
        (1, [["1", "2"], ["3", "4"]]),
        (3, [["5", "6"]]),
    ]


def test_csv_row_of_another_width_is_bad_and_the_rest_is_read() -> None:
    assert rows(CsvFormat(), b"a,b\n1,2\n1,2,3\n4,5\n") == [
        ["1", "2"],
        BadRow("3 fields where the header names 2", b"1,2,3"),
        ["4", "5"],
    ]


def test_csv_row_with_a_broken_quote_is_bad_and_the_rest_is_read() -> None:
    first, bad, last = rows(CsvFormat(), b'a,b\n1,2\n"x"y,2\r\n4,5\n')
    assert (first, last) == (["1", "2"], ["4", "5"])
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("not valid CSV")
    assert bad.raw == b'"x"y,2'


def test_rows_that_end_with_a_carriage_return_are_refused_with_what_to_do() -> None:
    advice = r"a carriage return outside of quotes; .* convert the file first: tr '\\r' '\\n'"
    with pytest.raises(SourceError, match=rf"the CSV header cannot be read: {advice}"):
        rows(CsvFormat(), b"a,b\r1,2\r")
    (bad,) = rows(CsvFormat(), b"a,b\n1,2\r3,4\r")
    assert re.fullmatch(rf"not valid CSV: {advice}", bad.reason)


def test_csv_quote_that_never_ends_swallows_no_more_than_the_limit() -> None:
    content = b'a,b\n"open,2\n' + b"1,2\n" * 100
    found = rows(CsvFormat(max_row_bytes=64), content)
    assert isinstance(found[0], BadRow)
    total = found[0].raw.count(b"\n") + len(found)
    assert total == 101


def test_csv_quote_that_never_ends_leaves_no_row_out_of_the_dead_letters() -> None:
    lines = [b'"open,2', *(b"%d,xxxxxxxxxxxxxxxx" % number for number in range(10, 30))]
    bad, *others = rows(CsvFormat(max_row_bytes=64), b"\n".join([b"a,b", *lines]))
    assert isinstance(bad, BadRow)
    assert [*bad.raw.split(b"\n"), *(",".join(row).encode() for row in others)] == lines


def test_csv_row_longer_than_the_limit_is_bad_even_with_the_right_width() -> None:
    found = rows(CsvFormat(max_row_bytes=20), b"a,b\n1," + b"x" * 50 + b"\n3,4\n")
    assert found == [BadRow("longer than 20 bytes (text cut)", b"1," + b"x" * 18), ["3", "4"]]


def test_csv_row_of_many_lines_that_is_longer_than_the_limit_is_bad_and_the_rest_is_read() -> None:
    content = b'a,b\n1,2\n"' + b'\n","' * 10 + b"\n5,6\n7,8\n"
    found = rows(CsvFormat(max_row_bytes=40), content)
    assert found[0] == ["1", "2"]
    raw = b'"\n' + b'","\n' * 9 + b'","'
    assert found[1] == BadRow("longer than 40 bytes; is a quote not closed?", raw)
    assert found[2:] == [["5", "6"], ["7", "8"]]


def test_csv_header_of_many_lines_has_the_same_limit() -> None:
    with pytest.raises(SourceError, match="header is longer than 40 bytes"):
        rows(CsvFormat(max_row_bytes=40), b'"' + b'\n","' * 1000)


def test_csv_keeps_the_bytes_of_text_that_is_not_utf8() -> None:
    assert rows(CsvFormat(), b"a,b\n\xff,1,2\n") == [
        BadRow("3 fields where the header names 2", b"\xff,1,2")
    ]


def test_csv_null_text_becomes_null() -> None:
    assert rows(CsvFormat(null="NA"), b"a,b\nNA,\n") == [[None, ""]]


def test_csv_columns_given_by_the_caller_mean_there_is_no_header() -> None:
    (chunk,) = read_format(CsvFormat(columns=("x", "y")), b"1,2\n")
    assert (chunk.columns, chunk.fields) == (("x", "y"), [["1", "2"]])


def test_csv_other_dialects_are_read() -> None:
    assert rows(CsvFormat(delimiter=";", quote="'"), b"a;b\n'1;2';3\n") == [["1;2", "3"]]
    assert rows(CsvFormat(delimiter="|", quote=None), b'a|b\n"1|2"\n') == [['"1', '2"']]
    assert rows(CsvFormat(encoding="latin-1"), b"a\n\xe9\n") == [["é"]]


def test_csv_header_that_names_a_column_twice_is_refused() -> None:
    with pytest.raises(SourceError, match="a more than once"):
        read_format(CsvFormat(), b"a,b,a\n1,2,3\n")
    with pytest.raises(SourceError, match="the CSV header names '' more than once"):
        read_format(CsvFormat(), b"a,,\n1,2,3\n")


def test_csv_without_anything_has_no_rows() -> None:
    assert read_format(CsvFormat(), b"") == []
    assert read_format(CsvFormat(), b"a,b\n") == []


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ",,"},
        {"delimiter": '"'},
        {"delimiter": "\n"},
        {"quote": ""},
        {"quote": "\r"},
        {"encoding": "utf-16"},
        {"encoding": "no"},
        {"encoding": "idna"},
        {"encoding": "undefined"},
        {"encoding": "\udcff"},
        {"columns": ("a", "b", "a")},
    ],
)
def test_impossible_csv_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        CsvFormat(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "UTF_8_SIG"])
def test_csv_may_be_called_utf8_with_a_byte_order_mark(encoding: str) -> None:
    (chunk,) = read_format(CsvFormat(encoding=encoding), b"\xef\xbb\xbfa\n\xc3\xa9\n")
    assert (chunk.columns, chunk.fields) == (("a",), [["é"]])


@pytest.mark.parametrize("format_", [CsvFormat(), LinesFormat(), NdjsonFormat()])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_refused_as_such(format_: Format, encoding: str) -> None:
    with pytest.raises(SourceError, match="it is UTF-16, not UTF-8"):
        read_format(format_, "\ufeffa\n1\n".encode(encoding))


@pytest.mark.parametrize("format_", [CsvFormat(), LinesFormat(), NdjsonFormat()])
def test_what_was_packed_twice_is_refused_as_packed(format_: Format) -> None:
    with pytest.raises(SourceError, match="it is packed with gzip"):
        read_format(format_, gzip.compress(b"a\n1\n"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_csv_header_in_utf16_without_a_mark_is_refused(encoding: str) -> None:
    with pytest.raises(SourceError, match="the CSV header has NUL characters; is it UTF-16"):
        read_format(CsvFormat(), "id,name\n1,a\n".encode(encoding))


def test_an_encoding_with_other_line_feeds_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="its line feed is not one byte -> convert the file"):
        CsvFormat(encoding="utf-16")


def test_csv_in_an_encoding_of_single_bytes_may_begin_with_any() -> None:
    (chunk,) = read_format(CsvFormat(encoding="latin-1"), b"\xff\xfea\n1\n")
    assert chunk.columns == ("ÿþa",)


def test_ndjson_lines_are_parsed_and_kept() -> None:
    (chunk,) = read_format(NdjsonFormat(), b'{"a": 1}\r\n\n  {"a":2.50} \n')
    assert chunk.fields == [{"a": 1}, {"a": 2.5}]
    assert chunk.lines == [b'{"a": 1}', b'{"a":2.50}']
    assert chunk.lines_are_json


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b"[1]", "not a JSON object; of an array, make a line of each object: jq -c '.[]'"),
        (b"[", "not valid JSON: it goes on in the next line; of an array, make a line of each"),
        (b"{", "not valid JSON: it goes on in the next line; make one line of each object: jq"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_line_that_is_no_json_object_is_bad_and_the_rest_is_read(line: bytes, reason: str) -> None:
    good, bad, last = rows(NdjsonFormat(), b"{}\n" + line + b"\n{}\n")
    assert (good, last) == ({}, {})
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith(reason)
    assert bad.raw == line


def test_lines_are_rows_blank_ones_too() -> None:
    (chunk,) = read_format(LinesFormat(), b"one\r\n\ntwo\n")
    assert chunk.fields == [(b"one",), (b"",), (b"two",)]
    assert chunk.columns == ("line",)


def test_first_separator_parts_key_and_value() -> None:
    found = rows(LinesFormat(key_separator=":"), b"k:v:w\nno\n:\n")
    assert found == [(b"k", b"v:w"), BadRow("no key separator ':'", b"no"), (b"", b"")]


def test_the_text_for_null_makes_a_line_a_key_or_a_value_null() -> None:
    assert rows(LinesFormat(null=""), b"a\n\n") == [(b"a",), (None,)]
    found = rows(LinesFormat(key_separator=":", null="N"), b"k:N\nN:v\nN:N\n:NN\n")
    assert found == [(b"k", None), (None, b"v"), (None, None), (b"", b"NN")]


def test_too_long_lines_are_bad() -> None:
    for format_ in (LinesFormat(max_row_bytes=5), NdjsonFormat(max_row_bytes=5)):
        (bad,) = rows(format_, b"x" * 9 + b"\n")
        assert bad == BadRow("longer than 5 bytes (text cut)", b"xxxxx")


@given(st.integers(0, 10), st.lists(st.integers(1, 9), max_size=5))
def test_skipping_leaves_out_exactly_the_first_rows(skip: int, cuts: list[int]) -> None:
    content = b"".join(b'{"n":%d}\n' % number for number in range(1, 11))
    pieces, at = [], 0
    for cut in [*cuts, len(content)]:
        pieces.append(content[at : at + cut])
        at += cut
    chunks = read_format(NdjsonFormat(), pieces, skip)
    numbered = [
        (chunk.first_row + index, row["n"], chunk.lines[index])  # type: ignore[index,call-overload]
        for chunk in chunks
        for index, row in enumerate(chunk.fields)
    ]
    assert numbered == [(n, n, b'{"n":%d}' % n) for n in range(skip + 1, 11)]


def test_input_that_became_shorter_is_noticed() -> None:
    with pytest.raises(SourceError, match="it has 2 rows where at least 3 were read before"):
        read_format(LinesFormat(), b"1\n2\n", skip=3)
