"""JSON lines, strictly: a value a line, or the reason why the line cannot be used.

msgspec reads by the standard, which Python's `json` does not. The one thing it lets pass is a doubled key
(the last value wins), so the keys of a line are counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import msgspec

from clipshards.errors import Rejected

_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode


def read_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based line number, line) of each line that is not blank.

    Lines end at the line feed alone: U+2028 and U+0085 belong to the text. A byte order mark is dropped.
    """
    for number, line in enumerate(file, 1):
        if number == 1 and line.startswith(_BOM):
            line = line[len(_BOM) :]
        if line and not line.isspace():
            yield number, line


def parse_json(text: bytes) -> Any:
    """The value of one JSON text.

    Raises:
        Rejected: `row-not-json` (also doubled keys, half surrogates, bytes that are not UTF-8), `bad-number`
            (NaN and Infinity, which Python writes and the standard does not know).
    """
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _explain(text, error)
    try:
        if not has_keys(text, _count_keys(value)):
            json.loads(text, object_pairs_hook=_require_different_keys)
    except RecursionError:
        raise Rejected("row-not-json", "nested too deeply") from None
    return value


def has_keys(text: bytes, count: int) -> bool:
    """Whether the text surely has no more than `count` keys; so none is doubled when a reader saw `count`.

    A colon after white space is not counted here, and so never sure.
    """
    spaced = b" :" in text or b"\t" in text or b"\r:" in text or text.find(b"\n", 0, -1) >= 0
    return not spaced and text.count(b'":') == count


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        count = len(value)
        for inner in value.values():
            if type(inner) is list or type(inner) is dict:
                count += _count_keys(inner)
        return count
    if type(value) is list:
        return sum(_count_keys(inner) for inner in value if type(inner) is not str)
    return 0


def _require_different_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise Rejected("row-not-json", f"the key {key!r} stands twice in one object")
        seen[key] = value
    return seen


def _explain(text: bytes, error: Exception) -> NoReturn:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Rejected("row-not-json", f"{error}") from None
    if place := _find_not_finite(value, ""):
        raise Rejected("bad-number", f"{place} is no number of JSON")
    raise Rejected("row-not-json", f"{error}")


def _find_not_finite(value: Any, place: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place or 'the value'} ({value})"
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        if found := _find_not_finite(item, f"{place}.{key}" if place else str(key)):
            return found
    return ""
