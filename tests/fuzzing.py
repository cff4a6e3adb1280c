"""Damage files by the thousand and hold the product to its promises: a value or a word, never a crash.

    scripts/fuzz [KIND…] [--mutations N] [--seconds N] [--seed N] [--first N] [--seeds FOLDER] [--keep FOLDER]

Mutation number i of a kind is made by `Random(f"{kind} {seed} {i}")`, in a worker process: one that hangs or
dies costs itself. Dead workers and time limits are outcomes for media, whose decoder is not ours; all else that
is no word of ours is a failure, and its input is kept.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import resource
import shutil
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import media
import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
from mutations import ESCAPED, Mutate, mutate_jsonl, mutate_media, mutate_tar
from tar_bytes import END_MARK, header, member, pax, tar_of

from clipshards.annotations import QuestionBuilder
from clipshards.decode.media import Extent
from clipshards.decode.pool import WorkerPool
from clipshards.decode.probe import ClipInfo
from clipshards.demo import build_demo
from clipshards.errors import Rejected, UsageError
from clipshards.examples import ExampleBuilder
from clipshards.images import decode_image
from clipshards.plan import View, link_examples, plan_split
from clipshards.recipe import Recipe, load_recipe
from clipshards.rendering import ClipJob, render_clip
from clipshards.sampling import GRASP_TRAIN
from clipshards.schema import REASONS, TABLES, WARNINGS, Reject
from clipshards.tars import extract, index_tar, read_member

CASES = Path(__file__).parent / "cases"
"""Files built after public bug reports; they are used when they are there."""

MOST_SEED_BYTES = 100_000
MOST_MEMORY_BYTES = 6 << 30
"""Of one worker: a clip can claim to be 30,000 pixels wide."""
BOM = b"\xef\xbb\xbf"
JOB_SECONDS = 10.0
"""For one clip, or for a chunk of the kinds that take a millisecond each."""


class Kind(NamedTuple):
    """A kind of input: how to damage it, and what must hold for whatever comes out."""

    mutate: Mutate
    check: Callable[[bytes, Path], list[str]]
    """(content, empty folder) → words for what came out; raises when a promise is broken."""
    chunk: int
    """Mutations that one job of the pool makes."""
    may_die: bool = False


class Failure(NamedTuple):
    """A broken promise."""

    number: int
    text: str
    content: bytes


class Chunk(NamedTuple):
    """What a worker needs to make its mutations."""

    kind: str
    seeds: Path
    seed: int
    numbers: range


@dataclass
class Figures:
    """What came out of the mutations of one kind."""

    kind: str
    mutations: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {word}" for word, count in self.outcomes.most_common())
        rate = self.mutations / max(self.seconds, 1e-9)
        return (
            f"{self.kind}: {self.mutations} mutations in {self.seconds:.0f} s ({rate:.0f}/s), "
            f"{len(self.failures)} failures; {outcomes}"
        )


def fuzz(
    kind: str,
    seeds: Path,
    *,
    mutations: int,
    seconds: float = float("inf"),
    seed: int = 0,
    first: int = 0,
    workers: int = 2,
) -> Figures:
    """Make the mutations `first` … of a kind from the seed files in the folder `seeds`.

    Args:
        seconds: no more are made after this time.
    """
    size, end = KINDS[kind].chunk, first + mutations
    chunks = [Chunk(kind, seeds, seed, range(start, min(start + size, end))) for start in range(first, end, size)]
    figures, started = Figures(kind), time.monotonic()
    with WorkerPool(workers, job_seconds=JOB_SECONDS) as pool:
        for numbers, outcomes, failures in pool.run(run_chunk, chunks, _given_up):
            figures.mutations += len(numbers)
            figures.outcomes.update(outcomes)
            figures.failures += failures
            figures.seconds = time.monotonic() - started
            if figures.seconds > seconds:
                pool.stop()
                break
    return figures


Result = tuple[range, Counter[str], list[Failure]]


def run_chunk(chunk: Chunk) -> Result:
    """Runs in a worker."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, resource.RLIM_INFINITY))
    kind, outcomes, failures = KINDS[chunk.kind], Counter[str](), list[Failure]()
    for number in chunk.numbers:
        content = make_mutation(chunk, number)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            try:
                outcomes.update(kind.check(content, Path(folder)))
            except Exception:  # noqa: BLE001  whatever it is, it is the finding
                failures.append(Failure(number, traceback.format_exc(limit=-9), content))
    return chunk.numbers, outcomes, failures


def make_mutation(chunk: Chunk, number: int) -> bytes:
    """The same bytes each time, as long as the seed files are the same."""
    return KINDS[chunk.kind].mutate(
        Random(f"{chunk.kind} {chunk.seed} {number}"), _read_seeds(chunk.seeds, chunk.kind)
    )


@lru_cache(maxsize=4)
def _read_seeds(folder: Path, kind: str) -> list[bytes]:
    contents = [path.read_bytes() for path in sorted((folder / kind).iterdir())]
    return [line for content in contents for line in content.splitlines()] if kind == "jsonl" else contents


def _given_up(chunk: Chunk, words: str) -> Result:
    if KINDS[chunk.kind].may_die:
        word = "time limit" if "no result" in words else "dead worker"
        return chunk.numbers, Counter([f"{word} at number {chunk.numbers.start}"]), []
    return chunk.numbers, Counter(), [Failure(chunk.numbers.start, f"{words}, numbers {chunk.numbers}", b"")]


# -- what must hold


def check_tar(content: bytes, folder: Path) -> list[str]:
    """An index or a word; extraction writes the members, those alone, and nothing beside the folder."""
    path, target, beside = folder / "part.tar", folder / "sandbox/target", folder / "sandbox/beside"
    path.write_bytes(content)
    target.mkdir(parents=True)
    beside.mkdir()
    (beside / "sentinel").write_bytes(b"untouched")
    (target / "link").symlink_to("../beside")
    before = _tree(folder, target)
    try:
        index = index_tar(path, part="p.tar")
    except Rejected as rejected:
        assert rejected.reason in REASONS, rejected
        return [rejected.reason]
    payloads = {entry.name: read_member(path, entry) for entry in index.members}
    assert len(payloads) == len(index.members), "a name stands twice"
    assert all(word in WARNINGS for word, _ in index.warnings), index.warnings
    outcomes = ["read", *_words(index.rejects), *(f"warning {word}" for word, _ in index.warnings)]
    try:
        num_bytes = extract(index, path, target)
    except UsageError:
        outcomes.append("in the way")
    else:
        assert num_bytes == sum(map(len, payloads.values()))
        files = {str(file.relative_to(target)): file.read_bytes() for file in _files(target)}
        assert files == payloads
    assert _tree(folder, target) == before, "something changed beside the folder"
    assert not Path("/tmp", ESCAPED).exists(), "something was written to an absolute path"
    return outcomes


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _tree(folder: Path, left_out: Path) -> dict[Path, bytes | None]:
    """All that is below `folder` but not below `left_out`."""
    paths = (path for path in folder.rglob("*") if left_out not in path.parents)
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def check_jsonl(content: bytes, folder: Path) -> list[str]:
    """Each line is a row or a reject with a word; the tables survive Parquet; plans can be made of them."""
    recipe = _recipe()
    questions, examples = QuestionBuilder(recipe, recipe.splits["train"]), ExampleBuilder()
    questions.add_lines("a.jsonl", io.BytesIO(content))
    examples.add_lines("rl", "b.jsonl", io.BytesIO(content))
    items = QuestionBuilder(recipe, recipe.splits["test"])
    items.add_item("part.tar", "json/item.json", content.partition(b"\n")[0])
    read_questions, read_examples, read_items = questions.finish(), examples.finish(), items.finish()
    outcomes: list[str] = []
    for read in (read_questions, read_examples, read_items):
        assert read.num_lines == read.table.num_rows + len(read.rejects)
        outcomes += [*_words(read.rejects), *["row"] * read.table.num_rows]
        read.table.validate(full=True)
        if read.table.num_rows and len(content) % 8 == 0:  # Parquet takes longer than all else
            pq.write_table(read.table, folder / "table.parquet")
            assert pq.read_table(folder / "table.parquet").equals(read.table)
    numbered = enumerate(content.removeprefix(BOM).split(b"\n"), 1)
    lines = {number: line for number, line in numbered if line.strip()}
    for read in (read_questions, read_examples):
        rows = read.table.select(["line", "question"]).to_pylist()
        numbers = [*(row["line"] for row in rows), *(reject.line for reject in read.rejects)]
        assert sorted(numbers) == list(lines), "a line is lost or is both a row and a reject"
        for row in rows:
            assert row["question"] in {None, *_texts(json.loads(lines[row["line"]]))}
    plan = plan_split("train", GRASP_TRAIN, read_examples, read_questions.clips())
    outcomes += (views.reason for views in plan.views_of.values() if isinstance(views, Rejected))
    link_examples(read_examples, read_questions)
    return outcomes


@lru_cache
def _recipe() -> Recipe:
    return load_recipe("grasp")


def _words(rejects: Iterable[Reject]) -> list[str]:
    """The reasons of rejects that the quarantine can hold."""
    for reject in rejects:
        assert reject.reason in REASONS, reject
        "".join((reject.detail, reject.member, reject.clip)).encode()
    return [reject.reason for reject in rejects]


def _texts(value: Any) -> Iterator[str]:
    """All texts and numbers inside a JSON value."""
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
    else:
        yield str(value)


def check_media(content: bytes, folder: Path) -> list[str]:
    """Each view is rendered, with the pictures that it names, or rejected with a word; no other file appears."""
    path, out = folder / "clip, of: part.mp4", folder / "out"
    out.mkdir()
    is_inside = len(content) % 2 == 1  # a member of a part
    path.write_bytes(bytes(700) + content + bytes(300) if is_inside else content)
    extent = Extent(str(path), 700, len(content)) if is_inside else Extent(str(path))
    outcome = render_clip(ClipJob("a/clip.mp4", extent, _VIEWS, GRASP_TRAIN, 95, out))
    keys = [view.key for view in outcome.views] + [key for key, _, _ in outcome.rejected_views]
    assert sorted(keys) == sorted(view.key for view in _VIEWS), "a view is lost or both rendered and rejected"
    reasons = {outcome.reason} - {""} | {reason for _, reason, _ in outcome.rejected_views}
    assert reasons <= REASONS.keys(), reasons
    assert bool(outcome.reason) == (not outcome.views)
    "".join((outcome.detail, *(detail for _, _, detail in outcome.rejected_views))).encode()
    for view in outcome.views:
        frames = msgpack.unpackb((out / f"{view.key}.mp").read_bytes())
        assert len(frames) == view.num_frames == len(view.frame_indices) // 4
        assert {decode_image(frame).shape for frame in frames[:2]} == {(view.height, view.width, 3)}
        assert set(view.warnings) <= WARNINGS.keys(), view.warnings
    assert sorted(file.name for file in out.iterdir()) == sorted(f"{view.key}.mp" for view in outcome.views)
    assert sorted(folder.iterdir()) == [path, out]
    if outcome.info is not None:
        _check_info(outcome.info)
    return [outcome.reason or "rendered", *(f"view {reason}" for reason in reasons if not outcome.reason)]


def _check_info(info: ClipInfo) -> None:
    """The clips table can hold it."""
    schema = TABLES["clips"]
    columns = {name: value for name, value in asdict(info).items() if name in schema.names}
    row = pa.Table.from_pylist([columns], pa.schema([schema.field(name) for name in columns]))
    row.validate(full=True)
    assert 0 < info.fps < math.inf and 0 < info.duration_seconds < math.inf, info
    assert min(info.num_frames, info.height, info.width) > 0, info
    assert set(info.warnings) <= WARNINGS.keys(), info


_VIEWS = (
    View("whole", "a/clip.mp4", None, None, None),
    View("start", "a/clip.mp4", 0.0, 1.0, 4),
    View("middle", "a/clip.mp4", 0.52, 1.9, 6),
    View("moment", "a/clip.mp4", 0.96, 1.0, 2),
    View("beyond", "a/clip.mp4", 2.0, 2.6, 2),
)

KINDS = {
    "tar": Kind(mutate_tar, check_tar, chunk=100),
    "jsonl": Kind(mutate_jsonl, check_jsonl, chunk=100),
    "media": Kind(mutate_media, check_media, chunk=1, may_die=True),
}


# -- seeds


def write_seeds(folder: Path, demo: Path, more: Iterable[Path] = (CASES,)) -> None:
    """Write the seed files as FOLDER/<kind>/<name>: small ones made here, the demo's, and those below `more`."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
    for number, content in enumerate(_tars(demo)):
        (folder / f"tar/made-{number}.tar").write_bytes(content)
    for path in sorted(demo.glob("*/*.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)
        (folder / f"jsonl/{path.parent.name}-{path.name}").write_bytes(b"".join(lines[:6]))
    (folder / "jsonl/items.jsonl").write_bytes(b"".join(_demo_members(demo / "test/grasp_bench.tar", "json/", 4)))
    clips = media.ClipFolder(folder / "media", 96, 128)
    for name in (*media.ENCODED, *media.DERIVED):
        clips(name)
    smallest = min(_demo_members(demo / "train/videos/avsbench_part000.tar", "", 9), key=len)
    (folder / "media/demo.mp4").write_bytes(smallest)
    for root in more:
        for path in sorted(root.rglob("*")):
            kind = {".tar": "tar", ".jsonl": "jsonl"}.get(path.suffix, "media" if path.suffix in _CLIPS else "")
            if kind and path.stat().st_size <= MOST_SEED_BYTES:
                shutil.copyfile(path, folder / kind / "-".join(path.relative_to(root).parts))


_CLIPS = {".mp4", ".webm", ".mkv", ".mov", ".avi", ".ts", ".flv"}


def _demo_members(path: Path, folder: str, most: int) -> list[bytes]:
    with tarfile.open(path) as tar:
        names = [name for name in tar.getnames() if name.startswith(folder)]
        return [tar.extractfile(name).read() for name in names[:most]]  # type: ignore[union-attr]


def _tars(demo: Path) -> Iterator[bytes]:
    """Small archives with all that the reader knows of."""
    with tarfile.open(demo / "train/videos/avsbench_part000.tar") as tar:
        names = tar.getnames()[:3]
    files = {name: name.encode() * 20 for name in names}
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        long = {} if form == tarfile.USTAR_FORMAT else {"avsbench/video/" + "x" * 190 + "_手.mp4": b"long"}
        yield tar_of({**files, **long}, format=form)
    linked = (
        member("a/b.mp4", b"bytes")
        + header(b"hard", 0, b"1", link=b"a/b.mp4")
        + header(b"soft", 0, b"2", link=b"a/b.mp4")
    )
    yield linked + member("folder/", kind=b"5") + member("._a", b"x") + END_MARK
    yield pax(b"g", size=b"5") + header(b"a") + b"bytes".ljust(512, b"\0") + pax(path=b"b/c") + member("x", b"y")
    yield member("one", b"1") + END_MARK + member("two", b"2") + member("one", b"other") + END_MARK


# -- the command


def main() -> int:
    """Command line; exit 0 when no promise was broken, 1 when one was."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all when none is named")
    parser.add_argument("--mutations", type=int, default=20_000, metavar="N", help="of each kind")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="N", help="most time for each kind")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first mutation")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--seeds", type=Path, action="append", default=[CASES], metavar="FOLDER")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where inputs that fail are put")
    options = parser.parse_args()
    if unknown := set(options.kinds) - KINDS.keys():
        parser.error(f"KIND ({unknown.pop()!r}) must be one of {', '.join(KINDS)}")
    keep = options.keep or Path(tempfile.mkdtemp(prefix="clipshards-fuzz-"))
    keep.mkdir(parents=True, exist_ok=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="clipshards-seeds-") as folder:
        build_demo(Path(folder, "demo"), workers=options.workers)
        write_seeds(Path(folder, "seeds"), Path(folder, "demo"), options.seeds)
        for kind in options.kinds or KINDS:
            figures = fuzz(
                kind,
                Path(folder, "seeds"),
                mutations=options.mutations,
                seconds=options.seconds,
                seed=options.seed,
                first=options.first,
                workers=options.workers,
            )
            print(figures, flush=True)
            for failure in figures.failures:
                path = keep / f"{kind}-{options.seed}-{failure.number}"
                path.write_bytes(failure.content)
                print(f"scripts/fuzz {kind} --seed {options.seed} --first {failure.number} --mutations 1: {path}")
                print(failure.text, flush=True)
            failed |= bool(figures.failures)
    return int(failed)
