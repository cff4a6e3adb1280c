"""Sources, listings of a Hub and of a folder, and what is said when a source cannot be had."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_faults import Fault, FaultyHub, FaultyHubHandler, Request, write_files

from clipshards.errors import SourceError, UsageError
from clipshards.hub.listing import (
    FolderSource,
    HubFile,
    HubSource,
    Listing,
    hash_file,
    list_source,
    parse_source,
)

REPO = "demo/GRASP"
FILES = {
    "README.md": b"# a card\n",
    "train/data_sft.jsonl": b"{}\n",
    "train/shards/b.tar": b"b" * 20_000,
    "train/shards/a.tar": b"a" * 20_000,
}
TOKEN = "hf_secret_of_the_test"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", FILES)


@pytest.fixture
def hub(folder: Path) -> Iterator[FaultyHub]:
    with FaultyHub(folder) as server:
        yield server


def source_of(hub: FaultyHub, repo: str = REPO, revision: str = "main", token: str | None = None) -> HubSource:
    return HubSource(repo, revision, endpoint=hub.endpoint, token=token)


# --- what the user types


@pytest.mark.parametrize(
    ("text", "repo", "revision"),
    [
        ("hf://datasets/interlive/GRASP", "interlive/GRASP", "main"),
        ("hf://datasets/interlive/GRASP/", "interlive/GRASP", "main"),
        ("hf://datasets/interlive/GRASP@v1.0", "interlive/GRASP", "v1.0"),
        ("hf://datasets/a-b/c.d_e@refs/pr/1", "a-b/c.d_e", "refs/pr/1"),
    ],
)
def test_hub_source_is_read_and_written(text: str, repo: str, revision: str) -> None:
    source = parse_source(text, endpoint="http://127.0.0.1:1/", token=TOKEN)
    assert source == HubSource(repo, revision, "http://127.0.0.1:1/", TOKEN)
    assert parse_source(source.name, endpoint="http://127.0.0.1:1/", token=TOKEN) == source
    assert isinstance(source, HubSource)
    assert source.base_url == "http://127.0.0.1:1"
    assert TOKEN not in repr(source) + source.name


def test_folder_source_is_read_and_written(tmp_path: Path) -> None:
    assert parse_source(str(tmp_path)) == FolderSource(tmp_path)
    assert parse_source(FolderSource(tmp_path).name) == FolderSource(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hf://interlive/GRASP", "write hf://datasets/OWNER/NAME"),
        ("hf://datasets/GRASP", "write hf://datasets/OWNER/NAME"),
        ("hf://datasets/../GRASP", "write hf://datasets/OWNER/NAME"),
        ("hf://models/interlive/GRASP", "write hf://datasets/OWNER/NAME"),
        ("https://hub.example/datasets/interlive/GRASP/tree/main", "write hf://datasets/interlive/GRASP"),
        ("s3://bucket/x", "write hf://datasets/OWNER/NAME"),
        ("interlive/GRASP", "write hf://datasets/interlive/GRASP"),
        ("/nowhere/at/all", "check the path"),
        (__file__, "is a file"),
    ],
)
def test_wrong_source_is_a_usage_error(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        parse_source(text)
    assert repr(text) in str(caught.value)


def test_endpoint_must_be_a_url() -> None:
    with pytest.raises(UsageError, match="'localhost:8000'"):
        parse_source("hf://datasets/a/b", endpoint="localhost:8000")


# --- a Hub


@pytest.mark.parametrize("page_rows", [1, 1000])
def test_listing_of_a_hub(hub: FaultyHub, page_rows: int) -> None:
    hub.page_rows = page_rows
    listing = list_source(source_of(hub))
    assert (listing.repo, listing.commit) == (REPO, hub.commit)
    assert [file.path for file in listing.files] == sorted(FILES)
    by_path = {file.path: file for file in listing.files}
    readme = FILES["README.md"]
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(readme) + readme).hexdigest()
    assert by_path["README.md"] == HubFile("README.md", len(readme), None, git_sha1)
    tar = hashlib.sha256(b"a" * 20_000).hexdigest()
    assert by_path["train/shards/a.tar"] == HubFile("train/shards/a.tar", 20_000, tar, None)


def test_revision_is_pinned_once(hub: FaultyHub, tmp_path: Path) -> None:
    old = hub.commit
    hub.publish(write_files(tmp_path / "new", {"README.md": b"# new\n"}))
    assert list_source(source_of(hub)).commit == hub.commit
    assert len(hub.requests("api", "revision")) == 1
    assert len(list_source(source_of(hub, revision=old)).files) == len(FILES)


def test_commit_that_moves_while_it_is_listed(folder: Path, tmp_path: Path) -> None:
    moved = write_files(tmp_path / "new", {"README.md": b"# new\n"})

    class MovingHub(FaultyHub):
        def take(self, request: Request) -> Fault | None:
            if request.path == "tree":
                self.publish(moved)
            return super().take(request)

    with MovingHub(folder) as hub:
        old = hub.commit
        listing = list_source(source_of(hub))
        assert hub.commit != old
    assert (listing.commit, len(listing.files)) == (old, len(FILES))


def test_preflight_asks_for_one_file_in_lfs(hub: FaultyHub) -> None:
    list_source(source_of(hub, token=TOKEN))
    heads = [request for request in hub.log if request.method == "HEAD"]
    assert [(head.where, head.path) for head in heads] == [("hub", PREFLIGHT)]
    assert not [request for request in hub.log if request.where == "cdn"]


def test_find_matches_patterns(hub: FaultyHub) -> None:
    listing = list_source(source_of(hub))
    assert [file.path for file in listing.find(["train/*.tar", "*.md", "README*"])] == [
        "README.md",
        "train/shards/a.tar",
        "train/shards/b.tar",
    ]
    assert listing.find(["*.TAR"]) == listing.find([]) == []


PASSING = {
    "503": Fault("status", status=503),
    "429": Fault("status", status=429, headers={"Retry_After": "0"}),
    "ratelimit": Fault("status", status=429, headers={"RateLimit": '"api";r=0;t=0'}),
    "hang": Fault("hang", seconds=1.0),
    "drop": Fault("hang"),
    "html": Fault("html"),
    "cut": Fault("cut", 9),
    "reset": Fault("reset", 9, seconds=0.1),
    "stall": Fault("stall", 9, seconds=1.0),
    "short": Fault("short", 1),
}
PREFLIGHT = "train/shards/a.tar"


@pytest.mark.parametrize("place", ["revision", "tree"])
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_passing_failures_are_repeated(hub: FaultyHub, place: str, fault: Fault) -> None:
    hub.queue("api", place, fault, fault)
    listing = list_source(source_of(hub), backoff_seconds=0.01, timeout_seconds=0.5)
    assert len(listing.files) == len(FILES)
    assert len(hub.requests("api", place)) == 3


@pytest.mark.parametrize("name", ["503", "429", "ratelimit", "hang", "drop"])
def test_passing_failures_of_the_preflight(hub: FaultyHub, name: str) -> None:
    hub.queue("hub", PREFLIGHT, *[PASSING[name]] * 2)
    list_source(source_of(hub), backoff_seconds=0.01, timeout_seconds=0.5)
    assert len(hub.requests("hub", PREFLIGHT, "HEAD")) == 3


def test_a_wait_is_said(hub: FaultyHub, caplog: pytest.LogCaptureFixture) -> None:
    hub.queue("api", "tree", PASSING["429"])
    list_source(source_of(hub))
    assert "listing demo/GRASP: the Hub answered 429; asking again in 0.0 s, as told" in caplog.text


def test_lasting_failure_is_a_source_error(hub: FaultyHub) -> None:
    hub.queue("api", "tree", *[Fault("status", status=502)] * 9)
    with pytest.raises(SourceError, match=r"demo/GRASP, 3 tries.*answered 502.*check the network"):
        list_source(source_of(hub), tries=3, backoff_seconds=0.01)
    assert len(hub.requests("api", "tree")) == 3


def test_too_long_a_wait_is_not_waited_for(hub: FaultyHub) -> None:
    hub.queue("api", "revision", Fault("status", status=429, headers={"Retry_After": "3600"}))
    with pytest.raises(SourceError, match="asks to wait 3600 s"):
        list_source(source_of(hub))


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        source = HubSource(REPO, endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(SourceError, match=r"ConnectError.*check the network and the endpoint"):
            list_source(source, tries=2, backoff_seconds=0.01)


def test_unknown_repository_and_revision(hub: FaultyHub) -> None:
    with pytest.raises(SourceError, match=r"^data set demo/nowhere is not on .*check the spelling"):
        list_source(source_of(hub, "demo/nowhere"))
    with pytest.raises(SourceError, match=r"^data set demo/GRASP has no revision 'v9': check the branch"):
        list_source(source_of(hub, revision="v9"))
    assert len(hub.log) == 2, "such an answer is not asked for twice"


@pytest.mark.parametrize("token", [None, "hf_other"])
def test_gated_data_set_is_noticed_at_once(folder: Path, token: str | None) -> None:
    with FaultyHub(folder, token=TOKEN, gated=True) as hub:
        with pytest.raises(SourceError) as caught:
            list_source(source_of(hub, token=token))
        assert str(caught.value) == (
            f"data set demo/GRASP is gated: accept its terms on {hub.endpoint}/datasets/demo/GRASP "
            "and set HF_TOKEN to a token of the same account"
        )
        assert list_source(source_of(hub, token=TOKEN)).commit == hub.commit


def test_invalid_token(folder: Path) -> None:
    with FaultyHub(folder, token=TOKEN) as hub:
        with pytest.raises(SourceError, match=r"does not accept the token.*set HF_TOKEN") as caught:
            list_source(source_of(hub, token="hf_wrong_token"))
        assert "hf_wrong_token" not in str(caught.value)


@pytest.mark.parametrize("token", ["hf_sec\nret", "hf_sécret", "hf_sec\x00ret"])
def test_token_that_cannot_be_sent_is_not_shown(
    hub: FaultyHub, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SourceError, match="the token holds characters") as caught:
        list_source(source_of(hub, token=token))
    assert "hf_s" not in str(caught.value) + caplog.text
    assert not hub.log


def test_token_does_not_follow_a_link_to_another_origin(folder: Path) -> None:
    class MirrorHandler(FaultyHubHandler):
        def send_json(self, content: object, *, status: int = 200, headers: Any = None) -> None:
            port = f":{self.hub.cdn_port}/"
            moved = {name: re.sub(r":\d+/", port, text) for name, text in (headers or {}).items()}
            super().send_json(content, status=status, headers=moved)

    hub = FaultyHub(folder)
    hub.page_rows, hub.hub_handler = 1, MirrorHandler
    with hub:
        assert len(list_source(source_of(hub, token=TOKEN)).files) == len(FILES)
    assert {(request.where, request.authorization) for request in hub.log if request.method == "GET"} == {
        ("api", f"Bearer {TOKEN}")
    }
    assert not [request for request in hub.log if request.where == "cdn"]


@pytest.mark.parametrize("place", ["revision", "tree"])
def test_token_does_not_follow_a_redirect_to_another_origin(hub: FaultyHub, place: str) -> None:
    elsewhere = {"Location": f"http://127.0.0.1:{hub.cdn_port}/elsewhere"}
    hub.queue("api", place, Fault("status", status=307, headers=elsewhere))
    assert len(list_source(source_of(hub, token=TOKEN), backoff_seconds=0.01).files) == len(FILES)
    assert [request.authorization for request in hub.log if request.path == "elsewhere"] == [None]


def test_redacted_hash_is_unknown() -> None:
    assert HubFile("a.tar", 1, "*" * 64, None).sha256 is None


# --- a folder


def test_listing_of_a_folder(folder: Path, tmp_path: Path) -> None:
    write_files(folder, {".cache/huggingface/x": b"", "train/.hidden": b""})
    write_files(tmp_path / "blobs", {"c": b"ccc"})
    (folder / "train/shards/c.tar").symlink_to(tmp_path / "blobs/c")
    (folder / "linked").symlink_to(tmp_path / "blobs")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    listing = list_source(FolderSource(folder))
    sizes = {path: len(content) for path, content in FILES.items()}
    assert listing == Listing(
        "data",
        "",
        tuple(
            HubFile(path, size, None, None)
            for path, size in sorted((sizes | {"linked/c": 3, "train/shards/c.tar": 3}).items())
        ),
    )


def test_broken_link_in_a_folder_is_no_silent_loss(folder: Path) -> None:
    (folder / "train/shards/c.tar").symlink_to(folder / "gone")
    with pytest.raises(SourceError, match=r"c\.tar cannot be read"):
        list_source(FolderSource(folder))


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no files"):
        list_source(FolderSource(tmp_path))


def test_hash_file_in_blocks(tmp_path: Path) -> None:
    content = b"0123456789" * 250_000
    (tmp_path / "x").write_bytes(content)
    seen: list[int] = []
    assert hash_file(tmp_path / "x", seen.append) == hashlib.sha256(content).hexdigest()
    assert sum(seen) == len(content)
    assert len(seen) == 3
