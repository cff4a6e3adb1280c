"""The main job: a source → a published snapshot.

    list ─┬─ fetch and read the rows ─┐
          └─ fetch part ─ index ──────┴─ shards of the part ─┐
             (each part on its own)                          ├─ join ─ publish
          when all parts are known: what is left of them ────┘

Shards of a part start as soon as it is indexed. Which part holds a clip is settled when all are: then the
shards that this changes are made again; the others are taken over as they are.

Nothing is done twice, which makes a run that was killed go on, and a refresh cheap: a part whose bytes were
indexed before is fetched only if something must be decoded out of it, a finished shard is taken over, and
frames that the last snapshot holds are copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote

from clipshards.annotations import Questions
from clipshards.decode.choice import choose_decoder
from clipshards.decode.pool import WorkerPool
from clipshards.disk import DiskBudget, DiskMeter
from clipshards.errors import (
    IncompleteError,
    NoSpaceError,
    Rejected,
    SourceError,
    TooManyRejectsError,
    UsageError,
)
from clipshards.estimate import part_working_bytes
from clipshards.hub.fetch import bytes_here, remove_download
from clipshards.hub.listing import HubFile, Listing
from clipshards.hub.source import HubSource
from clipshards.plan import (
    Assignment,
    ShardPlan,
    SplitPlan,
    assign_clips,
    expected_frames,
    make_view,
    plan_shards,
    plan_split,
    planned_bytes,
    require_different_names,
    shard_bytes,
)
from clipshards.receipts import PartReceipt, read_receipt
from clipshards.recipe import Split
from clipshards.rendering import ClipOutcome
from clipshards.report import PAGE
from clipshards.schema import Reject
from clipshards.shards import Encoding, PartOnDisk, ShardInfo, find_shard, has_rejects, made_with
from clipshards.tars import TarIndex, TarMember
from clipshards.unpack import bytes_set_apart, is_packed_name, remove_unpacked
from flows.artifacts import reporter_of_run
from flows.console import PartProgress, Reporter, size
from flows.settings import Settings, make_settings
from manifests.gc import sweep
from manifests.kept import kept_frames, known_parts
from manifests.lock import hold_output
from manifests.rows import RowsOfViews
from manifests.snapshot import Provenance, RunRecord
from manifests.tables import Manifest, PartRecord, SplitResult
from tasks.parts import Unpacking, fetch_file, index_part, list_files
from tasks.rows import read_items, read_rows
from tasks.shards import shard_writer
from tasks.snapshots import join_rows, publish_snapshot

TASK_THREADS = 6
"""Downloads, indexes and shards at work at once; decoding is bounded by the pool."""


@flow(
    name="prepare",
    flow_run_name="prepare {source} in {out}",
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
    decoder: str = "auto",
    workers: int | None = None,
    extract: bool = False,
    all_clips: bool = False,
    disk_budget: int | None = None,
    retry_quarantined: bool = False,
    max_rejected: float = 0.01,
    transport: str = "http",
    endpoint: str | None = None,
    commit: str | None = None,
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
        decoder: auto, cpu, cuda or ffmpeg; auto: cuda where a probe decode succeeds, else cpu.
        workers: decoder processes; None: one for each core.
        extract: also write the clips as plain files to OUT/videos.
        all_clips: also store clips that no row names.
        disk_budget: bytes that downloads and unfinished shards may take at once; None: no bound.
        retry_quarantined: decode again what could not be decoded in an earlier run.
        max_rejected: share of clips or rows that may be rejected.
        transport: "http": our own download; "xet": huggingface_hub's.
        endpoint: URL of the Hub; None: as huggingface_hub is configured.
        commit: of the Hub; None: what the revision of the source names now.

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
        decoder=decoder,
        workers=workers,
        extract=extract,
        all_clips=all_clips,
        disk_budget=disk_budget,
        retry_quarantined=retry_quarantined,
        max_rejected=max_rejected,
        transport=transport,
        endpoint=endpoint,
        commit=commit,
    )
    with hold_output(settings.out):
        sweep(settings.out / "work")
        reporter = reporter_of_run()
        totals = _Preparation(settings, reporter).run()
    reporter.published(totals, settings.source)
    return totals


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
    row_files: list[tuple[HubFile, str]] = field(default_factory=list)
    """Files of rows, each with the hash of its bytes."""
    on_disk: dict[str, Path] = field(default_factory=dict)
    """Where the bytes of a part are; a part that is known by its receipt is fetched only when they are wanted."""
    hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of each part that is indexed."""
    indexes: dict[str, TarIndex] = field(default_factory=dict)
    texts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    shards: dict[str, list[tuple[ShardPlan, PrefectFuture[ShardInfo]]]] = field(default_factory=dict)

    def members(self) -> dict[str, tuple[TarMember, ...]]:
        return {part: index.members for part, index in self.indexes.items()}


_Step = Callable[[Any, _SplitState, HubFile], "_Next"]
"""What follows when a future of a part is done."""
_Next = tuple[list[Any], tuple[_Step, _SplitState, HubFile] | None]
"""Futures to wait for next, and the step that follows each of them."""


class _Preparation:
    """One run. Prefect runs the tasks; this says which and in what order."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._decoder = choose_decoder(settings.decoder)
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._work = settings.out / "work"
        self._library_staging = self._work / "library"
        self._rejects: list[Reject] = []
        self._failed_parts: list[str] = []
        profiles = {name: asdict(settings.profile_of(split)) for name, split in settings.recipe.splits.items()}
        retry = settings.retry_quarantined
        self._budget = DiskBudget(settings.disk_budget)
        self._num_open_shards: dict[str, int] = {}
        self._progress: dict[tuple[str, str], PartProgress] = {}
        """By stage and path."""
        self._num_planned: Counter[str] = Counter()
        """Frames of the shards that are planned, by split."""
        self._kept = kept_frames(
            settings.out, made_with(settings.quality, self._decoder.decoder), profiles, retry_rejected=retry
        )

    def run(self) -> dict[str, Any]:
        with ExitStack() as stack:
            self._meter = stack.enter_context(DiskMeter(self._work))
            self._pool = stack.enter_context(WorkerPool(self._settings.workers))
            stack.callback(self._reporter.finish)
            try:
                return self._run()
            except BaseException:
                self._stop.set()
                self._pool.stop()
                raise

    def _run(self) -> dict[str, Any]:
        self._reporter.say(f"decoder: {self._decoder.decoder} ({self._decoder.why})")
        self._listing = listing = list_files(quote(self._settings.source), self._settings.commit)
        self._foresee_bytes()
        states = [self._open_split(name, listing) for name in self._settings.recipe.splits]
        if not any(state.files for state in states):
            raise SourceError(
                f"{self._settings.source.name} holds no part that recipe {self._settings.recipe.name!r} and "
                f"--parts {self._settings.parts!r} name: check both"
            )
        self._require_disk(states)
        for state in states:
            self._foresee_frames(state)
        for group in self._groups(states):
            self._make_parts(group)
            for state in group:
                self._settle(state)
                self._reporter.foresee("decode", "frames", 0, of=state.name)
                self._forget_settled(state)
        manifest = self._join(states)
        manifest.warnings += [("part-removed-upstream", path) for path in self._removed_parts(states)]
        return self._publish(listing, states, manifest)

    # -- rows

    def _open_split(self, name: str, listing: Listing) -> _SplitState:
        split = self._settings.recipe.splits[name]
        questions = listing.find(split.questions)
        examples = [(stage, f) for stage, found in split.examples.items() for f in listing.find(found)]
        files = [*questions, *(file for _, file in examples)]
        fetched = self._fetch(listing, files, are_parts=False)
        done = {file.path: _rows_on_disk(fetched[file.path], file) for file in files}
        result_questions, result_examples, links = read_rows(
            name,
            quote(self._settings.recipe),
            [(file.path, done[file.path][0]) for file in questions],
            [(stage, file.path, done[file.path][0]) for stage, file in examples],
        )
        profile = self._settings.profile_of(split)
        source = "bench" if split.item_folder else None
        plan = plan_split(name, profile, result_examples, result_questions.clips(), source=source)
        parts = self._parts_of(split)
        require_different_names(file.path for file in parts)
        result = SplitResult(
            plan, result_questions, Questions(), result_examples, links, Assignment(),
            item_folder=split.item_folder, is_selection=bool(self._settings.selection()),
        )  # fmt: skip
        size_bytes = shard_bytes(planned_bytes(plan.views, profile))
        row_files = [(file, done[file.path][1]) for file in files]
        return _SplitState(name, split, plan, result, _rows_of(result), size_bytes, parts, row_files)

    # -- the disk

    def _groups(self, states: list[_SplitState]) -> list[list[_SplitState]]:
        """Splits that are worked on together; with a budget one by one, those whose parts must stay first."""
        if self._budget.total_bytes is None:
            return [states]
        return [[state] for state in sorted(states, key=lambda state: not state.split.item_folder)]

    def _require_disk(self, states: list[_SplitState]) -> None:
        """Say before anything is fetched that it cannot fit."""
        total = self._budget.total_bytes
        wanted = [(state, file) for state in states for file in state.files]
        if total is not None:
            for state in states:
                needs = [(self._part_bytes(state, file), file.path) for file in state.files]
                least, name = max(needs, default=(0, ""))
                if state.split.item_folder and needs:
                    least, name = sum(num_bytes for num_bytes, _ in needs), f"all parts of {state.name} together"
                if least > total:
                    raise UsageError(
                        f"--disk-budget ({size(total)}) must be at least {size(least)}: so much takes {name}"
                    )
        if isinstance(self._settings.source, HubSource):
            downloads = self._work / "downloads"
            new = [file for _, file in wanted if not (downloads / file.path).exists()]
            missing = sum(file.size_bytes * (2 if is_packed_name(file.path) else 1) for file in new)
            free, least = shutil.disk_usage(self._work).free, min(missing, total or missing)
            if least > free:
                raise NoSpaceError(
                    f"{self._settings.out} has {size(free)} free, the parts take {size(least)}: "
                    "make room, name another folder, or bound it with --disk-budget"
                )

    def _forget_settled(self, state: _SplitState) -> None:
        """With a budget: what is still there of a split goes when its shards are done."""
        if self._budget.total_bytes is None:
            return
        for file in state.files:
            for _, future in state.shards.get(file.path, []):
                future.wait()
            self._forget(state, file)

    # -- parts, each on its own

    def _fetch(
        self, listing: Listing, files: Iterable[HubFile], *, are_parts: bool = True
    ) -> dict[str, PrefectFuture[tuple[Path, str]]]:
        files = list(files)
        staging = self._library_staging if self._settings.transport == "xet" else None
        return {
            file.path: fetch_file.submit(
                quote(self._settings.source), listing.commit, quote(file), self._work / "downloads",
                library_staging=staging, unpacking=quote(self._unpacking(file)) if are_parts else None,
                progress=self._progress_of("fetch", file), stop=quote(self._stop),
            )
            for file in files
        }  # fmt: skip

    def _unpacking(self, file: HubFile) -> Unpacking:
        bounded = self._budget.total_bytes is not None
        limit_bytes = bytes_set_apart(file.path, file.size_bytes) if bounded else None
        return Unpacking(self._work / "unpacked", limit_bytes)

    def _make_parts(self, states: list[_SplitState]) -> None:
        """Fetch, index and shard each part as soon as it can be, no more at once than the disk may hold."""
        waiting = deque((state, file) for state in states for file in state.files if self._wants_bytes(state, file))
        for file in {file for state in states for file in state.files} - {file for _, file in waiting}:
            self._reporter.foresee("fetch", "bytes", 0, of=file.path)
        pending: dict[Any, tuple[_Step, _SplitState, HubFile]] = {}
        while waiting or pending:
            while waiting and self._budget.take(waiting[0][1].path, self._part_bytes(*waiting[0])):
                state, file = waiting.popleft()
                pending[self._fetch(self._listing, [file])[file.path]] = self._fetched, state, file
            future = next(as_completed(list(pending)))
            step, state, file = pending.pop(future)
            futures, following = step(future, state, file)
            pending |= {following_future: following for following_future in futures if following}

    def _fetched(self, future: Any, state: _SplitState, file: HubFile) -> _Next:
        if (done := self._result_of_part(future, file)) is None:
            for known in (state.indexes, state.hashes, state.texts):
                known.pop(file.path, None)  # its receipt was there, its bytes are not to be had
            return self._forget(state, file)
        path, sha256 = done
        state.on_disk[file.path] = path
        if file.path in state.indexes:
            self._start_shards(state, file.path, self._own_members(state, file.path))
        elif receipt := self._known_part(sha256):
            self._take_index(state, file.path, sha256, receipt)
        else:
            indexed = self._index(file, done)
            return [indexed], (self._indexed, state, file)
        return self._follow_shards(state, file)

    def _indexed(self, future: Any, state: _SplitState, file: HubFile) -> _Next:
        receipt = self._result_of_part(future, file)
        if receipt is None:
            return self._forget(state, file)
        self._take_index(state, file.path, receipt.sha256, receipt)
        return self._follow_shards(state, file)

    def _follow_shards(self, state: _SplitState, file: HubFile) -> _Next:
        """With a budget, the part goes when its shards are done; without, nobody waits for them here."""
        if self._budget.total_bytes is None or state.split.item_folder:
            return [], None
        futures = [future for _, future in state.shards[file.path]]
        self._num_open_shards[file.path] = len(futures)
        return (futures, (self._shard_done, state, file)) if futures else self._forget(state, file)

    def _shard_done(self, future: Any, state: _SplitState, file: HubFile) -> _Next:
        self._num_open_shards[file.path] -= 1
        return ([], None) if self._num_open_shards[file.path] else self._forget(state, file)

    def _forget(self, state: _SplitState, file: HubFile) -> _Next:
        """With a budget: remove what was downloaded and unpacked of a part; its index and hash stay."""
        if self._budget.total_bytes is not None:
            if isinstance(self._settings.source, HubSource):
                state.on_disk.pop(file.path, None)
                remove_download(self._work / "downloads" / file.path)
            if is_packed_name(file.path):
                state.on_disk.pop(file.path, None)
                remove_unpacked(self._work / "unpacked" / file.path)
        self._budget.give_back(file.path)
        return [], None

    def _part_bytes(self, state: _SplitState, file: HubFile) -> int:
        """What a part takes of the disk while it is worked on."""
        is_fetched = isinstance(self._settings.source, HubSource)
        unpacked = bytes_set_apart(file.path, file.size_bytes)
        return part_working_bytes(
            file.size_bytes, self._settings.quality, is_fetched=is_fetched, unpacked_bytes=unpacked
        )

    def _wants_bytes(self, state: _SplitState, file: HubFile) -> bool:
        """Whether a part must be fetched: not when it was indexed before and nothing is to be decoded out of it."""
        receipt = self._known_part(file.sha256)
        if receipt is None or file.sha256 is None:
            return True
        self._take_index(state, file.path, file.sha256, receipt)
        return not state.split.item_folder and file.path not in state.shards

    def _known_part(self, sha256: str | None) -> PartReceipt | None:
        return None if self._settings.extract else read_receipt(self._work / "parts", sha256)

    def _index(self, file: HubFile, done: tuple[Path, str]) -> PrefectFuture[PartReceipt]:
        extract_to = self._settings.out / "videos" if self._settings.extract else None
        on_disk = replace(file, size_bytes=done[0].stat().st_size)  # more than in the source when it was unpacked
        return index_part.submit(
            file.path, done, self._work / "parts",
            extract_to=extract_to, progress=self._progress_of("index", on_disk), stop=quote(self._stop),
        )  # fmt: skip

    def _take_index(self, state: _SplitState, part: str, sha256: str, receipt: PartReceipt) -> None:
        """A part is known: start what can be made of it alone, unless bytes are wanted that are not here."""
        state.hashes[part], state.indexes[part], state.texts[part] = sha256, receipt.index, receipt.texts
        self._rejects += [replace(reject, path=part) for reject in receipt.index.rejects]
        self._add_clips_of(state, part, receipt.index)
        members = self._own_members(state, part)
        self._reporter.foresee("index", "bytes", 0, of=part)
        if self._settings.selection():
            self._foresee_frames(state)
        if not state.split.item_folder and (part in state.on_disk or not self._must_decode(state, part, members)):
            self._start_shards(state, part, members)

    def _result_of_part(self, future: PrefectFuture[Any], file: HubFile) -> Any:
        """The result, or None when this part cannot be used; other errors end the run."""
        result = future.result(raise_on_failure=False)
        if isinstance(result, Rejected):
            self._failed_parts.append(f"{file.path}: {result}")
            self._rejects.append(Reject("part", file.path, result.reason, result.detail))
            self._reporter.say(f"part {file.path} cannot be used: {result}")
            self._give_up(file)
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

    def _own_members(self, state: _SplitState, part: str) -> dict[str, TarMember]:
        members = state.indexes[part].members
        named = {member.name: member for member in members if member.name in state.plan.views}
        return dict(sorted(named.items())[: self._settings.limit])

    # -- shards

    def _must_decode(self, state: _SplitState, part: str, members: dict[str, TarMember]) -> bool:
        """Whether shards of the part need frames that neither a finished shard nor the last snapshot holds."""
        plans = plan_shards(state.plan, part, members, state.shard_bytes)
        return any(not self._is_at_hand(state, plan, members) for plan in plans)

    def _is_at_hand(self, state: _SplitState, plan: ShardPlan, members: dict[str, TarMember]) -> bool:
        if all(self._kept.knows(clip, members[clip].sha256, views) for clip, views in plan.views.items()):
            return True
        rows = state.rows.of(plan.all_views())
        part = self._part_of(state, plan, members)
        known = find_shard(plan, part, self._encoding(state), rows, self._work / "shards")
        return known is not None and not (self._settings.retry_quarantined and has_rejects(known))

    def _part_of(self, state: _SplitState, plan: ShardPlan, members: dict[str, TarMember]) -> PartOnDisk:
        path = state.on_disk.get(plan.part, self._work / "downloads" / plan.part)
        mine = {clip: members[clip] for clip in plan.views}
        return PartOnDisk(plan.part, path, state.hashes[plan.part], mine)

    def _encoding(self, state: _SplitState) -> Encoding:
        return Encoding(state.plan.profile, self._settings.quality, self._decoder.decoder)

    def _start_shards(self, state: _SplitState, part: str, members: dict[str, TarMember]) -> None:
        """Start the shards of a part, but for those that are as planned already."""
        started = {plan.name: (plan, future) for plan, future in state.shards.get(part, [])}
        state.shards[part] = []
        for plan in plan_shards(state.plan, part, members, state.shard_bytes):
            earlier, future = started.get(plan.name, (None, None))
            if earlier != plan:
                if future is not None:
                    future.wait()  # it writes the same file
                future = self._start_shard(state, plan, members)
            state.shards[part].append((plan, future))

    def _start_shard(
        self, state: _SplitState, plan: ShardPlan, members: dict[str, TarMember]
    ) -> PrefectFuture[ShardInfo]:
        frames = {clip: expected_frames(views, state.plan.profile) for clip, views in plan.views.items()}
        self._reporter.expect("decode", "frames", sum(frames.values()), of=state.name)
        self._num_planned[state.name] += sum(frames.values())
        return shard_writer(self._decoder.decoder).submit(
            quote(plan), quote(self._part_of(state, plan, members)), quote(self._encoding(state)),
            quote(state.rows), quote(self._kept), pool=quote(self._pool), folder=self._work / "shards",
            retry_rejected=self._settings.retry_quarantined, progress=partial(self._clip_done, frames),
            stop=quote(self._stop),
        )  # fmt: skip

    def _settle(self, state: _SplitState) -> None:
        """All parts are known: read the items, settle which part holds each clip, finish the shards."""
        if state.split.item_folder:
            state.result.items = read_items(quote(self._settings.recipe), quote(state.split), quote(state.texts))
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
            if part not in state.on_disk and self._must_decode(state, part, mine):
                state.on_disk[part] = self._fetch_after_all(state, part)
            self._start_shards(state, part, mine)
        state.result.assignment = assignment

    def _fetch_after_all(self, state: _SplitState, part: str) -> Path:
        """A part that was known by its receipt, and whose bytes are wanted now that all parts are known."""
        file = next(file for file in state.files if file.path == part)
        result = self._fetch(self._listing, [file])[part].result(raise_on_failure=False)
        if isinstance(result, Rejected):
            raise IncompleteError(f"part {part} cannot be used: {result}; nothing new is published")
        path: Path = _require(result)[0]
        return path

    def _join(self, states: list[_SplitState]) -> Manifest:
        for state in states:
            futures = [future for _, started in sorted(state.shards.items()) for _, future in started]
            state.result.shards = [_require(f.result(raise_on_failure=False)) for f in futures]
            state.result.parts = [
                PartRecord(
                    file.path, state.name, file.size_bytes, state.hashes[file.path], index.members,
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
            made_with=made_with(self._settings.quality, self._decoder.decoder),
            decoder=self._decoder.decoder,
            selection=self._settings.selection(),
            options=self._settings.options(),
            inputs=_inputs(states),
        )
        snapshot = publish_snapshot(
            self._settings.out, quote(manifest), quote([s.result for s in states]), self._work / "shards",
            quote(provenance), quote(self._record(manifest)), self._reporter.say,
        )  # fmt: skip
        if manifest.fallbacks:
            count = sum(manifest.fallbacks.values())
            self._reporter.say(f"{count:,} clips went to the CPU: {_words(manifest.fallbacks)}")
        if self._failed_parts:
            raise IncompleteError(
                f"{len(self._failed_parts)} part(s) failed, the rest is published: {self._failed_parts[0]}"
            )
        return summary(snapshot, manifest, self._reporter, self._meter.peak_bytes)

    def _record(self, manifest: Manifest) -> RunRecord:
        """The numbers of this run for the page: bytes of decoded clips are those of their frames in the shards."""
        return RunRecord(
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._started, 2),
            cores=os.cpu_count() or 1,
            workers=self._settings.workers,
            stages={
                name: {
                    "done": stage.done,
                    "unit": stage.unit,
                    "bytes": stage.done if stage.unit == "bytes" else manifest.counts["shard_bytes"],
                    "seconds": round(stage.seconds(), 2),
                }
                for name, stage in self._reporter.stages.items()
            },
            decoded_clips=self._reporter.num_decoded,
            clips_gone_to_cpu=dict(sorted(manifest.fallbacks.items())),
            peak_disk_bytes=self._meter.peak_bytes,
        )

    def _removed_parts(self, states: list[_SplitState]) -> list[str]:
        """Parts of the last snapshot that the source no longer has, unless their bytes go by another name."""
        if self._settings.selection():
            return []
        hashes = {sha256 for state in states for sha256 in state.hashes.values()}
        present = {file.path for file in self._listing.files}
        before = known_parts(self._settings.out)
        return sorted(path for path, sha256 in before.items() if path not in present and sha256 not in hashes)

    # -- progress

    def _progress_of(self, stage: str, file: HubFile) -> PartProgress:
        """What is told of the bytes of a file; those that were fetched already are no work."""
        here = self._bytes_here(file) if stage == "fetch" else 0
        progress = PartProgress(self._reporter, stage, file.path, file.size_bytes, here)
        self._progress[stage, file.path] = progress
        return progress

    def _give_up(self, file: HubFile) -> None:
        """No more is to be done for a part that cannot be used."""
        for stage in ("fetch", "index"):
            self._reporter.foresee(stage, "bytes", 0, of=file.path)
            if progress := self._progress.get((stage, file.path)):
                progress.give_up()

    def _bytes_here(self, file: HubFile) -> int:
        if not isinstance(self._settings.source, HubSource):
            return 0
        return bytes_here(self._work / "downloads" / file.path, self._listing.commit, file)

    def _foresee_bytes(self) -> None:
        """All parts will be fetched and indexed, as far as the listing tells."""
        for split in self._settings.recipe.splits.values():
            for file in self._parts_of(split):
                self._reporter.foresee("fetch", "bytes", file.size_bytes - self._bytes_here(file), of=file.path)
                self._reporter.foresee("index", "bytes", file.size_bytes, of=file.path)

    def _parts_of(self, split: Split) -> list[HubFile]:
        return [file for file in self._listing.find(split.parts) if self._settings.wants(file.path)]

    def _foresee_frames(self, state: _SplitState) -> None:
        """Frames of shards that are not planned yet: the rows name all, unless only some clips are asked for; then
        the parts that are known tell of the others."""
        if not self._settings.selection():
            views = [view for of_clip in state.plan.views.values() for view in of_clip]
            rest = expected_frames(views, state.plan.profile)
        else:
            known = [file for file in state.files if file.path in state.indexes]
            members = [name for file in known for name in self._own_members(state, file.path)]
            frames = expected_frames((v for name in members for v in state.plan.views[name]), state.plan.profile)
            share = sum(file.size_bytes for file in known) / (sum(file.size_bytes for file in state.files) or 1)
            rest = round(frames / share) if share else 0
        self._reporter.foresee("decode", "frames", rest - self._num_planned[state.name], of=state.name)

    def _clip_done(self, expected: dict[str, int], outcome: ClipOutcome, decoded: bool) -> None:
        self._reporter.clip(
            outcome.clip,
            frames=sum(view.num_frames for view in outcome.views),
            expected_frames=expected[outcome.clip],
            rejected=bool(outcome.reason),
            decoded=decoded,
        )


def _rows_of(result: SplitResult) -> RowsOfViews:
    return RowsOfViews(result.plan, result.examples, result.questions, result.items, result.question_of_example)


def summary(snapshot: Path, manifest: Manifest, reporter: Reporter, peak_disk_bytes: int) -> dict[str, Any]:
    """Totals of a run: counts, rejects and clips that went to the CPU by reason, seconds by stage, the output."""
    return {
        "snapshot": str(snapshot),
        **({"page": str(page)} if (page := snapshot / PAGE).is_file() else {}),
        **manifest.counts,
        "rejects": dict(sorted(manifest.reasons.items())),
        "warnings": [f"{word}: {what}" for word, what in manifest.warnings],
        "decoded_clips": reporter.num_decoded,
        "peak_disk_bytes": peak_disk_bytes,
        "clips_gone_to_cpu": dict(sorted(manifest.fallbacks.items())),
        "seconds": {name: round(stage.seconds(), 2) for name, stage in reporter.stages.items()},
    }


def _rows_on_disk(future: PrefectFuture[tuple[Path, str]], file: HubFile) -> tuple[Path, str]:
    """A file of rows and its hash: without it no row of the split is known, so the run ends."""
    result = future.result(raise_on_failure=False)
    if isinstance(result, Rejected):
        raise SourceError(f"{file.path} cannot be had: {result}; nothing is published", result.reason)
    done: tuple[Path, str] = _require(result)
    return done


def _inputs(states: list[_SplitState]) -> dict[str, dict[str, Any]]:
    """The files of the source that were used, as `dataset.json` names them."""
    parts = [
        (file, state.hashes[file.path]) for state in states for file in state.files if file.path in state.hashes
    ]
    rows = [pair for state in states for pair in state.row_files]
    return {
        file.path: {"size_bytes": file.size_bytes, "hash": file.sha256 or file.git_sha1 or sha256}
        for file, sha256 in sorted([*parts, *rows], key=lambda pair: pair[0].path)
    }


def _require(result: Any) -> Any:
    """A task's result; its error, when it has one, is raised here."""
    if isinstance(result, BaseException):
        raise result
    return result


def _commit_of_folder(states: list[_SplitState]) -> str:
    """A local folder has no commit: the hash of what was used of it stands for it."""
    hashes = sorted((path, file["hash"]) for path, file in _inputs(states).items())
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()[:40]


def _words(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1]))
