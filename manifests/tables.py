"""Rows joined with what became of their clips → the tables of a snapshot. Pure.

Each row, example, item, clip and view is either in its table or in `quarantine` with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clipshards.annotations import Questions
from clipshards.errors import Rejected
from clipshards.examples import Examples, Shown
from clipshards.plan import Assignment, SplitPlan, View
from clipshards.rendering import ClipOutcome, RenderedView
from clipshards.schema import TABLES, Reject
from clipshards.shards import ShardInfo
from clipshards.tars import TarMember
from manifests.hints import hint_warnings
from manifests.leaks import WORD as LEAK
from manifests.leaks import find_leaks, mark_leaks


@dataclass(frozen=True, slots=True)
class PartRecord:
    """A part that was verified and indexed."""

    path: str
    split: str
    size_bytes: int
    sha256: str
    members: tuple[TarMember, ...]
    warnings: tuple[str, ...] = ()
    num_sidecars: int = 0
    """Files of macOS and Finder (`._x`), which are no clips: left out, but counted."""


@dataclass
class SplitResult:
    """All that is known of a split when its shards are done."""

    plan: SplitPlan
    questions: Questions
    items: Questions
    examples: Examples
    question_of_example: list[int]
    """Row number of the question of each example, −1 for none."""
    assignment: Assignment
    parts: list[PartRecord] = field(default_factory=list)
    shards: list[ShardInfo] = field(default_factory=list)
    item_folder: str = ""
    """Members below it are bench items, not clips."""
    is_selection: bool = False
    """Only some parts or clips were asked for: rows of the others are left out, not quarantined."""


@dataclass
class Manifest:
    """The tables by name, and how much was lost."""

    tables: dict[str, pa.Table]
    """Rows of examples and questions are in the order of the files: `rows_by_clip` gives that of the snapshot."""
    counts: dict[str, int]
    """Sizes of the tables, frames, bytes, lost clips and rows."""
    reasons: dict[str, int]
    """Quarantined things by reason."""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    """What concerns the data set as a whole: a word of `schema.WARNINGS`, and a sentence."""
    fallbacks: dict[str, int] = field(default_factory=dict)
    """Clips that the CPU decoded in place of the decoder that was asked, by kind of reason."""

    def rejected_share(self) -> float:
        """The larger of the shares of lost clips and of lost rows."""
        clips = self.counts["rejected_clips"] / max(
            1, self.counts["rejected_clips"] + self.counts["clips_with_views"]
        )
        rows = self.counts["rejected_rows"] / max(1, self.counts["input_rows"])
        return max(clips, rows)


def build_manifest(results: Sequence[SplitResult], rejects: Iterable[Reject] = ()) -> Manifest:
    """Join all splits into the tables of `schema.TABLES`.

    Args:
        results: one for each split.
        rejects: things found on the way: parts, members.
    """
    joins = [_Join(result) for result in results]
    quarantine = list(rejects)
    pieces: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for join in joins:
        pieces["parts"].append(join.parts())
        pieces["views"].append(join.views)
        pieces["shards"].append(join.shards())
        pieces["examples"].append(join.examples())
        pieces["questions"].append(join.questions())
        pieces["bench"].append(join.items())
        pieces["clips"].append(join.clips())
        quarantine += join.rejects
    pieces["quarantine"].append(_quarantine(quarantine))
    tables = {name: pa.concat_tables(tables) for name, tables in pieces.items()}
    leaks = find_leaks(tables["clips"])
    tables["clips"] = mark_leaks(tables["clips"], leaks)
    warnings = [(LEAK, " = ".join(f"{split}: {clip}" for split, clip in leak.clips)) for leak in leaks]
    for result in results:
        warnings += _different_counts(result)
    reasons = dict(Counter(reject.reason for reject in quarantine))
    return Manifest(tables, _counts(tables, results, joins), reasons, warnings, _fallbacks(results))


def _different_counts(result: SplitResult) -> list[tuple[str, str]]:
    """Annotation rows and items of a bench should be the same questions."""
    num_rows, num_items = result.questions.num_lines, result.items.num_lines
    if not result.item_folder or num_rows in (0, num_items) or result.is_selection:
        return []
    split = result.plan.split
    return [("row-count-differs", f"{split}: {num_rows:,} annotation rows, {num_items:,} items in the parts")]


def _fallbacks(results: Sequence[SplitResult]) -> dict[str, int]:
    outcomes = (outcome for result in results for info in result.shards for outcome in info.outcomes)
    return dict(Counter(outcome.fallback.split(":")[0] for outcome in outcomes if outcome.fallback))


def rows_by_clip(table: pa.Table) -> Any:
    """The numbers of the rows, those of one split together, by clip, then as they are in the table."""
    splits, clips = (table.column(name).combine_chunks().dictionary_encode() for name in ("split", "clip"))
    rank_of_clip = np.argsort(pc.array_sort_indices(clips.dictionary))
    split_and_clip = splits.indices.to_numpy() * len(rank_of_clip) + rank_of_clip[clips.indices.to_numpy()]
    return np.argsort(split_and_clip, kind="stable")


def _counts(
    tables: Mapping[str, pa.Table], results: Sequence[SplitResult], joins: Sequence[_Join]
) -> dict[str, int]:
    sizes = {name: table.num_rows for name, table in tables.items()}
    lines = sum(r.questions.num_lines + r.examples.num_lines + r.items.num_lines for r in results)
    left_out = sum(join.num_left_out for join in joins)
    kept = sizes["examples"] + sizes["questions"] + sizes["bench"]
    status = Counter(tables["clips"].column("status").to_pylist())
    missing = sum(len(join.missing_clips) for join in joins)
    unlinked = sum(number < 0 for result in results for number in result.question_of_example)
    return {
        **sizes,
        "frames": pc.sum(tables["views"].column("num_frames")).as_py() or 0,
        "shard_bytes": pc.sum(tables["shards"].column("size_bytes")).as_py() or 0,
        "clips_with_views": status["sharded"],
        "rejected_clips": status["rejected"] + missing,
        "input_rows": lines - left_out,
        "rejected_rows": lines - left_out - kept,
        "rows_left_out": left_out,
        "unlinked_examples": unlinked,
    }


class _Join:
    """One split; the tables must be asked for before `rejects` is read."""

    def __init__(self, result: SplitResult) -> None:
        self._result = result
        self._split = result.plan.split
        self._outcomes = {outcome.clip: outcome for info in result.shards for outcome in info.outcomes}
        self._view_rejects = {
            key: (reason, detail)
            for outcome in self._outcomes.values()
            for key, reason, detail in outcome.rejected_views
        }
        self.rejects: list[Reject] = []
        self.num_left_out = 0
        self.missing_clips: set[str] = set()
        self._lost: Counter[tuple[str, str]] = Counter()
        self.views = self._views()
        self._row_of_view = {key: row for row, key in enumerate(self.views.column("view").to_pylist())}
        row_of_view = self._row_of_view.get
        self._rows_of_shown = [
            () if isinstance(views, Rejected) else tuple([row_of_view(view.key, -1) for view in views])
            for views in result.plan.views_of.values()
        ]
        """Rows of the views of the windows that an example shows together, −1 for a view that was not made."""
        number_of = {shown: number for number, shown in enumerate(result.plan.views_of)}
        shown = result.examples.shown
        self._number_of_shown = np.fromiter(map(number_of.__getitem__, shown), np.int64, len(shown))

    # -- what was made

    def parts(self) -> pa.Table:
        shards = Counter(info.part for info in self._result.shards if info.samples)
        clips = Counter(part for part, _ in self._result.assignment.places.values())
        rows = [
            {
                "part": part.path,
                "split": part.split,
                "size_bytes": part.size_bytes,
                "sha256": part.sha256,
                "num_members": len(part.members),
                "num_sidecars": part.num_sidecars,
                "num_clips": clips[part.path],
                "num_shards": shards[part.path],
                "warnings": list(part.warnings),
            }
            for part in self._result.parts
        ]
        return pa.Table.from_pylist(rows, TABLES["parts"])

    def shards(self) -> pa.Table:
        rows = [
            {
                "shard": info.path,
                "split": info.split,
                "part": info.part,
                "size_bytes": info.size_bytes,
                "sha256": info.sha256,
                "num_samples": len(info.samples),
                "num_frames": info.num_frames,
            }
            for info in self._result.shards
            if info.samples
        ]
        return pa.Table.from_pylist(rows, TABLES["shards"])

    def _views(self) -> pa.Table:
        shard_of = {outcome.clip: info.path for info in self._result.shards for outcome in info.outcomes}
        place_of = {place.key: place for info in self._result.shards for place in info.samples}
        views: list[RenderedView] = []
        clips: list[str] = []
        for clip, outcome in sorted(self._outcomes.items()):
            views += sorted(outcome.views, key=attrgetter("key"))
            clips += [clip] * len(outcome.views)
        keys = [view.key for view in views]
        places = [place_of[key] for key in keys]
        parts_and_members = [self._result.assignment.places[clip] for clip in clips]
        members = [member for _, member in parts_and_members]
        tokens = self._result.plan.profile.tokens
        return _table(
            {
                "view": keys,
                "clip": clips,
                "split": _constant(self._split, len(keys)),
                "start_seconds": [view.start_seconds for view in views],
                "end_seconds": [view.end_seconds for view in views],
                "num_frames": [view.num_frames for view in views],
                "frame_indices": _packed_lists([view.frame_indices for view in views]),
                "height": [view.height for view in views],
                "width": [view.width for view in views],
                "video_tokens": [tokens(view.height, view.width, view.num_frames) for view in views],
                "shard": [shard_of[clip] for clip in clips],
                "offset_bytes": [place.offset_bytes for place in places],
                "length_bytes": [place.length_bytes for place in places],
                "part": [part for part, _ in parts_and_members],
                "member_offset_bytes": [member.offset_bytes for member in members],
                "member_size_bytes": [member.size_bytes for member in members],
                "member_sha256": [member.sha256 for member in members],
                "warnings": [view.warnings for view in views],
            },
            "views",
        )

    # -- clips

    def clips(self) -> pa.Table:
        """Clips that rows name, and the other files of the parts, which are `unused`."""
        places = self._result.assignment.places
        named = [clip for clip in self._result.plan.views if clip in places]
        rows = [self._clip_row(clip, *places[clip]) for clip in named]
        used = {(part, member.name) for part, member in (places[clip] for clip in named)}
        items = self._result.item_folder
        for part in self._result.parts:
            for member in part.members:
                is_item = bool(items) and member.name.startswith(items)
                if (part.path, member.name) not in used and not is_item:
                    rows.append(self._unused_row(part.path, member))
        rows.sort(key=lambda row: (row[0], row[5]))
        return _from_rows(rows, "clips")

    def _clip_row(self, clip: str, part: str, member: TarMember) -> tuple[Any, ...]:
        outcome = self._outcomes.get(clip)
        info = outcome.info if outcome else None
        reason = outcome.reason if outcome else ""
        if reason and outcome:
            self._reject_clip(clip, part, member, outcome)
        elif outcome:
            self._reject_views(outcome, part, member)
        warnings = [*(info.warnings if info else ()), *self._case_warning(clip)]
        values = (
            (info.format_name, info.codec, info.pix_fmt, info.fps, info.num_frames, info.duration_seconds,
             info.height, info.width, info.rotation, info.decord_divergent, info.is_truncated,
             outcome.decoder or None)
            if outcome and info else (None,) * 12
        )  # fmt: skip
        status = "rejected" if reason else "sharded" if outcome else "unused"
        return (
            clip, self._split, clip.split("/", 1)[0], status, reason or None, part, member.name,
            member.offset_bytes, member.size_bytes, member.sha256, *values,
            len(outcome.views) if outcome else 0, warnings,
        )  # fmt: skip

    def _unused_row(self, part: str, member: TarMember) -> tuple[Any, ...]:
        return (
            member.name, self._split, member.name.split("/", 1)[0], "unused", None, part, member.name,
            member.offset_bytes, member.size_bytes, member.sha256, *(None,) * 12, 0, [],
        )  # fmt: skip

    def _case_warning(self, clip: str) -> list[str]:
        return ["path-case"] if clip in self._result.assignment.other_case else []

    def _reject_clip(self, clip: str, part: str, member: TarMember, outcome: ClipOutcome) -> None:
        self.rejects.append(
            Reject(
                "clip", part, outcome.reason, outcome.detail, member=member.name,
                offset_bytes=member.offset_bytes, clip=clip,
                num_rows=self._lost["row", clip], num_examples=self._lost["example", clip],
            )
        )  # fmt: skip

    def _reject_views(self, outcome: ClipOutcome, part: str, member: TarMember) -> None:
        for key, reason, detail in outcome.rejected_views:
            self.rejects.append(
                Reject(
                    "view", part, reason, detail, member=member.name, offset_bytes=member.offset_bytes,
                    clip=outcome.clip, view=key, num_examples=self._lost["view", key],
                )
            )  # fmt: skip

    # -- rows

    def examples(self) -> pa.Table:
        examples = self._result.examples
        self.rejects += examples.rejects
        is_lost = np.array([not rows or -1 in rows for rows in self._rows_of_shown], bool)[self._number_of_shown]
        for row in np.flatnonzero(is_lost).tolist():
            self._lose_example(row, examples.shown[row])
        keep = np.flatnonzero(~is_lost)
        kept = _take(examples.table, keep)
        question = self._result.questions.table.select(["id", "source", "category_canonical", "format"]).take(
            _numbers(np.array(self._result.question_of_example, np.int64)[keep])
        )
        columns = {name: kept.column(name) for name in kept.column_names}
        columns |= {
            "split": _constant(self._split, len(keep)),
            "question_id": question.column("id"),
            "source": _known_sources(question.column("source"), kept.column("clip")),
            "category": question.column("category_canonical"),
            "format": question.column("format"),
            "warnings": self._with_hints(kept),
        }
        return _table(columns | self._places_of_shown(self._number_of_shown[keep]), "examples")

    def _places_of_shown(self, numbers: Any) -> dict[str, Any]:
        """Place of the first view, frames and tokens of all, keys of the others."""
        places = self._places(self._first_rows())
        frames, tokens = (places[name].to_pylist() for name in ("num_frames", "video_tokens"))
        more_views: list[list[str]] = [[]] * len(self._rows_of_shown)
        for number, rows in enumerate(self._rows_of_shown):
            if len(rows) > 1 and -1 not in rows:
                views = self.views.take(list(rows))
                frames[number] = pc.sum(views.column("num_frames")).as_py()
                tokens[number] = pc.sum(views.column("video_tokens")).as_py()
                more_views[number] = views.column("view").to_pylist()[1:]
        places |= {
            "num_frames": pa.array(frames, pa.int32()),
            "video_tokens": pa.array(tokens, pa.int32()),
            "more_views": pa.array(more_views, TABLES["examples"].field("more_views").type),
        }
        return {name: column.take(pa.array(numbers)) for name, column in places.items()}

    def _first_rows(self) -> Any:
        return np.array([rows[0] if rows else -1 for rows in self._rows_of_shown], np.int64)

    def _why_lost(self, shown: Shown) -> Rejected:
        views = self._result.plan.views_of[shown]
        if isinstance(views, Rejected):
            return views
        return self._why(next(view for view in views if view.key not in self._row_of_view))

    def _why(self, view: View) -> Rejected:
        if missing := self._result.assignment.rejects.get(view.clip):
            return Rejected(missing.reason, f"{view.clip}: {missing.detail}")
        reason, detail = self._view_rejects.get(view.key, ("", ""))
        return Rejected(reason, f"{view.clip}: {detail}")

    def _lose_example(self, row: int, shown: Shown) -> None:
        why = self._why_lost(shown)
        if not why.reason or self._is_left_out(why):
            self.num_left_out += 1
            return
        examples = self._result.examples.table
        file, line = examples.column("file")[row].as_py(), examples.column("line")[row].as_py()
        clip = shown[0].clip
        self.rejects.append(Reject("example", file, why.reason, why.detail, line=line, clip=clip))
        if why.reason == "clip-missing":
            self.missing_clips.update(w.clip for w in shown if w.clip in self._result.assignment.rejects)
        self._lost["example", clip] += 1
        views = self._result.plan.views_of[shown]
        for view in views if isinstance(views, tuple) else ():
            self._lost["view", view.key] += 1

    def _is_left_out(self, why: Rejected) -> bool:
        return self._result.is_selection and why.reason == "clip-missing"

    def _places(self, rows: Any) -> dict[str, Any]:
        names = ("view", "shard", "offset_bytes", "length_bytes", "num_frames", "video_tokens")
        return {name: self.views.column(name).take(_numbers(rows)) for name in names}

    def _with_hints(self, kept: pa.Table) -> Any:
        """Warnings of the rows, with those about their hints added."""
        if not self._result.examples.has_hints:
            return kept.column("warnings")
        infos = {outcome.clip: outcome.info for outcome in self._outcomes.values() if outcome.info}
        row_of_clip = pc.index_in(kept.column("clip"), pa.array(list(infos), pa.string()))
        heights = pa.array([info.height for info in infos.values()], pa.int32()).take(row_of_clip)
        widths = pa.array([info.width for info in infos.values()], pa.int32()).take(row_of_clip)
        found = hint_warnings(kept, heights, widths, self._result.plan.profile.max_fps)
        if not any(flags.any() for flags in found.values()):
            return kept.column("warnings")
        warnings = kept.column("warnings").to_pylist()
        for word, flags in found.items():
            for row in np.flatnonzero(flags).tolist():
                # A size that could not be read has been named as such.
                if not (word == "resolution-missing" and "resolution-bad" in warnings[row]):
                    warnings[row] = [*warnings[row], word]
        return pa.array(warnings, TABLES["examples"].field("warnings").type)

    def questions(self) -> pa.Table:
        """Annotation rows; `view` is that of their first example, else of the whole clip, else null."""
        view_rows = self._first_rows()[self._number_of_shown]
        numbers = np.array(self._result.question_of_example, np.int64)
        shown = np.flatnonzero((numbers >= 0) & (view_rows >= 0))
        asked, first, counts = np.unique(numbers[shown], return_index=True, return_counts=True)
        num_rows = self._result.questions.table.num_rows
        view_of_question, num_examples = np.full(num_rows, -1), np.zeros(num_rows, np.int32)
        view_of_question[asked], num_examples[asked] = view_rows[shown[first]], counts
        return self._rows_with_views(
            self._result.questions, "questions", "row", view_of_question,
            lambda keep: {"num_examples": pa.array(num_examples[keep])},
        )  # fmt: skip

    def items(self) -> pa.Table:
        """Bench items, each with the annotation row that asks the same of the same clip."""
        questions, items = self._result.questions.table, self._result.items.table
        id_of: dict[tuple[str, str], str] = {}
        if items.num_rows:
            clips, asked, ids = (questions.column(name).to_pylist() for name in ("clip", "question", "id"))
            id_of = dict(zip(zip(clips, asked, strict=True), ids, strict=True))
        own = list(zip(items.column("clip").to_pylist(), items.column("question").to_pylist(), strict=True))
        return self._rows_with_views(
            self._result.items, "bench", "item", np.full(items.num_rows, -1),
            lambda keep: {"question_id": pa.array([id_of.get(own[row]) for row in keep], pa.string())},
        )  # fmt: skip

    def _rows_with_views(self, rows: Questions, table: str, kind: str, view_rows: Any, more: Any) -> pa.Table:
        self.rejects += rows.rejects
        clips = rows.table.column("clip").combine_chunks().dictionary_encode()
        names, codes = clips.dictionary.to_pylist(), clips.indices.to_numpy()
        fates = [self._fate_of_clip(clip) for clip in names]
        is_lost = np.array([isinstance(fate, Rejected) for fate in fates], bool)[codes]
        for row in np.flatnonzero(is_lost).tolist():
            self._lose_row(rows, row, kind, names[codes[row]], fates[codes[row]])
        keep = np.flatnonzero(~is_lost)
        kept = _take(rows.table, keep)
        columns = {name: kept.column(name) for name in kept.column_names}
        columns["split"] = _constant(self._split, len(keep))
        columns |= more(keep)
        whole = np.array([-1 if isinstance(fate, Rejected) else fate for fate in fates], np.int64)[codes]
        columns |= self._places(np.where(view_rows >= 0, view_rows, whole)[keep])
        return _table(columns, table)

    def _fate_of_clip(self, clip: str) -> int | Rejected:
        """Row of the view of the whole clip, −1 when only windows are stored, or why all is lost."""
        whole = self._result.plan.whole_clip(clip)
        if whole and whole.key in self._row_of_view:
            return self._row_of_view[whole.key]
        if outcome := self._outcomes.get(clip):
            if outcome.views:
                return -1
            return Rejected(outcome.reason, f"{clip}: {outcome.detail}")
        if missing := self._result.assignment.rejects.get(clip):
            return Rejected(missing.reason, f"{clip}: {missing.detail}")
        return Rejected("clip-missing", f"{clip}: not among the clips that were asked for")

    def _lose_row(self, rows: Questions, row: int, kind: str, clip: str, why: Any) -> None:
        if self._is_left_out(why):
            self.num_left_out += 1
            return
        file, line = rows.table.column("file")[row].as_py(), rows.table.column("line")[row].as_py()
        member = rows.table.column("id")[row].as_py() if kind == "item" else ""
        if why.reason == "clip-missing":
            self.missing_clips.add(clip)
        self.rejects.append(Reject(kind, file, why.reason, why.detail, line=line, clip=clip, member=member))
        self._lost["row", clip] += 1


def _quarantine(rejects: Iterable[Reject]) -> pa.Table:
    rejects = sorted(rejects, key=lambda r: (r.path, r.line, r.member, r.kind, r.clip, r.view, r.reason))
    rows = [
        {
            "kind": reject.kind,
            "reason": reject.reason,
            "detail": reject.detail,
            "path": reject.path,
            "line": reject.line or None,
            "member": reject.member or None,
            "offset_bytes": None if reject.offset_bytes < 0 else reject.offset_bytes,
            "clip": reject.clip or None,
            "view": reject.view or None,
            "num_rows": reject.num_rows,
            "num_examples": reject.num_examples,
        }
        for reject in rejects
    ]
    return pa.Table.from_pylist(rows, TABLES["quarantine"])


def _from_rows(rows: list[tuple[Any, ...]], name: str) -> pa.Table:
    names = TABLES[name].names
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    return _table(dict(zip(names, values, strict=True)), name)


def _table(columns: Mapping[str, Any], name: str) -> pa.Table:
    """A table of the schema: of Arrow columns, or of Python values."""
    is_ready = (pa.Array, pa.ChunkedArray)
    arrays = [
        columns[field.name]
        if isinstance(columns[field.name], is_ready)
        else pa.array(columns[field.name], field.type)
        for field in TABLES[name]
    ]
    return pa.Table.from_arrays(arrays, schema=TABLES[name])


def _take(table: pa.Table, rows: Any) -> pa.Table:
    """These rows; without a copy when they are all."""
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))


def _numbers(rows: Any) -> pa.Array:
    """Row numbers, null for −1."""
    return pa.array(rows, mask=rows < 0)


def _packed_lists(lists: Sequence[bytes]) -> pa.Array:
    offsets = np.cumsum([0, *(len(packed) // 4 for packed in lists)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.frombuffer(b"".join(lists), "<i4")))


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _known_sources(sources: pa.ChunkedArray, clips: pa.ChunkedArray) -> pa.ChunkedArray:
    """Sources, the first folder of the clip in place of null."""
    if not sources.null_count:
        return sources
    return pc.coalesce(sources, pc.list_element(pc.split_pattern(clips, "/", max_splits=1), 0))
