"""GRASP-shaped rows without videos, at the size of the real set: 290,000 questions over 46,000 clips.

Sizes follow the published facts (about 331 MB of JSONL, 7 sources, 6.3 questions a clip); the words are drawn
from a small vocabulary with a fixed seed.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = ("avsbench", "embody3d", "friends_mmc", "social_iq", "socialgesture", "tvqa", "werewolf")
CATEGORIES = tuple(f"{group}{n}" for group, most in (("T", 6), ("G", 6), ("C", 4)) for n in range(1, most + 1))
_TEXT = (
    "the person on the left looks toward speaker while pointing at red cup and then turns back to group who "
    "follows gaze of woman in blue shirt near window before nodding café 手 gesture attention shared"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class SyntheticClip:
    """What a probe of the clip would say."""

    path: str
    duration_seconds: float
    fps: float
    height: int
    width: int


def make_clips(count: int, seed: int = 7) -> list[SyntheticClip]:
    """Clips of 3–180 s, 58 s in the mean, as in 749 h of 46,000."""
    draw = random.Random(seed)
    clips = []
    for number in range(count):
        source = SOURCES[number % len(SOURCES)]
        num_frames = round(min(180.0, 3.0 + draw.expovariate(1 / 55)) * 30)
        size = draw.choice(((720, 1280), (1080, 1920), (480, 640), (360, 640)))
        clips.append(SyntheticClip(f"{source}/video/clip_{number:06}.mp4", num_frames / 30.0, 30.0, *size))
    return clips


def write_rows(folder: Path, *, rows: int = 290_000, clips: int = 46_000, seed: int = 7) -> list[SyntheticClip]:
    """Write `train/annotations.jsonl`, `data_sft.jsonl` and `data_rl.jsonl`; returns the clips they name."""
    made = make_clips(clips, seed)
    draw = random.Random(seed + 1)
    texts = [" ".join(draw.choices(_WORDS, k=length)) for length in (8, 9, 18, 24, 30) for _ in range(400)]
    train = folder / "train"
    train.mkdir(parents=True, exist_ok=True)
    with (
        (train / "annotations.jsonl").open("w", encoding="utf-8") as questions,
        (train / "data_sft.jsonl").open("w", encoding="utf-8") as sft,
        (train / "data_rl.jsonl").open("w", encoding="utf-8") as rl,
    ):
        for number in range(rows):
            question = _question(number, made[number * clips // rows], texts, draw)
            questions.write(json.dumps(question, ensure_ascii=False) + "\n")
            is_rl = number % 3 == 0
            line = _example(question, made[number * clips // rows], draw, is_rl)
            (rl if is_rl else sft).write(json.dumps(line, ensure_ascii=False) + "\n")
    return made


def _question(number: int, clip: SyntheticClip, texts: list[str], draw: random.Random) -> dict[str, Any]:
    is_choice = number % 5 < 3
    letter = draw.choice("ABCD")
    options = [f"{label}) {draw.choice(_WORDS)} {n}" for n, label in enumerate("ABCD")] if is_choice else None
    answer = letter if is_choice else draw.choice(texts[:400])
    thought = draw.choice(texts[800:])
    return {
        "id": f"q{number:06}", "video": clip.path, "source": clip.path.split("/")[0],
        "category": CATEGORIES[number % 16], "difficulty": draw.choice(("easy", "medium", "hard")),
        "format": "mcq" if is_choice else "open_ended", "question": f"{draw.choice(texts[:800])} {number}?",
        "options": options, "answer": answer,
        "response": f"<think><gaze>P1 → P2</gaze> {thought}</think><answer>{answer}</answer>",
    }  # fmt: skip


def _example(
    question: dict[str, Any], clip: SyntheticClip, draw: random.Random, is_rl: bool
) -> list[dict[str, Any]]:
    start, end = 0.0, clip.duration_seconds
    if draw.random() < 0.25:
        start = round(draw.uniform(0, end / 2), 3)
        end = round(draw.uniform(start + 1, end), 3)
    prompt = "\n".join([question["question"], *(question["options"] or [])])
    meta: dict[str, Any] = {
        "type": "meta", "difficulty": question["difficulty"], "question_text": question["question"]
    }  # fmt: skip
    if is_rl:
        meta["gt_events"] = [
            {"source": draw.choice(("gaze", "pointing")), "persons": [1, 2], "start_seconds": start}
            for _ in range(draw.randint(1, 4))
        ]
    return [
        {"type": "video", "path": clip.path, "fps": 2.0, "start_seconds": start, "end_seconds": end,
         "src_resolution": [clip.height, clip.width]},
        {"type": "text", "content": prompt, "output": False},
        {"type": "text", "content": question["answer" if is_rl else "response"], "output": True},
        meta,
    ]  # fmt: skip
