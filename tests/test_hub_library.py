"""The other transport, huggingface_hub's own download: its files pass our gate, its errors become ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_faults import Fault, FaultyHub, FaultyHubHandler, write_files
from huggingface_hub import constants
from test_hub_fetch import CONTENT, CUT, REPO, SIZE, SMALL, TAR, TOKEN, file_of, source_of

from clipshards.errors import IncompleteError, NoSpaceError, Rejected, SourceError
from clipshards.hub import fetch as ours
from clipshards.hub import library
from clipshards.hub.listing import HubFile

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", CONTENT)


@pytest.fixture
def hub(folder: Path) -> Iterator[FaultyHub]:
    with FaultyHub(folder, token=TOKEN) as server:
        yield server


@pytest.fixture
def get(hub: FaultyHub, tmp_path: Path) -> Callable[..., Path]:
    """Fetches a file of the hub; nothing is left in the staging folder, whatever comes of it."""

    def get(path: str = TAR, *, token: str | None = TOKEN, **options: Any) -> Path:
        arguments: dict[str, Any] = {"file": file_of(hub, path), "tries": 1, "backoff_seconds": 0.01, **options}
        target = tmp_path / "work/downloads" / path
        try:
            return library.fetch(
                source_of(hub, token), hub.commit, target=target, staging=tmp_path / "work/library", **arguments
            )
        finally:
            assert list((tmp_path / "work").glob("library/*")) == []
            assert list(target.parent.glob("*.part")) == [] or not target.exists()

    return get


@pytest.mark.parametrize("path", [TAR, SMALL])
def test_the_file_and_its_progress(get: Callable[..., Path], path: str) -> None:
    seen: list[int] = []
    assert get(path, progress=seen.append).read_bytes() == CONTENT[path]
    assert sum(seen) == len(CONTENT[path])
    assert get(path, progress=seen.append).read_bytes() == CONTENT[path]
    assert sum(seen) == 2 * len(CONTENT[path])


def test_a_right_target_of_either_transport_is_kept(hub: FaultyHub, get: Callable[..., Path]) -> None:
    target = get()
    num_requests = len(hub.log)
    ours.fetch(source_of(hub), hub.commit, file_of(hub), target)
    assert get() == target
    assert len(hub.log) == num_requests


def test_token_stays_with_the_hub(hub: FaultyHub, get: Callable[..., Path]) -> None:
    get()
    assert {(request.where, request.authorization) for request in hub.log} == {
        ("hub", f"Bearer {TOKEN}"),
        ("cdn", None),
    }
    with pytest.raises(SourceError, match="the token holds characters") as caught:
        get(SMALL, token="hf_wrong\ntoken")
    assert "hf_wrong" not in str(caught.value)


@pytest.mark.parametrize(
    "fault", [Fault("cut", CUT), Fault("reset", CUT, seconds=0.3), Fault("status", status=403), Fault("html")]
)
def test_passing_fault_of_the_cdn(hub: FaultyHub, get: Callable[..., Path], fault: Fault) -> None:
    hub.queue("cdn", TAR, fault)
    seen: list[int] = []
    assert get(progress=seen.append).read_bytes() == CONTENT[TAR]
    assert sum(seen) == SIZE


def test_a_fault_that_lasts(hub: FaultyHub, get: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    hub.queue("cdn", TAR, *[Fault("status", status=403)] * 2)
    with pytest.raises(IncompleteError, match=r"storage server answered 403, no new byte in 1 tries") as caught:
        get()
    assert "signature" not in str(caught.value) + caplog.text


@pytest.mark.parametrize("path", [TAR, SMALL])
def test_right_size_and_wrong_bytes(hub: FaultyHub, get: Callable[..., Path], tmp_path: Path, path: str) -> None:
    hub.queue("cdn" if path == TAR else "hub", path, *[Fault("corrupt")] * 4)  # a HEAD takes one, and is right
    with pytest.raises(Rejected, match="twice") as caught:
        get(path)
    assert caught.value.reason == "sha-mismatch"
    assert not (tmp_path / "work/downloads" / path).exists()


def test_another_size_than_listed(hub: FaultyHub, get: Callable[..., Path]) -> None:
    with pytest.raises(Rejected, match=f"got {SIZE} bytes, the listing says 9") as caught:
        get(file=HubFile(TAR, 9, "0" * 64, None))
    assert caught.value.reason == "size-mismatch"


def test_pointer_in_place_of_the_file(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    with FaultyHub(write_files(tmp_path / "clone", {"a.bin": pointer})) as hub:
        with pytest.raises(Rejected) as caught:
            library.fetch(
                source_of(hub, None), hub.commit, HubFile("a.bin", SIZE, "0" * 64, None), tmp_path / "a.bin",
                staging=tmp_path / "library",
            )  # fmt: skip
    assert caught.value.reason == "lfs-pointer"


REFUSALS = {
    "401": ({"status": 401, "headers": {"X_Error_Message": "Invalid credentials"}}, "set HF_TOKEN"),
    "403": ({"status": 403}, "set HF_TOKEN"),
    "gated": ({"status": 403, "headers": {"X_Error_Code": "GatedRepo"}}, "accept its terms on"),
    "no-repo": ({"status": 404, "headers": {"X_Error_Code": "RepoNotFound"}}, "check the spelling"),
    "no-revision": ({"status": 404, "headers": {"X_Error_Code": "RevisionNotFound"}}, "no revision"),
}


@pytest.mark.parametrize(("fault", "said"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_stops_at_once(hub: FaultyHub, get: Callable[..., Path], fault: dict[str, Any], said: str) -> None:
    hub.queue("hub", TAR, *[Fault("status", **fault)] * 9)
    with pytest.raises(SourceError, match=said) as caught:
        get()
    assert "\n" not in str(caught.value)
    assert len(hub.log) == 1


def test_missing_file(hub: FaultyHub, get: Callable[..., Path]) -> None:
    with pytest.raises(Rejected, match=r"train/b\.tar is not in demo/GRASP at") as caught:
        get(file=HubFile("train/b.tar", 9, "0" * 64, None))
    assert caught.value.reason == "file-missing"


def test_page_of_a_proxy(hub: FaultyHub, get: Callable[..., Path]) -> None:
    hub.queue("hub", TAR, *[Fault("html")] * 9)
    with pytest.raises(IncompleteError, match="not that of a Hub"):
        get()


def test_what_the_library_never_fetches(hub: FaultyHub, tmp_path: Path) -> None:
    file, target = file_of(hub), tmp_path / "a.tar"
    source = library.HubSource("demo/GRASP--2", endpoint=hub.endpoint)
    with pytest.raises(SourceError, match="use --transport http"):
        library.fetch(source, hub.commit, file, target, staging=tmp_path / "library")


def test_offline(get: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="unset HF_HUB_OFFLINE"):
        get()


def test_too_little_space(hub: FaultyHub, get: Callable[..., Path]) -> None:
    with pytest.raises(NoSpaceError, match="make room"):
        get(reserve_bytes=10**15)
    assert not hub.log


def test_stop_in_the_middle(hub: FaultyHub, tmp_path: Path) -> None:
    hub.queue("cdn", TAR, Fault("stall", CUT, seconds=60))
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    with pytest.raises(IncompleteError, match="stopped"):
        library.fetch(
            source_of(hub), hub.commit, file_of(hub), tmp_path / "a.tar", staging=tmp_path / "library", stop=stop
        )
    assert time.monotonic() - began < 9


# --- Xet


class XetHubHandler(FaultyHubHandler):
    """Offers each file in LFS over Xet too, but the storage there knows none."""

    def send_json(self, content: object, *, status: int = 200, headers: Any = None) -> None:
        if status == 302:
            refresh = f"http://{self.headers['Host']}/api/datasets/{REPO}/xet-read-token/x"
            headers = {**headers, "X-Xet-Hash": "0" * 64, "Link": f'<{refresh}>; rel="xet-auth"'}
        super().send_json(content, status=status, headers=headers)

    def answer(self, path: list[str]) -> None:
        if "xet-read-token" in path:
            cas = f"http://127.0.0.1:{self.hub.cdn_port}"
            sent = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": "9999999999"}
            self.send_json({}, headers=sent)
        else:
            super().answer(path)


def test_xet_that_fails(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("hf_xet")
    hub = FaultyHub(folder, token=TOKEN)
    hub.hub_handler = XetHubHandler
    with hub, pytest.raises(IncompleteError, match="huggingface_hub gave up") as caught:
        library.fetch(
            source_of(hub), hub.commit, file_of(hub), tmp_path / "a.tar", staging=tmp_path / "library", tries=0
        )
    assert TOKEN not in str(caught.value) + caplog.text
    asked = {request.authorization for request in hub.log if request.where == "cdn"}
    assert asked == {"Bearer xet"}
