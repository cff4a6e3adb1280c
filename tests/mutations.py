"""Bytes in, damaged bytes out: any file, tars with right checksums, JSON lines, boxes of an MP4.

Pure: all chance comes from the `Random` that is given, so a mutation can be made again from its number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tar_bytes import END_MARK, header, member, padded, pax, pax_record, with_checksum

from clipshards.tars import BLOCK

Mutate = Callable[[Random, list[bytes]], bytes]
"""(chance, seeds) → one damaged file."""

ESCAPED = "clipshards-fuzz-escaped"
"""Last piece of each name that leads out of the folder to extract to."""

_EXTREMES = (0, 1, 2, 7, 8, 15, 127, 128, 255, 511, 512, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
             (1 << 33) + 5, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip


# -- any bytes


def mutate_bytes(random: Random, seeds: list[bytes]) -> bytes:
    """Some flips, copies, cuts and splices on one of the seeds."""
    content = random.choice(seeds)
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        content = random.choice(_ON_BYTES)(random, content, seeds)
    return content


def _position(random: Random, content: bytes) -> int:
    """Headers are at the start, so half of the changes are."""
    most = len(content) if random.random() < 0.5 else min(len(content), 256)
    return random.randrange(most + 1)


def _span(random: Random, content: bytes) -> tuple[int, int]:
    start = _position(random, content)
    return start, min(len(content), start + int(2 ** random.uniform(0, 12)))


def _flip(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 40)) if content else 0):
        changed[min(_position(random, content), len(content) - 1)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    start, end = _span(random, content)
    filler = random.choice((b"\0", b"\xff", random.randbytes(1), random.randbytes(end - start or 1)))
    return content[:start] + (filler * (end - start))[: end - start] + content[end:]


def _set_integer(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    size = random.choice((1, 2, 4, 8))
    value = random.choice(_EXTREMES) % (1 << 8 * size)
    start = _position(random, content)
    return content[:start] + value.to_bytes(size, random.choice(("big", "little"))) + content[start + size :]


def _remove(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    start, end = _span(random, content)
    return content[:start] + content[end:]


def _copy(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    start, end = _span(random, content)
    target = _position(random, content)
    return content[:target] + content[start:end] + content[target + random.choice((0, end - start)) :]


def _insert(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    start = _position(random, content)
    return content[:start] + random.randbytes(random.choice((1, 3, 8, 200))) + content[start:]


def _truncate(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _splice(random: Random, content: bytes, seeds: list[bytes]) -> bytes:
    other = random.choice(seeds)
    return content[: random.randrange(len(content) + 1)] + other[random.randrange(len(other) + 1) :]


_ON_BYTES = (_flip, _flip, _overwrite, _set_integer, _set_integer, _remove, _copy, _insert, _truncate, _splice)


# -- tars

_NAMES = (
    b"a", b"a/b", b"a/b/c.mp4", b"avsbench/video/a.mp4", b"avsbench/video", b"./a//b/.", b"", b".", b"..", b"/",
    b"a/", b"a/../b", f"../{ESCAPED}".encode(), f"a/../../{ESCAPED}".encode(), f"/tmp/{ESCAPED}".encode(),
    f"..\\{ESCAPED}".encode(), f"C:\\{ESCAPED}".encode(), f"link/{ESCAPED}".encode(), b"link", b"link/a/b",
    b"b", b"../a", b"\xff\xfe.mp4", "ж/手.mp4".encode(), b"a\nb", b"a\x1bb", b" ",
    b"n" * 100, b"n" * 260, b"d/" * 2100 + b"x", b"._a",
    b"__MACOSX/a", b".DS_Store", b"a:b", b"-rf", b"A", "e\u0301".encode(), "\u202e4pm".encode(),
)  # fmt: skip

_NUMBERS = (
    b"", b"0", b"1", b"777", b"00000001000\0", b"77777777777\0", b"777777777777", b"-1", b"+1", b"9", b"0x10",
    b"1 2", b" 17 \0", b"\0", b"\x80" + bytes(10) + b"\x05", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"\x81" * 12,
    b"\x80" + bytes(3) + b"\x7f" + b"\xff" * 7, b"1_0", "١".encode(), b"99999999999999999999", b"9" * 30,
)  # fmt: skip

_KINDS = [bytes([kind]) for kind in b"0\x001234567xgLKSDMNVAX!\xff"]

_PAX_KEYS = (
    b"path", b"path", b"linkpath", b"size", b"size", b"GNU.sparse.major", b"GNU.sparse.map", b"GNU.sparse.name",
    b"GNU.sparse.realsize", b"SCHILY.xattr.user.x", b"mtime", b"", b"hdrcharset", b"comment", b"\xff",
)  # fmt: skip

_FIELDS = {
    "name": (0, 100), "size": (124, 136), "checksum": (148, 156), "kind": (156, 157), "link": (157, 257),
    "magic": (257, 265), "prefix": (345, 500), "map goes on": (482, 483), "rest": (500, 512),
}  # fmt: skip


def mutate_tar(random: Random, seeds: list[bytes]) -> bytes:
    """Headers changed, moved, added and left out, mostly with right checksums; and damage of any kind."""
    content = random.choice(seeds)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = random.choice((_change_header, _change_header, _add_piece, _add_piece, _move_blocks))(
            random, content
        )
    if random.random() < 0.3:
        content = mutate_bytes(random, [content, *seeds[:4]])
        if random.random() < 0.7:
            content = _repaired(content)
    return content


def _headers(content: bytes) -> list[int]:
    """Positions of blocks that may well be headers."""
    ends = range(0, len(content) - BLOCK + 1, BLOCK)
    return [start for start in ends if content[start + 257 : start + 262] == b"ustar"] or [0]


def _change_header(random: Random, content: bytes) -> bytes:
    start = random.choice(_headers(content))
    block = content[start : start + BLOCK].ljust(BLOCK, b"\0")
    field = random.choice(list(_FIELDS))
    first, end = _FIELDS[field]
    value = {
        "name": lambda: random.choice(_NAMES),
        "link": lambda: random.choice(_NAMES),
        "prefix": lambda: random.choice(_NAMES),
        "size": lambda: random.choice(_NUMBERS),
        "kind": lambda: random.choice(_KINDS),
        "magic": lambda: random.choice((b"ustar\00000", b"ustar  \0", b"", b"ustar\x00xx", b"GNUtar ")),
    }.get(field, lambda: random.randbytes(end - first))()
    block = block[:first] + value[: end - first].ljust(end - first, b"\0") + block[end:]
    is_repaired = field != "checksum" and random.random() < 0.95
    return content[:start] + (with_checksum(block) if is_repaired else block) + content[start + BLOCK :]


def _add_piece(random: Random, content: bytes) -> bytes:
    """A new member or extended header before one that is there."""
    start = random.choice([*_headers(content), *_headers(content), len(content)])
    return content[:start] + b"".join(_pieces(random)) + content[start:]


def _pieces(random: Random) -> Iterator[bytes]:
    def name() -> bytes:
        return random.choice(_NAMES)

    payload = random.randbytes(random.choice((0, 1, 511, 512, 513, 1500)))
    piece = random.randrange(9)
    if piece == 0:
        yield member(name()[:100], payload, random.choice(_KINDS), link=name()[:100], prefix=name()[:155])
    elif piece == 1:
        yield member("././@LongLink", name() + random.choice((b"\0", b"")), random.choice((b"L", b"K")))
    elif piece in (2, 3):
        records = b"".join(_pax_record(random, name) for _ in range(random.choice((1, 1, 2, 4))))
        yield member("PaxHeaders/x", records, random.choice((b"x", b"x", b"g")))
    elif piece == 4:
        yield pax(path=name(), size=b"%d" % len(payload))
        yield header(b"short", 0) + padded(payload)
    elif piece == 5:
        for _ in range(random.choice((1, 1, 2, 4))):
            yield header(name()[:100], 0, random.choice((b"1", b"2")), link=name()[:100])
    elif piece == 6:
        sparse = bytearray(header(b"sparse", len(payload), b"S", magic=b"ustar  \0"))
        sparse[482] = random.choice((0, 1, 255))
        yield with_checksum(bytes(sparse))
        while random.random() < 0.5:
            yield bytes(504) + random.choice((b"\0", b"\1")) + bytes(7)
        yield padded(payload)
    elif piece == 7:
        yield header(name()[:100], size_field=random.choice(_NUMBERS)[:12]) + padded(payload)
    else:
        yield random.choice((bytes(BLOCK), END_MARK, END_MARK + member("again", b"x"), random.randbytes(BLOCK)))


def _pax_record(random: Random, name: Callable[[], bytes]) -> bytes:
    key = random.choice(_PAX_KEYS)
    value = random.choice((name, lambda: random.choice(_NUMBERS), lambda: b"a=b\n7 c=d"))()
    record = pax_record(key, value)
    if random.random() < 0.8:
        return record
    wrong_length = random.choice((b"", b"0", b"1", b"-5", b"99", b"9" * 7, b"9" * 30, "٣".encode()))
    return wrong_length + record[record.index(b" ") :]


def _move_blocks(random: Random, content: bytes) -> bytes:
    """Whole blocks copied, moved or left out, so that what follows still lies on block boundaries."""
    blocks = [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]
    if not blocks:
        return content
    first = random.randrange(len(blocks))
    some = blocks[first : first + random.choice((1, 1, 2, 5))]
    if random.random() < 0.6:
        del blocks[first : first + len(some)]
    if random.random() < 0.6:
        target = random.randrange(len(blocks) + 1)
        blocks[target:target] = some
    return b"".join(blocks)


def _repaired(content: bytes) -> bytes:
    """Each block that looks like a header gets its right checksum, so that what is behind it is reached."""
    changed = bytearray(content)
    for start in _headers(content):
        if len(content) >= start + BLOCK:
            changed[start : start + BLOCK] = with_checksum(content[start : start + BLOCK])
    return bytes(changed)


# -- JSON lines

_VALUES = [text.encode() for text in (
    "null", "true", "false", "0", "-0", "-0.0", "1", "-1", "2.5", "1e5", "1e308", "-1e308", "5e-324", "1e-999",
    "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616", "1" + "0" * 400, "9" * 5000,
    "-" + "9" * 5000, "9" * 5000 + ".5", "0." + "3" * 5000,
    '""', '" "', '"A"', '"b"', '"Z"', '"(a)"', '"A) x"', '"mcq"', '"open_ended"', '"text"', '"video"', '"meta"',
    '"1.5"', '"nan"', '"inf"', '"-1e400"', '"1_0"', '"١"', '"' + "9" * 5000 + '"', '"' + "x" * 9000 + '"',
    '"\\ud83d\\ude00"', '"\\u0000"', '"a\\u2028b"', '"a\u2028b"', '"\u0085"', '"e\u0301\u202e\ufeff"', '"ﷺ"', '"İ"',
    '"../x.mp4"', '"/x.mp4"', '"C:/x.mp4"', '"a\\\\..\\\\b"', '"a/./b//c.mp4"', '"."', '"/"', '"a\\u0000b"',
    "[]", "{}", "[[]]", "[{}]", '{"":{}}', "[null]", '[""]', '["A","A"]', '["A) x","B) x","A) x"]', "[1,2]",
    "[270,480]", "[270,480.0]", "[[[[[]]]]]", '{"A":"x","B":"y"}', '{"A":null}', '{"source":1}',
    '[{"source":"P1","persons":[1]}]', '[{"persons":[99999999999999999999]}]', '[{"persons":{}}]',
    '[{"source":{},"x":{"y":[1e5]}}]', '{"type":"video"}', '[{"type":"video","path":"a.mp4"}]',
    "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300,
)]  # fmt: skip

_NO_JSON = [text.encode("utf-8", "surrogatepass") for text in (
    "NaN", "Infinity", "-Infinity", "1e999", "1e" + "9" * 30, "[1e400]", "01", "+1", ".5", "1.", "0x10", "1_0",
    "True", "None", "undefined", '"\\ud800"', '"\\udc00\\ud800"', '"\ud800"', '"\\x41"', '"\\"', '"tab\there"',
    '{"a":1,"a":2}', '{"\\ud800":NaN}', "[" * 3000, "[" * 3000 + "]" * 3000, "\ufeff", "",
)] + [b'"\xff"', b'"caf\xe9"', b'"\xc0\x80"']  # fmt: skip


_KEYS = (
    "id", "video", "type", "path", "start_seconds", "end_seconds", "fps", "src_resolution", "content",
    "output", "gt_events", "difficulty", "options", "answer", "question", "", "é", "\ud800", "x" * 300,
)  # fmt: skip

_PUT_HERE = "put the token here"


def mutate_jsonl(random: Random, seeds: list[bytes]) -> bytes:
    """One to six lines of the seeds with other values, keys, white space and bytes. Each seed is one line."""
    lines = [_mutate_line(random, random.choice(seeds)) for _ in range(random.choice((1, 1, 2, 3, 6)))]
    if random.random() < 0.15:
        lines.append(random.choice(lines))
    between = random.choice((*[b"\n"] * 9, b"\r\n", b"\n\n \t\n", b"\r", "\u2028".encode(), b""))
    start = b"\xef\xbb\xbf" if random.random() < 0.05 else b""
    return start + between.join(lines) + random.choice((b"\n", b""))


def _token(random: Random) -> bytes:
    return random.choice(_VALUES if random.random() < 0.8 else _NO_JSON)


def _mutate_line(random: Random, line: bytes) -> bytes:
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        line = random.choice(_ON_LINES)(random, line)
    return line


def _swap_value(random: Random, line: bytes) -> bytes:
    """Some value of the line, of any depth, becomes a hostile token."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _change_text(random, line)
    boxed = [value]
    places = list(_places(boxed))
    holder, key = random.choice(places[1:] or places)
    holder[key] = _PUT_HERE
    text = json.dumps(boxed[0], ensure_ascii=random.random() < 0.3).encode("utf-8", "surrogatepass")
    return text.replace(f'"{_PUT_HERE}"'.encode(), _token(random), 1)


def _change_keys(random: Random, line: bytes) -> bytes:
    """A key is left out, renamed, or stands twice."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    objects = [holder[key] for holder, key in _places([value]) if isinstance(holder[key], dict) and holder[key]]
    if not objects:
        return line
    changed = random.choice(objects)
    key = random.choice(list(changed))
    if random.random() < 0.3:
        changed[_PUT_HERE] = changed[key]
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return text.replace(_PUT_HERE.encode(), key.encode("utf-8", "surrogatepass"), 1)
    moved = changed.pop(key)
    if random.random() < 0.7:
        changed[random.choice(_KEYS)] = moved
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")


def _places(holder: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """(list or object, index or key) of each value inside."""
    inner = holder.items() if isinstance(holder, dict) else enumerate(holder)
    for key, value in inner:
        yield holder, key
        if isinstance(value, (dict, list)) and depth < 50:
            yield from _places(value, depth + 1)


def _change_text(random: Random, line: bytes) -> bytes:
    """A number, word or mark of the text becomes another one."""
    found = list(re.finditer(rb"-?\d[\d.]*|null|true|false|[\[\]{},:\"]", line))
    if not found:
        return _token(random)
    match = random.choice(found)
    mark = random.choice((b"", b",", b":", b"[", b"]", b"{", b"}", b'"', b"\\", b" :", b"\t", b"\\u0061", b"\xff"))
    return line[: match.start()] + random.choice((mark, _token(random))) + line[match.end() :]


def _damage(random: Random, line: bytes) -> bytes:
    return mutate_bytes(random, [line])


_ON_LINES = (*[_swap_value] * 6, _change_keys, _change_keys, _change_text, _damage)


# -- media


def mutate_media(random: Random, seeds: list[bytes]) -> bytes:
    """Boxes of an MP4 with other sizes, kinds and places, or damage of any kind."""
    content = random.choice(seeds)
    if content[4:8] != b"ftyp" or random.random() < 0.4:
        return mutate_bytes(random, [content] * 9 + seeds)
    for _ in range(random.choice((1, 1, 2, 4))):
        content = _change_box(random, content)
    return content if random.random() < 0.8 else mutate_bytes(random, [content])


def _change_box(random: Random, content: bytes) -> bytes:
    boxes = list(_boxes(content, 0, len(content)))
    if not boxes:
        return content
    start, end = random.choice(boxes)
    change = random.randrange(7)
    if change == 0:
        return content[:start] + (random.choice(_EXTREMES) % (1 << 32)).to_bytes(4, "big") + content[start + 4 :]
    if change == 1:
        return content[: start + 4] + content[random.choice(boxes)[0] + 4 :][:4] + content[start + 8 :]
    if change == 2:
        return content[:start] + content[end:]
    if change == 3:
        return content[:end] + content[start:end] + content[end:]
    if change == 4:  # the boxes around it grow or shrink by what goes in or out, so that the parsers stay on
        other_start, other_end = random.choice(boxes)
        return _resized(content[:start] + content[other_start:other_end] + content[end:], boxes, start, end,
                        other_end - other_start - (end - start))  # fmt: skip
    width = random.choice((1, 2, 4, 8))
    place = start + 8 + random.randrange(max(1, min(end - start - 8, 120)))
    value = random.choice(_EXTREMES) % (1 << 8 * width)
    return content[:place] + value.to_bytes(width, "big") + content[place + width :]


def _resized(content: bytes, boxes: list[tuple[int, int]], start: int, end: int, grown_bytes: int) -> bytes:
    changed = bytearray(content)
    for outer_start, outer_end in boxes:
        if outer_start < start and outer_end >= end:
            size = (int.from_bytes(changed[outer_start : outer_start + 4], "big") + grown_bytes) % (1 << 32)
            changed[outer_start : outer_start + 4] = size.to_bytes(4, "big")
    return bytes(changed)


_BOXES_WITH_BOXES = {
    b"moov",
    b"trak",
    b"mdia",
    b"minf",
    b"stbl",
    b"edts",
    b"dinf",
    b"moof",
    b"traf",
    b"mvex",
    b"udta",
}


def _boxes(content: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """[start, end) of each box, outer ones first."""
    while start + 8 <= end:
        size, kind = int.from_bytes(content[start : start + 4], "big"), content[start + 4 : start + 8]
        if size < 8:
            return
        box_end = min(start + size, end)
        yield start, box_end
        if kind in _BOXES_WITH_BOXES:
            yield from _boxes(content, start + 8, box_end)
        start += size
