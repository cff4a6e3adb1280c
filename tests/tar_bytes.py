"""Tars made by hand, header by header, for what no tool writes."""

from __future__ import annotations

import io
import tarfile
from typing import Any

from clipshards.tars import BLOCK

END_MARK = bytes(2 * BLOCK)


def header(
    name: bytes,
    size_bytes: int = 0,
    kind: bytes = b"0",
    *,
    link: bytes = b"",
    size_field: bytes | None = None,
    magic: bytes = b"ustar\00000",
    prefix: bytes = b"",
) -> bytes:
    size_field = b"%011o\0" % size_bytes if size_field is None else size_field
    block = name.ljust(100, b"\0") + b"0000644\0" * 3 + size_field.ljust(12, b"\0") + b"00000000000\0"
    block += b" " * 8 + kind + link.ljust(100, b"\0") + magic.ljust(88, b"\0") + prefix.ljust(155, b"\0")
    return with_checksum(block.ljust(BLOCK, b"\0"))


def with_checksum(block: bytes) -> bytes:
    blank = block[:148] + b" " * 8 + block[156:]
    return blank[:148] + b"%06o\0 " % sum(blank) + blank[156:]


def padded(payload: bytes) -> bytes:
    return payload + bytes(-len(payload) % BLOCK)


def member(name: bytes | str, payload: bytes = b"", kind: bytes = b"0", **fields: Any) -> bytes:
    name = name.encode() if isinstance(name, str) else name
    return header(name, len(payload), kind, **fields) + padded(payload)


def pax(kind: bytes = b"x", **records: bytes) -> bytes:
    payload = b"".join(pax_record(key.replace("__", ".").encode(), value) for key, value in records.items())
    return member("PaxHeaders/records", payload, kind)


def pax_record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def tar_of(files: dict[str, bytes], **options: Any) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", **options) as tar:
        for name, payload in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            tar.addfile(info, io.BytesIO(payload))
    return target.getvalue()
