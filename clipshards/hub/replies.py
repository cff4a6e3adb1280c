"""What a Hub's answer means: go on, try again later, or stop with one sentence that says what to do.

The library's `hf_raise_for_status` is not used: it reads the whole error body, fails on a body that is JSON
but no object, and its texts carry signed URLs. Status and `X-Error-Code` say all we need.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

import httpx2
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # public, but not marked as exported
    build_hf_headers,
    get_session,
    parse_ratelimit_headers,
)

from clipshards.errors import SourceError
from clipshards.hub.source import HubSource

MAX_TOLD_WAIT_SECONDS = 300.0
"""The longest wait that a server can ask for: the window of the Hub's rate limit is five minutes."""

_MAX_BACKOFF_SECONDS = 60.0
_MAY_PASS = (408, 425, 429)

_REFUSALS: dict[str | int, str] = {
    "GatedRepo": "data set {repo} is gated: accept its terms on {base}/datasets/{repo} "
    "and set HF_TOKEN to a token of the same account",
    "RepoNotFound": "data set {repo} is not on {base}, or is private: check the spelling, "
    "and for a private one set HF_TOKEN to a token that may read it",
    "RevisionNotFound": "data set {repo} has no revision {revision!r}: check the branch, tag or commit",
    401: "{base} does not accept the token for data set {repo}: set HF_TOKEN to a valid token",
    403: "{base} forbids access to data set {repo}: set HF_TOKEN to a token that may read it",
    404: "{base} does not know data set {repo} at {revision!r}: check the spelling and the endpoint",
}
_REASONS: dict[str | int, str] = {
    "GatedRepo": "gated",
    "RepoNotFound": "source-missing",
    "RevisionNotFound": "source-missing",
    401: "no-access",
    403: "no-access",
    404: "source-missing",
}
_OTHER_REFUSAL = "{base} refuses the request for data set {repo} with status {status}: check the endpoint"


class TryLater(Exception):
    """The same request may succeed when it is repeated; no error for the user yet.

    Args:
        why: what went wrong, for the message when all tries are used up.
        wait_seconds: how long the server asks to wait, None when it does not say.
        reason: the word of `schema.REASONS` that fits when it never gets better, "" for the network.
    """

    def __init__(self, why: str, *, wait_seconds: float | None = None, reason: str = "") -> None:
        super().__init__(why)
        self.wait_seconds = wait_seconds
        self.reason = reason

    def pause_seconds(self, failures: int, backoff_seconds: float) -> float:
        """How long to wait after the `failures`-th failure in a row: as told, else doubled, with jitter."""
        if self.wait_seconds is not None:
            return self.wait_seconds
        # The exponent is bounded because 2.0 ** 1024 is an OverflowError.
        pause = min(_MAX_BACKOFF_SECONDS, backoff_seconds * 2.0 ** min(failures - 1, 30))
        return pause * random.uniform(0.5, 1.5)


@contextmanager
def request(
    source: HubSource,
    method: str,
    url: str,
    *,
    timeout_seconds: float,
    headers: Mapping[str, str] | None = None,
    follow_redirects: bool = True,
) -> Iterator[httpx2.Response]:
    """Send one request and stream its answer, whatever its status.

    The token goes to the origin of `url` only: the client drops it when it is redirected to another one.

    Raises:
        SourceError: offline mode is set, the URL is none, or the token cannot be sent.
        TryLater: the connection failed, also later, in the middle of the body.
    """
    sent = hub_headers(source) | dict(headers or {})
    with connection_errors(source):
        with get_session().stream(
            method, url, headers=sent, timeout=timeout_seconds, follow_redirects=follow_redirects
        ) as response:
            yield response


@contextmanager
def connection_errors(source: HubSource) -> Iterator[None]:
    """What the HTTP client raises, in our words: see `request`."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise SourceError(
            f"{source.repo} cannot be reached in offline mode: unset HF_HUB_OFFLINE, or name a local folder"
        ) from None
    except httpx2.InvalidURL:
        raise SourceError(f"{source.base_url} is not a URL: check the endpoint") from None
    except httpx2.RequestError as error:
        raise TryLater(_describe(error)) from None


def require_ok(response: httpx2.Response, source: HubSource) -> None:
    """Sort an answer by its status.

    Raises:
        SourceError: the Hub refuses, or asks to wait longer than `MAX_TOLD_WAIT_SECONDS`.
        TryLater: the Hub is busy or broken, or the storage server it sent us to refuses (signed URLs expire).
    """
    status = response.status_code
    if status < 400:
        return
    from_hub = is_from_hub(response, source)
    if not from_hub or status in _MAY_PASS or status >= 500:
        server = "the Hub" if from_hub else "the storage server"
        raise TryLater(f"{server} answered {status}", wait_seconds=_told_wait(response, source))
    raise _refusal(response, source)


def is_from_hub(response: httpx2.Response, source: HubSource) -> bool:
    """Whether the Hub itself answered, and not the storage server it redirected us to."""
    return "X-Error-Code" in response.headers or response.url.origin == httpx2.URL(source.base_url).origin


def _refusal(response: httpx2.Response, source: HubSource) -> SourceError:
    status = response.status_code
    code = response.headers.get("X-Error-Code", "")
    sentence = _REFUSALS.get(code) or _REFUSALS.get(status, _OTHER_REFUSAL)
    text = sentence.format(repo=source.repo, revision=source.revision, base=source.base_url, status=status)
    return SourceError(text, _REASONS.get(code) or _REASONS.get(status, ""))


def _told_wait(response: httpx2.Response, source: HubSource) -> float | None:
    limit = parse_ratelimit_headers(response.headers) if response.status_code == 429 else None
    if limit is not None and limit.remaining == 0:
        told: float | None = limit.reset_in_seconds
    else:
        told = _retry_after_seconds(response.headers.get("Retry-After", ""))
    if told is not None and told > MAX_TOLD_WAIT_SECONDS:
        raise SourceError(
            f"{source.base_url} asks to wait {told:.0f} s before the next request for {source.repo}, "
            f"more than the {MAX_TOLD_WAIT_SECONDS:.0f} s that are waited: run the command again later"
        )
    return told


def _retry_after_seconds(text: str) -> float | None:
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def hub_headers(source: HubSource) -> dict[str, str]:
    """The headers of a request to the Hub, with the token if there is one.

    Raises:
        SourceError: the token cannot be sent.
    """
    token = (source.token or "").strip() or None
    headers: dict[str, str] = build_hf_headers(token=token, user_agent="clipshards")
    # The HTTP library quotes an illegal header in its error, so a token must not get that far.
    if not all(" " <= character <= "~" for character in headers.get("authorization", "")):
        raise SourceError("the token holds characters that no token has: set HF_TOKEN to the token alone")
    return headers


def _describe(error: httpx2.RequestError) -> str:
    # Texts of local protocol errors quote what we sent.
    text = "" if isinstance(error, httpx2.LocalProtocolError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
