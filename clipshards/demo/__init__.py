"""The demo data set: a small GRASP-shaped one of drawn scenes, whose answers are true by construction.

An event list (`scripts`) moves the people of a scene (`scene`, `motion`); it is drawn (`draw`), encoded
(`video`) and asked about (`questions`, `rows`). `build` writes the files, and `verifier` answers the same
questions a second time in another way.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["build_demo"]


def build_demo(folder: Path, *, workers: int = 2) -> None:
    """Write the demo data set into `folder`: the same bytes at each build.

    Args:
        folder: made when missing; files of an earlier build are replaced.
        workers: processes that draw and encode clips; 1 works in this process.

    Raises:
        ClipshardsError: when the ffmpeg program fails on a clip.
    """
    from clipshards.demo.build import build

    build(folder, workers=workers)
