"""What a plan says against what the run then does, on both kinds of sources."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from conftest import CORPUS
from hub_faults import FaultyHub

from clipshards.estimate import Amount, Seen, estimate, learn_rates
from clipshards.hub.fetch import fetch, part_path
from clipshards.hub.listing import list_source
from clipshards.hub.ranges import RangeFile
from clipshards.hub.server import HubServer
from clipshards.plan import make_view
from clipshards.sampling import GRASP_BENCH, GRASP_TRAIN
from clipshards.survey import read_headers
from clipshards.tars import index_tar
from flows.looking import MAX_CLIPS, MAX_REQUESTS
from flows.planning import Plan, plan_run
from flows.reporting import print_plan
from flows.settings import make_settings

HUB = "hf://datasets/demo/GRASP"


def plan(source: str | Path, out: Path, **options: Any) -> Plan:
    return plan_run(make_settings(str(source), out, **{"decoder": "cpu", "workers": 2, **options}))


def require_right(plan: Plan, snapshot: Path) -> None:
    """Frames and bytes within a tenth of what the run made; what can be counted, exactly."""
    counts = json.loads((snapshot / "dataset.json").read_text())["counts"]
    stored = sum(path.stat().st_size for split in ("train", "test") for path in snapshot.glob(f"{split}/*.tar"))
    assert plan.frames == pytest.approx(counts["frames"], rel=0.1)
    assert plan.output_bytes == pytest.approx(stored, rel=0.1)
    assert (plan.parts, plan.clips) == (counts["parts"], counts["clips"])


def require_same_counts(plan: Plan, snapshot: Path) -> None:
    counts = json.loads((snapshot / "dataset.json").read_text())["counts"]
    found = {"views": plan.views, "examples": plan.examples, "questions": plan.questions, "bench": plan.bench_items}
    assert found == {name: counts[name] for name in found}
    assert plan.frames == counts["frames"], "all clips of the demo can be looked at"


@pytest.fixture(scope="module")
def of_folder(demo_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The demo, which nothing was made of yet."""
    out = tmp_path_factory.mktemp("planned") / "out"
    planned = plan(demo_source, out, disk_budget=50_000_000)
    assert not out.exists()
    return planned


@pytest.mark.flow
def test_a_folder(of_folder: Plan, demo_snapshot: Path) -> None:
    require_right(of_folder, demo_snapshot)
    require_same_counts(of_folder, demo_snapshot)
    assert (of_folder.frames_left, of_folder.download_bytes, of_folder.access.state) == (
        of_folder.frames,
        0,
        "folder",
    )
    assert of_folder.shards == json.loads((demo_snapshot / "dataset.json").read_text())["counts"]["shards"]
    assert of_folder.stored_frames_per_second and of_folder.decode_hours
    assert of_folder.disk_needed_bytes == of_folder.output_bytes
    assert of_folder.refresh is None


@pytest.mark.flow
def test_lossless_frames(demo_source: Path, demo_lossless: Path, tmp_path: Path) -> None:
    require_right(plan(demo_source, tmp_path / "out", quality=None), demo_lossless)


@pytest.mark.flow
def test_a_hub_behind_a_gate(
    demo_source: Path, demo_snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "token-of-the-test")
    out = tmp_path / "out"
    with HubServer(demo_source, token="token-of-the-test", gated=True) as hub:
        source = make_settings(HUB, out, endpoint=hub.endpoint).source
        listing = list_source(source)
        here, begun = listing.find(["*/avsbench_part000.tar", "*/werewolf_part000.tar"])
        fetch(source, listing.commit, here, out / "work/downloads" / here.path)  # type: ignore[arg-type]
        part_path(out / "work/downloads" / begun.path, listing.commit, begun).write_bytes(bytes(1000))
        before = sorted(out.rglob("*"))
        planned = plan(HUB, out, endpoint=hub.endpoint)
    require_right(planned, demo_snapshot)
    require_same_counts(planned, demo_snapshot)
    rows_and_parts = [*demo_source.rglob("*.tar"), *demo_source.rglob("*.jsonl")]
    assert planned.download_bytes == sum(path.stat().st_size for path in rows_and_parts)
    assert planned.download_bytes_here == here.size_bytes + 1000
    assert planned.download_bytes_left == planned.download_bytes - planned.download_bytes_here
    assert planned.access.state == "token-accepted"
    assert planned.measured_on.endswith("clips of the source")
    assert "token-of-the-test" not in json.dumps(asdict(planned))
    assert sorted(out.rglob("*")) == before


def test_a_closed_gate(demo_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with HubServer(demo_source, token="token-of-the-test", gated=True) as hub:
        planned = plan(HUB, tmp_path / "out", endpoint=hub.endpoint)
    assert planned.access.state == "refused" and "accept its terms" in planned.access.detail
    assert planned.parts == 8 and planned.download_bytes > 0 and planned.least_disk_budget_bytes > 0
    assert planned.frames is None and planned.output_bytes is None and planned.decode_hours is None
    print_plan(planned, as_json=False)
    assert "unknown" in capsys.readouterr().out


@pytest.mark.flow
def test_what_a_run_left_is_not_planned_again(demo_source: Path, demo_snapshot: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(demo_snapshot.parents[1], out, symlinks=True)
    finished = plan(demo_source, out)
    assert (finished.frames_left, finished.shards_left, finished.output_bytes_left) == (0, 0, 0)
    assert finished.measured_on == "" and finished.decode_hours == 0
    assert finished.refresh is not None and not any(finished.refresh.values())
    (out / "current").unlink()  # as if it had been stopped before the end
    shard = sorted(out.glob("work/shards/train/*.tar"))[0]
    frames = json.loads(shard.with_suffix(".json").read_text())["num_frames"]
    num_bytes = shard.stat().st_size
    shard.with_suffix(".json").unlink()
    stopped = plan(demo_source, out)
    assert (stopped.shards_left, stopped.frames_left) == (1, frames)
    assert stopped.output_bytes_left == pytest.approx(num_bytes, rel=0.25)
    assert stopped.refresh is None


@pytest.mark.flow
def test_what_a_refresh_would_redo(demo_source: Path, demo_snapshot: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(demo_source, source)
    parts = source / "train/videos"
    (parts / "avsbench_part000.tar").unlink()
    (parts / "werewolf_part000.tar").rename(parts / "werewolf_part007.tar")
    with tarfile.open(parts / "embody3d_part000.tar", "a") as tar:
        tar.addfile(tarfile.TarInfo("embody3d/note.txt"), io.BytesIO())
    with (source / "train/annotations.jsonl").open("a") as rows:
        rows.write("\n")
    planned = plan(source, demo_snapshot.parents[1])
    assert planned.refresh == {
        "parts_added": [],
        "parts_changed": ["train/videos/embody3d_part000.tar"],
        "parts_removed": ["train/videos/avsbench_part000.tar"],
        "parts_renamed": {"train/videos/werewolf_part000.tar": "train/videos/werewolf_part007.tar"},
        "rows_changed": ["train/annotations.jsonl"],
    }
    assert 0 < planned.shards_left < planned.shards
    assert 0 < planned.frames_left < planned.frames  # type: ignore[operator]


def test_some_parts_and_clips(demo_source: Path, tmp_path: Path) -> None:
    options = {"parts": "avsbench*", "limit": 2}
    known = plan(demo_source, tmp_path / "out", **options)
    assert (known.parts, known.clips, known.bench_items) == (2, 4, 0)
    with HubServer(demo_source) as hub:
        guessed = plan(HUB, tmp_path / "out", endpoint=hub.endpoint, **options)
    assert (guessed.parts, guessed.clips) == (2, 4)
    assert guessed.frames == pytest.approx(known.frames, rel=0.5)
    assert "clips" in guessed.estimated and "clips" not in known.estimated


def test_clips_that_no_row_names(demo_source: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(demo_source, source)
    rows = (source / "train/annotations.jsonl").read_text().splitlines(keepends=True)
    (source / "train/annotations.jsonl").write_text("".join(row for row in rows if "werewolf" not in row))
    for name in ("data_sft.jsonl", "data_rl.jsonl"):
        lines = (source / "train" / name).read_text().splitlines(keepends=True)
        (source / "train" / name).write_text("".join(line for line in lines if "werewolf" not in line))
    named, every = (plan(source, tmp_path / "out", all_clips=all_clips) for all_clips in (False, True))
    assert (named.clips, every.clips) == (32, 35)
    assert every.frames > named.frames  # type: ignore[operator]


def test_a_large_part_costs_a_bounded_number_of_requests(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "train/videos").mkdir(parents=True)
    chance = random.Random(0)
    names = [f"s/{number}.mp4" for number in range(200)]
    with tarfile.open(source / "train/videos/p.tar", "w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = chance.randint(90_000, 150_000)
            tar.addfile(info, io.BytesIO(chance.randbytes(info.size)))
    (source / "train/annotations.jsonl").write_text("")
    with FaultyHub(source) as hub:
        planned = plan(HUB, tmp_path / "out", endpoint=hub.endpoint, all_clips=True)
        ranges = hub.ranges("cdn", "train/videos/p.tar")
    assert planned.clips == pytest.approx(200, rel=0.1)
    assert MAX_REQUESTS // 2 < len(ranges) <= MAX_REQUESTS + MAX_CLIPS
    assert None not in ranges, "never the whole part"


def test_no_prefect_and_one_json_object(demo_source: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['clipshards', 'plan', *sys.argv[1:]]\n"
        "from flows.cli import main\n"
        "try: main()\n"
        "finally: assert not [name for name in sys.modules if name.split('.')[0] == 'prefect']"
    )
    command = [sys.executable, "-c", program, demo_source, tmp_path / "out", "--workers", "2", "--json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["frames"] > 2000
    assert not (tmp_path / "out").exists()


def test_sections_for_people(of_folder: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(of_folder, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    titles = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert titles == ["source", "content", "output", "disk", "time"]
    assert f"  frames {of_folder.frames:>22,}  {of_folder.frames:,} of it to do" in lines
    assert any("with --disk-budget 50.0 MB" in line for line in lines)
    assert len({line.rstrip().find("  ", 20) for line in lines if line.startswith("  bench")}) == 1


@pytest.mark.corpus
@pytest.mark.flow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no shared/corpus next to the project")
def test_real_clips_of_many_sizes(prefect_server: None, tmp_path: Path) -> None:
    from flows.prepare import prepare
    from scripts.corpus_source import NOT_CLIPS, write_source

    clips = sorted(path for path in CORPUS.iterdir() if path.is_file() and path.suffix.lower() not in NOT_CLIPS)
    write_source(clips, tmp_path / "source")
    planned = plan(tmp_path / "source", tmp_path / "none")
    prepare(str(tmp_path / "source"), str(tmp_path / "out"), decoder="cpu", workers=2, max_rejected=1)
    require_right(planned, (tmp_path / "out/current").resolve())


def test_headers_tell_the_same_as_the_index(demo_source: Path) -> None:
    for part in sorted(demo_source.rglob("*.tar")):
        with part.open("rb") as stream:
            headers = read_headers(stream)
        places = [(member.name, member.offset_bytes, member.size_bytes) for member in headers.members]
        index = index_tar(part, part="p").members
        assert places == [(member.name, member.offset_bytes, member.size_bytes) for member in index]
        assert headers.is_complete and not headers.damage
        assert len(headers.texts) == sum(name.endswith(".json") for name, _, _ in places)


def test_the_first_headers_tell_how_many_there_are(demo_source: Path) -> None:
    part = demo_source / "test/grasp_bench.tar"
    size_bytes = part.stat().st_size
    with part.open("rb") as stream:
        every = read_headers(stream)
    num_texts = len(every.texts)
    steps = iter(range(num_texts + 4))
    with part.open("rb") as stream:
        first = read_headers(stream, lambda: next(steps, None) is not None)
    assert not first.is_complete
    clips, texts = first.expected(size_bytes)
    assert texts == num_texts
    assert clips == pytest.approx(len(every.members) - num_texts, rel=0.6)


def test_a_part_that_is_no_tar_says_so() -> None:
    assert read_headers(io.BytesIO(b"no tar" * 1000)).damage
    assert read_headers(io.BytesIO(b"")).damage


def test_a_part_of_a_hub_reads_like_a_file(demo_source: Path) -> None:
    with HubServer(demo_source) as hub:
        source = make_settings(HUB, "out", endpoint=hub.endpoint).source
        listing = list_source(source)
        (file,) = listing.find(["test/*.tar"])
        raw = RangeFile(source, listing.commit, file)  # type: ignore[arg-type]
        content = (demo_source / file.path).read_bytes()
        raw.seek(-700, io.SEEK_END)
        assert raw.read(2000) == content[-700:] and raw.read(1) == b""
        raw.seek(512)
        assert raw.read(100) == content[512:612] and raw.tell() == 612
        assert (raw.num_requests, raw.num_bytes) == (2, 800)


def test_views_that_were_not_looked_at_are_like_those_that_were() -> None:
    windows = [make_view(f"s/{n}.mp4", 0.0, 10.0, 20, GRASP_TRAIN) for n in range(4)]
    looked = {windows[0].key: Seen(20, 1000, 300.0), windows[1].key: Seen(0, 0, 0.0)}
    rates = learn_rates(windows, looked, GRASP_TRAIN)
    assert estimate(windows, looked, rates) == Amount(20 + 0 + 10 + 10, 6000 + 3000 + 3000)
    whole = [make_view(f"s/{n}.mp4", None, None, None, GRASP_BENCH) for n in range(3)]
    looked = {whole[0].key: Seen(240, 1000, 300.0), whole[1].key: Seen(40, 2000, None)}
    rates = learn_rates(whole, looked, GRASP_BENCH)
    assert estimate(whole, looked, rates).frames == 240 + 40 + 140
    assert estimate(whole[:2], looked, rates).num_bytes == pytest.approx(240 * 300 + 40 * 2000 * 0.3)
