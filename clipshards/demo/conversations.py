"""A second demo data set, of the shape of LLaVA-Video-178K: compressed parts, conversations about whole clips.

FOLDER/<subset>/
  <subset>_videos_<n>.tar.gz               <collection>/<source>/<name>.mp4, relative to the subset
  <subset>_cap_processed.json              JSON arrays: a description a clip, …
  <subset>_oe_v0_1_qa_processed.json       … open questions, several turns a clip, …
  <subset>_mc_v0_1_qa_processed.jsonl      … and one multiple-choice question a line: the same rows as JSONL
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import groupby
from pathlib import Path

from clipshards.demo.build import encode_clips, write_lines, write_tar
from clipshards.demo.clips import TRAIN, Clip
from clipshards.demo.rows import Json, Row, sentence, train_rows

_SUBSETS: dict[str, tuple[str, ...]] = {
    "0_30_s_academic_v0_1": ("avsbench", "socialgesture"),
    "0_30_s_youtube_v0_1": ("social_iq",),
}
_MAX_PIXELS = 480 * 360
"""Only the small clips: this demo shows a layout."""

CLIPS = {
    subset: [clip for clip in TRAIN if clip.source in sources and clip.width * clip.height <= _MAX_PIXELS]
    for subset, sources in _SUBSETS.items()
}


def build_conversations(folder: str | Path, *, workers: int = 2) -> None:
    """Write the data set into `folder`: the same clips and rows at each build.

    Args:
        workers: processes that draw and encode clips.

    Raises:
        ClipshardsError: when the ffmpeg program fails on a clip.
    """
    for subset, clips in CLIPS.items():
        _build_subset(Path(folder, subset), subset, clips, encode_clips(clips, workers=workers))


def _build_subset(folder: Path, subset: str, clips: Sequence[Clip], media: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    by_part = groupby(clips, key=lambda clip: (clip.source, clip.part))
    for number, (_, of_part) in enumerate(by_part, 1):
        members = {_path(subset, clip): media[clip.path] for clip in of_part}
        with (folder / f"{subset}_videos_{number}.tar.gz").open("wb") as file:
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                write_tar(packed, members)
    rows = [row for row in train_rows(clips) if row.question.window == row.clip.whole]
    _write_array(folder / f"{subset}_cap_processed.json", _captions(subset, rows))
    _write_array(folder / f"{subset}_oe_v0_1_qa_processed.json", _open_ended(subset, rows))
    write_lines(folder / f"{subset}_mc_v0_1_qa_processed.jsonl", _multiple_choice(subset, rows))


def _path(subset: str, clip: Clip) -> str:
    collection = "academic_source" if "academic" in subset else "liwei_youtube_videos/videos"
    return f"{collection}/{clip.source}/{clip.name}"


def _captions(subset: str, rows: Sequence[Row]) -> Iterator[Json]:
    for clip, of_clip in groupby(rows, key=lambda row: row.clip):
        events = sorted({event for row in of_clip for event in row.question.evidence}, key=astuple)
        seen = " ".join(sentence(event, clip.whole) for event in events)
        yield _row(subset, clip, "<image>", ["Please describe the video in detail."], [seen])


def _open_ended(subset: str, rows: Sequence[Row]) -> Iterator[Json]:
    open_ended = [row for row in rows if not row.options]
    for clip, of_clip in groupby(open_ended, key=lambda row: row.clip):
        asked = [*of_clip]
        yield _row(subset, clip, "<image>", [row.prompt for row in asked], [row.target for row in asked])


def _multiple_choice(subset: str, rows: Sequence[Row]) -> Iterator[Json]:
    for row in rows:
        if row.options:
            yield _row(subset, row.clip, "<video>", [row.prompt], [row.target])


def _row(subset: str, clip: Clip, marker: str, questions: Sequence[str], answers: Sequence[str]) -> Json:
    turns: list[Json] = []
    for question, answer in zip(questions, answers, strict=True):
        text = question if turns else f"{marker}\n{question}"
        turns += [{"from": "human", "value": text}, {"from": "gpt", "value": answer}]
    # As in the model, rows about one clip have one id, over all files.
    identity = _path(subset, clip).rpartition(".")[0].replace("/", "-")
    return {"id": identity, "conversations": turns, "data_source": subset, "video": _path(subset, clip)}


def _write_array(path: Path, rows: Iterable[Json]) -> None:
    path.write_text(json.dumps([*rows], indent=4, ensure_ascii=False), encoding="utf-8")
