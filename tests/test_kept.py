"""Frames that the last snapshot holds are copied: only of the same bytes, by the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from test_snapshot import PROVENANCE, make_result

from clipshards.decode.media import Extent
from clipshards.plan import make_view
from clipshards.rendering import ClipJob, ClipOutcome, render_clip
from clipshards.sampling import GRASP_TRAIN
from clipshards.shards import made_with
from manifests.kept import KeptFrames, kept_frames, render_missing
from manifests.snapshot import publish
from manifests.tables import SplitResult, build_manifest

PROFILES = {"train": asdict(GRASP_TRAIN)}
MADE_WITH = made_with(95, "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[SplitResult, Path, Path]:
    """What a run came to, its part, and its output folder."""
    folder = tmp_path_factory.mktemp("kept")
    split, rejects, shards = make_result(folder)
    provenance = replace(PROVENANCE, made_with=MADE_WITH, profiles=PROFILES)
    publish(folder / "out", build_manifest([split], rejects), split.shards, shards, provenance)
    return split, folder / "part.tar", folder / "out"


def jobs(made: tuple[SplitResult, Path, Path], folder: Path) -> dict[str, ClipJob]:
    split, part, _ = made
    return {
        clip: ClipJob(
            clip, Extent(str(part), member.offset_bytes, member.size_bytes), tuple(split.plan.views[clip]),
            GRASP_TRAIN, 95, folder, member.sha256,
        )
        for clip, (_, member) in split.assignment.places.items()
    }  # fmt: skip


class Decoder:
    """Decodes, and remembers what."""

    def __init__(self) -> None:
        self.views: list[tuple[str, int]] = []

    def __call__(self, jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        for job in jobs:
            self.views.append((job.clip, len(job.views)))
            yield render_clip(job)


def run(
    made: Any, folder: Path, kept: KeptFrames, **changed: ClipJob
) -> tuple[dict[str, ClipOutcome], Decoder, Any]:
    folder.mkdir()
    decoder = Decoder()
    wanted = {**jobs(made, folder), **changed}
    outcomes = {outcome.clip: outcome for outcome in render_missing(wanted.values(), kept, decoder)}
    return outcomes, decoder, {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_is_decoded_twice(made: Any, tmp_path: Path) -> None:
    fresh, decoder, frames = run(made, tmp_path / "fresh", KeptFrames())
    assert len(decoder.views) == len(fresh) > 2
    again, decoder, copied = run(made, tmp_path / "again", kept_frames(made[2], MADE_WITH, PROFILES))
    failed_view = {clip for clip, outcome in fresh.items() if outcome.info and not outcome.views}
    assert {clip for clip, _ in decoder.views} == failed_view
    assert (again, copied) == (fresh, frames)


def test_a_new_view_of_a_kept_clip_is_decoded_alone(made: Any, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    kept = kept_frames(made[2], MADE_WITH, PROFILES)
    job = replace(jobs(made, tmp_path / "x")["s/a.mp4"])
    more = make_view(job.clip, 0.1, 0.4, 2, GRASP_TRAIN)
    job = replace(job, views=(job.views[0], more, *job.views[1:]))
    decoder = Decoder()
    (outcome,) = render_missing([job], kept, decoder)
    assert decoder.views == [("s/a.mp4", 1)]
    (tmp_path / "y").mkdir()
    assert outcome == render_clip(replace(job, folder=tmp_path / "y"))
    assert {p.name: p.read_bytes() for p in (tmp_path / "x").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "y").iterdir()
    }


def test_other_bytes_are_not_the_same_clip(made: Any, tmp_path: Path) -> None:
    kept = kept_frames(made[2], MADE_WITH, PROFILES)
    job = jobs(made, tmp_path)["s/a.mp4"]
    assert kept.knows(job.clip, job.sha256, job.views)
    assert not kept.knows(job.clip, "0" * 64, job.views)
    assert kept.restore(replace(job, sha256="0" * 64)) == (None, replace(job, sha256="0" * 64))
    assert not kept.knows("s/other.mp4", job.sha256, job.views)


@pytest.mark.parametrize(("quality", "decoder"), [(90, "cpu"), (None, "cpu"), (95, "ffmpeg")])
def test_another_quality_or_decoder_keeps_nothing(
    made: Any, tmp_path: Path, quality: int | None, decoder: str
) -> None:
    kept = kept_frames(made[2], made_with(quality, decoder), PROFILES)
    assert not any(kept.knows(job.clip, job.sha256, job.views) for job in jobs(made, tmp_path).values())


def test_what_was_rejected_is_tried_again_when_asked_or_by_other_rules(made: Any, tmp_path: Path) -> None:
    job = jobs(made, tmp_path)["s/broken.mp4"]
    assert kept_frames(made[2], MADE_WITH, PROFILES).knows(job.clip, job.sha256, job.views)
    assert not kept_frames(made[2], MADE_WITH, PROFILES, retry_rejected=True).knows(job.clip, job.sha256, job.views)
    assert not kept_frames(made[2], MADE_WITH, {"train": {}}).knows(job.clip, job.sha256, job.views)


def test_no_snapshot_keeps_nothing(tmp_path: Path) -> None:
    assert kept_frames(tmp_path, MADE_WITH, PROFILES).knows("clip", "0", [])
