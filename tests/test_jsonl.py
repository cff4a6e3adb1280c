"""JSON by the standard, one value a line; each thing that is wrong has its word."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipshards.errors import Rejected
from clipshards.jsonl import has_keys, parse_json, read_blocks


def lines_of(text: bytes, size: int = 2) -> list[tuple[int, bytes]]:
    blocks = [*read_blocks(io.BytesIO(text), size)]
    assert all(0 < len(numbers) == len(lines) <= size for numbers, lines in blocks)
    return [(number, line.rstrip(b"\r\n")) for block in blocks for number, line in zip(*block, strict=True)]


def reason_of(text: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        parse_json(text)
    assert caught.value.detail
    return caught.value.reason


def test_lines_have_their_numbers_and_blank_ones_are_left_out() -> None:
    assert lines_of(b'{"a":1}\n\n  \t\r\n[2]\r\n\n3') == [(1, b'{"a":1}'), (4, b"[2]"), (6, b"3")]
    assert lines_of(b"") == []


def test_blocks_count_all_lines() -> None:
    text = b"\n" * 5 + b"[1]\n" + b" \n" * 4 + b"[2]\n[3]\n[4]"
    for size in range(1, 14):
        assert lines_of(text, size) == [(6, b"[1]"), (11, b"[2]"), (12, b"[3]"), (13, b"[4]")]


def test_byte_order_mark_is_dropped_at_the_start_alone() -> None:
    assert lines_of(b"\xef\xbb\xbf[1]\n\xef\xbb\xbf[2]") == [(1, b"[1]"), (2, b"\xef\xbb\xbf[2]")]
    assert lines_of(b"\xef\xbb\xbf\n[1]\n") == [(2, b"[1]")]
    assert reason_of(b"\xef\xbb\xbf[2]") == "row-not-json"


def test_file_of_a_byte_order_mark_has_no_lines() -> None:
    assert lines_of(b"\xef\xbb\xbf") == []


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_the_line_feed_ends_a_line(separator: str) -> None:
    text = f'["a{separator}b"]\n[2]\n'.encode()
    assert [line for _, line in lines_of(text)] == [f'["a{separator}b"]'.encode(), b"[2]"]


def test_unicode_separators_belong_to_the_text() -> None:
    assert parse_json('{"q":"a\u2028b\u2029c\u0085d"}'.encode()) == {"q": "a\u2028b\u2029c\u0085d"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"a": NaN}', "a (nan)"),
        (b'{"a": {"b": [1, Infinity]}}', "a.b.1 (inf)"),
        (b"[-Infinity]", "0 (-inf)"),
        (b"NaN", "the value (nan)"),
        (b'{"a": 1e999}', "a (inf)"),
    ],
)
def test_number_that_is_none(text: bytes, place: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_json(text)
    assert caught.value.reason == "bad-number"
    assert place in caught.value.detail


def test_detail_is_text_though_the_key_is_none() -> None:
    with pytest.raises(Rejected) as caught:
        parse_json(b'{"\\ud800": NaN}')
    assert caught.value.reason == "bad-number"
    assert caught.value.detail.encode().startswith(rb"\ud800 (nan)")


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a" : 1, "a" : 2}',
        b'{"a":1,"a" :2}',
        b'{"a":1,"a"\t:2}',
        b'{"a":1,"a"\r:2}',
        b'{"a":1,"a"\n:2}',
        b'{"a":1,"a" \r\n\t :2}',
        b'{"a":1,"\\u0061":2}',
        b'{"x":{"a":1,"b":2,"a":3}}',
        b'[[{"a":1}],{"y":[{"a":1,"a":2}]}]',
        b'{"t":"\\":","a":1,"a":2}',
    ],
)
def test_doubled_key(text: bytes) -> None:
    with pytest.raises(Rejected, match="'a' stands twice") as caught:
        parse_json(text)
    assert caught.value.reason == "row-not-json"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]}',
        b'{"a" : 1 , "b"\t:\t{"a" :2}}\n',
        b'{\n  "a": 1,\n  "b": 2\n}\n',
        rb'{"a":"\"a\":1","b":"x\":"}',
        b'{"a":":","b":"\\":\\":"}',
        b'{"A":1,"a":2}',
    ],
)
def test_keys_that_only_look_doubled(text: bytes) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"\\ud800"}',
        b'{"a":"\\udc00\\ud800"}',
        b'{"a":"x\\ud83dx"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"caf\xe9"}',
        b'{"\xff":1}',
        b'{"a":1}{"b":2}',
        b'{"a":1} {"b":2}',
        b"[1],[2]",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":1',
        b'{"a":"tab\there"}',
        b"True",
        b"",
        b"   ",
        '["a"]'.encode("utf-16"),
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_text_that_is_no_json(text: bytes) -> None:
    assert reason_of(text) == "row-not-json"


def test_deep_lists_are_a_value_or_a_reject() -> None:
    for depth in range(400, 1100, 50):
        text = b"[" * depth + b"]" * depth
        try:
            parse_json(text)
        except Rejected as rejected:
            assert rejected.reason == "row-not-json"


def test_surrogate_pair_is_one_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(_VALUES, st.sampled_from([None, 1]), st.sampled_from([(", ", ": "), (",", ":"), (" , ", " : ")]))
def test_any_value_comes_back(value: Any, indent: int | None, separators: tuple[str, str]) -> None:
    value = json.loads(json.dumps(value))
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    assert parse_json(text.encode()) == value
    assert parse_json(json.dumps(value, indent=indent, separators=separators).encode()) == value


def test_has_keys_is_sure_only_where_no_key_can_hide() -> None:
    assert has_keys(b'{"a":1,"b":2}', 2)
    assert not has_keys(b'{"a":1,"a":2}', 1)
    assert has_keys(b'{"a" :1}', 1)
    assert not has_keys(b'{"a" :":"}', 1)
    assert not has_keys(b'{"a":1,"a"\n:2}', 1)
    assert has_keys(b'{"a":1}\n', 1)
    assert has_keys(b'{"a":1}\r\n', 1)
    assert not has_keys(b'{"a":"b:c"}\n{"a":"P1: \\":"}\r\n', 2)
    assert has_keys(b'{"a":"b:c"}\n{"a":"P1: c"}\r\n', 2)
    assert not has_keys(b'{"a":1,"a" :2}\n{"b":"c:d"}\n', 2)
    assert not has_keys(b'{"a":1,"a"\r:2}\n{"b":"c:d"}\n', 2)
    assert not has_keys(b'{"a":1,"a":2}\n{"b":"c:d"}\n', 2)
