"""Writes the files of the demo data set.

FOLDER/
  README.md
  train/annotations.jsonl  data_sft.jsonl  data_rl.jsonl
  train/videos/<source>_partNNN.tar        <source>/video/<name>.mp4
  test/annotations.jsonl
  test/grasp_bench.tar                     video/<name>.mp4, json/<item>.json
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

from clipshards.demo import rows
from clipshards.demo.clips import BENCH, TRAIN, Clip
from clipshards.demo.video import encode_clip

_CARD = """\
---
license: cc0-1.0
task_categories: [video-text-to-text, visual-question-answering]
language: [en]
size_categories: [n<1K]
---
# A drawn stand-in for GRASP

{clips} training clips with {train} questions and {bench_clips} benchmark clips with {bench} items. Cartoon
people look around, point, wave, show things and reach for them, in the file layout of `interlive/GRASP`.
For trying out and testing `clipshards`; no frame, text or label is taken from GRASP, and the names of its
sources stand only for the layout.

Every answer is true by construction: a list of events moves the drawing, and the questions are made from the
same list. `gt_events` give seconds of the clip; times in a response count from the start of the window.

As real data do, it holds one variable-rate clip, one HEVC clip, a portrait clip, one line with a stale
`src_resolution` and two training lines without an annotation row.

Made by the clipshards project. The data are CC0-1.0, the program that draws them Apache-2.0.
"""


def build(folder: Path, *, workers: int = 2) -> None:
    """Write all files into `folder`; see `clipshards.demo.build_demo`."""
    train, bench = rows.train_rows(TRAIN), rows.bench_rows(BENCH)
    (folder / "train/videos").mkdir(parents=True, exist_ok=True)
    (folder / "test").mkdir(exist_ok=True)
    media = encode_clips((*TRAIN, *BENCH), workers=workers)
    for (source, part), clips in groupby(TRAIN, key=lambda clip: (clip.source, clip.part)):
        members = {clip.path: media[clip.path] for clip in clips}
        with (folder / f"train/videos/{source}_part{part:03d}.tar").open("wb") as file:
            write_tar(file, members)
    items = {f"json/{row.id}.json": _json(rows.bench_item(row)) for row in bench}
    with (folder / "test/grasp_bench.tar").open("wb") as file:
        write_tar(file, items | {clip.path: media[clip.path] for clip in BENCH})
    write_lines(folder / "train/annotations.jsonl", map(rows.annotation, train))
    write_lines(folder / "train/data_sft.jsonl", rows.sft_lines(train))
    write_lines(folder / "train/data_rl.jsonl", rows.rl_lines(train))
    write_lines(folder / "test/annotations.jsonl", map(rows.annotation, bench))
    card = _CARD.format(clips=len(TRAIN), train=len(train), bench_clips=len(BENCH), bench=len(bench))
    (folder / "README.md").write_bytes(card.encode())


def encode_clips(clips: Sequence[Clip], *, workers: int) -> dict[str, bytes]:
    """Path in the tar → bytes of the clip, in the order of `clips`, whatever the number of workers.

    Args:
        workers: processes; 1 works in this one.
    """
    if workers <= 1:
        return {clip.path: encode_clip(clip) for clip in clips}
    longest_first = sorted(clips, key=lambda clip: -clip.width * clip.height * len(clip.frame_seconds))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        media = {
            clip.path: encoded
            for clip, encoded in zip(longest_first, pool.map(encode_clip, longest_first), strict=True)
        }
    return {clip.path: media[clip.path] for clip in clips}


def write_tar(file: IO[bytes] | gzip.GzipFile, members: dict[str, bytes]) -> None:
    """A USTAR archive, sorted by name, with nothing of this machine or moment in it."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(members.items()):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o644
            tar.addfile(info, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """A JSON value a line."""
    path.write_bytes(b"".join(_json(value) for value in values))
