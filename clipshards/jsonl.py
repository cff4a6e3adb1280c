"""JSON lines, strictly: a value a line, or the reason why the line cannot be used.

msgspec reads by the standard, which Python's `json` does not. The one thing it lets pass is a doubled key
(the last value wins), so the keys of a line are counted.

Lines come in blocks: checks that hold for nearly all lines are cheap on a whole block, as long as its values
stay in the processor's cache. Each line is still decoded by itself, so none can lean on its neighbours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any, NoReturn

import msgspec

from clipshards.errors import Rejected

READ_BYTES = 1 << 18
"""Buffer of a file of lines; reading by Python's 8 kB takes twice as long."""

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},]', re.DOTALL)
_decode = msgspec.json.Decoder().decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_blocks(file: IO[bytes], size: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield (1-based line numbers, lines) of up to `size` lines, without the blank ones.

    Lines end at the line feed alone: U+2028 and U+0085 belong to the text. A byte order mark is dropped.
    """
    first = 1
    while lines := list(islice(file, size)):
        if first == 1:
            lines[0] = lines[0].removeprefix(_BOM)
        numbers = [number for number, line in enumerate(lines, first) if line and not line.isspace()]
        first += len(lines)
        if len(numbers) < len(lines):
            lines = [line for line in lines if line and not line.isspace()]
        if lines:
            yield numbers, lines


def read_objects(file: IO[bytes], size: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield (1-based numbers, texts) of up to `size` objects: the elements of a JSON array, or lines.

    A file whose first character is `[` is an array, as no line of objects starts so. A text that is no JSON is
    yielded as it is: it is for `parse_json` to say what is wrong with it.
    """
    start = file.read(READ_BYTES).removeprefix(_BOM).lstrip(_SPACE)
    file.seek(0)
    if not start.startswith(b"["):
        yield from read_blocks(file, size)
        return
    texts = _elements(file.read().removeprefix(_BOM).strip(_SPACE))
    for first in range(0, len(texts), size):
        block = texts[first : first + size]
        yield list(range(first + 1, first + 1 + len(block))), block


def _elements(array: bytes) -> list[bytes]:
    try:
        return [bytes(element) for element in _decode_array(array)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _split_elements(array)


def _split_elements(array: bytes) -> list[bytes]:
    """The elements of an array that is damaged somewhere: cut at the commas that lie in no inner bracket.

    What follows the end of the array is one more element; so is what is left of one where the file ends.
    """
    pieces, start, depth = [], 1, 0
    for token in _TEXT_OR_BRACKET.finditer(array):
        kind = token[0]
        if kind in (b"[", b"{"):
            depth += 1
        elif kind in (b"]", b"}"):
            depth -= 1
        if depth == 0 or (depth == 1 and kind == b","):
            pieces.append(array[start : token.start()])
            start = token.end()
        if depth == 0:
            break
    pieces.append(array[start:])
    if depth == 1:
        pieces.append(b"[")  # the file ends between two elements: what is lost shows as a text that is no JSON
    return [piece for piece in (piece.strip(_SPACE) for piece in pieces) if piece]


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

    The text is one JSON value or several. A colon after white space is not counted as that of a key here, and
    so sure only where all colons are those of the keys that the reader saw.
    """
    if text.count(b":") == count:
        return True
    is_spaced = b" :" in text or b"\t" in text or b"\n:" in text or (b"\r" in text and b"\r:" in text)
    return not is_spaced and text.count(b'":') == count


def require_plain(is_plain: bool) -> None:
    """Reject a block that cannot be read in one go; the reason of each bad line is found line by line.

    Raises:
        Rejected: when it is not plain.
    """
    if not is_plain:
        raise Rejected("bad-meta", "a line of the block is not plain")


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
        place = place.encode("utf-8", "backslashreplace").decode()  # a key may hold half a surrogate
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
