"""Rows joined with what became of their clips → the tables of a snapshot. Pure.

Each row, example, item, clip and view is either in its table or in `quarantine` with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from clipshards.shards import SamplePlace, ShardInfo
from clipshards.tars import TarMember


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
    counts: dict[str, int]
    """Sizes of the tables, frames, bytes, lost clips and rows."""
    reasons: dict[str, int]
    """Quarantined things by reason."""

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
    return Manifest(tables, _counts(tables, results, joins), dict(Counter(r.reason for r in quarantine)))


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
        rows: list[tuple[Any, ...]] = []
        indices: list[bytes] = []
        for info in self._result.shards:
            place_of = {place.key: place for place in info.samples}
            for outcome in info.outcomes:
                for view in outcome.views:
                    rows.append(self._view_row(info, outcome, view, place_of[view.key]))
                    indices.append(view.frame_indices)
        rows_and_indices = sorted(zip(rows, indices, strict=True), key=lambda pair: (pair[0][1], pair[0][0]))
        table = _from_rows([row for row, _ in rows_and_indices], "views", leave_out="frame_indices")
        lists = [indices for _, indices in rows_and_indices]
        offsets = np.cumsum([0, *(len(packed) // 4 for packed in lists)], dtype=np.int32)
        flat = np.frombuffer(b"".join(lists), "<i4")
        column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
        at = TABLES["views"].get_field_index("frame_indices")
        return table.add_column(at, TABLES["views"].field(at), column)

    def _view_row(
        self, info: ShardInfo, outcome: ClipOutcome, view: RenderedView, place: SamplePlace
    ) -> tuple[Any, ...]:
        part, member = self._result.assignment.places[outcome.clip]
        tokens = self._result.plan.profile.tokens(view.height, view.width, view.num_frames)
        return (
            view.key, outcome.clip, self._split, view.start_seconds, view.end_seconds, view.num_frames,
            view.height, view.width, tokens, info.path, place.offset_bytes, place.length_bytes,
            part, member.offset_bytes, member.size_bytes, member.sha256, list(view.warnings),
        )  # fmt: skip

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
             info.height, info.width, info.rotation, info.decord_divergent, info.is_truncated)
            if info else (None,) * 11
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
            member.offset_bytes, member.size_bytes, member.sha256, *(None,) * 11, 0, [],
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
        examples, plan = self._result.examples, self._result.plan
        self.rejects += examples.rejects
        fates = {shown: self._fate(plan.views_of[shown]) for shown in plan.views_of}
        keep: list[int] = []
        for row, shown in enumerate(examples.shown):
            if isinstance(fates[shown], Rejected):
                self._lose_example(row, shown, fates[shown])
            else:
                keep.append(row)
        keep, kept = _take_sorted(examples.table, keep)
        keys: list[Any] = [fates[examples.shown[row]] for row in keep]
        linked = [self._result.question_of_example[row] for row in keep]
        numbers = pa.array([number if number >= 0 else None for number in linked], pa.int64())
        question = self._result.questions.table.select(["id", "source", "category_canonical", "format"]).take(
            numbers
        )
        columns = {name: kept.column(name) for name in kept.column_names}
        columns |= {
            "split": _constant(self._split, len(keep)),
            "question_id": question.column("id"),
            "source": pc.coalesce(question.column("source"), _sources(kept.column("clip"))),
            "category": question.column("category_canonical"),
            "format": question.column("format"),
            "more_views": pa.array([key[1:] for key in keys], TABLES["examples"].field("more_views").type),
        }
        columns |= self._places([key[0] for key in keys])
        columns["num_frames"], columns["video_tokens"] = self._totals(columns, keys)
        columns["warnings"] = self._stale_warnings(kept)
        return _table(columns, "examples")

    def _fate(self, views: tuple[View, ...] | Rejected) -> tuple[str, ...] | Rejected:
        """The keys of the views of an example, or why it is lost."""
        if isinstance(views, Rejected):
            return views
        for view in views:
            if view.key not in self._row_of_view:
                return self._why(view)
        return tuple(view.key for view in views)

    def _why(self, view: View) -> Rejected:
        if missing := self._result.assignment.rejects.get(view.clip):
            return Rejected(missing.reason, f"{view.clip}: {missing.detail}")
        reason, detail = self._view_rejects.get(view.key, ("", ""))
        return Rejected(reason, f"{view.clip}: {detail}")

    def _lose_example(self, row: int, shown: Shown, why: Any) -> None:
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

    def _places(self, keys: list[str | None]) -> dict[str, Any]:
        rows = pa.array([None if key is None else self._row_of_view[key] for key in keys], pa.int64())
        names = ("view", "shard", "offset_bytes", "length_bytes", "num_frames", "video_tokens")
        return {name: self.views.column(name).take(rows) for name in names}

    def _totals(self, columns: Mapping[str, Any], keys: list[Any]) -> tuple[pa.Array, pa.Array]:
        """Frames and tokens of all videos of each example."""
        frames, tokens = columns["num_frames"].to_pylist(), columns["video_tokens"].to_pylist()
        for number, key in enumerate(keys):
            for more in key[1:]:
                row = self._row_of_view[more]
                frames[number] += self.views.column("num_frames")[row].as_py()
                tokens[number] += self.views.column("video_tokens")[row].as_py()
        return pa.array(frames, pa.int32()), pa.array(tokens, pa.int32())

    def _stale_warnings(self, kept: pa.Table) -> pa.Array:
        """Add `resolution-stale` where a row's src_resolution is not the size of the clip."""
        infos = {outcome.clip: outcome.info for outcome in self._outcomes.values() if outcome.info}
        row_of_clip = pc.index_in(kept.column("clip"), pa.array(list(infos), pa.string()))
        heights = pa.array([info.height for info in infos.values()], pa.int32()).take(row_of_clip)
        widths = pa.array([info.width for info in infos.values()], pa.int32()).take(row_of_clip)
        is_right = pc.and_(
            pc.equal(kept.column("height_from_row"), heights), pc.equal(kept.column("width_from_row"), widths)
        )
        warnings = kept.column("warnings").to_pylist()
        for row in np.flatnonzero(~pc.fill_null(is_right, False).to_numpy()):
            warnings[row] = [*warnings[row], "resolution-stale"]
        return pa.array(warnings, TABLES["examples"].field("warnings").type)

    def questions(self) -> pa.Table:
        """Annotation rows; `view` is that of their first example, else of the whole clip, else null."""
        examples = self._result.examples
        first_view: dict[int, str] = {}
        num_examples: Counter[int] = Counter()
        for row, number in enumerate(self._result.question_of_example):
            views = self._result.plan.views_of[examples.shown[row]]
            if number >= 0 and isinstance(views, tuple) and views[0].key in self._row_of_view:
                first_view.setdefault(number, views[0].key)
                num_examples[number] += 1
        return self._rows_with_views(
            self._result.questions, "questions", "row", first_view,
            lambda keep: {"num_examples": pa.array([num_examples[row] for row in keep], pa.int32())},
        )  # fmt: skip

    def items(self) -> pa.Table:
        """Bench items, each with the annotation row that asks the same of the same clip."""
        questions, items = self._result.questions.table, self._result.items.table
        asked = zip(questions.column("clip").to_pylist(), questions.column("question").to_pylist(), strict=True)
        id_of = dict(zip(asked, questions.column("id").to_pylist(), strict=True)) if items.num_rows else {}
        own = list(zip(items.column("clip").to_pylist(), items.column("question").to_pylist(), strict=True))
        return self._rows_with_views(
            self._result.items, "bench", "item", {},
            lambda keep: {"question_id": pa.array([id_of.get(own[row]) for row in keep], pa.string())},
        )  # fmt: skip

    def _rows_with_views(
        self, rows: Questions, table: str, kind: str, view_of: Mapping[int, str], more: Any
    ) -> pa.Table:
        self.rejects += rows.rejects
        fates = {clip: self._fate_of_clip(clip) for clip in set(rows.clips())}
        keep: list[int] = []
        for row, clip in enumerate(rows.clips()):
            if isinstance(fates[clip], Rejected):
                self._lose_row(rows, row, kind, clip, fates[clip])
            else:
                keep.append(row)
        keep, kept = _take_sorted(rows.table, keep)
        clips = kept.column("clip").to_pylist()
        columns = {name: kept.column(name) for name in kept.column_names}
        columns["split"] = _constant(self._split, len(keep))
        columns |= more(keep)
        columns |= self._places(
            [view_of.get(row) or fates[clip] for row, clip in zip(keep, clips, strict=True)]  # type: ignore[misc]
        )
        return _table(columns, table)

    def _fate_of_clip(self, clip: str) -> str | Rejected | None:
        """Key of the view of the whole clip, None when only windows are stored, or why all is lost."""
        whole = self._result.plan.whole_clip(clip)
        if whole and whole.key in self._row_of_view:
            return whole.key
        if outcome := self._outcomes.get(clip):
            if outcome.views:
                return None
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


def _from_rows(rows: list[tuple[Any, ...]], name: str, *, leave_out: str = "") -> pa.Table:
    fields = [column for column in TABLES[name] if column.name != leave_out]
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [pa.array(values, column.type) for values, column in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _table(columns: Mapping[str, Any], name: str) -> pa.Table:
    schema = TABLES[name]
    return pa.Table.from_arrays([columns[column] for column in schema.names], schema=schema)


def _take_sorted(table: pa.Table, keep: list[int]) -> tuple[list[int], pa.Table]:
    """The kept rows by clip, then as in the files: their numbers, and the rows, copied at most once."""
    clips = table.column("clip").take(pa.array(keep, pa.int64())).combine_chunks().dictionary_encode()
    rank_of_code = np.argsort(np.argsort(clips.dictionary.to_numpy(zero_copy_only=False), kind="stable"))
    order = np.argsort(rank_of_code[clips.indices.to_numpy()], kind="stable")  # rows are in file order already
    numbers = np.array(keep, np.int64)[order]
    as_it_is = len(numbers) == table.num_rows and bool((np.diff(numbers) == 1).all())
    return numbers.tolist(), table if as_it_is else table.take(pa.array(numbers))


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _sources(clips: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_element(pc.split_pattern(clips, "/", max_splits=1), 0)
