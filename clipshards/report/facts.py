"""What the page says in numbers: a few passes over narrow columns, none over rows. Pure, but for the reading."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clipshards.output import read_dataset

LETTERS = "ABCDEFGH"
NO_NAME = "not stated"
"""Stands for a source, category, difficulty or format that a row does not name."""

MAX_GROUPS = 24
"""Most bars of a picture; the rest is one bar."""

MIN_ANSWERS = 20
"""Fewer say nothing of their balance."""

DIFFICULTIES = ("easy", "medium", "hard")
"""In this order, before others by name."""

KINDS = ("clip", "view", "part", "member", "row", "example", "item")
"""Of what the quarantine holds, in the order of the page."""

_INPUTS = {"row": ("annotation rows", "questions"), "example": ("examples", "examples"), "item": ("items", "bench")}
"""Kind → its name, and the table of those that are used."""
_WITHOUT_LINE = ("clip-missing", "duplicate-across-parts-conflict")
"""Reasons of clips that stand in no part that could be named: the quarantine has only their rows."""


@dataclass(frozen=True, slots=True)
class Group:
    """Examples that have a source, category, difficulty or format in common."""

    name: str
    clips: int
    """Different clips that they show."""
    hours: float
    """Of these clips."""
    examples: int
    """Training lines."""
    items: int
    """Of the benchmark."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How often each letter is the answer to a multiple-choice question."""

    letters: str
    counts: tuple[int, ...]
    expected: tuple[float, ...]
    """By chance, given how many options each question has."""
    num_rows: int
    """With those that have no letter for an answer."""

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Cause:
    """Things of one kind that failed for one reason."""

    kind: str
    """One of `KINDS`."""
    reason: str
    count: int
    names: list[str]
    """Different clips, parts, members or files of rows that it concerns."""
    num_rows: int
    """Annotation rows and items that are lost with them."""
    num_examples: int


@dataclass(frozen=True, slots=True)
class Reason:
    """How often a reason stands in the quarantine."""

    name: str
    media: int
    """Parts, members, clips and views."""
    rows: int
    """Annotation rows and items."""
    examples: int
    causes: int
    """Of them all; the others are lost with one of these."""

    @property
    def total(self) -> int:
        return self.media + self.rows + self.examples


@dataclass(frozen=True, slots=True)
class Facts:
    """All numbers of the pictures and of the head of the page."""

    groups: Mapping[str, list[Group]]
    """By source, category, difficulty and format."""
    clip_seconds: npt.NDArray[np.float64]
    """[clips with frames]."""
    clip_bytes: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int32]
    """[views], stored frames of each."""
    pictures: list[tuple[str, int]]
    """(width × height, views), the most frequent first."""
    balances: Mapping[str, Balance]
    """Of the training rows and of the benchmark."""
    quarantine: pa.Table
    """Causes first, then what is lost only with one of them (`is_consequence`). It has a line for each failed clip,
    also for those that stand in no part, of which the table on disk has only the rows."""
    reasons: list[Reason]
    """The most frequent first."""
    causes: list[Cause]
    """Clips first, the most frequent first."""
    num_failed_clips: int
    num_partial_clips: int
    """Used, but not in all their views."""
    lost: Mapping[str, tuple[int, int]]
    """Of the annotation rows, examples and items: how many are lost, and of how many."""


def read_facts(snapshot: Path) -> Facts:
    """Read the tables of a snapshot and count."""
    counts = read_dataset(snapshot)["counts"]
    clips = _read(snapshot, "clips", ["split", "clip", "status", "duration_seconds", "size_bytes"])
    views = _read(snapshot, "views", ["num_frames", "height", "width"])
    asked = ["split", "clip", "source", "difficulty", "format"]
    examples = _read(snapshot, "examples", [*asked, "category"])
    bench = _read(snapshot, "bench", [*asked, "category_canonical", "answer_index", "options"])
    questions = _read(snapshot, "questions", ["split", "answer_index", "options"])
    quarantine = _causes_first(_with_all_clips(_read(snapshot, "quarantine", None)))
    sharded = clips.filter(pc.equal(clips["status"], "sharded"))
    rows = _rows(examples, bench, clips)
    kinds = Counter(quarantine["kind"].to_pylist())
    of_views = quarantine.filter(pc.equal(quarantine["kind"], "view"))
    is_bench = pc.is_in(questions["split"], pc.unique(bench["split"]))
    return Facts(
        groups={
            **{field: _groups(rows, field) for field in ("source", "category", "difficulty")},
            "format": _groups(rows.filter(pc.invert(rows["is_item"])), "format"),  # items state none
        },
        clip_seconds=_numbers(sharded["duration_seconds"]),
        clip_bytes=_numbers(sharded["size_bytes"]),
        frames=_numbers(views["num_frames"]),
        pictures=_picture_sizes(views),
        balances={
            "training annotation rows": count_letters(questions.filter(pc.invert(is_bench))),
            "benchmark items": count_letters(bench),
        },
        quarantine=quarantine,
        reasons=_reasons(quarantine),
        causes=_causes(quarantine.filter(pc.invert(quarantine["is_consequence"]))),
        num_failed_clips=kinds["clip"],
        num_partial_clips=len(pc.unique(of_views["clip"])),
        lost={name: (kinds[kind], kinds[kind] + counts[table]) for kind, (name, table) in _INPUTS.items()},
    )


def _read(snapshot: Path, name: str, columns: list[str] | None) -> pa.Table:
    return pq.read_table(snapshot / "manifests" / f"{name}.parquet", columns=columns)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(column.drop_null().to_numpy())


# -- groups


def _rows(examples: pa.Table, bench: pa.Table, clips: pa.Table) -> pa.Table:
    """Training lines and items together, each with the number and the hours of its clip."""
    renamed = bench.drop_columns(["answer_index", "options"]).rename_columns(
        ["category" if name == "category_canonical" else name for name in bench.column_names[:-2]]
    )
    rows = pa.concat_tables([examples.select(renamed.column_names), renamed])
    is_item = np.arange(rows.num_rows) >= examples.num_rows
    number = pc.index_in(_clip_key(rows), _clip_key(clips).combine_chunks())
    hours = pc.divide(clips["duration_seconds"].take(number), 3600.0)
    return rows.append_column("is_item", pa.array(is_item)).append_column("number", number).append_column(
        "hours", hours
    )  # fmt: skip


def _clip_key(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["split"], table["clip"], "\n")


def _groups(rows: pa.Table, field: str) -> list[Group]:
    """The largest `MAX_GROUPS` in the order of their names, and the rest as one."""
    names = pc.fill_null(rows[field], NO_NAME)
    table = rows.select(["is_item", "number", "hours"]).append_column("name", names)
    shown = pc.value_counts(names).to_pylist()
    ranked = [entry["values"] for entry in sorted(shown, key=lambda entry: (-entry["counts"], entry["values"]))]
    if rest := ranked[MAX_GROUPS:]:
        others = f"{len(rest):,} others"
        is_rest = pc.is_in(names, pa.array(rest))
        table = table.set_column(3, "name", pc.if_else(is_rest, others, names))
        ranked = [*sorted(ranked[:MAX_GROUPS], key=rank), others]
    else:
        ranked.sort(key=rank)
    counts = {
        (row["name"], row["is_item"]): row["is_item_count"]
        for row in table.group_by(["name", "is_item"]).aggregate([("is_item", "count")]).to_pylist()
    }
    clips = table.group_by(["name", "number"]).aggregate([("hours", "min")])
    sums = {
        row["name"]: row
        for row in clips.group_by("name").aggregate([("hours_min", "sum"), ("number", "count")]).to_pylist()
    }
    return [
        Group(
            name, sums[name]["number_count"], sums[name]["hours_min_sum"] or 0.0,
            counts.get((name, False), 0), counts.get((name, True), 0),
        )
        for name in ranked
    ]  # fmt: skip


def rank(name: str) -> tuple[int, str]:
    """For sorting the names of groups."""
    return DIFFICULTIES.index(name) if name in DIFFICULTIES else len(DIFFICULTIES), name


def _picture_sizes(views: pa.Table) -> list[tuple[str, int]]:
    counted = views.group_by(["width", "height"]).aggregate([("num_frames", "count")]).to_pylist()
    counted.sort(key=lambda row: (-row["num_frames_count"], row["width"], row["height"]))
    sizes = [(f"{row['width']} × {row['height']}", row["num_frames_count"]) for row in counted]
    rest = sizes[12:]
    return [*sizes[:12], (f"{len(rest):,} others", sum(count for _, count in rest))] if rest else sizes


# -- answers


def count_letters(questions: pa.Table) -> Balance:
    """Letters of the answers to the questions that have options and an answer among them.

    Args:
        questions: with the columns answer_index and options.
    """
    sizes = pc.list_value_length(questions["options"])
    chosen = questions.filter(pc.and_(pc.greater(sizes, 1), pc.is_valid(questions["answer_index"])))
    num_options = _numbers(pc.list_value_length(chosen["options"]))
    answers = _numbers(chosen["answer_index"])
    letters = LETTERS[: max(4, int(num_options.max(initial=0)))]
    counts = np.bincount(answers, minlength=len(letters))[: len(letters)]
    expected = [float(np.sum(1.0 / num_options[num_options > place])) for place in range(len(letters))]
    return Balance(letters, tuple(int(count) for count in counts), tuple(expected), questions.num_rows)


def describe_balance(balance: Balance) -> str:
    """Balanced, or the letter that stands out most, in a plain sentence.

    A letter stands out when it is off by more than three standard errors of chance and by more than two points.
    """
    if balance.total < MIN_ANSWERS:
        few = f"{balance.total} answers are too few to tell whether they are balanced."
        return few if balance.total else "No multiple-choice answers."
    worst, most = "", 0.0
    for letter, count, expected in zip(balance.letters, balance.counts, balance.expected, strict=True):
        share = expected / balance.total
        error = (share * (1 - share) / balance.total) ** 0.5
        off = abs(count / balance.total - share)
        if off > max(3 * error, 0.02, most):
            worst, most = (
                f"{letter} is right {count / balance.total:.0%} of the time, chance gives {share:.0%}",
                off,
            )
    even = "no letter is off chance by more than two points and three standard errors"
    return f"Not balanced: {worst}." if worst else f"Balanced: {even}."


# -- the quarantine


def _with_all_clips(quarantine: pa.Table) -> pa.Table:
    """The table with a line for each clip that only its rows name: their detail is the clip and what is wrong."""
    rows = quarantine.filter(pc.is_in(quarantine["reason"], pa.array(_WITHOUT_LINE)))
    is_example = pc.equal(rows["kind"], "example")
    flags = rows.select(["reason", "detail"])
    for name, flag in (("num_rows", pc.invert(is_example)), ("num_examples", is_example)):
        flags = flags.append_column(name, pc.cast(flag, pa.int32()))
    clips = flags.group_by(["reason", "detail"]).aggregate([("num_rows", "sum"), ("num_examples", "sum")])
    known = {
        "kind": pa.array(["clip"] * clips.num_rows, pa.string()),
        "reason": clips["reason"],
        "detail": pc.replace_substring_regex(clips["detail"], "(?s)^.*: ", ""),
        "clip": pc.replace_substring_regex(clips["detail"], ": [^:]*$", ""),
        "num_rows": pc.cast(clips["num_rows_sum"], pa.int32()),
        "num_examples": pc.cast(clips["num_examples_sum"], pa.int32()),
    }
    columns = [known.get(field.name, pa.nulls(clips.num_rows, field.type)) for field in quarantine.schema]
    return pa.concat_tables([quarantine, pa.table(columns, quarantine.schema)])


def _causes_first(quarantine: pa.Table) -> pa.Table:
    """Sorted; a row whose clip or view is lost for the same reason is a consequence."""
    is_line = pc.is_in(quarantine["kind"], pa.array(list(_INPUTS)))
    concerned = pc.binary_join_element_wise(quarantine["reason"], quarantine["clip"], "\n")
    is_lost = pc.is_in(concerned, pc.unique(concerned.filter(pc.invert(is_line))).drop_null())
    # The missing clip of an example is not always its first, whose name it has.
    is_missing = pc.is_in(quarantine["reason"], pa.array(_WITHOUT_LINE))
    is_consequence = pc.and_(is_line, pc.or_(is_lost, is_missing))
    order = [(name, "ascending") for name in ("is_consequence", "reason", "path", "line", "member", "clip")]
    return quarantine.append_column("is_consequence", is_consequence).sort_by(order)


def _reasons(quarantine: pa.Table) -> list[Reason]:
    counted = quarantine.group_by(["reason", "kind", "is_consequence"]).aggregate([("kind", "count")])
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for row in counted.to_pylist():
        kind = "examples" if row["kind"] == "example" else "rows" if row["kind"] in _INPUTS else "media"
        table[row["reason"]][kind] += row["kind_count"]
        table[row["reason"]]["causes"] += 0 if row["is_consequence"] else row["kind_count"]
    reasons = [Reason(name, of["media"], of["rows"], of["examples"], of["causes"]) for name, of in table.items()]
    return sorted(reasons, key=lambda reason: (-reason.total, reason.name))


def _causes(quarantine: pa.Table) -> list[Cause]:
    is_line = pc.is_in(quarantine["kind"], pa.array(list(_INPUTS)))
    thing = pc.coalesce(quarantine["clip"], quarantine["member"], quarantine["path"])
    table = quarantine.append_column("name", pc.if_else(is_line, quarantine["path"], thing))
    sums = [("num_rows", "sum"), ("num_examples", "sum"), ("kind", "count"), ("name", "distinct")]
    causes = [
        Cause(
            row["kind"], row["reason"], row["kind_count"], sorted(name for name in row["name_distinct"] if name),
            row["num_rows_sum"] or 0, row["num_examples_sum"] or 0,
        )
        for row in table.group_by(["kind", "reason"]).aggregate(sums).to_pylist()
    ]  # fmt: skip
    return sorted(causes, key=lambda cause: (KINDS.index(cause.kind), -cause.count, cause.reason))
