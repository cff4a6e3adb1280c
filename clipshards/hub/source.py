"""What the user names: a data set on a Hub at a revision, or a local folder of the same shape."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import constants

from clipshards.errors import UsageError

HUB_FORM = "hf://datasets/OWNER/NAME or hf://datasets/OWNER/NAME@REVISION"

_REPO = r"\w[\w.-]*/\w[\w.-]*"
_HUB_URL = re.compile(rf"hf://datasets/(?P<repo>{_REPO})/?(?:@(?P<revision>\S+))?")
_WEB_PAGE = re.compile(rf"https?://[^/]+/datasets/({_REPO})")


@dataclass(frozen=True)
class HubSource:
    """A data set on a Hub.

    `endpoint` None is the endpoint of huggingface_hub, `token` None the token it finds (HF_TOKEN or
    `hf auth login`), if any.
    """

    repo: str
    revision: str = "main"
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The text form, without the token; `parse_source` reads it back."""
        at = "" if self.revision == constants.DEFAULT_REVISION else f"@{self.revision}"
        return f"hf://datasets/{self.repo}{at}"

    @property
    def base_url(self) -> str:
        """The endpoint that is spoken to, without a slash at the end."""
        return (self.endpoint or constants.ENDPOINT).rstrip("/")


@dataclass(frozen=True)
class FolderSource:
    """A local folder of the same shape as the data set on the Hub."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder as text; `parse_source` reads it back."""
        return str(self.folder)


def parse_source(text: str, *, endpoint: str | None = None, token: str | None = None) -> HubSource | FolderSource:
    """Read the SOURCE that a user typed: `hf://datasets/OWNER/NAME[@REVISION]` or a folder.

    Raises:
        UsageError: for a URL of another form, an endpoint that is no http(s) URL, or a folder that does not
            exist.
    """
    if match := _HUB_URL.fullmatch(text):
        _require_endpoint(endpoint)
        return HubSource(match["repo"], match["revision"] or constants.DEFAULT_REVISION, endpoint, token)
    if "://" in text:
        page = _WEB_PAGE.match(text)
        meant = f"write hf://datasets/{page[1]}" if page else f"write {HUB_FORM}, or a folder"
        raise UsageError(f"SOURCE ({text!r}) is not understood: {meant}")
    return _parse_folder(text)


def _parse_folder(text: str) -> FolderSource:
    folder = Path(text).expanduser()
    if folder.is_dir():
        return FolderSource(folder)
    if folder.exists():
        raise UsageError(f"SOURCE ({text!r}) is a file: name the folder that holds the data set")
    form = f"hf://datasets/{text}" if re.fullmatch(_REPO, text) else HUB_FORM
    raise UsageError(
        f"SOURCE ({text!r}) is a folder that does not exist: check the path; for a data set on the Hub write {form}"
    )


def _require_endpoint(endpoint: str | None) -> None:
    if endpoint is not None and not re.match(r"https?://[^/]", endpoint):
        raise UsageError(f"endpoint ({endpoint!r}) must be a URL that starts with http:// or https://")
