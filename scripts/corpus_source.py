"""Wrap a folder of videos as a GRASP-shaped source, prepare it, and say what became of each clip."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from clipshards.decode.decoders import open_clip
from clipshards.decode.media import Extent
from clipshards.errors import Rejected
from clipshards.output import current_snapshot

NOT_CLIPS = {".csv", ".json", ".md", ".txt", ".tsv"}
UNKNOWN_SECONDS = 2.0
"""Length of the rows of a clip that cannot be opened."""


def main() -> int:
    """Command line: FOLDER OUT [options of prepare]."""
    if len(sys.argv) < 3:
        print("usage: scripts/corpus FOLDER OUT [options of prepare]", file=sys.stderr)
        return 2
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    clips = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() not in NOT_CLIPS)
    write_source(clips, out / "source")
    # No such data set is free of broken clips, so the share of rejects stops nothing here.
    command = [
        Path(sys.executable).with_name("clipshards"),
        "prepare",
        out / "source",
        out,
        "--max-rejected",
        "1",
    ]
    code = subprocess.run([*map(str, command), *sys.argv[3:]]).returncode
    return code or print_table(current_snapshot(out), len(clips))


def write_source(clips: list[Path], source: Path) -> None:
    """Write one part and two rows a clip: the whole clip, and its middle half."""
    (source / "train" / "videos").mkdir(parents=True, exist_ok=True)
    with tarfile.open(source / "train/videos/corpus_part000.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for clip in clips:
            info = tarfile.TarInfo(f"corpus/video/{clip.name}")
            info.size = clip.stat().st_size
            with clip.open("rb") as file:
                tar.addfile(info, file)
    with (source / "train/annotations.jsonl").open("w") as questions:
        with (source / "train/data_sft.jsonl").open("w") as examples:
            for clip in clips:
                for question, example in rows_of(clip):
                    questions.write(json.dumps(question) + "\n")
                    examples.write(json.dumps(example) + "\n")


def rows_of(clip: Path) -> list[tuple[dict[str, object], list[dict[str, object]]]]:
    """Annotation row and training line of the whole clip and of its middle half."""
    try:
        info = open_clip(Extent(str(clip))).info
        seconds, size = info.duration_seconds, [info.height, info.width]
    except Rejected:
        seconds, size = UNKNOWN_SECONDS, [360, 640]
    path = f"corpus/video/{clip.name}"
    windows = {"whole": (0.0, seconds), "middle": (seconds / 4, seconds * 3 / 4)}
    rows = []
    for name, (start, end) in windows.items():
        text = f"What is shown in the {name} of the clip?"
        question: dict[str, object] = {
            "id": f"{clip.name}/{name}", "video": path, "source": "corpus", "category": "T1",
            "difficulty": "easy", "format": "open_ended", "question": text, "answer": "a clip",
        }  # fmt: skip
        example: list[dict[str, object]] = [
            {"type": "video", "path": path, "fps": 2.0, "start_seconds": start, "end_seconds": end,
             "src_resolution": size},
            {"type": "text", "content": text, "output": False},
            {"type": "text", "content": "a clip", "output": True},
        ]  # fmt: skip
        rows.append((question, example))
    return rows


def print_table(snapshot: Path, num_clips: int) -> int:
    """A line a clip, the rejects by reason, and the sum; 0 when each clip is sharded or rejected."""
    clips = pq.read_table(snapshot / "manifests/clips.parquet").to_pylist()
    for clip in clips:
        name = clip["clip"].removeprefix("corpus/video/")
        what = clip["reason"] or " ".join(
            sorted({*clip["warnings"], *(["decord_divergent"] * bool(clip["decord_divergent"]))})
        )
        frames = f"{clip['num_frames']:6} frames" if clip["num_frames"] is not None else " " * 13
        print(f"{clip['status']:9} {clip['num_views']} views {frames} {name[:48]:48} {what}".rstrip())
    for reason, count in sorted(Counter(clip["reason"] for clip in clips if clip["reason"]).items()):
        print(f"{count:4} {reason}")
    sharded = sum(clip["status"] == "sharded" for clip in clips)
    rejected = sum(clip["status"] == "rejected" for clip in clips)
    print(f"{num_clips} clips: {sharded} sharded, {rejected} rejected")
    return 0 if sharded + rejected == num_clips else 1


if __name__ == "__main__":
    sys.exit(main())
