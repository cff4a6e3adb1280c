"""Each fault of a Hub and its storage server, and what the fetch makes of it."""

from __future__ import annotations

import hashlib
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hub_faults import Fault, FaultyHub, write_files

from clipshards.errors import IncompleteError, NoSpaceError, Rejected, SourceError
from clipshards.hub.fetch import fetch, part_path
from clipshards.hub.listing import HubFile, HubSource, list_source

REPO = "demo/GRASP"
TOKEN = "hf_secret_of_the_test"
TAR, SMALL = "train/shards/a.tar", "train/data_sft.jsonl"
SIZE = 3_000_000
CONTENT = {TAR: random.Random(1).randbytes(SIZE), SMALL: b'{"path": "x.mp4"}\n' * 200}
CUT = 1_234_567


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", CONTENT)


@pytest.fixture
def hub(folder: Path) -> Iterator[FaultyHub]:
    with FaultyHub(folder, token=TOKEN) as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "work/a.tar"


def source_of(hub: FaultyHub, token: str | None = TOKEN) -> HubSource:
    return HubSource(REPO, endpoint=hub.endpoint, token=token)


def file_of(hub: FaultyHub, path: str = TAR) -> HubFile:
    served = hub.files("main")[1][path]
    if served.in_lfs:
        return HubFile(path, served.size_bytes, served.sha256, None)
    return HubFile(path, served.size_bytes, None, served.oid)


def get(
    hub: FaultyHub,
    target: Path,
    *,
    file: HubFile | None = None,
    commit: str = "",
    token: str | None = TOKEN,
    tries: int = 3,
    progress: Callable[[int], None] = lambda num_bytes: None,
    stop: threading.Event | None = None,
    reserve_bytes: int = 0,
) -> Path:
    return fetch(
        source_of(hub, token),
        commit or hub.commit,
        file or file_of(hub),
        target,
        progress=progress,
        stop=stop,
        reserve_bytes=reserve_bytes,
        tries=tries,
        backoff_seconds=0.01,
        timeout_seconds=1.0,
    )


def part_of(hub: FaultyHub, target: Path) -> Path:
    return part_path(target, hub.commit, file_of(hub))


def assert_fetched(target: Path, content: bytes = CONTENT[TAR]) -> None:
    assert target.read_bytes() == content
    assert [path.name for path in target.parent.iterdir() if path.suffix == ".part"] == []


# --- without faults


@pytest.mark.parametrize("path", [TAR, SMALL])
def test_fetch_of_a_listed_file(hub: FaultyHub, target: Path, path: str) -> None:
    listing = list_source(source_of(hub))
    [file] = listing.find([path])
    seen: list[int] = []
    assert get(hub, target, file=file, commit=listing.commit, progress=seen.append) == target
    assert_fetched(target, CONTENT[path])
    assert sum(seen) == len(CONTENT[path])


def test_empty_file(hub: FaultyHub, target: Path) -> None:
    empty = HubFile("empty.txt", 0, None, hashlib.sha1(b"blob 0\0").hexdigest())
    assert get(hub, target, file=empty).read_bytes() == b""


def test_a_right_target_is_kept_and_a_wrong_one_replaced(hub: FaultyHub, target: Path) -> None:
    write_files(target.parent, {target.name: CONTENT[TAR]})
    seen: list[int] = []
    get(hub, target, progress=seen.append)
    assert (sum(seen), hub.log) == (SIZE, [])
    target.write_bytes(bytes(SIZE))
    get(hub, target)
    assert_fetched(target)


# --- faults that pass

PASSING = {
    "cut": Fault("cut", CUT),
    "cut-at-once": Fault("cut", 0),
    "reset": Fault("reset", CUT, seconds=0.3),
    "stall": Fault("stall", CUT, seconds=2.0),
    "ignored-range": Fault("norange"),
    "html": Fault("html"),
    "short": Fault("short", 1000),
    "expired-url": Fault("status", status=403),
    "gone-from-cdn": Fault("status", status=404),
    "cdn-500": Fault("status", status=500),
    "cdn-503": Fault("status", status=503),
}


@pytest.mark.parametrize("kept_bytes", [0, CUT], ids=["from-start", "from-kept"])
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_passing_fault_of_the_cdn(hub: FaultyHub, target: Path, fault: Fault, kept_bytes: int) -> None:
    write_files(target.parent, {part_of(hub, target).name: CONTENT[TAR][:kept_bytes]})
    hub.queue("cdn", TAR, fault)
    get(hub, target)
    assert_fetched(target)
    ranges = hub.ranges("cdn", TAR)
    assert ranges[0] == (f"bytes={kept_bytes}-" if kept_bytes else None)
    if fault.kind in ("cut", "reset", "stall") and fault.num_bytes:
        assert ranges[1] == f"bytes={kept_bytes + fault.num_bytes}-"
    elif fault.kind == "short" and kept_bytes:
        assert ranges[1] == f"bytes={SIZE - fault.num_bytes}-"
    else:
        assert set(ranges) == {ranges[0]}, "nothing is stored, nothing is lost"


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_passing_fault_of_the_hub(hub: FaultyHub, target: Path, status: int) -> None:
    hub.queue("hub", TAR, *[Fault("status", status=status)] * 3)
    get(hub, target)
    assert_fetched(target)


def test_many_cuts_are_no_failure_as_long_as_bytes_come(hub: FaultyHub, target: Path) -> None:
    hub.queue("cdn", TAR, *[Fault("cut", 200_000)] * 14)
    get(hub, target, tries=1)
    assert_fetched(target)
    assert hub.ranges("cdn", TAR)[1:] == [f"bytes={200_000 * n}-" for n in range(1, 15)]


def test_a_server_without_ranges_does_not_cost_the_bytes_we_have(hub: FaultyHub, target: Path) -> None:
    hub.queue("cdn", TAR, Fault("cut", CUT), Fault("norange"))
    seen: list[int] = []
    get(hub, target, progress=seen.append)
    assert_fetched(target)
    assert sum(seen) == SIZE
    assert min(seen) > 0


def test_small_file_cut_by_the_hub_itself(hub: FaultyHub, target: Path) -> None:
    hub.queue("hub", SMALL, Fault("cut", 1000))
    get(hub, target, file=file_of(hub, SMALL))
    assert_fetched(target, CONTENT[SMALL])
    assert hub.ranges("hub", SMALL) == [None, "bytes=1000-"]


# --- 429


@pytest.mark.parametrize(
    "headers", [{"Retry_After": "1"}, {"RateLimit": '"resolvers";r=0;t=1'}], ids=["retry-after", "ratelimit"]
)
def test_429_waits_as_told_and_says_so(
    hub: FaultyHub, target: Path, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    hub.queue("hub", TAR, Fault("status", status=429, headers=headers))
    began = time.monotonic()
    get(hub, target)
    assert time.monotonic() - began >= 1.0
    assert "answered 429 at byte 0 of 3000000; going on in 1.0 s, as told" in caplog.text


def test_429_beyond_the_bound_stops(hub: FaultyHub, target: Path) -> None:
    hub.queue("hub", TAR, Fault("status", status=429, headers={"Retry_After": "301"}))
    with pytest.raises(SourceError, match=r"asks to wait 301 s.*run the command again later"):
        get(hub, target)


# --- faults that last


def test_tries_used_up_keep_the_bytes_for_a_later_call(hub: FaultyHub, target: Path) -> None:
    hub.queue("cdn", TAR, Fault("cut", CUT), *[Fault("status", status=500)] * 3)
    with pytest.raises(IncompleteError, match=r"1,234,567 of 3,000,000 bytes are kept: check the network"):
        get(hub, target)
    assert not target.exists()
    assert part_of(hub, target).stat().st_size == CUT
    get(hub, target)
    assert_fetched(target)
    assert hub.ranges("cdn", TAR)[-1] == f"bytes={CUT}-"


REFUSALS = {
    "401": ({"status": 401}, "set HF_TOKEN"),
    "403": ({"status": 403}, "set HF_TOKEN"),
    "gated": ({"status": 403, "headers": {"X_Error_Code": "GatedRepo"}}, "accept its terms on"),
    "no-repo": ({"status": 404, "headers": {"X_Error_Code": "RepoNotFound"}}, "check the spelling"),
    "no-revision": ({"status": 404, "headers": {"X_Error_Code": "RevisionNotFound"}}, "no revision"),
    "other": ({"status": 410}, "status 410"),
}


@pytest.mark.parametrize(("fault", "said"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_stops_at_once(hub: FaultyHub, target: Path, fault: dict[str, object], said: str) -> None:
    hub.queue("hub", TAR, *[Fault("status", **fault)] * 2)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=said) as caught:
        get(hub, target)
    assert "\n" not in str(caught.value)
    assert len(hub.log) == 1


def test_missing_file_is_rejected_at_once(hub: FaultyHub, target: Path) -> None:
    with pytest.raises(Rejected, match=r"train/b\.tar is not in demo/GRASP at") as caught:
        get(hub, target, file=HubFile("train/b.tar", 9, "0" * 64, None))
    assert caught.value.reason == "file-missing"
    assert len(hub.log) == 1


@pytest.mark.parametrize("path", [TAR, SMALL])
def test_wrong_bytes_are_fetched_once_more(hub: FaultyHub, target: Path, path: str) -> None:
    hub.queue("cdn" if path == TAR else "hub", path, Fault("corrupt"))
    seen: list[int] = []
    get(hub, target, file=file_of(hub, path), progress=seen.append)
    assert_fetched(target, CONTENT[path])
    assert sum(seen) == len(CONTENT[path])


@pytest.mark.parametrize("path", [TAR, SMALL])
def test_wrong_bytes_twice_are_rejected(hub: FaultyHub, target: Path, path: str) -> None:
    where = "cdn" if path == TAR else "hub"
    hub.queue(where, path, *[Fault("corrupt")] * 2)
    with pytest.raises(Rejected, match="twice") as caught:
        get(hub, target, file=file_of(hub, path))
    assert caught.value.reason == "sha-mismatch"
    assert hub.ranges(where, path) == [None, None]
    assert not target.exists()
    get(hub, target, file=file_of(hub, path))
    assert_fetched(target, CONTENT[path])


@pytest.mark.parametrize("listed_bytes", [SIZE - 1, SIZE + 1])
@pytest.mark.parametrize("kept_bytes", [0, CUT])
def test_other_size_is_rejected(hub: FaultyHub, target: Path, listed_bytes: int, kept_bytes: int) -> None:
    file = HubFile(TAR, listed_bytes, file_of(hub).sha256, None)
    write_files(target.parent, {part_of(hub, target).name: CONTENT[TAR][:kept_bytes]})
    with pytest.raises(Rejected, match="3000000") as caught:
        get(hub, target, file=file)
    assert caught.value.reason == "size-mismatch"
    assert not target.exists()


def test_range_past_the_end_of_the_servers_file(hub: FaultyHub, target: Path) -> None:
    file = HubFile(TAR, SIZE + 100, file_of(hub).sha256, None)
    write_files(target.parent, {part_of(hub, target).name: CONTENT[TAR]})
    with pytest.raises(Rejected, match=r"bytes \*/3000000") as caught:
        get(hub, target, file=file)
    assert caught.value.reason == "size-mismatch"


@pytest.mark.parametrize("kept_bytes", [0, CUT])
def test_lfs_pointer_is_rejected(hub: FaultyHub, target: Path, kept_bytes: int) -> None:
    write_files(target.parent, {part_of(hub, target).name: CONTENT[TAR][:kept_bytes]})
    hub.queue("cdn", TAR, Fault("pointer"))
    with pytest.raises(Rejected) as caught:
        get(hub, target)
    assert caught.value.reason == "lfs-pointer"


def test_pointer_that_git_holds_as_a_text_is_rejected_too(tmp_path: Path, target: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    with FaultyHub(write_files(tmp_path / "clone", {"a.bin": pointer})) as hub:
        with pytest.raises(Rejected, match="lfs-pointer"):
            get(hub, target, file=file_of(hub, "a.bin"))


def test_commit_that_moves_while_we_work(hub: FaultyHub, target: Path, tmp_path: Path) -> None:
    listing = list_source(source_of(hub))
    hub.queue("cdn", TAR, Fault("cut", CUT))
    moved = write_files(tmp_path / "new", {TAR: random.Random(2).randbytes(SIZE)})

    def move(_: int) -> None:
        if hub.commit == listing.commit:
            hub.publish(moved)

    get(hub, target, file=listing.find([TAR])[0], commit=listing.commit, progress=move)
    assert hub.commit != listing.commit
    assert_fetched(target)


@pytest.mark.parametrize("sha256", [None, "*" * 64])
def test_unknown_hash_checks_the_size_only(hub: FaultyHub, target: Path, sha256: str | None) -> None:
    hub.queue("cdn", TAR, Fault("corrupt"))
    get(hub, target, file=HubFile(TAR, SIZE, sha256, None))
    assert target.stat().st_size == SIZE
    assert len(hub.ranges("cdn", TAR)) == 1


# --- what an earlier run left

LEFT = {
    "nothing": b"",
    "a-start": CONTENT[TAR][:CUT],
    "all": CONTENT[TAR],
    "all-but-wrong": bytes(SIZE),
    "too-much": bytes(SIZE + 1),
    "a-wrong-start": bytes(CUT),
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_what_an_earlier_run_left_is_hashed(hub: FaultyHub, target: Path, left: bytes) -> None:
    write_files(target.parent, {part_of(hub, target).name: left})
    seen: list[int] = []
    get(hub, target, progress=seen.append)
    assert_fetched(target)
    assert sum(seen) == SIZE


def test_part_of_another_version_is_removed(hub: FaultyHub, target: Path) -> None:
    others = {f"{target.name}.{'0' * 16}.part": b"old", f"{target.name}.b.{'0' * 16}.part": b"not ours"}
    write_files(target.parent, others)
    get(hub, target)
    assert sorted(path.name for path in target.parent.glob("*.part")) == [f"a.tar.b.{'0' * 16}.part"]


def test_killed_process_goes_on_at_its_byte(hub: FaultyHub, target: Path) -> None:
    hub.queue("cdn", TAR, Fault("stall", CUT, seconds=60))
    file = file_of(hub)
    program = (
        "from pathlib import Path\n"
        "from clipshards.hub.fetch import fetch\n"
        "from clipshards.hub.listing import HubFile, HubSource\n"
        f"source = HubSource({REPO!r}, endpoint={hub.endpoint!r}, token={TOKEN!r})\n"
        f"fetch(source, {hub.commit!r}, {file!r}, Path({str(target)!r}), timeout_seconds=60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[1])
    try:
        wait_until(lambda: part_of(hub, target).exists() and part_of(hub, target).stat().st_size == CUT)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    seen: list[int] = []
    get(hub, target, progress=seen.append)
    assert_fetched(target)
    assert hub.ranges("cdn", TAR) == [None, f"bytes={CUT}-"]
    assert sum(seen) == SIZE


def wait_until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


# --- stop, lock, disk


def test_stop_keeps_the_bytes(hub: FaultyHub, target: Path) -> None:
    stop = threading.Event()
    with pytest.raises(IncompleteError, match=r"stopped, .* bytes are kept; the same command goes on"):
        get(hub, target, stop=stop, progress=lambda _: stop.set())
    kept_bytes = part_of(hub, target).stat().st_size
    assert 0 < kept_bytes < SIZE
    get(hub, target)
    assert_fetched(target)
    assert hub.ranges("cdn", TAR)[-1] == f"bytes={kept_bytes}-"


def test_stop_ends_a_pause(hub: FaultyHub, target: Path) -> None:
    hub.queue("hub", TAR, Fault("status", status=429, headers={"Retry_After": "60"}))
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    with pytest.raises(IncompleteError, match="stopped"):
        get(hub, target, stop=stop)
    assert time.monotonic() - began < 10


def test_two_at_once_fetch_it_once(hub: FaultyHub, target: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: get(hub, target), range(2))) == [target, target]
    assert_fetched(target)
    assert len(hub.requests("cdn", TAR)) == 1


def test_too_little_space_is_said_before_anything_is_fetched(hub: FaultyHub, target: Path) -> None:
    with pytest.raises(NoSpaceError, match=r"needs 1,000,000,003,000,000 more bytes .* are free"):
        get(hub, target, reserve_bytes=10**15)
    assert not hub.log


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_full_disk(hub: FaultyHub, target: Path) -> None:
    target.parent.mkdir()
    part_of(hub, target).symlink_to("/dev/full")
    with pytest.raises(NoSpaceError, match=r"needs 3,000,000 more bytes .* are free: make room"):
        get(hub, target)


# --- the token


def test_token_stays_with_the_hub(hub: FaultyHub, target: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hub.queue("cdn", TAR, Fault("cut", CUT), Fault("status", status=403))
    get(hub, target)
    by_origin = {(request.where, request.authorization) for request in hub.log}
    assert by_origin == {("hub", f"Bearer {TOKEN}"), ("cdn", None)}
    assert len(hub.requests("cdn", TAR)) == 3
    assert TOKEN not in caplog.text


def test_token_is_in_no_message(hub: FaultyHub, target: Path, caplog: pytest.LogCaptureFixture) -> None:
    hub.queue("cdn", TAR, *[Fault("status", status=403)] * 9)
    with pytest.raises(IncompleteError) as caught:
        get(hub, target)
    assert "signature" not in str(caught.value) + caplog.text
    with pytest.raises(SourceError) as refused:
        get(hub, target, token="hf_wrong\ntoken")
    assert TOKEN not in str(caught.value) + caplog.text
    assert "hf_wrong" not in str(refused.value) + caplog.text
