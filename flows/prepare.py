"""The main job: a source → a published snapshot.

    list ─┬─ fetch and read the rows ─┐
          └─ fetch part ─ index ──────┴─ shards of the part ─┐
             (each part on its own)                          ├─ join ─ publish
          when all parts are known: what is left of them ────┘

Shards of a part start as soon as it is indexed. Which part holds a clip is settled when all are: then the
shards that this changes are made again; the others are taken over as they are.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote

from clipshards.annotations import Questions
from clipshards.decode.pool import WorkerPool
from clipshards.errors import IncompleteError, Rejected, SourceError, TooManyRejectsError
from clipshards.hub.listing import HubFile, Listing
from clipshards.plan import (
    Assignment,
    ShardPlan,
    SplitPlan,
    assign_clips,
    make_view,
    plan_shards,
    plan_split,
    planned_bytes,
    require_different_names,
    shard_bytes,
)
from clipshards.recipe import Split
from clipshards.rendering import ClipOutcome
from clipshards.schema import Reject
from clipshards.shards import Encoding, PartOnDisk, ShardInfo
from clipshards.tars import TarIndex, TarMember
from flows.console import Reporter, current
from flows.settings import Settings, make_settings
from manifests.lock import hold_output
from manifests.rows import RowsOfViews
from manifests.snapshot import Provenance
from manifests.tables import Manifest, PartRecord, SplitResult
from tasks.parts import fetch_file, index_part, list_files
from tasks.rows import read_items, read_rows
from tasks.shards import write_shard
from tasks.snapshots import join_rows, publish_snapshot

TASK_THREADS = 6
"""Downloads, indexes and shards at work at once; decoding is bounded by the pool."""


@flow(
    name="prepare",
    flow_run_name="prepare {source}",
    task_runner=ThreadPoolTaskRunner(max_workers=TASK_THREADS),  # type: ignore[arg-type, unused-ignore]
    persist_result=False,
)
def prepare(
    source: str,
    out: str,
    recipe: str = "grasp",
    profile: str | None = None,
    parts: str = "*",
    limit: int | None = None,
    quality: int | None = 95,
    workers: int | None = None,
    extract: bool = False,
    all_clips: bool = False,
    max_rejected: float = 0.01,
    endpoint: str | None = None,
) -> dict[str, Any]:
    """Fetch, verify, decode, write shards and tables, publish.

    Args:
        source: hf://datasets/OWNER/NAME[@REVISION], or a folder of the same shape.
        out: output folder; `current` in it names the snapshot.
        recipe: name of a built-in recipe, or a TOML file.
        profile: sampling rules of the training split: a name or a TOML file; None: the recipe's.
        parts: pattern; only parts whose path or file name matches are used.
        limit: at most so many clips of each part.
        quality: JPEG quality 1–100; None: lossless PNG.
        workers: decoder processes; None: one for each core.
        extract: also write the clips as plain files to OUT/videos.
        all_clips: also store clips that no row names.
        max_rejected: share of clips or rows that may be rejected.
        endpoint: URL of the Hub; None: as huggingface_hub is configured.

    Returns:
        Totals: see `flows.prepare.summary`.
    """
    settings = make_settings(
        source,
        out,
        recipe=recipe,
        profile=profile,
        parts=parts,
        limit=limit,
        quality=quality,
        workers=workers,
        extract=extract,
        all_clips=all_clips,
        max_rejected=max_rejected,
        endpoint=endpoint,
    )
    with hold_output(settings.out):
        return _Preparation(settings, current()).run()


@dataclass
class _SplitState:
    """What is known of one split so far."""

    name: str
    split: Split
    plan: SplitPlan
    result: SplitResult
    rows: RowsOfViews
    shard_bytes: int
    files: list[HubFile]
    on_disk: dict[str, tuple[Path, str]] = field(default_factory=dict)
    indexes: dict[str, TarIndex] = field(default_factory=dict)
    shards: dict[str, list[tuple[ShardPlan, PrefectFuture[ShardInfo]]]] = field(default_factory=dict)

    def members(self) -> dict[str, tuple[TarMember, ...]]:
        return {part: index.members for part, index in self.indexes.items()}


class _Preparation:
    """One run. Prefect runs the tasks; this says which and in what order."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._stop = threading.Event()
        self._work = settings.out / "work"
        self._rejects: list[Reject] = []
        self._failed_parts: list[str] = []

    def run(self) -> dict[str, Any]:
        with ExitStack() as stack:
            self._pool = stack.enter_context(WorkerPool(self._settings.workers))
            stack.callback(self._reporter.finish)
            try:
                return self._run()
            except BaseException:
                self._stop.set()
                self._pool.stop()
                raise

    def _run(self) -> dict[str, Any]:
        listing = list_files(quote(self._settings.source))
        states = [self._open_split(name, listing) for name in self._settings.recipe.splits]
        if not any(state.files for state in states):
            raise SourceError(
                f"{self._settings.source.name} holds no part that recipe {self._settings.recipe.name!r} and "
                f"--parts {self._settings.parts!r} name: check both"
            )
        self._make_parts(listing, states)
        for state in states:
            self._settle(state)
        manifest = self._join(states)
        return self._publish(listing, states, manifest)

    # -- rows

    def _open_split(self, name: str, listing: Listing) -> _SplitState:
        split = self._settings.recipe.splits[name]
        questions = listing.find(split.questions)
        examples = [(stage, f) for stage, found in split.examples.items() for f in listing.find(found)]
        fetched = self._fetch(listing, [*questions, *(file for _, file in examples)])
        paths = {path: future.result()[0] for path, future in fetched.items()}
        result_questions, result_examples, links = read_rows(
            name,
            quote(self._settings.recipe),
            [(file.path, paths[file.path]) for file in questions],
            [(stage, file.path, paths[file.path]) for stage, file in examples],
        )
        profile = self._settings.profile_of(split)
        source = "bench" if split.item_folder else None
        plan = plan_split(name, profile, result_examples, result_questions.clips(), source=source)
        files = [file for file in listing.find(split.parts) if self._settings.wants(file.path)]
        require_different_names(file.path for file in files)
        result = SplitResult(
            plan, result_questions, Questions(), result_examples, links, Assignment(),
            item_folder=split.item_folder, is_selection=bool(self._settings.selection()),
        )  # fmt: skip
        size_bytes = shard_bytes(planned_bytes(plan.views, profile))
        return _SplitState(name, split, plan, result, _rows_of(result), size_bytes, files)

    # -- parts, each on its own

    def _fetch(self, listing: Listing, files: Iterable[HubFile]) -> dict[str, PrefectFuture[tuple[Path, str]]]:
        files = list(files)
        self._reporter.expect("fetch", "bytes", sum(file.size_bytes for file in files))
        return {
            file.path: fetch_file.submit(
                quote(self._settings.source), listing.commit, quote(file), self._work / "downloads",
                progress=self._advance("fetch"), stop=quote(self._stop),
            )
            for file in files
        }  # fmt: skip

    def _make_parts(self, listing: Listing, states: list[_SplitState]) -> None:
        fetched: dict[Any, tuple[_SplitState, HubFile]] = {}
        indexed: dict[Any, tuple[_SplitState, HubFile]] = {}
        for state in states:
            futures = self._fetch(listing, state.files)
            fetched |= {futures[file.path]: (state, file) for file in state.files}
        for future in as_completed(list(fetched)):
            state, file = fetched[future]
            if (done := self._result_of_part(future, file)) is None:
                continue
            state.on_disk[file.path] = done
            self._reporter.expect("index", "bytes", file.size_bytes)
            extract_to = self._settings.out / "videos" if self._settings.extract else None
            indexed[
                index_part.submit(
                    file.path,
                    done,
                    extract_to=extract_to,
                    progress=self._advance("index"),
                    stop=quote(self._stop),
                )
            ] = (state, file)
        for future in as_completed(list(indexed)):
            state, file = indexed[future]
            if (index := self._result_of_part(future, file)) is not None:
                state.indexes[file.path] = index
                self._rejects += index.rejects
                self._add_clips_of(state, file.path, index)
                if not state.split.item_folder:
                    self._start_shards(state, file.path, self._own_members(state, index))

    def _result_of_part(self, future: PrefectFuture[Any], file: HubFile) -> Any:
        """The result, or None when this part cannot be used; other errors end the run."""
        result = future.result(raise_on_failure=False)
        if isinstance(result, Rejected):
            self._failed_parts.append(f"{file.path}: {result}")
            self._rejects.append(Reject("part", file.path, result.reason, result.detail))
            self._reporter.say(f"part {file.path} cannot be used: {result}")
            return None
        return _require(result)

    def _add_clips_of(self, state: _SplitState, part: str, index: TarIndex) -> None:
        """With --all-clips, a view of the whole clip for clips that no row names."""
        if not self._settings.all_clips:
            return
        for member in index.members:
            is_item = bool(state.split.item_folder) and member.name.startswith(state.split.item_folder)
            if member.name not in state.plan.views and not is_item:
                view = make_view(member.name, None, None, None, state.plan.profile)
                state.plan.views[member.name] = [view]

    def _own_members(self, state: _SplitState, index: TarIndex) -> dict[str, TarMember]:
        named = {member.name: member for member in index.members if member.name in state.plan.views}
        return dict(sorted(named.items())[: self._settings.limit])

    # -- shards

    def _start_shards(self, state: _SplitState, part: str, members: dict[str, TarMember]) -> None:
        """Start the shards of a part, but for those that are as planned already."""
        plans = plan_shards(state.plan, part, members, state.shard_bytes)
        path, sha256 = state.on_disk[part]
        on_disk = PartOnDisk(part, path, sha256, members)
        started = state.shards.get(part, [])
        state.shards[part] = [
            next((entry for entry in started if entry[0] == plan), None)
            or (plan, self._start_shard(state, plan, on_disk))
            for plan in plans
        ]

    def _start_shard(self, state: _SplitState, plan: ShardPlan, part: PartOnDisk) -> PrefectFuture[ShardInfo]:
        self._reporter.expect("decode", "clips", len(plan.views))
        mine = replace(part, members={clip: part.members[clip] for clip in plan.views})
        encoding = Encoding(state.plan.profile, self._settings.quality)
        return write_shard.submit(
            quote(plan), quote(mine), quote(encoding), quote(state.rows.of(plan.all_views())),
            pool=quote(self._pool), folder=self._work / "shards", progress=self._clip_done, stop=quote(self._stop),
        )  # fmt: skip

    def _settle(self, state: _SplitState) -> None:
        """All parts are known: read the items, settle which part holds each clip, finish the shards."""
        if state.split.item_folder:
            indexed = [(part, state.on_disk[part][0], index) for part, index in sorted(state.indexes.items())]
            state.result.items = read_items(quote(self._settings.recipe), quote(state.split), quote(indexed))
            for clip in dict.fromkeys(state.result.items.clips()):
                if clip not in state.plan.views:
                    view = make_view(clip, None, None, None, state.plan.profile, "bench")
                    state.plan.views[clip] = [view]
            state.rows = _rows_of(state.result)
        assignment = assign_clips(state.plan.views, state.members())
        for part in sorted(state.indexes):
            mine = dict(sorted(assignment.of_part(part).items())[: self._settings.limit])
            for clip in assignment.of_part(part).keys() - mine.keys():
                del assignment.places[clip]
                assignment.rejects[clip] = Reject("clip", part, "clip-missing", "not asked for", clip=clip)
            self._start_shards(state, part, mine)
        state.result.assignment = assignment

    def _join(self, states: list[_SplitState]) -> Manifest:
        for state in states:
            futures = [future for _, started in sorted(state.shards.items()) for _, future in started]
            state.result.shards = [_require(f.result(raise_on_failure=False)) for f in futures]
            state.result.parts = [
                PartRecord(
                    file.path, state.name, file.size_bytes, state.on_disk[file.path][1], index.members,
                    tuple(dict.fromkeys(word for word, _ in index.warnings)), len(index.sidecars),
                )
                for file in state.files
                if (index := state.indexes.get(file.path))
            ]  # fmt: skip
        return join_rows(quote([state.result for state in states]), quote(self._rejects))

    def _publish(self, listing: Listing, states: list[_SplitState], manifest: Manifest) -> dict[str, Any]:
        share = manifest.rejected_share()
        if share > self._settings.max_rejected:
            raise TooManyRejectsError(
                f"{share:.1%} of the clips or rows are rejected, --max-rejected is "
                f"{self._settings.max_rejected:.1%}; nothing is published. By reason: {_words(manifest.reasons)}"
            )
        recipe = self._settings.recipe
        provenance = Provenance(
            source=self._settings.source.name,
            commit=listing.commit or _commit_of_folder(states),
            recipe=recipe.name,
            licence=recipe.licence,
            profiles={state.name: asdict(state.plan.profile) for state in states},
            quality=self._settings.quality,
            selection=self._settings.selection(),
        )
        snapshot = publish_snapshot(
            self._settings.out, quote(manifest), quote([s.result for s in states]), self._work / "shards",
            quote(provenance),
        )  # fmt: skip
        if self._failed_parts:
            raise IncompleteError(
                f"{len(self._failed_parts)} part(s) failed, the rest is published: {self._failed_parts[0]}"
            )
        return summary(snapshot, manifest, self._reporter)

    # -- progress

    def _advance(self, stage: str) -> Callable[[int], None]:
        return lambda amount: self._reporter.advance(stage, amount)

    def _clip_done(self, outcome: ClipOutcome) -> None:
        self._reporter.advance("decode", 1, rejects=int(bool(outcome.reason)))


def _rows_of(result: SplitResult) -> RowsOfViews:
    return RowsOfViews(result.plan, result.examples, result.questions, result.items, result.question_of_example)


def summary(snapshot: Path, manifest: Manifest, reporter: Reporter) -> dict[str, Any]:
    """Totals of a run: counts, rejects by reason, seconds by stage, where the output is."""
    return {
        "snapshot": str(snapshot),
        **manifest.counts,
        "rejects": dict(sorted(manifest.reasons.items())),
        "seconds": {name: round(stage.seconds(), 2) for name, stage in reporter.stages.items()},
    }


def _require(result: Any) -> Any:
    """A task's result; its error, when it has one, is raised here."""
    if isinstance(result, BaseException):
        raise result
    return result


def _commit_of_folder(states: list[_SplitState]) -> str:
    """A local folder has no commit: the hash of its parts stands for it."""
    hashes = sorted((part, sha256) for state in states for part, (_, sha256) in state.on_disk.items())
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:40]


def _words(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1]))
