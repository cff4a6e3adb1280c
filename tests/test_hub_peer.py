"""A Hub that others wrote: olah, which serves a git repository with LFS pointers. It knows no ranges."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from test_hub_fetch import wait_until

from clipshards.errors import SourceError
from clipshards.hub import library
from clipshards.hub.fetch import fetch, part_path
from clipshards.hub.listing import HubFile, Listing, list_source
from clipshards.hub.server import HubServer, ServedFile
from clipshards.hub.source import HubSource

ROOT = Path(__file__).parents[1]
OLAH = ROOT / ".venv-peers/bin/olah-cli"
CLIPSHARDS = Path(sys.executable).with_name("clipshards")
REPO = "demo/GRASP"

pytestmark = [
    pytest.mark.skipif(not OLAH.exists(), reason="olah is not installed: `make test-peers` installs it"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]


def git(repository: Path, *arguments: str) -> str:
    settings = {"user.name": "test", "user.email": "test@localhost", "commit.gpgsign": "false", "gc.auto": "0"}
    options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
    done = subprocess.run(["git", *options, *arguments], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, ServedFile]) -> str:
    """A commit of the files, the large ones as pointers with their bytes where git-lfs keeps them."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for file in files.values():
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.in_lfs:
            kept = folder / ".git/lfs/objects" / file.sha256[:2] / file.sha256[2:4] / file.sha256
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.local, kept)
            path.write_text(
                f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size_bytes}\n"
            )
        else:
            shutil.copyfile(file.local, path)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "data")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def served(demo_source: Path) -> dict[str, ServedFile]:
    """The demo data set, file by file, as our own server describes it."""
    return HubServer(demo_source).files("main")[1]


@pytest.fixture(scope="module")
def commit(served: dict[str, ServedFile], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The commit, and the folder of mirrors that holds its repository."""
    mirrors = tmp_path_factory.mktemp("mirrors")
    return make_repository(mirrors / "datasets" / REPO, served), mirrors


@pytest.fixture(scope="module")
def source(commit: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubSource]:
    """olah, offline, on a port of its own."""
    folder = tmp_path_factory.mktemp("olah")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    (folder / "olah.toml").write_text(
        f'[basic]\nhost = "127.0.0.1"\nport = {port}\nrepos-path = "{folder}/repos"\n'
        f'mirrors-path = ["{commit[1]}"]\n[accessibility]\noffline = true\n'
    )
    command = [OLAH, "--config", folder / "olah.toml", "--log-path", folder / "logs"]
    with (folder / "said.txt").open("w") as said:
        olah = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(f"{endpoint}/api/datasets/{REPO}/revision/main"), 60)
        yield HubSource(REPO, endpoint=endpoint, token="hf_token_of_the_test")
    finally:
        olah.terminate()
        olah.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def listing(source: HubSource) -> Listing:
    return list_source(source)


def test_listing(listing: Listing, served: dict[str, ServedFile], commit: tuple[str, Path]) -> None:
    assert (listing.repo, listing.commit) == (REPO, commit[0])
    assert list(listing.files) == [
        HubFile(file.path, file.size_bytes, file.sha256 if file.in_lfs else None, None if file.in_lfs else file.oid)
        for file in sorted(served.values(), key=lambda file: file.path)
    ]


@pytest.mark.parametrize("transport", ["http", "xet"])
def test_each_file(
    source: HubSource, listing: Listing, served: dict[str, ServedFile], tmp_path: Path, transport: str
) -> None:
    get = fetch if transport == "http" else partial(library.fetch, staging=tmp_path / "staging")
    for file in listing.files:
        path = get(source, listing.commit, file, tmp_path / file.path)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == served[file.path].sha256


def test_bytes_that_are_here_are_kept_without_ranges(
    source: HubSource, listing: Listing, served: dict[str, ServedFile], tmp_path: Path
) -> None:
    file = listing.find(["*.tar"])[0]
    content = served[file.path].local.read_bytes()
    target = tmp_path / "a.tar"
    part_path(target, listing.commit, file).write_bytes(content[:10_000])
    seen: list[int] = []
    fetch(source, listing.commit, file, target, progress=seen.append)
    assert target.read_bytes() == content
    assert sum(seen) == file.size_bytes and min(seen) > 0


def test_unknown_repository(source: HubSource) -> None:
    with pytest.raises(SourceError, match="check the spelling"):
        list_source(replace(source, repo="demo/nowhere"))


@pytest.mark.flow
def test_prepare(source: HubSource, listing: Listing, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [CLIPSHARDS, "prepare", source.name, out, "--parts", "avsbench*", "--limit", "1"],
        env={**os.environ, "HF_ENDPOINT": source.base_url, "PREFECT_HOME": str(tmp_path / "prefect")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    dataset = json.loads((out / "current/dataset.json").read_text())
    assert dataset["commit"] == listing.commit
    assert len(list((out / "current/train").glob("*.tar"))) > 0
