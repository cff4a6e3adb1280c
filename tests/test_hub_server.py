"""The client of the real Hub, huggingface_hub, against our server."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from hub_faults import write_files
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile, RepoFolder

from clipshards.errors import SourceError, UsageError
from clipshards.hub.server import HubServer

REPO = "demo/GRASP"
FILES = {
    "README.md": b"# a card\n",
    "empty.txt": b"",
    "train/data_sft.jsonl": b'{"a": 1}\n' * 3000,
    "train/shards/a b+c.tar": bytes(range(256)) * 4096,
    "train/shards/part-0001.tar": b"small, but in LFS by its name",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", FILES)


@pytest.fixture
def hub(folder: Path) -> Iterator[HubServer]:
    with HubServer(folder) as server:
        yield server


def api_of(hub: HubServer, token: str | bool = False) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=token)


def test_info_names_the_commit_and_the_files(hub: HubServer) -> None:
    for revision in (None, "main", hub.commit):
        info = api_of(hub).repo_info(REPO, repo_type="dataset", revision=revision)
        assert info.sha == hub.commit
        assert {sibling.rfilename for sibling in info.siblings or []} == set(FILES)


def test_commit_depends_on_the_contents_only(folder: Path, tmp_path: Path) -> None:
    same = HubServer(write_files(tmp_path / "elsewhere", FILES))
    other = HubServer(write_files(tmp_path / "other", FILES | {"README.md": b"# b card\n"}))
    assert HubServer(folder).commit == same.commit != other.commit


@pytest.mark.parametrize("page_rows", [1, 2, 1000])
def test_tree_in_pages(hub: HubServer, page_rows: int) -> None:
    hub.page_rows = page_rows
    rows = list(api_of(hub).list_repo_tree(REPO, repo_type="dataset", recursive=True, expand=page_rows == 2))
    files = {row.path: row for row in rows if isinstance(row, RepoFile)}
    assert {row.path for row in rows if isinstance(row, RepoFolder)} == {"train", "train/shards"}
    assert {path: row.size for path, row in files.items()} == {
        path: len(content) for path, content in FILES.items()
    }
    assert [path for path in files if files[path].lfs] == [
        "train/data_sft.jsonl",
        "train/shards/a b+c.tar",
        "train/shards/part-0001.tar",
    ]


def test_tree_of_one_folder(hub: HubServer) -> None:
    rows = api_of(hub).list_repo_tree(REPO, "train", repo_type="dataset")
    assert sorted(row.path for row in rows) == ["train/data_sft.jsonl", "train/shards"]
    with pytest.raises(EntryNotFoundError):
        list(api_of(hub).list_repo_tree(REPO, "nowhere", repo_type="dataset"))


def test_paths_info_leaves_out_unknown_paths(hub: HubServer) -> None:
    paths = ["README.md", "train", "nowhere"]
    rows = api_of(hub).get_paths_info(REPO, paths, repo_type="dataset", expand=True)
    assert sorted(row.path for row in rows) == ["README.md", "train"]


@pytest.mark.parametrize("path", FILES)
def test_download_of_each_file(hub: HubServer, tmp_path: Path, path: str) -> None:
    copy = hf_hub_download(
        REPO, path, repo_type="dataset", endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token=False
    )
    assert Path(copy).read_bytes() == FILES[path]


def test_snapshot_download(hub: HubServer, tmp_path: Path) -> None:
    copy = snapshot_download(
        REPO, repo_type="dataset", endpoint=hub.endpoint, local_dir=tmp_path / "copy", token=False
    )
    assert {path: (Path(copy) / path).read_bytes() for path in FILES} == FILES


def test_file_system_reads_ranges(hub: HubServer) -> None:
    files = HfFileSystem(endpoint=hub.endpoint, token=False, skip_instance_cache=True)
    root = f"datasets/{REPO}"
    assert sorted(files.find(root)) == sorted(f"{root}/{path}" for path in FILES)
    path = "train/shards/a b+c.tar"
    with files.open(f"{root}/{path}", block_size=1000) as stream:
        stream.seek(500_000)
        assert stream.read(3000) == FILES[path][500_000:503_000]


def test_old_commit_stays_served(hub: HubServer, tmp_path: Path) -> None:
    old = hub.commit
    new = hub.publish(write_files(tmp_path / "new", {"README.md": b"# new\n"}))
    assert hub.commit == new != old
    for revision, content in ((old, b"# a card\n"), (new, b"# new\n"), ("main", b"# new\n")):
        copy = hf_hub_download(
            REPO,
            "README.md",
            repo_type="dataset",
            endpoint=hub.endpoint,
            revision=revision,
            cache_dir=tmp_path / "cache",
            token=False,
        )
        assert Path(copy).read_bytes() == content


def test_a_file_changed_on_disk_is_not_served_under_its_old_commit(
    hub: HubServer, folder: Path, tmp_path: Path
) -> None:
    (folder / "README.md").write_bytes(b"# changed\n")
    with pytest.raises(EntryNotFoundError):
        api_of(hub).hf_hub_download(
            REPO, "README.md", repo_type="dataset", revision=hub.commit, cache_dir=tmp_path / "cache"
        )
    hub.publish()
    with urllib.request.urlopen(f"{hub.endpoint}/datasets/{REPO}/resolve/main/README.md") as answer:
        assert answer.read() == b"# changed\n"


def test_unknown_names(hub: HubServer, tmp_path: Path) -> None:
    api = api_of(hub)
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("demo/nowhere", repo_type="dataset")
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(REPO, repo_type="dataset", revision="refs/pr/1")
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(REPO, "nowhere.txt", repo_type="dataset", cache_dir=tmp_path / "cache")


def test_token_is_required(folder: Path) -> None:
    with HubServer(folder, token="hf_right") as hub:
        assert api_of(hub, "hf_right").repo_info(REPO, repo_type="dataset").private
        with pytest.raises(RepositoryNotFoundError):
            api_of(hub).repo_info(REPO, repo_type="dataset")
        with pytest.raises(HTTPError, match="401") as caught:
            wrong = {"Authorization": "Bearer hf_wrong"}
            urllib.request.urlopen(urllib.request.Request(f"{hub.endpoint}/api/datasets/{REPO}", headers=wrong))
        caught.value.close()


def test_gated_listing_is_open_and_files_are_not(folder: Path, tmp_path: Path) -> None:
    with HubServer(folder, token="hf_right", gated=True) as hub:
        for token in (False, "hf_other"):
            assert api_of(hub, token).repo_info(REPO, repo_type="dataset").gated == "auto"
            with pytest.raises(GatedRepoError):
                api_of(hub, token).hf_hub_download(
                    REPO, "README.md", repo_type="dataset", cache_dir=tmp_path / "cache"
                )
        api_of(hub, "hf_right").hf_hub_download(
            REPO, "README.md", repo_type="dataset", cache_dir=tmp_path / "cache"
        )


def test_cdn_needs_a_signature_and_shows_nothing_else(hub: HubServer, folder: Path) -> None:
    file = hub.files("main")[1]["train/shards/part-0001.tar"]
    cdn = f"http://127.0.0.1:{hub.cdn_port}"
    with urllib.request.urlopen(cdn + hub.lfs_path(file)) as answer:
        assert answer.read() == FILES[file.path]
    for path in (f"/lfs/{file.sha256}/x.tar", "/../README.md", "/"):
        with pytest.raises(HTTPError, match=r"40[34]") as caught:
            urllib.request.urlopen(cdn + path)
        caught.value.close()


@pytest.mark.parametrize(
    ("asked", "status", "got"),
    [
        ("bytes=3-", 206, b"card\n"[-5:]),
        ("bytes=2-3", 206, b"a "),
        ("bytes=0-999", 206, b"# a card\n"),
        ("bytes=9-", 416, b""),
        ("bytes=-3", 200, b"# a card\n"),
    ],
)
def test_ranges(hub: HubServer, asked: str, status: int, got: bytes) -> None:
    request = urllib.request.Request(
        f"{hub.endpoint}/datasets/{REPO}/resolve/main/README.md", headers={"Range": asked}
    )
    if status == 416:
        with pytest.raises(HTTPError) as caught:
            urllib.request.urlopen(request)
        assert caught.value.headers["Content-Range"] == "bytes */9"
        caught.value.close()
        return
    with urllib.request.urlopen(request) as answer:
        assert answer.status == status
        assert answer.read().endswith(got)


def test_hidden_files_are_not_served(folder: Path) -> None:
    write_files(folder, {".secret": b"x", ".git/config": b"x"})
    assert set(HubServer(folder).files("main")[1]) == set(FILES)


def test_wrong_arguments(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must exist"):
        HubServer(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no files"):
        HubServer(tmp_path / "empty")
    with HubServer(folder) as hub:
        taken = int(hub.endpoint.rpartition(":")[2])
        with pytest.raises(UsageError, match=f"port \\({taken}\\)"):
            HubServer(folder, port=taken).__enter__()
