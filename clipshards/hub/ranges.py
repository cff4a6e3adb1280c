"""A few bytes of a file of a Hub: one clip out of a part, without the part."""

from __future__ import annotations

import hashlib
import time
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
        IncompleteError: it does not answer, or does not serve ranges.
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
        if response.status_code != 206:
            raise TryLater(f"asked for a range, got status {response.status_code}")
        payload: bytes = response.read()
    if len(payload) != member.size_bytes:
        raise TryLater(f"{len(payload)} of {member.size_bytes} bytes came")
    return payload
