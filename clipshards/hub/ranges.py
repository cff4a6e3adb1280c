"""A few bytes of a file of a Hub: one clip out of a part, without the part."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import hf_hub_url

from clipshards.errors import IncompleteError, Rejected
from clipshards.hub.replies import TryLater, request, require_ok
from clipshards.hub.source import HubSource
from clipshards.tars import TarMember

_TRIES = 4
_TIMEOUT_SECONDS = 30.0


def fetch_member(source: HubSource, commit: str, part: str, member: TarMember, target: Path) -> Path:
    """Fetch the payload of one member of a part to `target`, and check its hash.

    Raises:
        Rejected: `sha-mismatch`.
        SourceError: the Hub refuses.
        IncompleteError: it does not answer.
    """
    for tried in range(1, _TRIES + 1):
        try:
            payload = _receive(source, commit, part, member)
            break
        except TryLater as problem:
            if tried == _TRIES:
                raise IncompleteError(f"{member.name} of {part}: {problem}, {_TRIES} tries; run again") from None
            time.sleep(problem.pause_seconds(tried, 0.5))
    digest = hashlib.sha256(payload).hexdigest()
    if digest != member.sha256:
        raise Rejected(
            "sha-mismatch", f"{member.name} of {part} has sha256 {digest}, the table says {member.sha256}"
        )
    target.write_bytes(payload)
    return target


def _receive(source: HubSource, commit: str, part: str, member: TarMember) -> bytes:
    url = hf_hub_url(source.repo, part, repo_type="dataset", revision=commit, endpoint=source.base_url)
    last = member.offset_bytes + member.size_bytes - 1
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={member.offset_bytes}-{last}"}
    with request(source, "GET", url, headers=headers, timeout_seconds=_TIMEOUT_SECONDS) as response:
        require_ok(response, source)
        # A server without ranges sends the whole part: what comes before the member is passed over.
        skip = 0 if response.status_code == 206 else member.offset_bytes
        payload = _slice(response.iter_raw(), skip, member.size_bytes)
    if len(payload) != member.size_bytes:
        raise TryLater(f"{len(payload)} of {member.size_bytes} bytes came")
    return payload


def _slice(blocks: Iterable[bytes], skip: int, size: int) -> bytes:
    """`size` bytes after the first `skip`, or fewer when the blocks end before."""
    found = bytearray()
    for block in blocks:
        found += block[skip : skip + size - len(found)]
        skip = max(0, skip - len(block))
        if len(found) == size:
            break
    return bytes(found)
